"""Peak memory of every epoch: the meter alone, stand-ins for the frameworks, and each framework where it is installed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from otel_memwatch.compat import callbacks
from otel_memwatch.errors import Unavailable
from tests.support.programs import PROGRAMS, environment, run_file

COMPAT = PROGRAMS / "compat"


def test_the_meter(tmp_path: Path) -> None:
    output = run_file(COMPAT / "callback_meter.py", tmp_path)
    assert output.splitlines()[0] == "epoch 0: cpu used 0 peaked 60 MB, gpu used 0 peaked 0 MB"


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("FastaiPeakMemory", "fastai"),
        ("LightningPeakMemory", "pytorch_lightning"),
        ("KerasPeakMemory", "keras"),
        ("TrainerPeakMemory", "transformers"),
    ],
)
def test_a_framework_that_is_missing_is_reported_in_one_sentence(name: str, module: str) -> None:
    if importlib.util.find_spec(module):
        pytest.skip(f"{module} is installed")
    with pytest.raises(Unavailable, match="is not installed"):
        getattr(callbacks, name)


def test_as_each_framework_calls_it(tmp_path: Path) -> None:
    run_file(COMPAT / "callback_stand_ins.py", tmp_path)


@pytest.mark.parametrize("module", ["fastai", "keras", "pytorch_lightning", "transformers"])
def test_in_the_real_framework(module: str, tmp_path: Path) -> None:
    """Where the framework is in this environment, or in the one that OTEL_MEMWATCH_FRAMEWORKS_PYTHON names."""
    named = os.environ.get("OTEL_MEMWATCH_FRAMEWORKS_PYTHON")
    python = named or sys.executable
    variables = environment(HOME=str(tmp_path), KERAS_BACKEND="torch")
    probe = subprocess.run(
        [python, "-c", f"import {module}"], capture_output=True, timeout=240, check=False, env=variables
    )
    if probe.returncode and not named:  # 2 GB: installed only on request
        pytest.skip(f"{module} is not installed: pip install {module}")
    run_file(COMPAT / f"callback_{module}.py", tmp_path, python=python, env=variables)
