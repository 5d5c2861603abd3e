"""Upper bounds of the tree: sums over processes that live at the same time, and over the windows between samples.

If no process exceeded its bound, the tree never exceeded the largest sum of the bounds of processes that lived at the same
time (`sum_over_time`). Ended processes take little memory (`EndedSpans`). If high-water marks are reset at every sample,
they give a second bound for the time between two samples (`WindowBounds`).
"""

from __future__ import annotations

import math
from bisect import bisect_right

from otel_memwatch.runtime.light import Struct
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

UNCAPPED = 1 << 62
"""Bytes beyond any memory size."""
_LARGE = 16 << 20
"""Bytes that an unseen process is unlikely to exceed. Merging decides before the bound of the process is known."""

_KEPT_WINDOWS = 64
"""Windows that are kept for the end."""

_SPAN = Struct("ddqqq")
"""A `Span` in the memory of `EndedSpans`."""


class Span(NamedTuple):
    """A weight from `start` to `end`, both included.

    Its weight is `bound`, plus `unseen_count` short-lived processes that get a bound only at the end of the run. Each then
    counts at most `unseen_max`, all together at most `cap`.
    """

    start: float
    end: float
    bound: int
    unseen_count: int = 0
    cap: int = UNCAPPED

    def weight(self, unseen_max: int) -> int:
        """Return its weight in bytes, if no unseen process had more than `unseen_max`."""
        return self.bound + min(self.unseen_count * unseen_max, self.cap)

    def without_cap(self) -> Span:
        """Return a span that is no lighter, and that can be added to other spans.

        A low cap becomes part of the bound. A cap that the unseen processes will hardly reach is dropped.
        """
        if self.cap <= self.unseen_count * _LARGE:
            return Span(self.start, self.end, self.bound + self.cap)
        return self._replace(cap=UNCAPPED)


class SumOverTime(NamedTuple):
    """A sum over spans as a function of time."""

    times: list[float]
    """Moments at which it changes, rising."""
    at: list[int]
    """Its value at each of these moments: spans that end there and spans that start there both count."""
    after: list[int]
    """Its value between each of these moments and the next."""

    def largest(self, start: float = -math.inf, end: float = math.inf) -> int:
        """Return the largest value between `start` and `end`, both included."""
        first, last = bisect_right(self.times, start), bisect_right(self.times, end)
        values = self.at[first:last]
        if first:
            inside = self.times[first - 1] == start
            values.append(self.at[first - 1] if inside else self.after[first - 1])
        return max(values, default=0)


def sum_over_time(weighted: Iterable[tuple[float, float, int]]) -> SumOverTime:
    """Return the sum over (start, end, weight); O(n log n)."""
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


def processes_between(spans: Iterable[Span], begin: float, end: float) -> int:
    """Return the number of processes that may have lived between two moments."""
    return sum(max(1, span.unseen_count) for span in spans if span.start <= end and span.end >= begin)


class EndedSpans:
    """Ended spans in little memory: spans that no later span can distinguish are merged.

    Merging never makes the sum smaller: it remains an upper bound. It loses nothing for spans added later if they begin at one
    of the moments given to `merge`.

    Attributes:
        merged_until: monotonic seconds until which a span may stand for several processes.
    """

    def __init__(self) -> None:
        self.merged_until = -math.inf
        self._packed = bytearray()

    def __len__(self) -> int:
        return len(self._packed) // _SPAN.size

    def add(self, span: Span) -> None:
        """Add a span."""
        self._packed += _SPAN.pack(*span)

    def spans(self) -> list[Span]:
        """Return all spans, as merged so far."""
        return [Span(*fields) for fields in _SPAN.iter_unpack(self._packed)]

    def sum_over_time(self, unseen_max: int, more: Iterable[Span] = ()) -> SumOverTime:
        """Return the sum over all spans and `more`, if no unseen process had more than `unseen_max` bytes."""
        return sum_over_time((s.start, s.end, s.weight(unseen_max)) for s in (*self.spans(), *more))

    def merge(self, borders: Sequence[float], horizon: float) -> None:
        """Merge the spans that ended before `horizon`: one remains between any two borders.

        Args:
            borders: the moments that matter to spans added later: the starts of living processes.
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
            self.merged_until = horizon
        self._packed.clear()
        for span in (*merged, *(span for span in spans if span.end >= horizon)):
            self.add(span)


class _TickWindow(NamedTuple):
    """The bound by high-water marks for the time between two samples; windows sort by it."""

    bound: float
    """Bytes, without the processes that no sample saw; infinite: not known."""
    start: float
    end: float
    unseen_count: int

    def total(self, unseen_max: int) -> float:
        """Return the bound with the processes that no sample saw, each of at most `unseen_max` bytes."""
        return self.bound + self.unseen_count * unseen_max


class WindowBounds:
    """Upper bounds of the tree between samples, from high-water marks that are reset at every sample.

    The time between two samples has two bounds: that of its high-water marks, and the lifetime peaks of the processes that
    lived in it. The latter are known only in the end. The tighter one holds. So the windows with the largest marks are kept
    until then; the others count by their marks alone. A sample costs a microsecond.
    """

    def __init__(self) -> None:
        self._kept: list[_TickWindow] = []
        self._other = _TickWindow(-math.inf, 0.0, 0.0, 0)
        """More than any that is not kept."""
        self._open: _TickWindow | None = None
        """The newest; it ends at the next sample."""
        self._last_tick = -math.inf

    def copy(self) -> WindowBounds:
        """Return a copy."""
        other = WindowBounds()
        other._kept, other._other = list(self._kept), self._other
        other._open, other._last_tick = self._open, self._last_tick
        return other

    def add_sample(self, time: float, bound: int | None, unseen_count: int) -> None:
        """End a window at a sample, and begin the next.

        Reading a sample takes a moment. So neither its high-water marks nor the processes that it missed certainly belong to one
        side of it:

            sample 1 ---------- sample 2 ---------- sample 3
            |<- bound of sample 2: sample 1 to 3 ------------>|
            |   unseen at samples 2 and 3 count in it         |

        Args:
            time: monotonic seconds.
            bound: bytes of the seen processes; `None`: not known.
            unseen_count: processes that no sample saw.
        """
        if self._open is not None:
            import heapq  # a short run has no window before its end

            window = self._open._replace(end=time, unseen_count=self._open.unseen_count + unseen_count)
            if len(self._kept) < _KEPT_WINDOWS:
                heapq.heappush(self._kept, window)
            else:
                least, other = heapq.heappushpop(self._kept, window), self._other
                most = max(other.bound, least.bound), max(other.unseen_count, least.unseen_count)
                self._other = _TickWindow(most[0], 0.0, 0.0, most[1])
        known = math.inf if bound is None else float(bound)
        self._open = _TickWindow(known, self._last_tick, math.inf, unseen_count)
        self._last_tick = time

    def largest(self, unseen_max: int, by_processes: Callable[[float, float], int]) -> float:
        """Return the largest bound of all windows, including the one after the last sample; infinite if no bound is known.

        Args:
            unseen_max: bytes that none of the processes that no sample saw exceeded.
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
