"""What is used every day loads neither pictures nor numbers nor an SDK: these are for who draws, predicts or sends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from otel_memwatch.runtime.own_python import PACKAGE_PARENT
from tests.support.wrapped import PROGRAM, environment, wrap

HEAVY = ("matplotlib", "numpy", "scipy", "opentelemetry", "google.protobuf", "requests", "pandas")


def modules(folder: Path, *arguments: str) -> set[str]:
    """The modules that a command loads, in whichever of its processes."""
    argv = [sys.executable, "-X", "importtime", *PROGRAM[1:], *arguments]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr
    found = {
        line.rsplit("|", 1)[1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")
    }
    assert "otel_memwatch.errors" in found
    return found


def loaded(folder: Path, *arguments: str) -> set[str]:
    """The heavy packages among them."""
    return modules(folder, *arguments) & set(HEAVY)


def test_watching_loads_nothing_heavy(tmp_path: Path) -> None:
    assert loaded(tmp_path, "wrap", "--quiet", "--out", "run", "--", "true") == set()
    assert (tmp_path / "run/report.html").exists()


def test_a_summary_loads_nothing_of_operations_and_stacks(tmp_path: Path) -> None:
    found = modules(tmp_path, "wrap", "--no-report", "--out", "run", "--", "true")
    assert "otel_memwatch.reports.summary" in found
    unused = ("run.operations", "run.attribution", "run.growth", "run.stacks", "record.stacks")
    unused += ("record.follower", "record.operation_lines", "reports.sections.basics")
    assert found.isdisjoint(f"otel_memwatch.{name}" for name in unused)


COSTLY = frozenset(
    [
        "re",
        "collections",
        "contextlib",
        "functools",
        "threading",
        "json",
        "enum",
        "heapq",
        "struct",
        "signal",
        "pathlib",
        "urllib.parse",
        "typing",
        "dataclasses",
        "subprocess",
    ]
)
"""Modules of Python that take a millisecond or more, or need one that does."""


def of_python(program: str) -> set[str]:
    """The modules that a program loads, without those of a bare interpreter."""
    begun = f"import sys; sys.path.insert(0, {PACKAGE_PARENT!r}); bare = set(sys.modules); "
    # Without `site`: an editable installation imports some of these itself.
    argv = [sys.executable, "-S", "-c", f"{begun}{program}; print(*set(sys.modules) - bare)"]
    return set(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split())


def test_a_short_run_imports_little_of_python() -> None:
    """Regular expressions, and modules that need them, took a fifth of the time of a short run."""
    found = of_python(
        "from importlib import import_module; from otel_memwatch.monitor.run import wrap; "
        "end = 'monitor.run.completion', 'reports.summary', 'wings.advice.history', 'cli.fast_args', 'record.sample_lines'; "
        "[import_module(name) for name in (*wrap._FIRST_NEEDED, *('otel_memwatch.' + name for name in end))]"
    )
    assert "otel_memwatch.reports.summary" in found
    assert found & COSTLY == set()


def test_a_longer_run_imports_little_of_python(tmp_path: Path) -> None:
    """The sources of GPUs are not loaded without one, nor regular expressions for a small program."""
    found = of_python(
        "import os; from otel_memwatch.runtime.light import load_array; load_array(); "
        "from otel_memwatch.monitor.sampling import composition, file_use, java_heaps; "
        "from otel_memwatch.run import aggregate, curves, sample_history; "
        "from otel_memwatch.monitor.sampling.sources import Context, open_sources; "
        f"open_sources(Context(os.getpid(), 0.1, sys={str(tmp_path)!r}), ['gpu_drm'])"
    )
    assert {"array", "otel_memwatch.run.curves"} <= found
    assert "otel_memwatch.monitor.sampling.sources.gpu_drm" not in found
    assert found & COSTLY == {"struct"}


def test_report_and_page_of_a_short_run_import_little_of_python(tmp_path: Path) -> None:
    """They took a third of the time of the process that makes both."""
    wrap(["true"], "--no-report", "--quiet", out=tmp_path / "run")
    found = of_python(
        "import io; from otel_memwatch.monitor.workers import rendering; from otel_memwatch.runtime import fast_json; "
        f"info = fast_json.loads(open({str(tmp_path / 'run/run.json')!r}).read()); "
        f"run = rendering.ended_run({str(tmp_path / 'run')!r}, info); "
        "from otel_memwatch.runtime.light import load_array; load_array(); "
        "from otel_memwatch.reports import render; [render(name, run, io.BytesIO()) for name in ('text', 'html')]"
    )
    assert "otel_memwatch.reports.html" in found
    assert found & COSTLY == set()


def test_the_thread_that_waits_for_the_command_loads_little() -> None:
    """It notes the end of a short command late while it imports."""
    program = "import sys, otel_memwatch.monitor.run.monitor; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found = set(done.stdout.split())
    heavy = ("catalog", "monitor.recording.recording", "record.writer", "monitor.workers.rendering")
    assert found.isdisjoint(f"otel_memwatch.{name}" for name in heavy)


def test_a_run_ends_when_its_command_is_found_dead(tmp_path: Path) -> None:
    assert wrap(["true"], "--quiet", "--no-report", out=tmp_path / "run").code == 0
    ended = json.loads((tmp_path / "run/run.json").read_text())["ended"]["monotonic"]
    lines = [json.loads(line) for line in (tmp_path / "run/processes.jsonl").read_text().splitlines()]
    assert [line["time"] for line in lines if line["event"] == "exit"] == [ended]


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
