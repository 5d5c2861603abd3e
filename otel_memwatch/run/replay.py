"""Folds the raw lines of a record with the code that folded them, or would have, while they were recorded."""

from __future__ import annotations

import math

from otel_memwatch import catalog
from otel_memwatch.model import Snapshot, Value
from otel_memwatch.run.aggregate import METRICS, Tally
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_memwatch.record.reader import Record
    from otel_memwatch.record.samples import Array, Samples

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
"""Metrics that reports draw, or make operations' figures from, beyond those of the tally: read with them, so that the
file is read once."""

_CHUNK = 4096
"""Ticks that are turned into Python numbers at a time."""


class Replayed(NamedTuple):
    """A record, folded."""

    tally: Tally
    seconds: float
    """Between the start of the run and the last thing recorded."""


def replay(record: Record, *, whole: bool) -> Replayed:
    """Folds all ticks, process records and operation boundaries of a record; `whole`: they reach to the run's end."""
    samples = record.samples(METRICS | DRAWN)
    tally = Tally([c for c in samples.columns if c.metric in METRICS], record.info)
    tally.boundaries(record.operation_lines)
    processes = record.process_records()
    waiting = next(processes, None)
    last = record.started
    for snapshot in _snapshots(samples, record.started, tally.conditions.interval):
        while waiting is not None and waiting.time <= snapshot.time:
            tally.process(waiting)
            waiting = next(processes, None)
        tally.tick(snapshot)
        last = snapshot.time
    while waiting is not None:
        tally.process(waiting)
        last = max(last, waiting.time)
        waiting = next(processes, None)
    if not whole:
        for process in tally.processes.living:
            process.reopen()
    last = max([last, *(lines.last_time for lines in record.operation_lines if lines.last_time is not None)])
    return Replayed(tally, last - record.started)


def _snapshots(samples: Samples, started: float, interval: float) -> Iterator[Snapshot]:
    """The ticks again; missed deadlines follow from the gaps."""
    columns = [c for c in samples.columns if c.metric in METRICS]
    before: float | None = None
    for begin in range(0, len(samples), _CHUNK):
        times = (samples.time[begin : begin + _CHUNK] + started).tolist()
        rows = zip(*(_known(samples.values(c)[begin : begin + _CHUNK]) for c in columns), strict=True)
        for time in times:
            missed = 0
            if before is not None and interval > 0:
                missed = max(0, math.floor((time - before) / interval + 1e-6) - 1)
            before = time
            yield Snapshot(time, 0.0, next(rows, ()), 0.0, missed)


def _known(array: Array) -> list[Value]:
    """The values as Python numbers, `None` where not known."""
    values: list[Value] = array.tolist()
    for index in (array != array).nonzero()[0].tolist():  # noqa: PLR0124 - NaN
        values[index] = None
    return values
