"""Readings of allocators from a record."""

from __future__ import annotations

from typing import Any

import pytest

from otel_memwatch.record.operation_line import OperationLine
from otel_memwatch.record.operation_lines import OperationLines
from otel_memwatch.run.growth import GrowthFinding, exported
from otel_memwatch.run.heaps import Heaps, heaps_of, reading_of, written_heap

MIB = 1 << 20


def _written(anonymous: int, live: int, free: int) -> dict[str, Any]:
    books = {"glibc": {"live": live * MIB, "free": free * MIB, "scattered": 0}}
    size = anonymous * MIB
    return {"time": 5.0, "anonymous": size, "private": size, "threads": 2, "allocators": books}


def _lines(*written: dict[str, Any]) -> OperationLines:
    lines = OperationLines(7)
    for heap in written:
        line = OperationLine()
        line.schema, line.pid, line.heap = 1, 7, heap
        lines.add([line])
    assert lines.damaged == 0
    return lines


def test_readings_of_the_monitor_count_like_those_of_lines() -> None:
    heaps = Heaps()
    first, last = reading_of(7, _written(100, 90, 0)), reading_of(7, _written(245, 10, 230))
    assert first is not None
    assert last is not None
    heaps.add_reading(first)
    heaps.add_reading(last)
    assert heaps.readings() == [last]
    assert [one.kind for one in heaps.findings([])] == ["kept"]


def _leak(grown: int) -> GrowthFinding:
    return GrowthFinding("leak", "Step", 7, grown * MIB, 1.0, 0.5, 2.0, 10.0, 30)


def test_a_reading_survives_the_record() -> None:
    reading = reading_of(7, _written(245, 10, 230))
    assert reading is not None
    assert heaps_of([written_heap(reading)]) == [reading]


@pytest.mark.parametrize(
    "written",
    [
        None,
        3,
        [],
        {},
        {"time": 1.0},
        {**_written(1, 1, 1), "anonymous": -1},
        {**_written(1, 1, 1), "time": "x"},
    ],
)
def test_a_malformed_reading_is_none(written: Any) -> None:
    assert reading_of(7, written) is None
    assert heaps_of(written) == []
    assert heaps_of([written]) == []


@pytest.mark.parametrize("books", [None, 3, {"glibc": None}, {"glibc": {"live": -1, "free": "x"}}, {"": {}}])
def test_malformed_statistics_show_nothing(books: Any) -> None:
    heaps = Heaps()
    heaps.add([_lines({**_written(245, 10, 230), "allocators": books})])
    assert heaps.findings([]) == []


def test_a_leak_of_free_memory_is_none() -> None:
    heaps = Heaps()
    heaps.add([_lines(_written(100, 10, 80), _written(245, 10, 225))])
    found = heaps.findings([_leak(200), _leak(200)._replace(pid=8)])
    assert [(one.kind, one.pid) for one in found] == [("kept", 7), ("leak", 8)]
    assert GrowthFinding.each_of([one._asdict() for one in found]) == found
    assert exported(found)["memwatch.run.kept"] == [({"memwatch.allocator": "glibc"}, 225 * MIB)]
    assert exported(found)["memwatch.run.leak"] == [({"memwatch.operation.name": "Step"}, 1.0)]


def test_a_leak_of_memory_in_use_stays_one() -> None:
    heaps = Heaps()
    heaps.add([_lines(_written(100, 90, 5), _written(245, 235, 5))])
    assert heaps.findings([_leak(150)]) == [_leak(150)]
