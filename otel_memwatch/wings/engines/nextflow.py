"""Nextflow's traces from recorded runs: the report `nextflow-trace`, and the `.command.trace` of each task.

The format is `nextflow.trace/v2`, one key per line. Units are those of Nextflow's wrapper:

* memory: KB of 1024 bytes
* I/O: bytes
* time: milliseconds
* shares: tenths of a percent

`peak_rss` and `rss` are both the largest sum of resident sizes, and no less than the largest process. Unknown figures are
omitted. Nextflow accepts no further keys, so the memory that the tree needed stands only in the run's report.

A task's directory is the working directory of its run. Nextflow reads the trace when a task ends. Files that it has
already written (`trace.txt`, its report) keep the figures of Nextflow's wrapper. `.command.memwatch.json` beside the trace
is the run's report.
"""

from __future__ import annotations

from pathlib import Path

from otel_memwatch import catalog
from otel_memwatch.reports import write
from otel_memwatch.runtime.typed import TYPE_CHECKING, BinaryIO
from otel_memwatch.wings.engines import ORIGINAL, largest_resident, largest_sample, replace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from otel_memwatch.reports import Options
    from otel_memwatch.run import RecordedRun

HEAD = "nextflow.trace/v2"
TRACE, FIGURES = ".command.trace", ".command.memwatch.json"
_KB = 1024


def render(run: RecordedRun, out: BinaryIO, options: Options) -> None:  # noqa: ARG001 - every report is called alike
    """Write the head and a line for each key."""
    lines = [HEAD, *(f"{key}={value}" for key, value in trace_of(run).items())]
    out.write(("\n".join(lines) + "\n").encode("ascii"))


def trace_of(run: RecordedRun) -> dict[str, int]:
    """Return the known keys in Nextflow's order."""
    totals, resident = run.totals, largest_resident(run)
    cpu, machine = totals.get("cpu_seconds"), run.host.get("memory_bytes")
    virtual = largest_sample(run, catalog.MEMWATCH_TREE_MEMORY_VIRTUAL)
    found: dict[str, float | None] = {
        "realtime": 1000 * run.seconds,
        "%cpu": None if cpu is None or not run.seconds else 1000 * cpu / run.seconds,
        "rchar": totals.get("read_chars"),
        "wchar": totals.get("write_chars"),
        "read_bytes": totals.get("read_bytes"),
        "write_bytes": totals.get("write_bytes"),
        "%mem": None if resident is None or not machine else 1000 * resident / machine,
        "rss": None if resident is None else resident / _KB,
        "peak_vmem": None if virtual is None else virtual / _KB,
        "peak_rss": None if resident is None else resident / _KB,
    }
    return {key: round(value) for key, value in found.items() if value is not None}


def correct(directory: Path, runs: Sequence[RecordedRun]) -> Iterator[tuple[Path, str]]:
    """Correct the traces of the tasks below `directory`. If a task has several runs, the last one counts."""
    latest: dict[Path, RecordedRun] = {}
    for run in runs:
        if run.cwd and run.tags.get("nextflow.task"):
            latest[Path(run.cwd).resolve()] = run
    for path in sorted(directory.glob(f"**/{TRACE}")):
        found = latest.get(path.parent.resolve())
        yield path, "no run of its task" if found is None else _correct(path, found)


def _correct(path: Path, run: RecordedRun) -> str:
    """Correct one trace. Return the reason if that fails, else an empty text."""
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
