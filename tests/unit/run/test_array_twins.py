"""Rules that exist for one sample and for arrays of a whole record give the same windows; `bench_twins` has why both exist."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from otel_memwatch.model import Value
from otel_memwatch.monitor.recording.needed_bounds import NeededBounds
from otel_memwatch.record.open import read_run
from otel_memwatch.run.cgroup_bounds import CgroupBounds, CgroupWindow, bounds_between
from otel_memwatch.run.conditions import RunConditions
from otel_memwatch.run.ledger_bounds import LedgerWindows, ledger_between
from otel_memwatch.run.sample_series import METRICS
from tests.support.run_directory import MIB, STARTED, RunDirectory, column

COLUMNS = [
    column("memwatch.tree.memory.needed.low"),
    column("memwatch.tree.memory.needed.high"),
    column("memwatch.tree.unobserved.faults"),
    column("memwatch.tree.process.count"),
    column("memwatch.cgroup.memory.usage"),
    column("memwatch.cgroup.memory.window"),
    column("memwatch.cgroup.memory.peak"),
    column("memwatch.cgroup.memory.file"),
    column("memwatch.tree.disk.io", disk__io__direction="read"),
    column("memwatch.tree.disk.io", disk__io__direction="write"),
    column("memwatch.sampler.reading.duration", 1.0),
]


def recorded(path: Path, seed: int, number: int, own_cgroup: str | None) -> RunDirectory:
    """A record of random samples, with any reading missing; in a cgroup, with the bounds that its monitor writes."""
    choose = random.Random(seed)
    built = RunDirectory(path, own_cgroup=own_cgroup)
    built.columns(COLUMNS)
    filler = NeededBounds(built.info)
    filler.declare(COLUMNS)
    faults = peak = moved = 0
    for place in range(number):
        usage = choose.randrange(900) * MIB
        faults, moved = faults + choose.choice([0, 0, 70]), moved + choose.choice([0, 5 * MIB])
        # Another program that resets the watermark hides a peak from every window.
        peak = max(peak, usage + choose.choice([0, 0, 20 * MIB]))
        bounds = [None, None] if own_cgroup else [usage, choose.choice([None, usage, usage + 9 * MIB])]
        values: list[Value] = [
            *bounds, choose.choice([None, faults, faults]), choose.choice([None, 1, 2, 3]), usage,
            choose.choice([usage, usage + MIB, None]), peak, choose.choice([choose.randrange(40) * MIB, None]),
            moved, 0, choose.choice([None, 0.03, 0.2]),
        ]  # fmt: skip
        if own_cgroup:
            filler.fill(STARTED + place / 10, values)
        built.tick(place / 10, *values)
    return built


def columns_of(windows: Iterable[CgroupWindow | None]) -> list[list[float]]:
    rows = [
        [math.nan if value is None else value for value in window[:5]]
        for window in windows
        if window is not None
    ]
    return [list(values) for values in zip(*rows, strict=True)] if rows else [[] for _ in range(5)]


@pytest.mark.parametrize("all_ended", [True, False])
@pytest.mark.parametrize(
    ("own_cgroup", "by_sample", "by_arrays"),
    [("/x", CgroupBounds, bounds_between), (None, LedgerWindows, ledger_between)],
)
@pytest.mark.parametrize(("seed", "number"), [(1, 0), (2, 1), (3, 2), (4, 3), (5, 200), (6, 200)])
def test_windows_of_samples_and_of_arrays_are_the_same(
    seed: int,
    number: int,
    own_cgroup: str | None,
    by_sample: type[CgroupBounds | LedgerWindows],
    by_arrays: Callable[..., tuple[Iterable[float], ...]],
    all_ended: bool,
    tmp_path: Path,
) -> None:
    conditions = RunConditions.of(recorded(tmp_path, seed, number, own_cgroup).info)
    record, bounds = read_run(tmp_path), by_sample(conditions)
    windows = [*map(bounds.add, record.each_sample()), *bounds.rest(all_ended=all_ended)]
    found = by_arrays(record.samples(METRICS), conditions, all_ended=all_ended)
    assert found
    starts, ends, untils, lows, highs = columns_of(windows)
    lows = [0 if math.isnan(low) and by_sample is LedgerWindows else low for low in lows]
    for of_samples, of_arrays in zip((starts, ends, untils, lows, highs), found, strict=True):
        assert of_samples == pytest.approx(list(of_arrays), abs=1e-4, nan_ok=True)
