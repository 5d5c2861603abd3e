"""Bounds of what a control group of the run's own needed, tick by tick; the rule is `certainty.needed_between_ticks`."""

from __future__ import annotations

from collections.abc import Iterator

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.truth import certainty

if TYPE_CHECKING:
    from otel_memwatch.record.samples import Array


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
    likely: int | None = None
    """`None`: not known."""


_WINDOW, _GAP, _PEAK, _FILE, _MOVED, _LOCKED = map(
    CgroupTick._fields.index, ("window", "gap", "peak", "file", "moved", "locked")
)


def _tick_of(row: list[float]) -> CgroupTick:
    time, usage, window, gap, peak, file, moved, locked = (None if v != v else v for v in row)  # noqa: PLR0124 - NaN
    return CgroupTick(
        time or 0.0,
        _whole(usage),
        _whole(window),
        gap,
        _whole(peak),
        _whole(file),
        _whole(moved),
        int(locked or 0),
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


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

    def add_ticks(self, ticks: Array) -> tuple[Array, Array, Array, Array]:
        """Takes ticks in, each a row of what a `CgroupTick` has, NaN where not known; gives the windows that became known.

        Of these the starts, the ends, and the lower and upper bounds; a bound is NaN where it is not known. Of bytes the
        whole ones count, below 2**53. Costs a fortieth of `add_tick` of each.
        """
        import numpy as np

        bytes_of = [place for place in range(1, ticks.shape[1]) if place != _GAP]
        ticks = ticks.copy()
        ticks[:, bytes_of] = np.trunc(ticks[:, bytes_of])
        known = ticks[~np.isnan(ticks[:, _WINDOW]) & (ticks[:, _GAP] > 0)]
        if len(known):
            reached = known[:, _WINDOW] + certainty.touched_in_each(known[:, _GAP], self._cpus)
            self.most_in_gap = max(self.most_in_gap, int(reached.max()))
        rows = np.concatenate([np.array(self._last, np.float64), ticks])
        before, current, after = rows[:-2], rows[1:-1], rows[2:]
        tops, ceilings = current[:, _WINDOW], current[:, _PEAK]
        # As in `_window`: nobody could reset it, and it has risen.
        tops = np.where(np.isnan(tops) & (ceilings > before[:, _PEAK]), ceilings, tops)
        lows, highs = certainty.needed_between_all_ticks(
            tops,
            np.where(np.isnan(tops), ceilings, tops),
            files_before=before[:, _FILE],
            files=current[:, _FILE],
            locked=np.nan_to_num(current[:, _LOCKED]),
            moved=np.maximum(0, after[:, _MOVED] - before[:, _MOVED]),
            reset_gaps=before[:, _GAP],
            error=self._error,
            cpus=self._cpus,
        )
        self._last = [_tick_of(row) for row in rows[-2:].tolist()]
        return before[:, 0], current[:, 0], lows, highs

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
        likely = certainty.likely_between_ticks(top, before.file, current.file)
        return CgroupWindow(before.time, current.time, low, high, likely)
