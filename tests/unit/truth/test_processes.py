"""Bounds over all processes of a run, by table of cases."""

from __future__ import annotations

from typing import Any

import pytest

from otel_memwatch.model import Certainty, Evidence, Peak
from otel_memwatch.truth.processes import (
    is_bounded,
    is_same_process,
    is_unwatched,
    largest_process,
    process_span,
    unseen_max,
    was_alive,
)
from tests.support.recorded import shape

EXACT, INTERVAL, CENSORED = Certainty.EXACT, Certainty.INTERVAL, Certainty.CENSORED
ERROR = 2
FLOOR = 10


@pytest.mark.parametrize(
    ("start", "other", "same"), [(5.0, None, True), (5.0, 5.9, True), (5.0, 4.1, True), (5.0, 6.1, False)]
)
def test_is_same_process(start: float, other: float | None, same: bool) -> None:
    assert is_same_process(start, other) is same


@pytest.mark.parametrize(
    ("time", "end", "alive"),
    [(5.0, None, True), (9.0, 9.0, True), (9.1, 9.0, False), (4.5, 9.0, True), (3.9, 9.0, False)],
)
def test_was_alive(time: float, end: float | None, alive: bool) -> None:
    assert was_alive(5.0, end, time) is alive


@pytest.mark.parametrize(
    ("facts", "bound"),
    [
        ({}, 300),
        ({"known": 400}, 400),
        ({"reaped": None}, None),
        ({"unreaped": True}, None),
        ({"unreported_reset": True}, None),
        ({"oldest_alive": 8.0}, 300),
        ({"oldest_alive": 6.0}, None),
        # The kernel rounds starts to 10 ms.
        ({"oldest_alive": 7.005}, None),
        ({"oldest_alive": 6.0, "latest_start": None}, 300),
    ],
)
def test_unseen_max(facts: dict[str, Any], bound: int | None) -> None:
    chain = {"reaped": 300, "known": 20, "unreaped": False, "unreported_reset": False}
    assert unseen_max(**(chain | {"latest_start": 7.0, "oldest_alive": None} | facts)) == bound


@pytest.mark.parametrize(
    ("low", "high", "attained", "expected", "pid"),
    [
        (80, None, 300, (INTERVAL, 80, None), 7),
        (0, None, 300, None, None),
        (300, 300, 300, (EXACT, 298, 302), 7),
        (5, 9, 9, (CENSORED, 5, FLOOR), None),
        (80, 300, 299, (EXACT, 298, 302), None),
        (80, 300, 200, (INTERVAL, 200, 300), None),
        (80, 300, 70, (INTERVAL, 80, 300), 7),
        (0, 300, 9, (INTERVAL, 0, 300), 7),
        (0, 0, 0, None, None),
    ],
)
def test_largest_process(
    low: int, high: int | None, attained: int, expected: tuple[Any, ...] | None, pid: int | None
) -> None:
    peak = largest_process(low, high, attained, ERROR, FLOOR, at=0.5, pid=7)
    assert shape(peak) == expected
    assert peak is None or (peak.pid, peak.at) == (pid, None if pid is None else 0.5)


def test_on_many_processors_the_largest_process_may_be_larger_than_the_launcher() -> None:
    """The counters may be off by 95 MiB."""
    mib = 1 << 20
    peak = largest_process(100 * mib, 300 * mib, 200 * mib, 95 * mib, 300 * mib, at=None, pid=None)
    assert shape(peak) == (CENSORED, 5 * mib, 395 * mib)


@pytest.mark.parametrize(("low", "attained", "expected"), [(80, 300, 300), (80, 70, 80), (5, 9, 5)])
def test_largest_process_where_none_could_be_watched(low: int, attained: int, expected: int) -> None:
    peak = largest_process(low, None, attained, ERROR, FLOOR, at=0.5, pid=7, unwatched=True)
    assert shape(peak) == (INTERVAL, expected, None)


def test_without_watermarks_the_largest_process_is_sampled() -> None:
    peak = largest_process(80, None, 0, ERROR, FLOOR, at=0.5, pid=7, sampled=True)
    assert peak == Peak.sampled(80, at=0.5, pid=7, evidence=(Evidence.RSS_SAMPLES,))


def test_process_span() -> None:
    assert process_span(5.0, 6.0, 100, ERROR) == (4.99, 6.0, 102)
    assert process_span(5.0, 4.0, 100, ERROR) == (4.99, 5.0, 102)


@pytest.mark.parametrize(
    ("facts", "bounded"),
    [
        ({}, True),
        ({"unbounded": True}, False),
        ({"unbounded": True, "unseen": 300}, True),
        ({"all_bounded": False, "unseen": 300}, False),
        ({"seen": False}, False),
        ({"unwatched": True}, False),
    ],
)
def test_is_bounded(facts: dict[str, Any], bounded: bool) -> None:
    evidence = {"seen": True, "all_bounded": True, "unbounded": False, "unseen": None, "unwatched": False}
    assert is_bounded(**(evidence | facts)) is bounded


@pytest.mark.parametrize("blind", [False, True])
@pytest.mark.parametrize("hidden", [False, True])
def test_is_unwatched(*, blind: bool, hidden: bool) -> None:
    assert is_unwatched(blind=blind, hidden=hidden) is (blind or hidden)
