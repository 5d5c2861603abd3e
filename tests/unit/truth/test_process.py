"""Bounds of one process, by table of cases."""

from __future__ import annotations

from typing import Any

import pytest

from otel_memwatch.model import Certainty, Peak
from otel_memwatch.runtime.kernel import rss_error
from otel_memwatch.truth.process import (
    bounded_above,
    lone_error,
    main_process_peak,
    process_bound,
    process_peak,
    raised_by_sample,
    ran_all,
    sum_error,
    wait4_is_its_own,
    wait4_was_its_own,
    watermark_is_of_run,
)
from tests.support.recorded import shape

EXACT, INTERVAL, CENSORED = Certainty.EXACT, Certainty.INTERVAL, Certainty.CENSORED
ERROR = 2
FLOOR = 10


@pytest.mark.parametrize(
    ("migrations", "expected"), [(None, 95), (0, 2), (4, 8), (62, 95), (63, 95), (1 << 40, 95)]
)
def test_a_thread_leaves_pages_only_on_processors_that_ran_it(migrations: int | None, expected: int) -> None:
    assert lone_error(95, 64, migrations) == expected


@pytest.mark.parametrize(
    ("process", "thread", "alone"),
    [(0.045213, 0.0452142, True), (0.045213, 0.045216, True), (0.045213, 0.04519, False), (0.0, 0.1, False)],
)
def test_a_thread_that_no_sample_saw_used_time(process: float, thread: float, alone: bool) -> None:
    assert ran_all(process, thread) is alone


@pytest.mark.parametrize(
    ("peak", "high", "expected"),
    [
        (None, 5, None),
        (Peak.interval(68, 164, estimate=69), None, (INTERVAL, 68, 164, 69)),
        (Peak.interval(68, 164, estimate=69), 200, (INTERVAL, 68, 164, 69)),
        (
            Peak.interval(68 << 20, 164 << 20, estimate=69 << 20),
            74 << 20,
            (INTERVAL, 68 << 20, 74 << 20, 69 << 20),
        ),
        (
            Peak.interval(68 << 20, 164 << 20, estimate=80 << 20),
            74 << 20,
            (INTERVAL, 68 << 20, 74 << 20, 74 << 20),
        ),
        (
            Peak.interval(900 << 20, 999 << 20, estimate=902 << 20),
            904 << 20,
            (EXACT, 900 << 20, 904 << 20, 902 << 20),
        ),
        (Peak.interval(68, None), 74, (INTERVAL, 68, None, 68)),
        (Peak.exact(68, 2), 66, (EXACT, 66, 70, 68)),
    ],
)
def test_bounded_above(peak: Peak | None, high: int | None, expected: tuple[Any, ...] | None) -> None:
    found = bounded_above(peak, high)
    if found is None or expected is None:
        assert found is expected
        return
    assert (found.certainty, found.low, found.high, found.estimate or found.bytes) == expected


def test_the_maximum_of_a_lone_process_on_many_processors_is_the_estimate_of_its_range() -> None:
    error, mib = 95 << 20, 1 << 20
    read = raised_by_sample(process_peak(108 * mib, 108 * mib, error, FLOOR), 102 * mib)
    peak = main_process_peak(read, 108 * mib, error, FLOOR, alone=True, end=1.0)
    assert peak is not None
    assert (peak.low, peak.high, peak.estimate) == (102 * mib, 203 * mib, 108 * mib)


@pytest.mark.parametrize("cpus", [1, 2, 4, 16, 64, 256])
def test_the_error_of_an_exact_sum_does_not_grow_with_the_processors(cpus: int) -> None:
    error = rss_error(1, cpus, "6.18")
    assert sum_error(error, exact=False) == error
    assert sum_error(error, exact=True) == min(error, 1 << 20)


@pytest.mark.parametrize(
    ("cpus", "widened"), [(1, 0), (2, 0), (4, 1.45), (16, 5.8), (64, 95.25), (256, 1533)]
)
def test_a_range_includes_the_error_of_many_processors(cpus: int, widened: float) -> None:
    error = rss_error(1, cpus, "6.18")
    mib = 1 << 20
    peak = process_peak(3000 * mib, 5000 * mib, error, 0)
    assert peak is not None
    assert peak.certainty is INTERVAL
    assert (peak.low, peak.high) == (
        pytest.approx((3000 - widened) * mib, abs=mib / 8),
        pytest.approx((5000 + widened) * mib, abs=mib / 8),
    )
    at_least = process_peak(3000 * mib, None, error, 0)
    assert at_least is not None
    assert at_least.low == peak.low


