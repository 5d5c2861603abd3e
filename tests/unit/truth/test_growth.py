"""Shapes of growing memory: leaks, and what is none."""

from __future__ import annotations

from random import Random

import pytest

from otel_memwatch.run.growth import FloorCurve
from otel_memwatch.truth.growth import LEAK, WARM_UP, Point, judge
from tests.bench.growth import LEAKS, NO_LEAK, SCATTERS, verdict

MIB = 1 << 20


@pytest.mark.parametrize("name", NO_LEAK)
def test_other_shapes_are_no_leak(name: str) -> None:
    rng = Random(f"1 {name}")
    verdicts = [verdict(NO_LEAK[name], rng, SCATTERS[run % 3]) for run in range(60)]
    assert verdicts.count(LEAK) <= 2


@pytest.mark.parametrize("name", LEAKS)
def test_leaks_are_found(name: str) -> None:
    rng = Random(f"1 {name}")
    verdicts = [verdict(LEAKS[name], rng, SCATTERS[run % 3]) for run in range(60)]
    assert verdicts.count(LEAK) >= 54


def test_thirty_steps_that_keep_2_mib_each() -> None:
    found = judge([Point(n, (30 + 2 * n) * MIB, 0.1 * n) for n in range(30)])
    assert found is not None
    assert (found.kind, found.rate, found.low, found.high) == (LEAK, 2 * MIB, 2 * MIB, 2 * MIB)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([100 + 2 * n for n in range(23)], "too few repeats"),
        ([100 + n / 100 for n in range(200)], "too little"),
        ([100_000 + n / 2 for n in range(200)], "less than 3 %"),
        ([100.0] * 40, "level"),
    ],
)
def test_nothing_is_said(values: list[float], why: str) -> None:
    assert judge([Point(n, value * MIB, n) for n, value in enumerate(values)]) is None, why


def test_growth_within_the_error_of_the_counter_is_nothing() -> None:
    points = [Point(n, (30 + n) * MIB, n) for n in range(40)]
    assert judge(points, error=20 * MIB) is None


def test_growth_that_ended_is_a_warm_up() -> None:
    found = judge([Point(n, (100 + 5 * min(n, 6)) * MIB, n) for n in range(60)])
    assert found is not None
    assert (found.kind, found.rise) == (WARM_UP, 30 * MIB)


def test_a_curve_keeps_floors_in_few_points() -> None:
    curve = FloorCurve()
    for n in range(100_000):
        curve.add(1000 + n % 7, n / 10)
    points = curve.points()
    assert 90 < len(points) <= 192
    assert {one.value for one in points} == {1000}
    assert [one.position / 10 for one in points] == pytest.approx([one.time for one in points])
