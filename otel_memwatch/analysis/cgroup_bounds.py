"""Bounds of what a control group of the run's own needed, tick by tick; the rule is `certainty.needed_between_ticks`."""

from __future__ import annotations

from collections.abc import Iterator

from otel_memwatch.analysis import certainty
from otel_memwatch.runtime.typed import NamedTuple


class CgroupTick(NamedTuple):
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
    locked: int = 0
    """Pages that cannot be reclaimed."""


class CgroupWindow(NamedTuple):
    """Bounds between two ticks, in bytes."""

    start: float
    end: float
    low: int | None
    """`None`: nothing is certain but what the ticks tell."""
    high: int | None
    """`None`: not known."""


class CgroupBounds:
    """Turns successive ticks into the bounds between them; those between two ticks are known one tick later.

    Args:
        started: monotonic seconds of the start of the run, where the first window begins.
        error: bytes by which the group's counters may be off.
        cpus: processors of the machine.
    """

    def __init__(self, started: float, error: int, cpus: int) -> None:
        self._error = error
        self._cpus = cpus
        self._last = [CgroupTick(started, 0, 0, 0, 0, 0, 0)]
        self.most_in_gap = 0
        """Bytes that the group may have had, page cache included, while its watermark was neither the old nor the new one."""

    def add_tick(self, tick: CgroupTick) -> CgroupWindow | None:
        """Takes a tick in; gives the window that ended at the tick before, when there is one."""
        if tick.gap and tick.window is not None:
            self.most_in_gap = max(self.most_in_gap, tick.window + certainty.touched(tick.gap, self._cpus))
        if len(self._last) < 2:
            self._last.append(tick)
            return None
        before, current = self._last
        self._last = [current, tick]
        return self._window(before, current, tick)

    def rest(self, *, all_ended: bool) -> Iterator[CgroupWindow]:
        """The window that no later tick completes; asking changes nothing.

        `all_ended`: no process of the tree was alive at its last tick. Otherwise cache may have come while that tick was
        read, after the I/O had been counted: then nothing is taken off its watermark, since the next tick would be
        needed to know how much of it was cache.
        """
        if len(self._last) == 2:
            before, current = self._last
            window = self._window(before, current, current)
            if not all_ended and window.high is not None:
                without_cache = current._replace(file=None)
                window = window._replace(high=self._window(before, without_cache, current).high)
            yield window

    def _window(self, before: CgroupTick, current: CgroupTick, after: CgroupTick) -> CgroupWindow:
        top = current.window
        # Where nobody can reset the watermark, it was reached in this window if it has risen.
        if (
            top is None
            and current.peak is not None
            and before.peak is not None
            and current.peak > before.peak
        ):
            top = current.peak
        moved = None
        if after.moved is not None and before.moved is not None:
            moved = max(0, after.moved - before.moved)
        low, high = certainty.needed_between_ticks(
            top,
            current.peak if top is None else top,
            file_before=before.file,
            file=current.file,
            locked=current.locked,
            moved=moved,
            reset_gap=before.gap,
            error=self._error,
            cpus=self._cpus,
        )
        return CgroupWindow(before.time, current.time, low, high)