@pytest.mark.parametrize(
    ("peak", "sampled", "expected"),
    [
        # 34 MiB that were held back from the high-water mark of 2 MiB, and seen at a sample
        (Peak.interval(0, 97, estimate=2), 34, (INTERVAL, 34, 97)),
        (Peak.interval(0, 97, estimate=69), -1, (INTERVAL, 0, 97)),
        (Peak.interval(50, None), 60, (INTERVAL, 60, None)),
        (Peak(69, EXACT, 68, 70), 69, (EXACT, 68, 70)),
        (None, 34, None),
    ],
)
def test_raised_by_sample(peak: Peak | None, sampled: int, expected: tuple[Any, ...] | None) -> None:
    assert shape(raised_by_sample(peak, sampled)) == expected


@pytest.mark.parametrize(
    ("began_before", "first", "peak", "of_run"),
    [
        (False, None, 50, True),
        (True, None, 900, False),
        (True, 900, 900, False),
        (True, 900, 901, True),
    ],
)
def test_watermark_is_of_run(began_before: bool, first: int | None, peak: int, of_run: bool) -> None:
    assert watermark_is_of_run(began_before, first, peak) is of_run


@pytest.mark.parametrize(
    ("max_rss", "childless", "own"),
    [(11, True, True), (11, False, False), (10, True, False), (None, True, False)],
)
def test_wait4_was_of_the_process(max_rss: int | None, childless: bool, own: bool) -> None:
    assert wait4_was_its_own(max_rss, childless=childless, floor=FLOOR) is own


@pytest.mark.parametrize(
    ("facts", "bound"),
    [
        ({"last_read": True}, 70),
        ({"waited_for": True, "whole_life": True}, 70),
        ({"waited_for": True, "segments": True, "wait4": True}, 70),
        ({"waited_for": True, "segments": True}, None),
        ({"waited_for": True, "wait4": True}, None),
        ({"whole_life": True, "segments": True, "wait4": True}, None),
        ({}, None),
    ],
)
def test_process_bound(facts: dict[str, bool], bound: int | None) -> None:
    known = dict.fromkeys(("last_read", "waited_for", "whole_life", "segments", "wait4"), False)
    assert process_bound(70, **(known | facts)) == bound


def test_of_a_process_that_nothing_is_known_of_there_is_no_bound() -> None:
    nothing = {"waited_for": False, "whole_life": False, "segments": False, "wait4": False}
    assert process_bound(0, last_read=True, **nothing) is None


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (300, None, (INTERVAL, 300, None)),
        (0, None, None),
        (300, 300, (EXACT, 298, 302)),
        (298, 300, (EXACT, 298, 302)),
        (301, 300, (EXACT, 299, 303)),
        (297, 300, (INTERVAL, 297, 300)),
        (0, 300, (INTERVAL, 0, 300)),
        (5, 9, (CENSORED, 5, FLOOR)),
        (0, 9, (CENSORED, None, FLOOR)),
        (9, 9, (EXACT, 7, 11)),
    ],
)
def test_process_peak(low: int, high: int | None, expected: tuple[Any, ...] | None) -> None:
    assert shape(process_peak(low, high, ERROR, FLOOR)) == expected


def test_on_many_processors_a_process_below_the_launcher_could_have_had_more() -> None:
    """On 64 processors wait4 reported 9 MiB of a process that had 32: its counters may be off by 95."""
    mib = 1 << 20
    assert shape(process_peak(0, 9 * mib, 95 * mib, 9 * mib)) == (CENSORED, None, 104 * mib)
    assert shape(process_peak(8 * mib, 200 * mib, 95 * mib, 200 * mib)) == (CENSORED, None, 295 * mib)


def test_without_watermarks_a_process_is_sampled() -> None:
    assert shape(process_peak(300, None, ERROR, FLOOR, sampled=True)) == (
        Certainty.SAMPLED,
        300,
        None,
    )


@pytest.mark.parametrize(
    ("high", "attained", "own"), [(300, 300, True), (300, 298, True), (300, 297, False), (9, 9, False)]
)
def test_wait4_is_of_the_process(high: int, attained: int, own: bool) -> None:
    assert wait4_is_its_own(high, attained, ERROR, FLOOR) is own
