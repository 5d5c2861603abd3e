"""The peak of a tree in a separate cgroup, by table of cases."""

from __future__ import annotations

from typing import Any

import pytest

from otel_memwatch.model import Certainty
from otel_memwatch.truth.cgroup import (
    UncountedFaults,
    left_cgroup,
    lifetime_watermark,
    stopped_watermark,
    tree_around_cgroup,
    tree_from_cgroup,
    tree_low_in_cgroup,
    within_limit,
)
from tests.support.recorded import shape
from tests.support.run_directory import MIB

EXACT, INTERVAL, CENSORED = Certainty.EXACT, Certainty.INTERVAL, Certainty.CENSORED
ERROR = 2


@pytest.mark.parametrize(
    ("limits", "bound"),
    [(None, 447), ((120, 120), 121), ((120, 130), 447), ((500, 500), 447)],
)
def test_within_limit(limits: tuple[int, int] | None, bound: int) -> None:
    assert within_limit(447, limits, 1) == bound


@pytest.mark.parametrize(
    ("seen", "charged", "faults", "left"),
    [
        (True, 0, UncountedFaults(), True),
        (False, 307, UncountedFaults(), True),
        (False, 3, UncountedFaults(), True),
        (False, 2, UncountedFaults(), False),
        (False, 2, UncountedFaults(settled=84, at_end=84), False),
        (False, 2, UncountedFaults(settled=84, at_end=84, before=84), False),
        (False, 2, UncountedFaults(settled=85, at_end=85, before=84), True),
        (False, 2, UncountedFaults(settled=200, at_end=84, before=84), False),  # the count was late
        (False, 2, UncountedFaults(settled=6144, at_end=84, before=84), True),
        (False, 2, UncountedFaults(at_end=6144), True),
        (False, 2, UncountedFaults(at_end=-6144, before=84), False),
    ],
)
def test_left_cgroup(seen: bool, charged: int, faults: UncountedFaults, left: bool) -> None:
    told = left_cgroup(seen=seen, charged=charged, watermark=1, uncounted=faults, error=1)
    assert told is left


@pytest.mark.parametrize(
    ("low", "held", "unmapped", "by_faults", "expected"),
    [
        (307, 320, 2, None, (INTERVAL, 307, 322)),
        (307, 320, 2, 310, (INTERVAL, 307, 310)),
        (307, 320, 2, 330, (INTERVAL, 307, 322)),
        (307, 320, 2, 300, (INTERVAL, 307, 307)),
        (307, 307, 0, None, (INTERVAL, 307, 307)),
        (307, None, 2, None, (INTERVAL, 307, None)),
        (307, None, 2, 330, (INTERVAL, 307, 330)),
        (307, 320, None, None, (INTERVAL, 307, None)),
        (0, 320, 2, None, (INTERVAL, 0, 322)),
        (0, None, 2, None, None),
        (0, None, 2, 330, (INTERVAL, 0, 330)),
    ],
)
def test_tree_around_cgroup(
    low: int, held: int | None, unmapped: int | None, by_faults: int | None, expected: tuple[Any, ...] | None
) -> None:
    assert shape(tree_around_cgroup(low, held, unmapped, by_faults)) == expected


@pytest.mark.parametrize(
    ("needed", "process", "still_read", "low"),
    [
        (90, 100, True, 90),
        (90, 100, False, 100),
        (None, 100, True, 100),
        (None, 700, True, 500),
        (0, 700, False, 700),
    ],
)
def test_tree_low_in_cgroup(needed: int | None, process: int, still_read: bool, low: int) -> None:
    assert tree_low_in_cgroup(needed, 500, process, still_read=still_read) == low


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (100, 5000, (INTERVAL, 100, 5000)),
        (100, 102, (EXACT, 100, 102)),
        (100, 103, (INTERVAL, 100, 103)),
        (1000, 1010, (EXACT, 1000, 1010)),
        (600, 500, (EXACT, 500, 500)),
    ],
)
def test_tree_from_cgroup(low: int, high: int, expected: tuple[Any, int, int]) -> None:
    kind, least, most = expected
    peak = tree_from_cgroup(low * MIB, high * MIB)
    assert shape(peak) == (kind, least * MIB, most * MIB)
    if kind is EXACT:
        assert peak.bytes == (least + most) * MIB // 2


def test_what_is_needed_is_not_above_what_the_group_was_charged() -> None:
    peak = tree_from_cgroup(100 * MIB, 101 * MIB, charged=100 * MIB + 1)
    assert (peak.bytes, peak.low, peak.high) == (100 * MIB + 1, 100 * MIB, 101 * MIB)
    assert tree_from_cgroup(100, 101, charged=90).bytes == 100


@pytest.mark.parametrize(("likely", "told"), [(70, 80), (90, 90), (300, 200), (None, None)])
def test_the_most_likely_is_within_the_bounds_of_a_group(likely: int | None, told: int | None) -> None:
    peak = tree_from_cgroup(80 * MIB, 200 * MIB, likely=likely and likely * MIB)
    assert peak.estimate == (told and told * MIB)


def test_lifetime_watermark() -> None:
    assert shape(lifetime_watermark(800, 900, ERROR)) == (EXACT, 898, 902)
    assert shape(lifetime_watermark(800, 800, ERROR)) == (CENSORED, None, 800)


def test_stopped_watermark() -> None:
    assert shape(stopped_watermark(800, 800, ERROR, own=True)) == (INTERVAL, 798, None)
    assert shape(stopped_watermark(800, 900, ERROR, own=False)) == (INTERVAL, 898, None)
    assert stopped_watermark(800, 800, ERROR, own=False) is None
    assert stopped_watermark(0, ERROR, ERROR, own=True) is None
