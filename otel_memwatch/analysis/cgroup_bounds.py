"""Bounds of what a control group of the run's own needed, window by window: charged memory less page cache.

Between two ticks the group's watermark `w` is known, but not how much of it was page cache at that moment. Cache comes
from storage or becomes dirty, and the kernel counts both for the tree. So, with `g` the bytes that the tree read from
and wrote to storage around the window, the cache was never more than at its beginning plus `g`, and never less than
at its end less `g`: what was needed lies between `w - (before + g)` and `w - (after - g)`.

`g` reaches from the tick before the window to the tick after it, since the readings of one tick are not of one
instant. Where the cache grew by more than `g` (a file system that does not tell the kernel's accounting), its growth is
taken instead. What came and went between reading a watermark and resetting it is missed; where that took long, as much is
allowed for as all processors can touch in the time.
"""

from __future__ import annotations

from collections.abc import Iterator

from otel_memwatch.runtime.typed import NamedTuple


class Reading(NamedTuple):
    """What one tick tells of the group, in bytes; `None`: not known."""

    time: float
    """Monotonic seconds."""
    usage: int | None
    window: int | None
    """Watermark since the tick before."""
    gap: float | None
    """Seconds between reading that watermark and resetting it, where they count."""
    peak: int | None
    """Watermark of the group's life."""
    file: int | None
    """Page cache, shared memory not included."""
    moved: int | None
    """Read from and written to storage by the tree so far."""


class Window(NamedTuple):
    """Bounds between two ticks, in bytes."""

    start: float
    end: float
    low: int | None
    """`None`: nothing is certain but what the ticks tell."""
    high: int | None
    """`None`: not known."""


_TOUCHED_PER_SECOND = 5e9
"""Bytes that one processor can bring into memory in a second, generously (measured: 2 with small pages, 5 with huge)."""


class Windows:
    """Turns the readings of successive ticks into bounds; each window is known one tick later.

    Args:
        started: monotonic seconds of the start of the run, where the first window begins.
        error: bytes by which the kernel's counters may be off.
        cpus: processors of the machine.
    """

    def __init__(self, started: float, error: int, cpus: int) -> None:
        self._error = error
        self._touched = cpus * _TOUCHED_PER_SECOND
        self._last = [Reading(started, 0, 0, 0, 0, 0, 0)]

    def take(self, reading: Reading) -> Window | None:
        """Takes a tick in; gives the window before the tick before, when there is one."""
        self._last.append(reading)
        if len(self._last) <= 2:
            return None
        before, current, after = self._last[-3:]
        self._last = self._last[-2:]
        return self._bounds(before, current, after)

    def rest(self) -> Iterator[Window]:
        """The window that no later tick completes; asking changes nothing."""
        if len(self._last) == 2:
            yield self._bounds(self._last[0], self._last[1], self._last[1])

    def _bounds(self, before: Reading, current: Reading, after: Reading) -> Window:
        top = current.window
        if (
            top is None
            and current.peak is not None
            and before.peak is not None
            and current.peak > before.peak
        ):
            top = current.peak
        ceiling = current.peak if top is None else top
        moved = None
        if after.moved is not None and before.moved is not None:
            moved = max(0, after.moved - before.moved)
        low = high = None
        if before.file is not None and current.file is not None and moved is not None:
            moved = max(moved, current.file - before.file)
            if top is not None:
                low = max(0, top - before.file - moved - self._error)
            if ceiling is not None:
                high = ceiling - max(0, current.file - moved) + self._error
        elif ceiling is not None:
            high = ceiling + self._error
        if high is not None and before.gap:
            high += int(before.gap * self._touched)
        return Window(before.time, current.time, low, high)
