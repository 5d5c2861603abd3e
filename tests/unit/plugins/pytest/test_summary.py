"""Table of a session's tests."""

from __future__ import annotations

from otel_memwatch.model import Peak
from otel_memwatch.plugins.pytest.measured_test import MeasuredTest, PhaseFigures
from otel_memwatch.plugins.pytest.summary import SessionSummary, summary_lines

MIB = 1 << 20


def measured(name: str, peak: int, tree: Peak | None = None) -> MeasuredTest:
    test = MeasuredTest(name, "")
    test.add("call", PhaseFigures(7, 1, 80 * MIB, 80 * MIB, peak, peak, peak, "exact"))
    test.tree, test.alone = tree, tree is None
    return test


def test_a_test_that_may_have_added_memory_in_children_has_a_row() -> None:
    """Its lower bound is that of the session, which earlier tests had made larger."""
    child = measured("t.py::child", 80 * MIB, Peak.interval(80 * MIB, 145 * MIB))
    tests = [measured("t.py::big", 130 * MIB), child, measured("t.py::small", 80 * MIB)]
    lines = summary_lines(SessionSummary(tests, (), (), (), (), (), (), ()), 10)
    assert [line.split()[:4] for line in lines[1:3]] == [
        ["+65.0", "MiB", "at", "most"],
        ["+50.0", "MiB", "exact", "130.0"],
    ]
    assert "and 1 more test" in lines
