"""Keep the few operations that may hold the peak of their process, or that were open at a moment."""

from __future__ import annotations

import heapq
from collections import deque
from math import inf

from otel_memwatch.run.attribution import most_at_moment, open_longest
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from otel_memwatch.record.operation_lines import OperationRow

RECENT = 512
"""Operations closed last: the peak may be found out a moment later."""


class _Holder(NamedTuple):
    """The first and the largest operation of one name that may hold the peak."""

    first: OperationRow
    largest: OperationRow


class PeakHolders:
    """Operations of one process that may hold its peak: the first and the largest of each name. None certainly had more.

    Attributes:
        best: the most that one of them certainly had, in bytes.

    """

    __slots__ = ("_by_high", "_names", "best")

    def __init__(self) -> None:
        self.best = 0
        self._names: dict[str, _Holder] = {}
        self._by_high: list[tuple[float, str]] = []
        """A heap: each of a thousand growing steps finds the holders that it replaces without examining the others."""

    def __iter__(self) -> Iterator[OperationRow]:
        for holder in self._names.values():
            yield from holder

    def add(self, row: OperationRow, room: int) -> None:
        """Add an operation if it may hold the peak; beyond `room` names, keep the first."""
        high = _high(row)
        if high < self.best:
            return
        low, name = row.low, row.name
        is_best = low > self.best
        if is_best:
            self.best = low
            self._leave_out()
        held = self._names.get(name)
        if held is None:
            # The largest so far is kept in any case; soon those go that certainly had less.
            if len(self._names) < room or is_best:
                self._keep(high, name, _Holder(row, row))
            return
        first, largest = held
        if low > largest.low or (
            low == largest.low and row.start >= largest.start and row.end <= largest.end
        ):
            largest = row
        if row.start < first.start and row.end < first.end:
            first = row
        if first is not held.first or largest is not held.largest:
            self._keep(high, name, _Holder(first, largest))

    def _keep(self, high: float, name: str, holder: _Holder) -> None:
        self._names[name] = holder
        heapq.heappush(self._by_high, (high, name))
        if len(self._by_high) > 64 + 4 * len(self._names):
            self._by_high = [(_high(one), name) for name, held in self._names.items() for one in held]
            heapq.heapify(self._by_high)

    def _leave_out(self) -> None:
        """Drop the operations that certainly had less."""
        while self._by_high and self._by_high[0][0] < self.best:
            _, name = heapq.heappop(self._by_high)
            held = self._names.pop(name, None)
            left = [] if held is None else [one for one in held if _high(one) >= self.best]
            if left:
                self._names[name] = _Holder(left[0], left[-1])


class _Holding(NamedTuple):
    """Operations that may hold a peak first seen at a moment."""

    largest: OperationRow | None = None
    around: OperationRow | None = None


class Moments:
    """For each of some moments, the operations of a peak first seen then. The moments of peaks change while a run continues.

    They are the operation of the largest process between the sample before and this one, and the innermost of those that
    were open longest.

    Attributes:
        recent: the operations closed last.

    """

    def __init__(self) -> None:
        self.recent: deque[OperationRow] = deque(maxlen=RECENT)
        self._found: dict[float, _Holding] = {}
        self._first = self._last = self._interval = self._reading = 0.0

    def __iter__(self) -> Iterator[OperationRow]:
        for largest, around in self._found.values():
            if largest is not None:
                yield largest
            if around is not None and around is not largest:
                yield around

    def set(
        self,
        moments: Iterable[float],
        interval: float,
        still_open: Iterable[OperationRow],
        reading: float,
    ) -> None:
        """Set the moments (monotonic seconds) of samples `interval` seconds apart, read in `reading` seconds."""
        self._interval, self._reading = interval, reading
        there = [*self.recent, *still_open]
        self._found = {
            moment: self._found[moment] if moment in self._found else self._at(moment, there, _Holding())
            for moment in set(moments)
        }
        self._first = min(self._found, default=0.0)
        self._last = max(self._found, default=0.0)

    def add(self, row: OperationRow) -> None:
        """Add a closed operation. The first and the last moment exclude most."""
        self.recent.append(row)
        if row.start <= self._last + self._reading and row.end >= self._first - self._interval:
            for moment, found in self._found.items():
                self._found[moment] = self._at(moment, (row,), found)

    def _at(self, moment: float, rows: Iterable[OperationRow], found: _Holding) -> _Holding:
        """Return the operations of a moment, by more operations."""
        largest, around = found
        begin, end = moment - self._interval, moment + self._reading
        for row in rows:
            if row.start > end or row.end < begin:
                continue
            if largest is None or most_at_moment(row) > most_at_moment(largest):
                largest = row
            if around is None or open_longest(row, begin, end) > open_longest(around, begin, end):
                around = row
        return _Holding(largest, around)


def _high(row: OperationRow) -> float:
    return inf if row.high < 0 else row.high
