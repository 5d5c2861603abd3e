"""Runs small Python programs in processes of their own, as people would."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "programs"
"""Programs under test, each a file."""
TIMEOUT = 240


def environment(**variables: str) -> dict[str, str]:
    """Ours, without what belongs to a run that we may be part of; the package can be imported."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "TRACEPARENT", "FASTAI_"))}
    return kept | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"} | variables


def run(argv: list[str], cwd: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    options.setdefault("env", environment())
    return subprocess.run(
        argv, cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT, check=False, **options
    )


def run_program(code: str, cwd: Path, **options: Any) -> str:
    """Runs a program that has to succeed, and gives its stdout."""
    program = cwd / "program.py"
    program.write_text(textwrap.dedent(code))
    done = run([sys.executable, str(program)], cwd, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_file(program: Path, cwd: Path, *arguments: str, python: str = sys.executable, **options: Any) -> str:
    """Runs a program of `PROGRAMS` that has to succeed, and gives its stdout."""
    done = run([python, str(program), *arguments], cwd, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def need(module: str) -> Any:
    """The module; where it is not installed the test is skipped, or fails in CI, which has all that is needed."""
    if os.environ.get("CI"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # importorskip ignores them too
            return importlib.import_module(module)
    return pytest.importorskip(module)


def need_program(name: str, install: str) -> None:
    """Skips the test where a program is not installed; in CI the test goes on, and fails."""
    if shutil.which(name) is None and not os.environ.get("CI"):
        pytest.skip(f"{name} is not installed ({install})")
