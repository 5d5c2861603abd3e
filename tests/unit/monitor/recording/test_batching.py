"""What waits to be folded is folded in its order, and never missed by who asks."""

from __future__ import annotations

from otel_memwatch.model import Column, ProcessEvent, ProcessRecord, Snapshot
from otel_memwatch.monitor.recording.batching import Folding
from otel_memwatch.run import Tally

RSS, COUNT, PSS, LATE = (
    Column("memwatch.tree.memory.usage"),
    Column("memwatch.tree.process.count"),
    Column("memwatch.tree.memory.pss"),
    Column("process.memory.usage"),
)
INFO = {"started": {"monotonic": 100.0}, "interval": 0.1, "target": {"pid": 7}}


def process(event: ProcessEvent, time: float, peak: int) -> ProcessRecord:
    return ProcessRecord(event, time, 7, 100.0, rss=peak, peak=peak, exit_code=0)


def records() -> list[ProcessRecord | Snapshot]:
    ticks = [Snapshot(100.0 + n / 10, 0.0, (1000 * n, 1)) for n in range(50)]
    return [
        process(ProcessEvent.SEEN, 100.0, 10),
        *ticks[:20],
        process(ProcessEvent.FIGURES, 102.0, 70_000),
        *ticks[20:],
        process(ProcessEvent.EXIT, 105.0, 90_000),
    ]


def test_the_tally_is_that_of_a_fold_at_every_tick() -> None:
    folding, tally = Folding(), Tally((RSS, COUNT), INFO)
    columns = (RSS, COUNT)
    folding.open(columns, INFO)
    for record in records():
        if isinstance(record, ProcessRecord):
            folding.process(record)
            tally.process(record)
        else:
            folding.tick(columns, record)
            tally.tick(record)
    folded = folding.tally
    assert folded is not None
    assert folded.peaks() == tally.peaks()
    assert folded.quality() == tally.quality()
    assert folded.quality()["ticks"] == 50
    assert folding.tally is folded
    assert folded.quality()["ticks"] == 50


def test_what_came_before_is_folded_into_the_columns_of_later() -> None:
    folding = Folding()
    assert folding.tally is None
    for n in range(40):
        folding.tick((PSS,), Snapshot(100.0 + n / 10, 0.0, (5_000_000 if n == 3 else 1000,)))
    columns = (LATE, PSS)
    folding.open(columns, INFO)
    folding.tick(columns, Snapshot(104.0, 0.0, (None, 2000)))
    tally = folding.tally
    assert tally is not None
    assert tally.quality()["ticks"] == 41
    assert tally.tree_low == 5_000_000
