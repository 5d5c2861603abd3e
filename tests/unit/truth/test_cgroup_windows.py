"""Memory that a cgroup needed between two samples, by table of cases."""

from __future__ import annotations

from typing import Any

import pytest

from otel_memwatch.truth.cgroup_windows import (
    charge_error,
    less_cache,
    low_on_few_processors,
    low_with_processes,
    missed_seconds,
    needed_at_sample,
    needed_between_samples,
    peak_error,
    taken_from_windows,
    touched,
)
from tests.support.run_directory import MIB


def test_charge_error() -> None:
    assert charge_error(8) == 2 * MIB


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, (199, 201)),
        # What the tree moved may have been cache at the worst moment and not at the ticks.
        ({"moved": 50}, (149, 251)),
        ({"file": 150}, (149, 201)),
        # 40 of the 100 cannot be dropped: memfd_secret, or pages of files that are locked.
        ({"locked": 40}, (199, 241)),
        ({"locked": 400}, (199, 301)),
        ({"top": None}, (None, 201)),
        ({"top": None, "ceiling": None}, (None, None)),
        ({"moved": None}, (None, 301)),
        ({"file_before": None}, (None, 301)),
        ({"reset_gap": 1e-9}, (199, 211)),
    ],
)
def test_needed_between_ticks(facts: dict[str, Any], expected: tuple[int | None, int | None]) -> None:
    tick = {"top": 300, "ceiling": 300, "file_before": 100, "file": 100, "moved": 0, "reset_gap": None}
    tick["locked"] = 0
    bounds = needed_between_samples(**(tick | {"error": 1, "cpus": 2} | facts))
    assert bounds == expected


@pytest.mark.parametrize(
    ("facts", "low"),
    [
        ({}, 24 * MIB),  # three processors, and two of the kernel's
        ({"placements": 1}, 24.5 * MIB),
        ({"placements": 62}, 9.25 * MIB),
        ({"placements": 1000}, 9.25 * MIB),
        ({"cpus": 4}, 24.25 * MIB),
        # The figure of the cache may lack what was moved, or is left.
        ({"moved": 2 * MIB}, 22 * MIB),
        ({"left": 3 * MIB}, 21 * MIB),
        ({"left": 30 * MIB}, 8 * MIB),
        ({"charged": MIB}, 0),
    ],
)
def test_few_processors_charge_little_ahead(facts: dict[str, int], low: float) -> None:
    program = {"charged": 25 * MIB + MIB // 4, "cpus": 64, "placements": 3, "left": 0, "moved": 0}
    assert low_on_few_processors(**(program | facts)) == low


def test_no_peak_is_less_page_cache_that_is_not_known() -> None:
    known = {"top": 502, "file_before": 2, "file": 2, "moved": 10}
    assert less_cache(**known) == 490
    assert less_cache(**(known | {"file": 32})) == 470
    for name in known:
        assert less_cache(**(known | {name: None})) is None


@pytest.mark.parametrize("cpus", [1, 2, 4, 16, 64, 256])
@pytest.mark.parametrize("cache", [0, 400])
def test_charges_ahead_of_use_widen_the_upper_bound_only_beside_page_cache(cpus: int, cache: int) -> None:
    """Memory is charged ahead of its use, so a peak is too high. The cache that is subtracted from it may lag."""
    error, cache = charge_error(cpus), cache * MIB
    tick = {"file_before": cache, "file": cache, "locked": 0, "moved": 0, "reset_gap": None}
    top = cache + 100 * MIB
    low, high = needed_between_samples(top, top, error=error, cpus=cpus, **tick)
    assert low == max(0, 100 * MIB - error)
    assert high == 100 * MIB + (error if cache else peak_error(error))
    assert peak_error(error) == min(error, MIB)


@pytest.mark.parametrize(("cpus", "least"), [(1, 70), (2, 70), (4, 70), (16, 67), (64, 55), (256, 7)])
def test_charges_ahead_of_use_are_not_needed(cpus: int, least: int) -> None:
    assert needed_at_sample(80 * MIB, 10 * MIB, cpus) == least * MIB
    assert needed_at_sample(10 * MIB, 10 * MIB, cpus) == 0


@pytest.mark.parametrize(
    ("low", "there", "high", "expected"),
    [
        (84, 97, 100, 97),
        (84, 80, 100, 84),
        (84, None, 100, 84),
        (None, 97, None, 97),
        (None, None, 100, None),
        # A file in memory that another cgroup was charged for.
        (84, 140, 100, 100),
    ],
)
def test_low_with_processes(
    low: int | None, there: int | None, high: int | None, expected: int | None
) -> None:
    assert low_with_processes(low, there, high) == expected


@pytest.mark.parametrize(
    ("ever", "expected"), [(None, 580 * 10**6), (80 * MIB, 0), (60 * MIB, 0), (100 * MIB, 20 * MIB)]
)
def test_a_peak_that_is_never_reset_bounds_what_a_late_reset_missed(ever: int | None, expected: int) -> None:
    assert touched(missed_seconds(0.058, 80 * MIB, ever, 2), 2) == pytest.approx(expected, abs=1)


@pytest.mark.parametrize(
    ("ever", "ever_before", "window", "next_window", "taken"),
    [
        # the program reset the watermark after its peak
        (40, 10, 12, 13, 27),
        # no other program did
        (40, 10, 40, 13, 0),
        # the peak came between both readings
        (40, 10, 12, 41, 0),
        # the peak of all time is an earlier one
        (40, 40, 12, 13, 0),
    ],
)
def test_a_peak_of_all_time_that_is_in_no_window_was_taken_by_a_reset(
    ever: int, ever_before: int, window: int, next_window: int, taken: int
) -> None:
    assert taken_from_windows(ever, ever_before, window, next_window) == taken
