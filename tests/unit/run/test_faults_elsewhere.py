"""Page faults that missing from the group's count, where its count is behind for a while."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from otel_memwatch.record.open import read_run
from otel_memwatch.run.aggregate import METRICS
from otel_memwatch.run.conditions import RunConditions
from otel_memwatch.run.faults_elsewhere import FaultsElsewhere
from otel_memwatch.run.sample_series import TreeSeries
from tests.support.run_directory import RunDirectory, column

CASES = [
    ("nothing is known", [], 0),
    ("all in the group", [(0, 900, 900), (1, 2000, 2010)], 0),
    ("behind for two seconds", [(0, 900, 900), (1, 52000, 27000), (2.5, 52000, 27000), (3, 52100, 52100)], 0),
    ("behind to the end", [(0, 900, 900), (1, 52000, 27000)], 25000),
    (
        "behind for too long",
        [(0, 900, 900), (1, 52000, 27000), (6.5, 52000, 27000), (7, 52000, 52000)],
        25000,
    ),
    ("elsewhere, then made up for by others", [(0, 5000, 900), (20, 5000, 900), (21, 6000, 6000)], 4100),
]


@pytest.mark.parametrize(("ticks", "most"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_cases(ticks: list[tuple[float, int, int]], most: int) -> None:
    told = FaultsElsewhere()
    for tick in ticks:
        told.add(*tick)
    assert told.uncounted.settled == most
    assert told.uncounted.at_end == (ticks[-1][1] - ticks[-1][2] if ticks else 0)


@pytest.mark.parametrize("seed", range(6))
def test_all_ticks_at_once_tell_the_same(seed: int, tmp_path: Path) -> None:
    choose = random.Random(seed)
    built = RunDirectory(tmp_path, own_cgroup="/x")
    built.columns(
        [
            column("memwatch.tree.paging.faults", system__paging__fault__type="minor"),
            column("memwatch.cgroup.paging.faults"),
        ]
    )
    told, time, faults, charged = FaultsElsewhere(), 0.0, 0, 0
    for _ in range(300):
        time = round(time + choose.choice([0.1, 0.1, 1.0, 4.0]), 4)
        faults += choose.choice([0, 0, 100])
        charged = choose.choice([charged, charged, max(charged, faults - choose.choice([0, 50]))])
        known = choose.random() < 0.9
        built.tick(time, faults, charged if known else None)
        if known:
            told.add(time, faults, charged)
    samples = read_run(tmp_path).samples(METRICS)
    ticks = TreeSeries(samples, RunConditions.of(built.info), all_ended=True)
    assert ticks.uncounted == told.uncounted
    assert ticks.uncounted.settled > 0
