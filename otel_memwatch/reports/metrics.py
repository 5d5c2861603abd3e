"""The figures at the end as a short OpenMetrics text, one line each: what GitLab compares between branches.

Labels are only what stays the same from run to run: a comparison is by name and labels.
"""

from __future__ import annotations

from otel_memwatch import catalog
from otel_memwatch.catalog import METRICS, Instrument, Metric, prometheus_names
from otel_memwatch.reports.formatting import clean
from otel_memwatch.runtime.typed import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from otel_memwatch.analysis import Run
    from otel_memwatch.model import Peak
    from otel_memwatch.reports import Options

_DIRECTION = "disk_io_direction"
_OPERATION = "memwatch_operation_name"

Line = tuple[str, "Mapping[str, str]", float | None]
"""Name in the catalogue, labels, value."""


def render(run: Run, out: BinaryIO, options: Options) -> None:  # noqa: ARG001 - every report is called alike
    """Writes what is known; a figure that is not is left out."""
    before = ""
    for name, labels, value in _lines(run):
        if value is None:
            continue
        metric = METRICS[name]
        family = prometheus_names(metric)[0].removesuffix("_total")
        if name != before:
            kind = "counter" if metric.instrument is Instrument.COUNTER else "gauge"
            out.write(f"# TYPE {family} {kind}\n# HELP {family} {_help(metric)}\n".encode())
            before = name
        inside = ",".join(f'{label}="{_escape(text)}"' for label, text in labels.items())
        series = prometheus_names(metric)[0] + (f"{{{inside}}}" if inside else "")
        out.write(f"{series} {_number(value)}\n".encode("utf-8", "backslashreplace"))
    out.write(b"# EOF\n")


def _lines(run: Run) -> Iterator[Line]:
    peaks, totals = run.peaks, run.totals
    yield catalog.MEMWATCH_TREE_MEMORY_PEAK, {}, _bytes(peaks.tree)
    yield catalog.MEMWATCH_TREE_PROCESS_MEMORY_PEAK, {}, _bytes(peaks.process)
    yield catalog.MEMWATCH_PROCESS_MEMORY_PEAK, {}, _bytes(peaks.main)
    yield catalog.PROCESS_UPTIME, {}, run.seconds
    yield catalog.MEMWATCH_RUN_EXIT_CODE, {}, _code(run)
    yield catalog.MEMWATCH_TREE_CPU_TIME, {}, totals.get("cpu_seconds")
    for direction, total in (("read", "read_bytes"), ("write", "write_bytes")):
        yield catalog.MEMWATCH_TREE_DISK_IO, {_DIRECTION: direction}, totals.get(total)
    yield (
        catalog.MEMWATCH_TREE_PAGING_FAULTS,
        {"system_paging_fault_type": "major"},
        totals.get("major_faults"),
    )
    for name, largest in sorted(_operations(run).items()):
        yield catalog.MEMWATCH_OPERATION_MEMORY_PEAK, {_OPERATION: name}, largest


def _bytes(peak: Peak | None) -> int | None:
    return None if peak is None else peak.bytes


def _code(run: Run) -> int | None:
    return run.ending.shell_code


def _operations(run: Run) -> dict[str, int]:
    """Largest peak of the operations of each name, each of the process that it ran in."""
    found: dict[str, int] = {}
    for figures in run.operations:
        peak = figures.operation.peak
        if peak is not None:
            found[figures.operation.name] = max(peak.bytes, found.get(figures.operation.name, 0))
    return found


def _help(metric: Metric) -> str:
    return _escape(metric.description)


def _escape(text: str) -> str:
    # The format forbids no control character; a terminal, or a log that is parsed line by line, obeys them.
    return "\\n".join(clean(line).replace("\\", "\\\\").replace('"', '\\"') for line in text.split("\n"))


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
