"""Any OpenTelemetry program's metrics and spans in a run directory, by the standard entry points."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from otel_memwatch.run import load

PROGRAM = Path(__file__).parents[1] / "programs" / "exporting.py"


def _run(directory, *arguments, **environment):
    return subprocess.run(
        [sys.executable, str(PROGRAM), *arguments], cwd=directory, timeout=120,
        env={**os.environ, **environment}, capture_output=True, text=True,
    )  # fmt: skip


@pytest.mark.parametrize("killed", [False, True])
def test_reports_and_plots_are_made_of_what_it_wrote(tmp_path, killed):
    done = _run(tmp_path, *(["die"] if killed else []), OTEL_MEMWATCH_OUT="out")
    assert done.returncode == (-9 if killed else 0), done.stderr
    run = load(tmp_path / "out")
    column = run.samples().find("process.memory.usage")[0]
    assert list(run.samples().known(column)[1])[:3] == [1 << 20, 2 << 20, 3 << 20]
    assert [figures.operation.name for figures in run.operations] == ["step 0", "step 1", "step 2"]
    assert run.operations[1].operation.attributes["step"] == 1
    for command, expected in (("report", "Operations (3)"), ("plot", "")):
        done = subprocess.run(
            [sys.executable, "-m", "otel_memwatch", command, str(tmp_path / "out")],
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout
    assert (tmp_path / "out" / "memory.png").read_bytes().startswith(b"\x89PNG")
    assert oct((tmp_path / "out" / "metrics.otlp.jsonl").stat().st_mode & 0o777) == "0o600"


def test_without_a_name_it_makes_a_separate_directory(tmp_path):
    assert _run(tmp_path, OTEL_MEMWATCH_OUT="").returncode == 0
    (made,) = (tmp_path / "memwatch-runs").iterdir()
    assert load(made).operations


def test_under_wrap_it_writes_into_the_run_that_exists(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "otel_memwatch", "wrap", "--no-plot", "--out", str(tmp_path / "run"), "--",
         sys.executable, str(PROGRAM)],
        capture_output=True, text=True, timeout=120, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["run"]
    run = load(tmp_path / "run")
    assert [figures.operation.name for figures in run.operations] == ["step 0", "step 1", "step 2"]
    assert all(0 <= figures.start <= figures.end <= run.seconds + 1 for figures in run.operations)
    assert run.samples().find("memwatch.tree.memory.usage"), "our own ticks are those of the run"


def test_a_directory_that_cannot_be_written_is_one_warning(tmp_path):
    done = _run(tmp_path, OTEL_MEMWATCH_OUT="/proc/none")
    assert done.returncode == 0
    assert done.stderr.count("otel-memwatch cannot write") == 2, "one for metrics, one for spans"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("group", "kind"),
    [
        ("opentelemetry_metrics_exporter", "LocalMetricExporter"),
        ("opentelemetry_traces_exporter", "LocalSpanExporter"),
        ("opentelemetry_resource_detector", "MemwatchResourceDetector"),
        ("opentelemetry_instrumentor", "RequestedInstrumentor"),
    ],
)
def test_the_entry_points_are_there(group, kind):
    (found,) = entry_points(group=group, name="memwatch")
    assert found.load().__name__ == kind


def test_the_detector_names_the_run(monkeypatch):
    from otel_memwatch.in_target.otel.detector import MemwatchResourceDetector

    monkeypatch.setenv("OTEL_MEMWATCH_RUN_DIR", "/somewhere/a-run/")
    monkeypatch.setenv("SLURM_JOB_ID", "9")
    attributes = MemwatchResourceDetector().detect().attributes
    assert attributes["memwatch.run.id"] == "a-run"
    assert attributes["memwatch.slurm.job.id"] == "9"
