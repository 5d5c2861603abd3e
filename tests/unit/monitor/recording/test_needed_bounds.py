"""The bounds that the monitor writes are those that the rule gives when the record is read without them."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from otel_memwatch.model import Value
from otel_memwatch.monitor.recording.needed_bounds import NeededBounds
from otel_memwatch.record.open import read_run
from otel_memwatch.run.cgroup_bounds import bounds_between
from otel_memwatch.run.conditions import RunConditions
from otel_memwatch.run.curves import curves_of
from otel_memwatch.run.replayed import replay
from tests.support.run_directory import MIB, STARTED, RunDirectory, column

READINGS = [
    column("memwatch.tree.disk.io", disk__io__direction="read"),
    column("memwatch.tree.disk.io", disk__io__direction="write"),
    column("memwatch.cgroup.memory.usage"),
    column("memwatch.cgroup.memory.window"),
    column("memwatch.cgroup.memory.window.gap"),
    column("memwatch.cgroup.memory.peak"),
    column("memwatch.cgroup.memory.file"),
    column("memwatch.cgroup.memory.unevictable"),
]
BOUNDS = [column("memwatch.tree.memory.needed.low"), column("memwatch.tree.memory.needed.high")]


def test_an_old_record_and_a_new_one_give_the_same_figures(tmp_path: Path) -> None:
    choose = random.Random(3)
    old, new = (RunDirectory(tmp_path / name, own_cgroup="/x") for name in ("old", "new"))
    old.columns(READINGS)
    new.columns([*BOUNDS, *READINGS])
    filler, peak, moved, repeated = NeededBounds(new.info), 0, 0, 0
    filler.declare([*BOUNDS, *READINGS])
    for number in range(200):
        usage = choose.randrange(900) * MIB
        peak, moved = max(peak, usage), moved + choose.choice([0, 0, 5 * MIB])
        window = choose.choice([usage, usage + MIB, None])
        cache = choose.choice([choose.randrange(40) * MIB, None])
        if number % 20 < 12:  # then eight samples without a change
            read: list[Value] = [moved, 0, usage, window, choose.choice([0, 0, 0.01]), peak, cache, 0]
        values: list[Value] = [None, None, *read]
        again = [None, None, *read]
        repeats = filler.fill_repeated(again)
        filler.fill(STARTED + number / 10, values)
        if repeats:  # the readings of this sample are those of the last ones
            assert number % 20 > 12
            assert again == values
        repeated += repeats
        old.tick(number / 10, *read)
        new.tick(number / 10, *values)
    assert values[0] is not None or values[1] is not None
    assert repeated >= 30
    records = [read_run(tmp_path / name) for name in ("old", "new")]
    for all_ended in (True, False):
        first, second = (
            bounds_between(record.samples(), RunConditions.of(record.info), all_ended=all_ended)
            for record in records
        )
        assert all(np.array_equal(*both, equal_nan=True) for both in zip(first, second, strict=True))
        drawn = [curves_of(record).drawn(all_ended=all_ended) for record in records]
        for key, curve in drawn[0].curves.items():
            assert np.array_equal(curve, drawn[1].curves[key], equal_nan=True), key
    assert (
        replay(records[0], whole=True).aggregator.peaks() == replay(records[1], whole=True).aggregator.peaks()
    )
