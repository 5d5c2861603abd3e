"""Time without an operation, and operations that keep memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from otel_memwatch.run.uncovered import Gap, kept, uncovered

MIB = 1 << 20


def _operation(
    name: str, start: float, end: float, before: int | None = None, after: int | None = None, **rest: Any
) -> Any:
    operation = SimpleNamespace(
        name=name,
        pid=rest.pop("pid", 1),
        status=rest.pop("status", "ok"),
        start_bytes=None if before is None else before * MIB,
        end_bytes=None if after is None else after * MIB,
    )
    delta = None if before is None or after is None else (after - before) * MIB
    fields = {"parent": None, **rest}
    return SimpleNamespace(operation=operation, start=start, end=end, delta_bytes=delta, **fields)


def test_gaps_before_between_and_after() -> None:
    listed = [_operation("Load", 3.1, 4, 290, 400), _operation("Train", 5, 8, 420, 430)]
    assert uncovered(listed, 9, main=1) == [
        Gap("before the first operation", 0.0, 3.1, 290 * MIB),
        Gap("between Load and Train", 4, 5, 20 * MIB),
        Gap("after the last operation", 8, 9, None),
    ]


def test_nested_and_overlapping_operations_leave_no_gap() -> None:
    listed = [_operation("A", 0, 8), _operation("B", 1, 2, parent=0), _operation("C", 4, 9, pid=2)]
    assert uncovered(listed, 9, main=1) == []


def test_changes_across_processes_are_unknown() -> None:
    listed = [_operation("A", 0, 1, 10, 20), _operation("B", 2, 3, 30, 40, pid=2)]
    (gap,) = uncovered(listed, 3, main=1)
    assert gap.change is None


def test_memory_before_the_first_operation_of_another_process_is_unknown() -> None:
    assert uncovered([_operation("A", 1, 2, 100, 100)], 2, main=9)[0].change is None


def test_short_gaps_count_only_with_a_change_of_memory() -> None:
    listed = [
        _operation("A", 0, 1, 0, 10),
        _operation("B", 1.01, 2, 10, 10),
        _operation("C", 2.01, 3, 90, 90),
    ]
    assert [gap.place for gap in uncovered(listed, 3, main=1)] == ["between B and C"]


def test_an_operation_that_is_open_reaches_to_the_end() -> None:
    assert uncovered([_operation("A", 0, 2, status="open")], 3, main=1) == []
    assert uncovered([], 3, main=1) == []


def test_the_operation_that_keeps_memory_is_the_innermost() -> None:
    listed = [
        _operation("All", 0, 9, 0, 200),
        _operation("Split", 1, 2, 0, 154, parent=0),
        _operation("Join", 3, 4, 154, 190, parent=0),
        _operation("Small", 5, 6, 190, 195, parent=0),
        _operation("Split", 7, 8, 190, 250, parent=0),
    ]
    assert kept(listed, 16 * MIB) == [("Split", 154 * MIB), ("Join", 36 * MIB)]


def test_an_operation_with_little_inside_it_counts_itself() -> None:
    listed = [_operation("All", 0, 9, 0, 200), _operation("Part", 1, 2, 0, 50, parent=0)]
    assert kept(listed, 16 * MIB) == [("All", 200 * MIB), ("Part", 50 * MIB)]
