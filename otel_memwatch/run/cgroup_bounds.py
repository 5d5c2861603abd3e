"""Bounds of the memory that the run's cgroup needed between samples; the rule is `needed_between_samples`."""

from __future__ import annotations

import math

from otel_memwatch.record.format import TICK_DECIMALS
from otel_memwatch.record.schema import Sample, whole_of
from otel_memwatch.runtime.light import attrgetter
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.truth.cgroup_windows import (
    less_cache,
    needed_between_samples,
    taken_from_windows,
    touched,
)
from otel_memwatch.truth.estimates import likely_between_samples, likely_cache
from otel_memwatch.truth.exact import EXACT_BYTES

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator

    from otel_memwatch.model import Value
    from otel_memwatch.record.samples import Array, Samples
    from otel_memwatch.run.conditions import RunConditions


_readings_of = attrgetter(
    "window",
    "file",
    "watermark",
    "moved",
    "locked",
    "gap",
    "usage",
    "anon",
    "needed_low",
    "needed_high",
)

_SAME = 3
"""Number of equal samples before one from which on its window has the bounds of the window before."""


class CgroupWindow(NamedTuple):
    """Bounds between two samples, in bytes."""

    start: float
    """Monotonic seconds."""
    end: float
    """Time of the sample that ended it."""
    until: float
    """Moment by which that sample had been read. Up to then, the bounds may be those of this window."""
    low: int | None
    """`None`: nothing is certain beyond the samples."""
    high: int | None
    """`None`: not known."""
    likely: int | None = None
    """`None`: not known."""
    charged: int | None = None
    """The peak less all page cache that the cgroup can have held; `None`: not known, or on few processors."""


class CgroupBounds:
    """Turn successive samples into the bounds between them; the bounds between two samples are known one sample later.

    The later sample holds them. Samples of older records, and samples that the monitor has just read, do not. For these the
    rule is applied to the readings.
    """

    def __init__(self, conditions: RunConditions) -> None:
        self._conditions = conditions
        self._error = conditions.charge_error
        self._cpus = conditions.processors
        # The first window begins with the run, when the group was empty. A group that we join has an earlier watermark.
        self._before: Sample | None = None
        self._current: Sample | None = None
        if conditions.own_from_start or not conditions.joined:
            self._current = Sample(conditions.started, gap=0, window=0, watermark=0, file=0, moved=0)
        self._readings: tuple[Value, ...] = ()
        """Readings of the last sample on which bounds depend."""
        self._alike = 0
        """Number of samples before it with the same."""
        self._last: CgroupWindow | None = None
        """The last window that followed from the rule."""
        self.reset_by_others = False
        """The watermark of a group that we joined fell: another program reset it, so what it was before is not known."""
        self._disturbed = False
        """Another program reset the watermark of the run's cgroup (`taken_from_windows`)."""
        self.most_in_gap = 0
        """Upper bound of the cgroup's memory, page cache included, while its high-water mark was being reset."""

    def add(self, sample: Sample) -> CgroupWindow | None:
        """Add a sample; return the window that ended at the sample before, or `None` for the first."""
        if sample.gap and sample.window is not None:
            reached = int(sample.window) + touched(sample.gap, self._cpus)
            self.most_in_gap = max(self.most_in_gap, reached)
        before, current = self._before, self._current
        self._before, self._current = current, sample
        readings, last = _readings_of(sample), self._last
        self._alike = self._alike + 1 if readings == self._readings else 0
        self._readings = readings
        if self._alike >= _SAME and last is not None and before is not None and current is not None:
            until = self._conditions.read_until(current.time, current.reading)
            return CgroupWindow(before.time, current.time, until, last.low, last.high, last.likely)
        if current is not None and self._conditions.joined and _fell(current.watermark, sample.watermark):
            self.reset_by_others = True
        if before is None or current is None:
            self._last = None
        else:
            explained = touched(current.gap or 0, self._cpus) + self._error
            self._disturbed = self._disturbed or _taken(before, current, sample) > explained
            self._last = self._window(before, current, sample)
        return self._last

    def add_last(self, samples: Samples) -> None:
        """Add the last two samples only, but learn from all whether another program reset the watermark."""
        import numpy as np

        ever, window, gap = (samples.field(name) for name in ("watermark", "window", "gap"))
        before = np.concatenate(([math.inf if self._current is None else 0.0], ever))[:-2]
        taken = ever[:-1] - np.maximum(before, np.maximum(window[:-1], window[1:]))
        explained = touched(1, self._cpus) * np.nan_to_num(gap[:-1]) + self._error
        for sample in samples.last(2).each(self._conditions.started):
            self.add(sample)
        # The samples before them are missing, so a peak of an earlier window looks like one that another program took.
        self._disturbed = bool((taken > explained).any())

    def rest(self, *, all_ended: bool) -> Iterator[CgroupWindow]:
        """Yield the window that no later sample completes; asking changes nothing.

        `all_ended`: no process of the tree was alive at its last sample. Otherwise cache may have come while that sample was
        read, after the I/O had been counted. Only the next sample could show how much of it was cache. Then no cache is
        subtracted from the high-water mark.
        """
        before, current = self._before, self._current
        if before is not None and current is not None:
            last = current._replace(needed_low=None, needed_high=None)
            window = self._window(before, current, last)
            if not all_ended and window.high is not None:
                window = window._replace(high=self._window(before, current._replace(file=None), last).high)
            yield window

    def _window(self, before: Sample, current: Sample, after: Sample) -> CgroupWindow:
        top, file_before, file = whole_of(current.window), whole_of(before.file), whole_of(current.file)
        watermark, watermark_before = whole_of(current.watermark), whole_of(before.watermark)
        # A high-water mark that cannot be reset was reached in this window if it has risen. So was one above both windows.
        if _rose(watermark_before, watermark) and (top is None or _taken(before, current, after)):
            top = watermark
        low, high = whole_of(after.needed_low), whole_of(after.needed_high)
        moved, charged = None, None
        if after.moved is not None and before.moved is not None:
            moved = max(0, int(after.moved) - int(before.moved))
        if self._conditions.joined and _fell(watermark_before, watermark):
            high = None
        elif high is None:
            low, high = needed_between_samples(
                top,
                watermark if top is None or self._disturbed else top,
                file_before=file_before,
                file=file,
                locked=whole_of(current.locked) or 0,
                moved=moved,
                reset_gap=before.gap,
                error=self._error,
                cpus=self._cpus,
            )
        if self._error > EXACT_BYTES:
            charged = less_cache(top, file_before, file, moved)
        likely = likely_between_samples(top, _likely_cache(before), _likely_cache(current))
        until = self._conditions.read_until(current.time, current.reading)
        return CgroupWindow(before.time, current.time, until, low, high, likely, charged)


