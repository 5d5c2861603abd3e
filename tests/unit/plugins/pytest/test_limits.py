"""Verdicts on limits: exceeded, kept or inconclusive."""

from __future__ import annotations

import pytest

from otel_memwatch.plugins.pytest.limits import MemoryLimit, bounds_of_call, judge
from otel_memwatch.plugins.pytest.measured_test import PhaseFigures

MIB = 1 << 20


@pytest.mark.parametrize(
    ("low", "high", "beyond"),
    [
        (90, 100, None),
        (99, 101, False),
        (101, 103, True),
        (90, None, False),
        (101, None, True),
        (None, 100, None),
        (None, None, False),
    ],
)
def test_a_limit_is_judged_by_both_bounds(low: int | None, high: int | None, beyond: bool | None) -> None:
    verdicts = judge((MemoryLimit("limit", 100, "the mark"),), {"limit": (low, high)})
    assert [verdict.beyond for verdict in verdicts] == ([] if beyond is None else [beyond])


def test_a_limit_without_a_measurement_is_not_judged() -> None:
    assert judge((MemoryLimit("tree", 100, "the mark"),), {"limit": (200, 200)}) == []


def test_bounds_of_a_call_hold_the_counters_error() -> None:
    call = PhaseFigures(1, 1, 50 * MIB, 60 * MIB, 80 * MIB, 79 * MIB, 81 * MIB, "exact")
    assert bounds_of_call(call) == {
        "limit": (79 * MIB, 81 * MIB),
        "added": (28 * MIB, 32 * MIB),
        "growth": (8 * MIB, 12 * MIB),
    }


def test_an_upper_bound_alone_never_fails_a_test() -> None:
    call = PhaseFigures(1, 1, None, None, 80 * MIB, None, 80 * MIB, "censored")
    limits = (MemoryLimit("limit", 10 * MIB, "the mark"), MemoryLimit("added", 10 * MIB, "the mark"))
    assert [verdict.beyond for verdict in judge(limits, bounds_of_call(call))] == [False]
