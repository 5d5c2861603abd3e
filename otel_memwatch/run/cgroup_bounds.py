"""Bounds of what a control group of the run's own needed between samples; the rule is `certainty.needed_between_ticks`."""

from __future__ import annotations

import math
from array import array

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.truth import certainty

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_memwatch.model import Value
    from otel_memwatch.record.samples import Array, Samples
    from otel_memwatch.record.schema import Sample
    from otel_memwatch.run.conditions import RunConditions


class CgroupWindow(NamedTuple):
    """Bounds between two samples, in bytes."""

    start: float
    """Monotonic seconds."""
    end: float
    low: int | None
    """`None`: nothing is certain beyond the samples."""
    high: int | None
    """`None`: not known."""
    likely: int | None = None
    """`None`: not known."""


class _Reading(NamedTuple):
    """What a sample says of the group, in bytes; `None`: not known."""

    time: float
    window: int | None
    gap: float | None
    watermark: int | None
    file: int | None
    moved: int | None
    locked: int

    @classmethod
    def of(cls, sample: Sample) -> _Reading:
        return cls(
            sample.time,
            _whole(sample.window),
            sample.gap,
            _whole(sample.watermark),
            _whole(sample.file),
            _whole(sample.moved),
            _whole(sample.locked) or 0,
        )


class CgroupBounds:
    """Turns successive samples into the bounds between them; those between two samples are known one sample later."""

    def __init__(self, conditions: RunConditions) -> None:
        self._error = conditions.charge_error
        self._cpus = conditions.cpus
        # The first window begins with the run, when the group was empty.
        self._last = [_Reading(conditions.started, 0, 0, 0, 0, 0, 0)]
        self.most_in_gap = 0
        """Bytes that the group may have had, page cache included, while its watermark was being reset."""

    def add(self, sample: Sample) -> CgroupWindow | None:
        """Add a sample; return the window that ended at the sample before, if there is one."""
        reading = _Reading.of(sample)
        if reading.gap and reading.window is not None:
            self.most_in_gap = max(
                self.most_in_gap, reading.window + certainty.touched(reading.gap, self._cpus)
            )
        if len(self._last) < 2:
            self._last.append(reading)
            return None
        before, current = self._last
        self._last = [current, reading]
        return self._window(before, current, reading)

    def rest(self, *, all_ended: bool) -> Iterator[CgroupWindow]:
        """Yield the window that no later sample completes; asking changes nothing.

        `all_ended`: no process of the tree was alive at its last sample. Otherwise cache may have come while that sample was
        read, after the I/O had been counted: then nothing is taken off its watermark, since the next sample would be
        needed to know how much of it was cache.
        """
        if len(self._last) == 2:
            before, current = self._last
            window = self._window(before, current, current)
            if not all_ended and window.high is not None:
                without_cache = current._replace(file=None)
                window = window._replace(high=self._window(before, without_cache, current).high)
            yield window

    def _window(self, before: _Reading, current: _Reading, after: _Reading) -> CgroupWindow:
        top = current.window
        # If nobody can reset the watermark, it was reached in this window if it has risen.
        if (
            top is None
            and current.watermark is not None
            and before.watermark is not None
            and current.watermark > before.watermark
        ):
            top = current.watermark
        moved = None
        if after.moved is not None and before.moved is not None:
            moved = max(0, after.moved - before.moved)
        low, high = certainty.needed_between_ticks(
            top,
            current.watermark if top is None else top,
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


def bounds_between(samples: Samples, conditions: RunConditions, *, all_ended: bool) -> tuple[Array, ...]:
    """Return the windows of a whole record: starts and ends in monotonic seconds, lower and upper bounds.

    A bound is NaN if it is not known; see `CgroupBounds.rest` for `all_ended`.
    """
    import numpy as np

    bounds = CgroupBounds(conditions)
    found = tuple(array("d") for _ in range(4))
    for sample in samples.each(conditions.started):
        _append(found, bounds.add(sample))
    for window in bounds.rest(all_ended=all_ended):
        _append(found, window)
    return tuple(np.frombuffer(column) if column else np.empty(0) for column in found)


def _append(columns: tuple[array[float], ...], window: CgroupWindow | None) -> None:
    if window is not None:
        for column, value in zip(columns, window[:4], strict=True):
            column.append(math.nan if value is None else value)


def _whole(value: Value) -> int | None:
    return None if value is None else int(value)
