"""Nextflow's `.command.trace` for a run, from exact figures: `nextflow.trace/v2`, one key per line.

Units are those of Nextflow's wrapper:

* memory: KB of 1024 bytes
* I/O: bytes
* time: milliseconds
* shares: tenths of a percent

`peak_rss` and `rss` are both the memory that the tree needed, each page once. Unknown figures are omitted.
"""

from __future__ import annotations

from otel_memwatch import catalog
from otel_memwatch.runtime.typed import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from otel_memwatch.reports import Options
    from otel_memwatch.run import RecordedRun

HEAD = "nextflow.trace/v2"
_KB = 1024


def render(run: RecordedRun, out: BinaryIO, options: Options) -> None:  # noqa: ARG001 - every report is called alike
    """Write the head and a line for each key."""
    lines = [HEAD, *(f"{key}={value}" for key, value in trace_of(run).items())]
    out.write(("\n".join(lines) + "\n").encode("ascii"))


def trace_of(run: RecordedRun) -> dict[str, int]:
    """Return the known keys in Nextflow's order."""
    totals, tree = run.totals, run.peaks.tree
    needed = None if tree is None or tree.low is None else tree.bytes
    cpu, machine = totals.get("cpu_seconds"), run.host.get("memory_bytes")
    samples = run.samples()
    virtual = [
        max(known)
        for column in samples.find(catalog.MEMWATCH_TREE_MEMORY_VIRTUAL)
        if len(known := samples.known(column)[1])
    ]
    found: dict[str, float | None] = {
        "realtime": 1000 * run.seconds,
        "%cpu": None if cpu is None or not run.seconds else 1000 * cpu / run.seconds,
        "rchar": totals.get("read_chars"),
        "wchar": totals.get("write_chars"),
        "read_bytes": totals.get("read_bytes"),
        "write_bytes": totals.get("write_bytes"),
        "%mem": None if needed is None or not machine else 1000 * needed / machine,
        "rss": None if needed is None else needed / _KB,
        "peak_vmem": max(virtual) / _KB if virtual else None,
        "peak_rss": None if needed is None else needed / _KB,
    }
    return {key: round(value) for key, value in found.items() if value is not None}
