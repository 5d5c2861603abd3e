"""Nextflow's `.command.trace` of each task, from exact figures; `.command.memwatch.json` beside it is the run's report.

A task's directory is the working directory of its run. Nextflow reads the trace when a task ends. Files that it has
already written (`trace.txt`, its report) keep the figures of Nextflow's wrapper.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from otel_memwatch.reports import write
from otel_memwatch.run import RecordedRun
from otel_memwatch.wings.engines import ORIGINAL, Corrected, replace
from otel_memwatch.wings.engines.nextflow_trace import HEAD, trace_of

TRACE, FIGURES = ".command.trace", ".command.memwatch.json"


def correct(directory: Path, runs: Sequence[RecordedRun]) -> Corrected:
    """Correct the traces of the tasks below `directory`. If a task has several runs, the last one counts."""
    latest: dict[Path, RecordedRun] = {}
    for run in runs:
        if run.cwd and run.tags.get("nextflow.task"):
            latest[Path(run.cwd).resolve()] = run
    exact: list[Path] = []
    left_out: list[tuple[Path, str]] = []
    for path in sorted(directory.glob(f"**/{TRACE}")):
        found = latest.get(path.parent.resolve())
        why = "no run of its task" if found is None else _correct(path, found)
        if why:
            left_out.append((path, why))
        else:
            exact.append(path)
    return Corrected(tuple(exact), tuple(left_out))


def _correct(path: Path, run: RecordedRun) -> str:
    original = path.with_name(path.name + ORIGINAL)
    try:
        head, *lines = (original if original.is_file() else path).read_text(encoding="utf-8").splitlines()
        if head != HEAD:
            return f"it is no {HEAD}"
        figures = {key: str(value) for key, value in trace_of(run).items()}
        # Keep Nextflow's other measurements of the task: time, CPU model, context switches.
        figures.pop("realtime", None)
        changed = []
        for line in lines:
            key, equals, value = line.partition("=")
            if not equals:
                return f"it has a line that is none: {line[:40]!r}"
            changed.append(f"{key}={figures.pop(key, value)}")
        if not changed:
            return "it is empty"
        replace(path, "\n".join([head, *changed]) + "\n")
        write("json", run, path.with_name(FIGURES))
    except (OSError, ValueError) as error:
        return str(error) or "it is empty"
    return ""
