"""Readings of allocators in the files of operations, and what they show: memory that is kept, not lost (`truth.heap`)."""

from __future__ import annotations

from otel_memwatch.record.fields import mapping, moment, text, whole
from otel_memwatch.run.growth import GrowthFinding
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.truth.growth import LEAK
from otel_memwatch.truth.heap import (
    AllocatorBooks,
    HeapReading,
    explains_growth,
    kept_memory,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_memwatch.record.operation_lines import OperationLines

_ALLOCATORS, _NAME = 4, 40
"""Allocators of a reading, and characters of a name."""
_MOST = 8
"""Findings and readings of a run."""


def written_heap(reading: HeapReading) -> dict[str, Any]:
    """Return a reading for `run.json`: that of a line, with the PID."""
    books = {
        one.name: {"live": one.live, "free": one.free, "scattered": one.scattered}
        for one in reading.allocators
    }
    return {**reading._asdict(), "allocators": books}


def heaps_of(written: Any) -> list[HeapReading]:
    """Return the readings of `run.json`."""
    found = (reading_of(None, entry) for entry in (written[:_MOST] if isinstance(written, list) else ()))
    return [one for one in found if one is not None]


def reading_of(pid: int | None, written: Any) -> HeapReading | None:
    """Return the reading of a line of process `pid`, or of `run.json`; `None`: malformed."""
    fields = mapping(written)
    pid = whole(fields.get("pid")) if pid is None else pid
    time = moment(fields.get("time"))
    sizes = [whole(fields.get(name)) for name in ("anonymous", "private", "threads")]
    anonymous, private, threads = (None if value is None or value < 0 else value for value in sizes)
    if pid is None or time is None or anonymous is None or private is None or threads is None:
        return None
    books = []
    for name, entry in list(mapping(fields.get("allocators")).items())[:_ALLOCATORS]:
        values = [whole(mapping(entry).get(field)) for field in ("live", "free", "scattered")]
        live, free, scattered = (value if value is not None and value >= 0 else 0 for value in values)
        books.append(AllocatorBooks((text(name) or "")[:_NAME], live, free, scattered))
    return HeapReading(pid, time, anonymous, private, threads, tuple(books))


class Heaps:
    """The first and the last reading of each process."""

    def __init__(self) -> None:
        self._first: dict[int, HeapReading] = {}
        self._last: dict[int, HeapReading] = {}

    def add(self, lines: Iterable[OperationLines]) -> None:
        """Add the readings of processes so far."""
        for of_process in lines:
            for written, readings in (
                (of_process.first_heap, self._first),
                (of_process.last_heap, self._last),
            ):
                if (found := reading_of(of_process.pid, written)) is not None:
                    readings[found.pid] = found

    def add_reading(self, reading: HeapReading) -> None:
        """Add a reading of the monitor."""
        self._first.setdefault(reading.pid, reading)
        self._last[reading.pid] = reading

    def readings(self) -> list[HeapReading]:
        """Return the last readings, those of the largest processes first."""
        return sorted(self._last.values(), key=lambda one: -one.anonymous)[:_MOST]

    def findings(self, growth: Sequence[GrowthFinding]) -> list[GrowthFinding]:
        """Return what allocators keep, then `growth` without leaks that are only free memory of an allocator."""
        kept = [
            GrowthFinding(
                kind=found.kind,
                operation=None,
                pid=reading.pid,
                bytes=found.bytes,
                rate=0.0,
                low=found.low,
                high=found.high,
                seconds=0.0,
                allocator=found.books.name,
                anonymous=reading.anonymous,
                threads=reading.threads,
            )
            for reading in self._last.values()
            if (found := kept_memory(reading)) is not None
        ]
        kept.sort(key=lambda one: -one.bytes)
        return [*kept[:_MOST], *(one for one in growth if one.kind != LEAK or not self._explain(one))]

    def _explain(self, leak: GrowthFinding) -> bool:
        first, last = (readings.get(leak.pid or -1) for readings in (self._first, self._last))
        return first is not None and last is not None and explains_growth(first, last, leak.bytes)
