"""Aggregate the raw lines of a record with the code that aggregates them during recording."""

from __future__ import annotations

import math

from otel_memwatch import catalog
from otel_memwatch.run import stall_ledger
from otel_memwatch.run.aggregate import METRICS, RunAggregator
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from otel_memwatch.record.reader import Record

DRAWN = frozenset(
    {
        catalog.MEMWATCH_CGROUP_MEMORY_WORKING_SET,
        catalog.MEMWATCH_CGROUP_MEMORY_EVENTS,
        catalog.HW_GPU_MEMORY_LIMIT,
        catalog.HW_GPU_UTILIZATION,
        catalog.MEMWATCH_TREE_GPU_MEMORY_USAGE,
        catalog.MEMWATCH_PROCESS_MEMORY_LINUX_FILE,
    }
)
"""Metrics for plots and for figures of operations, beyond those of the aggregator. One pass reads both sets."""


class ReplayedRecord(NamedTuple):
    """An aggregated record."""

    aggregator: RunAggregator
    seconds: float
    """Seconds from the start of the run to the last recorded line."""


def replay(record: Record, *, whole: bool) -> ReplayedRecord:
    """Aggregate all samples, process records and operation boundaries; `whole`: they reach to the run's end."""
    samples = record.samples(METRICS | DRAWN | stall_ledger.METRICS)
    aggregator = RunAggregator(samples.columns, record.info)
    if written := record.info.get("heaps"):
        from otel_memwatch.run.heaps import heaps_of

        aggregator.add_heaps(heaps_of(written))
    aggregator.boundaries(record.operation_lines)
    processes = record.process_records()
    waiting = next(processes, None)
    before, last, interval = None, record.started, aggregator.conditions.interval
    for sample in samples.each(record.started):
        while waiting is not None and waiting.time <= sample.time:
            aggregator.process(waiting)
            waiting = next(processes, None)
        missed = 0
        if before is not None and interval > 0:
            # Missed deadlines follow from the gaps.
            missed = max(0, math.floor((sample.time - before) / interval + 1e-6) - 1)
        aggregator.add(sample, missed)
        before = last = sample.time
    while waiting is not None:
        aggregator.process(waiting)
        last = max(last, waiting.time)
        waiting = next(processes, None)
    if not whole:
        for process in aggregator.processes.living:
            process.reopen()
    last = max([last, *(lines.last_time for lines in record.operation_lines if lines.last_time is not None)])
    return ReplayedRecord(aggregator, last - record.started)
