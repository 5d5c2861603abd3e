"""Keep the few operations that may hold the peak of their process, or that were open at a moment."""

from __future__ import annotations

import heapq
from collections import deque
from math import inf

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


class Moments:
    """For each of some moments, the open operation of the largest process. The moments of peaks change while a run continues.

    Attributes:
        recent: the operations closed last.

    """

    def __init__(self) -> None:
        self.recent: deque[OperationRow] = deque(maxlen=RECENT)
        self._found: dict[float, OperationRow | None] = {}
        self._first = self._last = self._interval = 0.0

    def __iter__(self) -> Iterator[OperationRow]:
        return (row for row in self._found.values() if row is not None)

    def set(self, moments: Iterable[float], interval: float, still_open: Iterable[OperationRow]) -> None:
        """Set the moments (monotonic seconds) of samples `interval` seconds apart."""
        self._interval = interval
        there = [*self.recent, *still_open]
        self._found = {
            moment: self._found[moment] if moment in self._found else self._largest_at(moment, there, None)
            for moment in set(moments)
        }
        self._first = min(self._found, default=0.0)
        self._last = max(self._found, default=0.0)

    def add(self, row: OperationRow) -> None:
        """Add a closed operation. The first and the last moment exclude most."""
        self.recent.append(row)
        if row.start <= self._last and row.end >= self._first - self._interval:
            for moment, best in self._found.items():
                self._found[moment] = self._largest_at(moment, (row,), best)

    def _largest_at(
        self, moment: float, rows: Iterable[OperationRow], best: OperationRow | None
    ) -> OperationRow | None:
        """Return the operation with the most memory that was open at a moment, the latest of equal ones; else `best`."""
        for row in rows:
            if row.start <= moment and row.end >= moment - self._interval:
                least = (-inf, 0.0) if best is None else (best.low, best.start)
                best = row if (row.low, row.start) > least else best
        return best


def _high(row: OperationRow) -> float:
    return inf if row.high < 0 else row.high
