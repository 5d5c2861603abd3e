"""Allocators of GPU libraries across a fork and in a program that has none."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from otel_memwatch.in_target import allocators
from tests.support.standin_torch import Torch


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    made = Torch()
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


def test_a_forked_child_begins_anew(torch: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.devices[0].take(5)
    monkeypatch.setattr(allocators, "_here", allocators.Allocators(exact=False))
    allocators.here().opened(1)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, str(len(allocators.here()._active)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        assert answer.read() == "0"
    os.waitpid(child, 0)
    assert allocators.here().closed(1) is not None


def test_importing_it_imports_no_gpu_library() -> None:
    code = (
        "import sys; from otel_memwatch.in_target import allocators; allocators.here().opened(1); allocators.here().closed(1);"
        "print([name for name in ('torch', 'jax', 'tensorflow', 'cupy', 'numpy', 'ctypes') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
