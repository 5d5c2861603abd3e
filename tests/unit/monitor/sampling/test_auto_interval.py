"""`--interval auto`: a thousandth of the run's age, the shortest interval after a change, bounded for a run that always changes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from otel_memwatch import catalog
from otel_memwatch.config import auto_interval
from otel_memwatch.model import Column
from otel_memwatch.monitor.sampling.auto_interval import AutoInterval

MIB = 1 << 20
STARTED = 1000.0
EVENTS = ("memwatch.cgroup.memory.event.type", "max")
WAITING = (("memwatch.pressure.resource", "memory"), ("memwatch.pressure.stall_type", "some"))
COLUMNS = (
    Column(catalog.MEMWATCH_CGROUP_MEMORY_USAGE),
    Column(catalog.MEMWATCH_CGROUP_MEMORY_FILE),
    Column(catalog.MEMWATCH_TREE_PROCESS_COUNT),
    Column(catalog.MEMWATCH_CGROUP_MEMORY_EVENTS, (EVENTS,), 1.0),
    Column(catalog.MEMWATCH_CGROUP_PRESSURE_TIME, WAITING, 1.0),
)
QUIET = (400 * MIB, 100 * MIB, 3, 0, 0.0)


def opened() -> AutoInterval:
    auto = AutoInterval(STARTED)
    auto.declare(COLUMNS)
    return auto


def aged(age: float, values: Sequence[float] = QUIET) -> AutoInterval:
    """One that nothing happened to, up to this age of the run in seconds."""
    auto, time = opened(), STARTED
    while time < STARTED + age:
        time += auto.after(time, values)
    return auto


def samples_of(seconds: float, values_at: Callable[[float], Sequence[float]]) -> int:
    auto, time, number = opened(), STARTED, 0
    while time < STARTED + seconds:
        time += auto.after(time, values_at(time - STARTED))
        number += 1
    return number


@pytest.mark.parametrize(("age", "seconds"), [(0, 0.1), (100, 0.1), (1000, 1), (10_000, 10), (1e6, 10)])
def test_the_longest_interval_is_a_thousandth_of_the_age(age: float, seconds: float) -> None:
    assert auto_interval(age) == pytest.approx(seconds)
    assert aged(age).now == pytest.approx(seconds, rel=0.02)


@pytest.mark.parametrize(
    "changed",
    [
        (430 * MIB, 100 * MIB, 3, 0, 0.0),
        (400 * MIB, 120 * MIB, 3, 0, 0.0),
        (400 * MIB, 100 * MIB, 4, 0, 0.0),
        (400 * MIB, 100 * MIB, 3, 1, 0.0),
        (400 * MIB, 100 * MIB, 3, 0, 0.5),
    ],
)
def test_a_change_makes_it_short_again(changed: Sequence[float]) -> None:
    auto, time = aged(10_000), STARTED + 10_020
    assert auto.after(time, changed) == 0.1
    following = []
    while len(following) < 20:
        time += auto.now
        following.append(auto.after(time, changed))
    assert following == sorted(following)  # it grows again
    assert following[-1] == 10


def test_other_programs_of_the_same_cgroup_are_no_change() -> None:
    """A service in the machine's root cgroup: builds and page cache beside it do not use up its early samples."""
    auto = aged(10_000)
    auto.shared_cgroup = True
    auto.declare(COLUMNS)
    assert auto.after(STARTED + 10_020, (900 * MIB, 700 * MIB, 3, 0, 9.0)) == 10
    assert auto.after(STARTED + 10_030, (900 * MIB, 700 * MIB, 4, 0, 9.0)) == 0.1


@pytest.mark.parametrize(
    "same", [(410 * MIB, 100 * MIB, 3, 0, 0.0), (400 * MIB, 100.9 * MIB, 3, 0, 0.01), (None,) * 5]
)
def test_no_noticeable_change(same: Sequence[float]) -> None:
    assert aged(20_000).after(STARTED + 20_010, same) == 10


def test_slow_growth_is_noticed() -> None:
    """Each sample differs little from the one before."""
    auto, time, size, short = aged(20_000), STARTED + 20_010, 400.0 * MIB, 0
    for _ in range(30):
        size += 4 * MIB
        short += auto.after(time, (size, *QUIET[1:])) == 0.1
        time += 10
    assert short >= 3


def test_operations_make_it_short() -> None:
    auto = aged(20_000)
    auto.notice()
    assert auto.after(STARTED + 20_010, QUIET) == 0.1
    assert auto.after(STARTED + 20_020, QUIET) > 0.1


def test_samples_of_a_day_and_a_week_are_bounded_whatever_happens() -> None:
    """At about 400 bytes each, 10 MB are 25 000 samples and 30 MB are 75 000; the additional ones have half of that."""
    drawn = random.Random(3)
    quiet = samples_of(86_400, lambda _: QUIET)
    restless = samples_of(86_400, lambda _: (drawn.randrange(900) * MIB, *QUIET[1:]))
    week = samples_of(7 * 86_400, lambda _: (drawn.randrange(900) * MIB, *QUIET[1:]))
    assert quiet < 14_000
    assert quiet < restless < 17_000
    assert week < 80_000


def test_probes_only_in_long_intervals() -> None:
    assert aged(100).probe_after == float("inf")
    assert aged(10_000).probe_after == 1.0
