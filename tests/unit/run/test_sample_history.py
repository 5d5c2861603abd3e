"""Ticks kept for operations answer as all of them would, at the operations' boundaries."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from otel_memwatch.model import Value
from otel_memwatch.record.open import read_run
from otel_memwatch.record.schema import sample_maker
from otel_memwatch.run import sample_history
from otel_memwatch.run.conditions import RunConditions
from otel_memwatch.run.sample_history import SampleHistory
from otel_memwatch.run.sample_series import METRICS, TreeSeries
from otel_memwatch.run.tree_bounds import sum_over_time
from tests.support.run_directory import MIB, STARTED, RunDirectory, column

COLUMNS = [
    column("process.memory.usage"),
    column("memwatch.tree.memory.usage"),
    column("memwatch.tree.memory.pss", 1.0),
    column("memwatch.tree.unobserved"),
    column("memwatch.cgroup.memory.usage"),
    column("memwatch.cgroup.memory.file"),
    column("memwatch.cgroup.memory.shmem"),
    column("memwatch.cgroup.memory.kernel"),
    column("memwatch.cgroup.memory.window"),
    column("memwatch.cgroup.memory.peak"),
    column("memwatch.process.memory.linux.file"),
    column("memwatch.tree.disk.io", disk__io__direction="read"),
    column("memwatch.tree.disk.io", disk__io__direction="write"),
    column("memwatch.tree.cpu.time", cpu__mode="user"),
    column("memwatch.tree.process.count"),
    column("memwatch.tree.memory.needed.high"),
    column("memwatch.tree.unobserved.faults"),
    column("memwatch.sampler.reading.duration", 1.0),
]


@pytest.mark.parametrize("own_cgroup", ["/x", None])
@pytest.mark.parametrize("seed", range(4))
def test_what_is_left_answers_as_all_would(
    seed: int, own_cgroup: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample_history, "_ABOVE", 40)
    choose = random.Random(seed)
    built = RunDirectory(tmp_path, own_cgroup=own_cgroup)
    built.columns(COLUMNS)
    conditions = RunConditions.of(built.info)
    history, make = SampleHistory(conditions), sample_maker(COLUMNS)
    boundaries = sorted(STARTED + choose.random() * 60 for _ in range(12))
    cpu, read, unseen, peak = 0.0, 0, 0, 0
    fewest = 600
    for number in range(600):
        usage = choose.randrange(10, 900) * MIB
        peak = max(peak, usage)
        cpu += choose.random() / 10
        read += choose.choice([0, 0, MIB])
        unseen += choose.choice([0, 0, 0, 2])
        values: tuple[Value, ...] = (
            usage - 3, usage + 5, usage + 7 if number % 10 == 0 else None, unseen, usage, 4 * MIB,
            choose.randrange(MIB), MIB, usage + MIB if choose.random() < 0.9 else None, peak, 3 * MIB, read, 0, cpu,
            choose.choice([None, 1, 1, 1, 3]), None if own_cgroup else usage + 2 * MIB, unseen * 50,
            choose.choice([None, None, 0.03, 0.08]),
        )  # fmt: skip
        time = round(number / 10, 4)
        built.tick(time, *values)
        history.add(make((STARTED + time, *values)))
        history.merge(lambda: boundaries, STARTED + time - 2)
        fewest = min(fewest, 600 - number + len(history))
    assert fewest < 400, "nothing was merged"
    kept = history.series(all_ended=True)
    every = TreeSeries(read_run(tmp_path).samples(METRICS), conditions, all_ended=True)
    asked = [(a, b) for a in boundaries for b in [*boundaries, STARTED + 61] if a <= b]
    for name in ("main", "rss", "pss", "needed", "unmapped"):
        for start, end in asked:
            assert getattr(kept, name).largest(start, end) == getattr(every, name).largest(start, end), name
    for start, end in asked:
        assert kept.windows.most(start, end) == every.windows.most(start, end)
        assert kept.windows.least(start, end) == every.windows.least(start, end)
    assert kept.counters.keys() == every.counters.keys()
    starts, ends = zip(*asked, strict=True)
    for name, series in every.counters.items():
        assert kept.counters[name].growths(starts, ends) == pytest.approx(series.growths(starts, ends))
    assert (kept.mapped, kept.most_charged, kept.watermark.known) == (
        every.mapped,
        every.most_charged,
        every.watermark.known,
    )
    assert sum(span.unseen_count for span in every.unseen_spans()) == unseen
    whole, left = (
        sum_over_time((s.start, s.end, s.unseen_count) for s in ticks.unseen_spans())
        for ticks in (every, kept)
    )
    for start, end in asked:
        assert whole.largest(start, end) <= left.largest(start, end) <= 5 * 2
