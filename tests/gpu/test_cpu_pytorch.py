"""Real PyTorch without a GPU: operations work, and nothing of CUDA is initialised by them."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import pytest

from tests.gpu.hardware import run

if TYPE_CHECKING:
    from pathlib import Path

CODE = """
import json, sys, torch
from otel_memwatch import operation
from otel_memwatch.in_target import allocators
stats = torch.cuda.memory_stats_as_nested_dict
with operation("outer"):
    x = torch.zeros(1000)
    allocators.here().opened(10**9)
    print(json.dumps([allocators.here().closed(10**9), torch.cuda.is_initialized(), torch.xpu.is_initialized()]))
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no PyTorch")
def test_pytorch_that_does_not_use_a_gpu_is_left_alone(tmp_path: Path) -> None:
    done = run(CODE, OTEL_MEMWATCH_RUN_DIR=str(tmp_path), OTEL_MEMWATCH_EXACT_GPU="1")
    assert done.stdout.strip() == "[null, false, false]"
    assert any('"name":"outer"' in path.read_text() for path in tmp_path.glob("operations-*.jsonl"))
