"""Figures of a test, combined from its phases, its children and the record."""

from __future__ import annotations

import pytest

from otel_memwatch.model import Certainty, Peak
from otel_memwatch.plugins.pytest.figures import (
    MeasuredTest,
    PhaseFigures,
    together,
    tree_peak,
    with_children,
)

MIB = 1 << 20


def phase(peak: int, start: int = 10 * MIB, identity: int = 1) -> PhaseFigures:
    return PhaseFigures(7, identity, start, start, peak, peak - 1, peak + 1, "exact")


def measured(*peaks: int) -> MeasuredTest:
    test = MeasuredTest("test_it.py::test_it", "")
    for number, (when, peak) in enumerate(zip(("setup", "call", "teardown"), peaks, strict=False)):
        test.add(when, phase(peak, identity=number))
    return test


@pytest.mark.parametrize(
    ("peaks", "expected"),
    [
        ([], None),
        ([Peak.exact(5, 1), None], None),
        ([Peak.exact(5, 1), Peak.exact(9, 1), Peak.exact(3, 1)], (9, Certainty.EXACT, 8, 10)),
        ([Peak.exact(5, 1), Peak.interval(4, 20)], (5, Certainty.INTERVAL, 4, 20)),
        ([Peak.exact(50, 1), Peak.interval(4, 20)], (50, Certainty.EXACT, 49, 51)),
        ([Peak.exact(50, 1), Peak.interval(4, None)], (50, Certainty.INTERVAL, 49, None)),
    ],
)
def test_the_peak_of_several_periods(
    peaks: list[Peak | None], expected: tuple[int, Certainty, int, int | None] | None
) -> None:
    for order in (peaks, peaks[::-1]):
        found = together(order)
        assert (found and found[:4]) == expected


@pytest.mark.parametrize(
    ("children", "expected"),
    [
        (None, (90, None)),  # they are alive: no upper bound is known
        ((50, 0), (90, 150)),
        ((50, 80), (90, 150)),  # may be the size of the process itself when it started a child
        ((250, 200), (200, 350)),
    ],
)
def test_a_process_with_its_children(
    children: tuple[int, int] | None, expected: tuple[int | None, int | None]
) -> None:
    assert with_children(90, 100, children) == expected


def test_without_children_the_tree_is_the_process() -> None:
    test = measured(20 * MIB, 30 * MIB, 10 * MIB)
    test.alone = True
    assert tree_peak(test, [None, None, None]) == test.peak
    assert test.added is not None
    assert test.added.bytes == 20 * MIB
    # The record contains an orphan, which the kernel's counters of children exclude.
    seen = tree_peak(test, [None, Peak.interval(90 * MIB, None), None])
    assert seen is not None
    assert (seen.certainty, seen.low, seen.high) == (Certainty.INTERVAL, 90 * MIB, None)


def test_a_repeated_test_has_the_largest_figures() -> None:
    test = measured(20 * MIB, 30 * MIB, 10 * MIB)
    test.add("call", phase(25 * MIB))
    assert test.peak is not None
    assert test.peak.bytes == 30 * MIB
    test.add("call", phase(35 * MIB))
    assert test.peak.bytes == 35 * MIB
