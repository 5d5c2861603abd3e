"""Upper bound of a sum over processes that live at the same time.

If no process ever had more than its bound, the tree never had more than the largest sum of the bounds of processes
whose lives overlap.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


UNCAPPED = 1 << 62
"""Bytes that nothing has."""
_LARGE = 16 << 20
"""Bytes of a unit that is guessed to be too large, as long as it is not known."""


class Span(NamedTuple):
    """Something that weighs from `start` to `end`, both included.

    Its weight is `bound` + `units` x a unit size that is known only in the end, these no more than `cap`.
    """

    start: float
    end: float
    bound: int
    units: int = 0
    cap: int = UNCAPPED

    def weight(self, unit: int) -> int:
        """Its weight."""
        return self.bound + min(self.units * unit, self.cap)

    def settled(self) -> Span:
        """Without a cap, so that it can be added to others; no less heavy."""
        if self.cap <= self.units * _LARGE:
            return Span(self.start, self.end, self.bound + self.cap)
        return self._replace(cap=UNCAPPED)


class Steps(NamedTuple):
    """A sum over spans as a function of time."""

    times: list[float]
    """Where it changes, rising."""
    at: list[int]
    """Its value at each of these moments: spans that end there and spans that start there both count."""
    after: list[int]
    """Its value between each of these moments and the next."""

    def largest(self, start: float = -math.inf, end: float = math.inf) -> int:
        """Its largest value between `start` and `end`, both included."""
        first, last = bisect_right(self.times, start), bisect_right(self.times, end)
        values = self.at[first:last]
        if first:
            inside = self.times[first - 1] == start
            values.append(self.at[first - 1] if inside else self.after[first - 1])
        return max(values, default=0)


def steps(weighted: Iterable[tuple[float, float, int]]) -> Steps:
    """The sum over (start, end, weight); O(n log n)."""
    comes: dict[float, int] = {}
    goes: dict[float, int] = {}
    for start, end, weight in weighted:
        comes[start] = comes.get(start, 0) + weight
        goes[end] = goes.get(end, 0) + weight
    times = sorted(comes.keys() | goes.keys())
    at, after, now = [], [], 0
    for time in times:
        now += comes.get(time, 0)
        at.append(now)
        now -= goes.get(time, 0)
        after.append(now)
    return Steps(times, at, after)


class Overlap:
    """Spans that are over, kept in little memory: what can no longer be told apart is merged.

    Merging never makes the sum smaller, so that it stays an upper bound; it loses nothing for spans added later
    that cover whole stretches between the moments given to `merge`.
    """

    def __init__(self) -> None:
        self._start, self._end = array("d"), array("d")
        self._bound, self._units, self._cap = array("q"), array("q"), array("q")

    def __len__(self) -> int:
        return len(self._start)

    def add(self, span: Span) -> None:
        """Takes a span in."""
        self._start.append(span.start)
        self._end.append(span.end)
        self._bound.append(span.bound)
        self._units.append(span.units)
        self._cap.append(span.cap)

    def spans(self) -> list[Span]:
        """All of them, as merged so far."""
        columns = self._start, self._end, self._bound, self._units, self._cap
        return [Span(*fields) for fields in zip(*columns, strict=True)]

    def steps(self, unit: int, more: Iterable[Span] = ()) -> Steps:
        """The sum over all spans and `more`, with the unit's weight."""
        return steps((s.start, s.end, s.weight(unit)) for s in (*self.spans(), *more))

    def merge(self, borders: Sequence[float], horizon: float) -> None:
        """Merges the spans that ended before `horizon`: one is left for each stretch between two borders.

        Args:
            borders: the moments that matter to spans added later: the starts of what still lives.
            horizon: monotonic seconds; later spans stay as they are.

        """
        old = [span.settled() for span in self.spans() if span.end < horizon]
        new = [span for span in self.spans() if span.end >= horizon]
        bounds = steps((s.start, s.end, s.bound) for s in old)
        counts = steps((s.start, s.end, s.units) for s in old)
        self.__init__()  # type: ignore[misc]
        if old:
            edges = sorted(
                {bounds.times[0], *(b for b in borders if bounds.times[0] < b <= bounds.times[-1])}
            )
            ends = [math.nextafter(edge, -math.inf) for edge in edges[1:]] + [bounds.times[-1]]
            for start, end in zip(edges, ends, strict=True):
                self.add(Span(start, end, bounds.largest(start, end), counts.largest(start, end)))
        for span in new:
            self.add(span)
