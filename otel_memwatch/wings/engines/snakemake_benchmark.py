"""Row of Snakemake's benchmark files for a run: the output of a rule's `benchmark:`, from exact figures.

* The columns are Snakemake's (snakemake.benchmark, TSV). Sizes are in MiB; unknown figures are NA.
* `max_rss` and `max_pss` are both the memory that the tree needed, each page once.
* Snakemake's `max_rss` counts shared pages once per process, and both of its figures are maxima of a few samples.
"""

from __future__ import annotations

from otel_memwatch import catalog
from otel_memwatch.runtime.typed import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from otel_memwatch.reports import Options
    from otel_memwatch.run import RecordedRun

_MIB = 1 << 20
UNKNOWN = "NA"


def render(run: RecordedRun, out: BinaryIO, options: Options) -> None:  # noqa: ARG001 - every report is called alike
    """Write the head and the row."""
    row = benchmark_row(run)
    out.write(("\t".join(row) + "\n" + "\t".join(row.values()) + "\n").encode("ascii"))


def benchmark_row(run: RecordedRun) -> dict[str, str]:
    """Return the row by column, in their order."""
    totals, tree = run.totals, run.peaks.tree
    needed = None if tree is None or tree.low is None else tree.bytes / _MIB
    cpu = totals.get("cpu_seconds")
    return {
        "s": f"{run.seconds:.4f}",
        "h:m:s": _clock(run.seconds),
        "max_rss": _two(needed),
        "max_vms": _two(_largest(run, catalog.MEMWATCH_TREE_MEMORY_VIRTUAL)),
        "max_uss": _two(_largest(run, catalog.MEMWATCH_TREE_MEMORY_USS)),
        "max_pss": _two(needed),
        "io_in": _two(_mib(totals.get("read_bytes"))),
        "io_out": _two(_mib(totals.get("write_bytes"))),
        "mean_load": _two(None if cpu is None or not run.seconds else 100 * cpu / run.seconds),
        "cpu_time": _two(cpu),
    }


def _largest(run: RecordedRun, metric: str) -> float | None:
    samples = run.samples()
    values = [max(known) for column in samples.find(metric) if len(known := samples.known(column)[1])]
    return _mib(max(values) or None) if values else None


def _mib(value: float | None) -> float | None:
    return None if value is None else float(value) / _MIB


def _two(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.2f}"


def _clock(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
