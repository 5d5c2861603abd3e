"""The run as one row of Snakemake's benchmark files: what a rule's own `benchmark:` would say, from exact figures.

The columns are Snakemake's (snakemake.benchmark, TSV), sizes in MiB; what is not known is NA. `max_rss` and `max_pss` are
both the memory that the tree needed, each page once: Snakemake's sum of resident sizes counts shared pages once a process,
and both of its own are the largest of a few samples.
"""

from __future__ import annotations

from otel_memwatch import catalog
from otel_memwatch.runtime.typed import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from otel_memwatch.analysis import RecordedRun
    from otel_memwatch.reports import Options

COLUMNS = (
    "s",
    "h:m:s",
    "max_rss",
    "max_vms",
    "max_uss",
    "max_pss",
    "io_in",
    "io_out",
    "mean_load",
    "cpu_time",
)
_MIB = 1 << 20


def render(run: RecordedRun, out: BinaryIO, options: Options) -> None:  # noqa: ARG001 - every report is called alike
    """Writes the head and the row."""
    totals, tree = run.totals, run.peaks.tree
    needed = None if tree is None or tree.low is None else tree.bytes / _MIB
    cpu = totals.get("cpu_seconds")
    row = (
        f"{run.seconds:.4f}",
        _clock(run.seconds),
        _two(needed),
        _two(_largest(run, catalog.MEMWATCH_TREE_MEMORY_VIRTUAL)),
        _two(_largest(run, catalog.MEMWATCH_TREE_MEMORY_USS)),
        _two(needed),
        _two(_mib(totals.get("read_bytes"))),
        _two(_mib(totals.get("write_bytes"))),
        _two(None if cpu is None or not run.seconds else 100 * cpu / run.seconds),
        _two(cpu),
    )
    out.write(("\t".join(COLUMNS) + "\n" + "\t".join(row) + "\n").encode("ascii"))


def _largest(run: RecordedRun, metric: str) -> float | None:
    samples = run.samples()
    values = [max(known) for column in samples.find(metric) if len(known := samples.known(column)[1])]
    return _mib(max(values)) if values else None


def _mib(value: float | None) -> float | None:
    return None if value is None else float(value) / _MIB


def _two(value: float | None) -> str:
    return "NA" if value is None else f"{value:.2f}"


def _clock(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
