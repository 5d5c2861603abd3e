"""Waiting samples are handed on in their order, at the latest when the aggregator is asked for."""

from __future__ import annotations

import random

from otel_memwatch.model import Column, ProcessEvent, ProcessRecord, Snapshot
from otel_memwatch.monitor.recording.batching import SampleBatcher
from otel_memwatch.record.schema import sample_maker
from otel_memwatch.run import RunAggregator

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


def test_the_aggregator_has_what_one_without_batches_has() -> None:
    columns = (RSS, COUNT)
    batcher, alone, make = SampleBatcher(), RunAggregator(columns, INFO), sample_maker((RSS, COUNT))
    batcher.open(columns, INFO)
    for record in records():
        if isinstance(record, ProcessRecord):
            batcher.process(record)
            alone.process(record)
        else:
            batcher.sample(columns, record)
            alone.add(make((record.time, *record.values)), record.missed)
    folded = batcher.aggregator
    assert folded is not None
    assert folded.peaks() == alone.peaks()
    assert folded.quality() == alone.quality()
    assert folded.quality()["ticks"] == 50
    assert batcher.aggregator is folded
    assert folded.quality()["ticks"] == 50


def test_earlier_samples_take_the_columns_of_later_ones() -> None:
    batcher = SampleBatcher()
    assert batcher.aggregator is None
    for n in range(40):
        batcher.sample((PSS,), Snapshot(100.0 + n / 10, 0.0, (5_000_000 if n == 3 else 1000,)))
    columns = (LATE, PSS)
    batcher.open(columns, INFO)
    batcher.sample(columns, Snapshot(104.0, 0.0, (None, 2000)))
    aggregator = batcher.aggregator
    assert aggregator is not None
    assert aggregator.quality()["ticks"] == 41
    tree = aggregator.peaks().tree
    assert tree is not None
    assert tree.low == 5_000_000


ANON, USAGE, WINDOW, FILE = (
    Column("memwatch.cgroup.memory.anon"),
    Column("memwatch.cgroup.memory.usage"),
    Column("memwatch.cgroup.memory.window"),
    Column("memwatch.cgroup.memory.file"),
)
PEAK = Column("memwatch.cgroup.memory.peak")
MACHINE = Column("system.memory.usage", (("system.memory.state", "used"),))
CPU = Column("memwatch.tree.cpu.time", (("cpu.mode", "user"),))


def test_samples_between_equal_ones_change_no_figure() -> None:
    columns = (RSS, COUNT, ANON, USAGE, WINDOW, FILE, CPU, MACHINE, PSS._replace(period=1.0))
    info = INFO | {"cgroup": {"own": True}}
    chosen, number = random.Random(1), 0
    for _ in range(30):
        batcher, alone, make = SampleBatcher(), RunAggregator(columns, info), sample_maker(columns)
        batcher.open(columns, info)
        values, time = [1000, 1, 500, 2000, 2000, 0, 0.0], 100.0
        for _ in range(300):
            time = round(time + chosen.choice((0.01, 0.1, 0.1, 0.3)), 2)
            if chosen.random() < 0.1:
                place = chosen.randrange(7)
                values[place] += chosen.choice((-1, 1, 7)) * (1 if place in {1, 6} else 10_000_000)
                values[place] = max(0, values[place])
            slow = chosen.choice((None, None, None, 3000))
            row = (*values, chosen.randrange(1 << 30), slow)
            snapshot = Snapshot(time, 0.0, row, chosen.randrange(2))
            batcher.sample(columns, snapshot)
            alone.add(make((time, *row)), snapshot.missed)
        folded = batcher.aggregator
        assert folded is not None
        assert folded.peaks() == alone.peaks()
        assert folded.quality() == alone.quality()
        assert folded.stalls() == alone.stalls()
        assert folded.findings(None, job=False) == alone.findings(None, job=False)
        number += folded.samples
    assert number == 9000


def test_a_boundary_beside_a_sample_has_the_bound_of_the_record() -> None:
    """The record has 100.2001 for the second sample. The page had the window after it too, and other bounds than the report."""
    columns, batcher = (USAGE, FILE, WINDOW, PEAK), SampleBatcher()
    batcher.open(columns, INFO | {"own_cgroup": "/x"})
    for time, window in ((100.1, 10 << 20), (100.200_06, 20 << 20), (100.3, 90 << 20)):
        batcher.sample(columns, Snapshot(time, 0.0, (1 << 20, 0, window, window)))
    history = batcher.history
    assert history is not None
    high = history.series(all_ended=True).windows.most(100.15, 100.200_08)
    assert high is not None
    assert high < 30 << 20
