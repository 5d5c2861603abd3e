"""What is used every day loads neither pictures nor numbers nor an SDK: these are for who draws, predicts or sends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.wrapped import PROGRAM, environment, wrap

HEAVY = ("matplotlib", "numpy", "scipy", "opentelemetry", "google.protobuf", "requests", "pandas")


def loaded(folder: Path, *arguments: str) -> set[str]:
    """The heavy packages that a command loads, in whichever of its processes."""
    argv = [sys.executable, "-X", "importtime", *PROGRAM[1:], *arguments]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr
    modules = {
        line.rsplit("|", 1)[1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")
    }
    assert "otel_memwatch.errors" in modules
    return {name for name in HEAVY if name in modules}


def test_watching_loads_nothing_heavy(tmp_path: Path) -> None:
    assert loaded(tmp_path, "wrap", "--quiet", "--out", "run", "--", "true") == set()
    assert (tmp_path / "run/report.html").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "run"],
        ["report", "run", "--json"],
        ["report", "run", "--html", "page.html"],
        ["runs", "."],
        ["check", "run", "--budget", "memory=1GiB"],
        ["export", "run", "--to", "csv"],
    ],
    ids=" ".join,
)
def test_reading_loads_nothing_heavy(tmp_path: Path, arguments: list[str]) -> None:
    assert wrap(["true"], "--quiet", out=tmp_path / "run").code == 0
    assert loaded(tmp_path, *arguments) == set()


def test_the_measure_would_notice(tmp_path: Path) -> None:
    assert wrap(["true"], "--quiet", out=tmp_path / "run").code == 0
    assert "matplotlib" in loaded(tmp_path, "plot", "run")
