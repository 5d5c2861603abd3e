"""Upper bounds of the tree: sums over processes that live at the same time, and over the windows between ticks.

If no process ever had more than its bound, the tree never had more than the largest sum of the bounds of processes
that lived at the same time (`sum_over_time`). What has ended is kept in little memory (`EndedSpans`). Where watermarks
are reset at every tick, what they tell of the time between two ticks is a second bound (`WindowBounds`).
"""

from __future__ import annotations

import heapq
import math
from array import array
from bisect import bisect_right

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

UNCAPPED = 1 << 62
"""Bytes that nothing has."""
_LARGE = 16 << 20
"""Bytes that an unseen process hardly had. Its bound is known in the end only, but merging has to decide before."""

_KEPT_WINDOWS = 64
"""Windows that are kept for the end."""


class Span(NamedTuple):
    """Something that weighs from `start` to `end`, both included.

    Its weight is `bound`, and beside that `unseen_count` processes of which no bound is known before the run has ended:
    none had more than `unseen_max` then, all together no more than `cap`.
    """

    start: float
    end: float
    bound: int
    unseen_count: int = 0
    cap: int = UNCAPPED

    def weight(self, unseen_max: int) -> int:
        """Bytes that it weighs, where no unseen process had more than `unseen_max`."""
        return self.bound + min(self.unseen_count * unseen_max, self.cap)

    def without_cap(self) -> Span:
        """No less heavy, and with nothing that cannot be added to other spans.

        A low cap becomes part of the bound. One so high that the unseen processes will hardly reach it is dropped.
        """
        if self.cap <= self.unseen_count * _LARGE:
            return Span(self.start, self.end, self.bound + self.cap)
        return self._replace(cap=UNCAPPED)


class SumOverTime(NamedTuple):
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


def sum_over_time(weighted: Iterable[tuple[float, float, int]]) -> SumOverTime:
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
    return SumOverTime(times, at, after)


class EndedSpans:
    """Spans that are over, kept in little memory: those that no later span can tell apart are merged.

    Merging never makes the sum smaller, so that it stays an upper bound; it loses nothing for spans added later
    that begin at one of the moments given to `merge`.
    """

    def __init__(self) -> None:
        self._start, self._end = array("d"), array("d")
        self._bound, self._unseen, self._cap = array("q"), array("q"), array("q")

    def __len__(self) -> int:
        return len(self._start)

    def add(self, span: Span) -> None:
        """Takes a span in."""
        self._start.append(span.start)
        self._end.append(span.end)
        self._bound.append(span.bound)
        self._unseen.append(span.unseen_count)
        self._cap.append(span.cap)

    def spans(self) -> list[Span]:
        """All of them, as merged so far."""
        columns = self._start, self._end, self._bound, self._unseen, self._cap
        return [Span(*fields) for fields in zip(*columns, strict=True)]

    def sum_over_time(self, unseen_max: int, more: Iterable[Span] = ()) -> SumOverTime:
        """The sum over all spans and `more`, where no unseen process had more than `unseen_max` bytes."""
        return sum_over_time((s.start, s.end, s.weight(unseen_max)) for s in (*self.spans(), *more))

    def merge(self, borders: Sequence[float], horizon: float) -> None:
        """Merges the spans that ended before `horizon`: one is left between any two borders.

        Args:
            borders: the moments that matter to spans added later: the starts of what still lives.
            horizon: monotonic seconds; later spans stay as they are.

        """
        spans = self.spans()
        old = [span.without_cap() for span in spans if span.end < horizon]
        merged: list[Span] = []
        if old:
            bounds = sum_over_time((s.start, s.end, s.bound) for s in old)
            counts = sum_over_time((s.start, s.end, s.unseen_count) for s in old)
            first, last = bounds.times[0], bounds.times[-1]
            edges = sorted({first, *(b for b in borders if first < b <= last)})
            ends = [math.nextafter(edge, -math.inf) for edge in edges[1:]] + [last]
            for start, end in zip(edges, ends, strict=True):
                merged.append(Span(start, end, bounds.largest(start, end), counts.largest(start, end)))
        for column in (self._start, self._end, self._bound, self._unseen, self._cap):
            del column[:]
        for span in (*merged, *(span for span in spans if span.end >= horizon)):
            self.add(span)


class _TickWindow(NamedTuple):
    """What the watermarks tell of the time between two ticks; windows sort by that."""

    bound: float
    """Bytes, without the processes that no tick saw; infinite: they tell nothing."""
    start: float
    end: float
    unseen_count: int

    def total(self, unseen_max: int) -> float:
        """With the processes that no tick saw, of which none had more than `unseen_max` bytes."""
        return self.bound + self.unseen_count * unseen_max


class WindowBounds:
    """Upper bounds of the tree between ticks, from watermarks that are reset at every tick.

    The time between two ticks has two bounds: that of its watermarks, and what the processes that lived in it had in
    their whole lives, which is known in the end only. The nearer one holds. So the windows with the largest
    watermarks are kept until then, the others count by their watermarks alone. A tick costs a microsecond.
    """

    def __init__(self) -> None:
        self._kept: list[_TickWindow] = []
        self._other = _TickWindow(-math.inf, 0.0, 0.0, 0)
        """More than any that is not kept."""
        self._open: _TickWindow | None = None
        """The newest, whose end is the next tick."""
        self._last_tick = -math.inf

    def copy(self) -> WindowBounds:
        """Another one that knows the same."""
        other = WindowBounds()
        other._kept, other._other = list(self._kept), self._other
        other._open, other._last_tick = self._open, self._last_tick
        return other

    def add_tick(self, time: float, bound: int | None, unseen_count: int) -> None:
        """A tick ends a window and begins the next.

        The readings of a tick take a moment, so that neither its watermarks nor the processes that it missed belong to one
        side of it for certain:

            tick 1 ------------ tick 2 ------------ tick 3
            |<-- bound of tick 2: from tick 1 to tick 3 -->|
            |   unseen at tick 2 and at tick 3 count in it |

        Args:
            time: monotonic seconds.
            bound: bytes of the processes that were seen; `None`: the watermarks tell nothing.
            unseen_count: processes that no tick saw.

        """
        if self._open is not None:
            before = self._open
            self._keep(before._replace(end=time, unseen_count=before.unseen_count + unseen_count))
        known = math.inf if bound is None else float(bound)
        self._open = _TickWindow(known, self._last_tick, math.inf, unseen_count)
        self._last_tick = time

    def _keep(self, window: _TickWindow) -> None:
        if len(self._kept) < _KEPT_WINDOWS:
            heapq.heappush(self._kept, window)
            return
        least = heapq.heappushpop(self._kept, window)
        most = max(self._other.bound, least.bound), max(self._other.unseen_count, least.unseen_count)
        self._other = _TickWindow(most[0], 0.0, 0.0, most[1])

    def largest(self, unseen_max: int, by_processes: Callable[[float, float], int]) -> float:
        """The largest bound of all windows, that after the last tick included; infinite where there is none.

        Args:
            unseen_max: bytes that none of the processes that no tick saw exceeded.
            by_processes: bound of the processes that live between two moments, both included.

        """
        last = [] if self._open is None else [self._open]
        after = by_processes(math.nextafter(self._last_tick, math.inf), math.inf)
        most = max(after, self._other.total(unseen_max))
        for window in (*self._kept, *last):
            total = window.total(unseen_max)
            if total > most:
                most = max(most, min(total, by_processes(window.start, window.end)))
        return most
