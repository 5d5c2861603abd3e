"""Bounds of a process tree without a separate cgroup, by table of cases."""

from __future__ import annotations

from typing import Any

import pytest

from otel_memwatch.model import Certainty, Evidence, Peak
from otel_memwatch.truth.tree import (
    Certificate,
    highest,
    lone_process_bound,
    tree_between,
    tree_bound_by_group,
    tree_from_bounds,
    tree_of_processes,
    within_machine,
)
from tests.support.recorded import shape
from tests.support.run_directory import MIB

EXACT, INTERVAL = Certainty.EXACT, Certainty.INTERVAL
ERROR = 2


@pytest.mark.parametrize(
    ("low", "high", "single", "expected"),
    [
        (0, None, None, None),
        (80, None, None, (INTERVAL, 80, None)),
        (80, 300, None, (INTERVAL, 80, 300)),
        (0, 300, None, (INTERVAL, 0, 300)),
        (298, 302, None, (EXACT, 298, 302)),
        (298, 302, 299, (EXACT, 297, 301)),
        (297, 302, None, (INTERVAL, 297, 302)),
        (310, 302, None, (EXACT, 308, 312)),
    ],
)
def test_tree_from_bounds(
    low: int, high: int | None, single: int | None, expected: tuple[Any, ...] | None
) -> None:
    assert shape(tree_from_bounds(low, high, ERROR, single)) == expected


@pytest.mark.parametrize(
    ("peak", "expected"),
    [
        (
            Peak.interval(174, 2000, source="x"),
            Peak.interval(174, 1000, source="x", evidence=(Evidence.MACHINE,)),
        ),
        (Peak.interval(174, 900, source="x"), Peak.interval(174, 900, source="x")),
        (Peak.interval(174, None), Peak.interval(174, None)),
        (
            Peak.interval(174, 2000, estimate=1500),
            Peak.interval(174, 1000, estimate=1000, evidence=(Evidence.MACHINE,)),
        ),
        # the parts of a java heap that is mapped twice: what is certain from below is not taken back
        (Peak.interval(1100, 2000), Peak.interval(1100, 1100, evidence=(Evidence.MACHINE,))),
        (Peak.exact(1500, 10), Peak.exact(1500, 10)),
        (Peak.censored(1500), Peak.censored(1000, evidence=(Evidence.MACHINE,))),
        (Peak.sampled(5), Peak.sampled(5)),
        (None, None),
    ],
)
def test_no_upper_bound_is_above_the_machine(peak: Peak | None, expected: Peak | None) -> None:
    assert within_machine(peak, 1000) == expected
    assert within_machine(peak, None) == peak


GROUP: dict[str, Any] = {
    "error": MIB,
    "shared": 0,
    "outside": 0,
    "swapped": 0,
    "joined": False,
}


@pytest.mark.parametrize(
    ("watermark", "limits", "changed", "bound"),
    [
        (180 * MIB, (200 * MIB, 200 * MIB), {}, 181 * MIB),
        (180 * MIB, None, {}, None),
        # a limit that was raised during the run: the watermark knows
        (300 * MIB, (200 * MIB, 400 * MIB), {}, 301 * MIB),
        # a kernel that keeps no watermark: the limit alone, if it never changed
        (None, (200 * MIB, 200 * MIB), {}, 201 * MIB),
        (None, (200 * MIB, 400 * MIB), {}, None),
        (None, None, {}, None),
        (180 * MIB, (200 * MIB, 200 * MIB), {"shared": 50 * MIB}, 231 * MIB),
        (180 * MIB, (200 * MIB, 200 * MIB), {"shared": None}, None),
        (180 * MIB, (200 * MIB, 200 * MIB), {"outside": 1}, None),
        (180 * MIB, (200 * MIB, 200 * MIB), {"outside": None}, None),
        (180 * MIB, (200 * MIB, 200 * MIB), {"swapped": 4096}, None),
        (180 * MIB, (200 * MIB, 200 * MIB), {"swapped": None}, None),
        (180 * MIB, (200 * MIB, 200 * MIB), {"joined": True}, None),
    ],
)
def test_what_the_group_bounds(
    watermark: int | None, limits: tuple[int, int] | None, changed: dict[str, Any], bound: int | None
) -> None:
    found = tree_bound_by_group(watermark, limits, **GROUP | changed)
    assert (found and found.bytes) == bound


@pytest.mark.parametrize("high", [100, 100 * MIB, 102 * MIB, 300 * MIB])
def test_nothing_is_exact_without_a_group(high: int) -> None:
    """Kernel memory, and files in memory between two ticks, are in no counter: near bounds are of what processes have."""
    peak = tree_of_processes(100 * MIB, high)
    assert peak is not None
    assert peak.certainty is Certainty.INTERVAL
    assert (peak.low, peak.high) == (100 * MIB, max(100 * MIB, high))
    assert tree_of_processes(0, None) is None


def test_bounds_are_no_nearer_than_the_counters_are_true() -> None:
    peak = tree_of_processes(240 * MIB, 240 * MIB, ERROR)
    assert peak is not None
    assert (peak.low, peak.high) == (240 * MIB, 240 * MIB + ERROR)


def test_an_error_of_many_processors_makes_no_tree_exact() -> None:
    """64 processors may hold back 95 MiB; what is called exact is 1 MiB or 0.5 % off at most."""
    far = tree_from_bounds(100 * MIB, 110 * MIB, 95 * MIB)
    assert far is not None
    assert far.certainty is Certainty.INTERVAL


@pytest.mark.parametrize(
    ("low", "high", "group", "expected"),
    [
        # at least  by processes  by the group
        (80, 300, 200, (80, 200, Evidence.SHARED_CGROUP_LIMIT)),
        (80, None, 200, (80, 200, Evidence.SHARED_CGROUP_LIMIT)),
        (80, 150, 200, (80, 150, Evidence.PAGE_FAULTS)),
        (
            250,
            300,
            200,
            (250, 300, Evidence.PAGE_FAULTS),
        ),  # the tree has memory that the group was not charged for
        (80, None, None, (80, None, None)),
        (0, None, None, None),
    ],
)
def test_the_smaller_of_two_upper_bounds_holds(
    low: int, high: int | None, group: int | None, expected: tuple[Any, ...] | None
) -> None:
    peak = tree_between(
        Certificate(low, Evidence.ONE_SAMPLE, 0.5),
        None if high is None else Certificate(high, Evidence.PAGE_FAULTS),
        None if group is None else Certificate(group, Evidence.SHARED_CGROUP_LIMIT),
        0,
    )
    if peak is None or expected is None:
        assert peak is expected
        return
    assert (peak.low, peak.high) == expected[:2]
    assert peak.evidence == (Evidence.ONE_SAMPLE, *([expected[2]] if expected[2] else []))
    assert peak.at == 0.5


@pytest.mark.parametrize(
    ("max_rss", "expected"), [(None, (None, None)), (10, (None, None)), (108, (109, 111))]
)
def test_a_process_that_was_the_whole_tree_bounds_it(
    max_rss: int | None, expected: tuple[int | None, int | None]
) -> None:
    assert lone_process_bound(max_rss, 2, 1, floor=10) == expected


def test_of_equal_lower_bounds_the_first_counts() -> None:
    first, second = Certificate(5, Evidence.LARGEST_PROCESS), Certificate(5, Evidence.PSS_SUM)
    assert highest(first, second) is first
