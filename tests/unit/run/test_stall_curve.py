"""Stalls over the time of a run."""

from __future__ import annotations

import random

import pytest

from otel_memwatch.run.stall_curve import (
    CONTENDED,
    DISK,
    MOST,
    READ,
    REREAD,
    THROTTLED,
    StallCurve,
    StallPeriod,
    between,
    parse,
)
from otel_memwatch.run.stalls import Stalls


def periods_of(curve: StallCurve, seconds: float, memory: float, cpu: float = 0.0) -> list[StallPeriod]:
    return curve.periods(
        seconds, memory=REREAD, memory_seconds=memory, cpu_seconds=cpu, contended_seconds=0.6
    )


def test_an_operation_gets_the_stalls_of_its_time() -> None:
    curve = StallCurve()
    for step in range(30):  # 3 s short of memory for 0.08 of each 0.1 s, after 2 s without
        curve.add(REREAD, 2 + step / 10, 2 + (step + 1) / 10, 0.08)
    curve.add(DISK, 6, 7, 0.5)
    curve.add(THROTTLED, 8, 9, 1.0)  # of two processors
    curve.add(CONTENDED, 9, 10, 0.6)
    found = Stalls(0.24, 0.05, 0.05, contention=0.06, periods=tuple(periods_of(curve, 10, 2.4, 0.5)))
    assert found.between(0, 2) == {"memory": 0, "disk": 0, "cpu": 0, "contention": 0}
    assert found.between(2, 5)["memory"] == pytest.approx(0.8, abs=0.01)
    assert found.between(4, 6)["memory"] == pytest.approx(0.4, abs=0.01)
    assert found.between(3.05, 3.06)["memory"] == pytest.approx(0.8, abs=0.01)
    assert found.between(3.05, 3.05)["memory"] == pytest.approx(0.8, abs=0.01)
    assert found.between(6, 7) == {
        "memory": 0,
        "disk": pytest.approx(0.5, abs=0.01),
        "cpu": 0,
        "contention": 0,
    }
    assert found.between(9, 10)["contention"] == pytest.approx(0.6, abs=0.01)
    assert found.between(8, 9)["cpu"] == pytest.approx(0.5, abs=0.01)
    assert set(Stalls().between(2, 5).values()) == {None}


def test_no_wait_is_lost_and_periods_stay_few() -> None:
    lots, curve, waited, at = random.Random(3), StallCurve(), 0.0, 0.0
    while at < 100_000:
        length = lots.choice([0.1, 1.0, 60.0])
        waited += 0.3 * length
        curve.add(REREAD, at, at + length, 0.3 * length)
        at += length
    found = periods_of(curve, at, waited)
    assert len(found) <= MOST
    assert curve.total(REREAD) == pytest.approx(waited)
    assert sum(one.memory * (one.end - one.start) for one in found) == pytest.approx(waited, rel=0.01)
    assert all(one.memory == pytest.approx(0.3, abs=0.01) for one in found)


def test_a_bound_on_the_whole_run_lowers_each_period() -> None:
    curve = StallCurve()
    curve.add(REREAD, 0, 10, 8.0)
    curve.add(READ, 0, 10, 10.0)
    assert between(periods_of(curve, 10, 2.0), 3, 4)[0] == pytest.approx(0.2, abs=0.01)
    assert periods_of(curve, 10, 0.0) == []
    curve.add(REREAD, 5, 5, 1.0)
    curve.add(REREAD, 5, 6, -1.0)
    assert curve.total(REREAD) == pytest.approx(8.0)


def test_periods_survive_the_record() -> None:
    kept = Stalls(0.5, None, 0.1, periods=(StallPeriod(0.0, 0.1, 0.5, 0.0, 0.1),))
    assert Stalls.of(kept.to_json()) == kept
    assert parse([[0.0, 0.1, 0.5, 0.0, 0.1]]) == kept.periods  # an older record
    for damaged in (
        None,
        5,
        {"a": 1},
        [None],
        [[1]],
        [[2, 1, 0, 0, 0]],
        [[0, 1, 0, "x", 0]],
        [[0, 1, -1, 0, 0]],
    ):
        assert parse(damaged) == ()
