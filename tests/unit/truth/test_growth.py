"""Shapes of growing memory: leaks, and what is none."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from otel_memwatch.run.growth import FloorCurve, TimeFloors
from otel_memwatch.truth.growth import LEAK, UNKNOWN, WARM_UP, GrowthShape, Point, judge
from otel_memwatch.truth.service_growth import ServiceLoad, judge_service
from tests.bench.growth import DAY, LEAKS, NO_LEAK, SCATTERS, SERVICES, Service, named, verdict

if TYPE_CHECKING:
    from collections.abc import Callable

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


@pytest.mark.parametrize("kind", SERVICES)
def test_services_without_a_leak_get_no_verdict(kind: str) -> None:
    assert named(Service(Random(f"5 {kind}"), kind, steady=False), DAY) == []


def test_the_leak_of_a_service_is_named_within_three_hours() -> None:
    assert named(Service(Random("1"), "nginx", steady=True), 3 * 3600, 50e6 / 3600) == [3 * 3600]


def _service(
    hours: float, memory: Callable[[float], float], cpu: Callable[[float], float], workers: int = 4
) -> GrowthShape | None:
    times = [60.0 * n for n in range(int(hours * 60))]
    points = [Point(time, memory(time) * MIB, time) for time in times]
    return judge_service(points, [ServiceLoad(time, cpu(time), workers) for time in times])


def _kind(found: GrowthShape | None) -> str | None:
    return None if found is None else found.kind


def test_a_leak_needs_time_and_a_load_that_does_not_grow() -> None:
    def grows(time: float) -> float:
        return 500 + 48 * time / 3600

    assert _kind(_service(3, grows, lambda time: 0.2 * time)) == LEAK
    assert _kind(_service(2, grows, lambda time: 0.2 * time)) == UNKNOWN, "too early"
    assert _service(0.2, grows, lambda time: 0.2 * time) is None, "programs load data"
    assert _service(2, lambda _: 500.0 * MIB, lambda time: 0.2 * time) is None
    assert _kind(_service(3, grows, lambda time: 0.2 * time + time**2 / 1e5)) == UNKNOWN
    assert _kind(_service(3, grows, lambda _: 0.0)) == LEAK, "an idle service leaks, too"


def test_workers_that_become_more_are_no_leak() -> None:
    times = [60.0 * n for n in range(180)]
    points = [Point(time, (500 + 48 * time / 3600) * MIB, time) for time in times]
    loads = [ServiceLoad(time, 0.2 * time, 4 + int(time / 1800)) for time in times]
    assert _kind(judge_service(points, loads)) == UNKNOWN


def test_a_week_is_kept_in_few_floors() -> None:
    floors = TimeFloors()
    for n in range(100_000):
        floors.add(1000 + n % 100, ServiceLoad(6.0 * n, n, 1))
    points = floors.points()
    assert 250 < len(points) <= 512
    assert {one.value for one in points[:-1]} == {1000}  # the last period goes on


def test_the_leak_of_a_service_is_named_between_collections() -> None:
    """Floors of a few collections each scatter by more than the leak adds from one to the next."""
    rng = Random(7)

    def collected(time: float) -> float:
        return 600 + 50 * time / 3600 + 150 * (time % 420) / 420 + rng.uniform(0, 30)

    assert _kind(_service(4, collected, lambda time: 0.2 * time)) == LEAK


def test_memory_that_grows_as_much_as_the_load_is_no_leak() -> None:
    """Load rises by 9 % from half to half, and memory in proportion."""
    found = _service(
        6, lambda time: 600 * (1 + time / 100_000), lambda time: 0.2 * (time + time**2 / 200_000)
    )
    assert _kind(found) in (UNKNOWN, None)


@pytest.mark.parametrize("number", range(1, 30))
def test_few_samples_of_a_service_are_no_leak_yet(number: int) -> None:
    """With `--interval 1h` three hours have three samples. A line through two of them has no error."""
    hours = [4.0 * at / max(1, number - 1) for at in range(number)]
    points = [Point(3600 * hour, (500 + 200 * hour) * MIB, 3600 * hour) for hour in hours]
    loads = [ServiceLoad(point.time, point.time, 1) for point in points]
    growth = judge_service(points, loads)
    least = 18  # three quarters of them, rounded up, are as many as the floors
    assert (growth is not None and growth.kind == LEAK) == (number >= least)
