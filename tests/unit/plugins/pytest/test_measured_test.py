"""Figures of a test, combined from its phases, its children and the record."""

from __future__ import annotations

from otel_memwatch.model import Certainty, Peak
from otel_memwatch.plugins.pytest.measured_test import (
    MeasuredTest,
    PhaseFigures,
    tree_peak,
)

MIB = 1 << 20


def phase(peak: int, start: int = 10 * MIB, identity: int = 1) -> PhaseFigures:
    return PhaseFigures(7, identity, start, start, peak, peak - 1, peak + 1, "exact")


def measured(*peaks: int) -> MeasuredTest:
    test = MeasuredTest("test_it.py::test_it", "")
    for number, (when, peak) in enumerate(zip(("setup", "call", "teardown"), peaks, strict=False)):
        test.add(when, phase(peak, identity=number))
    return test


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