def bounds_between(samples: Samples, conditions: RunConditions, *, all_ended: bool) -> tuple[Array, ...]:
    """Return the windows of a whole record: starts, ends and untils in monotonic seconds, lower and upper bounds.

    A bound is NaN if it is not known; see `CgroupBounds.rest` for `all_ended`. The windows are those of `CgroupBounds`. If the
    record has their bounds, they are read as arrays: a day at 10 Hz would take 4 s more from its samples one by one
    (`bench_twins`).
    """
    from array import array

    import numpy as np

    bounds = CgroupBounds(conditions)
    found = tuple(array("d") for _ in range(5))
    low, high = samples.field("needed_low"), samples.field("needed_high")
    if not np.isnan(high).all():
        time = np.round(samples.time + conditions.started, TICK_DECIMALS)
        starts = np.concatenate(([conditions.started], time))[: max(0, len(time) - 1)]
        reading = samples.field("reading")
        untils = time + np.where(np.isnan(reading), conditions.reading_seconds, reading)
        skipped = int(
            conditions.joined and not conditions.own_from_start
        )  # the group is older than its first sample
        for column, values in zip(found, (starts, time[:-1], untils[:-1], low[1:], high[1:]), strict=True):
            column.frombytes(values[skipped:].tobytes())
        bounds.add_last(samples)
    else:
        for sample in samples.each(conditions.started):
            _append(found, bounds.add(sample))
    for window in bounds.rest(all_ended=all_ended):
        _append(found, window)
    return tuple(np.frombuffer(column) if column else np.empty(0) for column in found)


def _fell(before: float | None, after: float | None) -> bool:
    """Return whether a watermark fell between two samples, which it does only if a program resets it."""
    return before is not None and after is not None and after < before


def _rose(before: float | None, after: float | None) -> bool:
    """Return whether a watermark rose between two samples, so its new value was reached between them."""
    return before is not None and after is not None and after > before


def _taken(before: Sample, current: Sample, after: Sample) -> int:
    """Return `taken_from_windows` of the window that ends at `current`; 0 if a peak is unknown."""
    peaks = current.watermark, before.watermark, current.window, after.window
    return 0 if None in peaks else taken_from_windows(*(whole_of(peak) or 0 for peak in peaks))


def _likely_cache(sample: Sample) -> int | None:
    return likely_cache(whole_of(sample.file), whole_of(sample.usage), whole_of(sample.anon))


def _append(columns: tuple[array[float], ...], window: CgroupWindow | None) -> None:
    if window is not None:
        for column, value in zip(columns, window[:5], strict=True):
            column.append(math.nan if value is None else value)
