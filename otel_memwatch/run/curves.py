"""A run's figures over time in few points that keep every peak, computed while samples arrive: enough for the page.

Samples are put into buckets. Up to `POINTS` samples each has a separate bucket. Then neighbours are joined: a bucket
holds all samples of a stretch of time. Whenever the buckets are too many again, the stretches double. So:

- a day takes as little memory as a minute,
- nothing remains to be computed at the end,
- reading the record again gives the same curves.

A bucket reaches from the last sample of the bucket before it, exclusive, to the last sample in it. So the window between
two samples lies in exactly one bucket. The largest value of a bucket is the largest of its samples and windows, however
often neighbours were joined. A mean would lower peaks, and a choice of points could omit them.
"""

from __future__ import annotations

import math
from array import array
from itertools import pairwise

from otel_memwatch import catalog
from otel_memwatch.record.format import TICK_DECIMALS
from otel_memwatch.record.schema import fields_in, series_picker
from otel_memwatch.run.cgroup_bounds import CgroupBounds, CgroupWindow, bounds_between
from otel_memwatch.run.conditions import RunConditions
from otel_memwatch.run.ledger_bounds import LedgerWindows, ledger_between
from otel_memwatch.run.process_curves import ProcessLives
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from otel_memwatch.model import Column, Peak, Value
    from otel_memwatch.record.reader import Record
    from otel_memwatch.record.samples import Samples
    from otel_memwatch.record.schema import Sample

    Array = NDArray[np.float64]

POINTS = 4096
"""Buckets at most; at least half as many once a run has had more samples."""

GAUGES = {
    catalog.MEMWATCH_TREE_MEMORY_USAGE,
    catalog.PROCESS_MEMORY_USAGE,
    catalog.MEMWATCH_TREE_MEMORY_PSS,
    catalog.MEMWATCH_CGROUP_MEMORY_USAGE,
    catalog.MEMWATCH_TREE_PROCESS_COUNT,
    catalog.HW_GPU_MEMORY_USAGE,
    catalog.HW_GPU_MEMORY_LIMIT,
    catalog.HW_GPU_UTILIZATION,
    catalog.MEMWATCH_TREE_GPU_MEMORY_USAGE,
}
"""Metrics for which a bucket keeps the smallest and the largest value."""

COUNTERS = {
    catalog.MEMWATCH_TREE_CPU_TIME,
    catalog.MEMWATCH_TREE_DISK_IO,
    catalog.MEMWATCH_TREE_SYSCALL_IO,
    catalog.MEMWATCH_CGROUP_MEMORY_EVENTS,
}
"""Metrics for which a bucket keeps the last value."""

NEEDED = "needed"
"""Memory needed at samples: charged to the run's own cgroup less page cache. In other runs it is the best estimate."""
LEAST, MOST = "least", "most"
"""Bounds of the memory needed in the windows between samples, from the cgroup's high-water mark or from page faults."""

Key = tuple[str, tuple[tuple[str, str], ...]]
"""Subject of a curve: a metric or one of the names above, with attributes."""

_UNKNOWN = math.nan

_TOGETHER = 4096
"""Samples of a record that are added at a time."""

_WAITING = 128
"""Limit of the samples that wait to enter buckets: a bucket of a month has some ten thousand."""


class Curve(NamedTuple):
    """One figure over time: a value for each bucket, NaN if it is not known."""

    low: Sequence[float]
    """The smallest value at a sample; for a counter, equal to `high`."""
    high: Sequence[float]
    """The largest value; for a counter, the last one."""


class DrawnCurves(NamedTuple):
    """The curves of a page. Times are seconds since the start of the run."""

    first: Sequence[float]
    """Time of each bucket's first sample."""
    last: Sequence[float]
    """Time of each bucket's last sample."""
    step: float
    """Seconds that a bucket covers; 0: each is one sample."""
    curves: Mapping[Key, Curve]
    lives: ProcessLives
    """Memory of the largest processes."""

    def find(self, metric: str, **attributes: str) -> Curve | None:
        """Return the first curve of a metric with these attributes (dots as underscores); `None`: no value is known."""
        wanted = {(name.replace("_", "."), value) for name, value in attributes.items()}
        return next(
            (c for (name, more), c in self.curves.items() if name == metric and wanted <= set(more)), None
        )


class _Extremes:
    """The smallest and the largest value of one figure in each bucket."""

    def __init__(self, buckets: int) -> None:
        self.low = array("d", [_UNKNOWN]) * buckets
        self.high = array("d", [_UNKNOWN]) * buckets
        self.known = False
        """True once any value was known."""

    def begin(self, low: float, high: float) -> None:
        """Add a bucket with the smallest and the largest of its first values; NaN: none is known."""
        self.low.append(low)
        self.high.append(high)
        if low == low:  # noqa: PLR0124 - not NaN
            self.known = True

    def begin_all(self, values: Iterable[Value]) -> None:
        """Add a bucket for each value; `None`: unknown."""
        added = array("d", [_UNKNOWN if value is None else value for value in values])
        self.low.extend(added)
        self.high.extend(added)
        self.known = self.known or any(value == value for value in added)  # noqa: PLR0124 - not NaN

    def take(self, low: float, high: float, *, counter: bool = False) -> None:
        """Add the smallest and the largest of some values to the last bucket; the last value of a counter replaces the others."""
        self.known = True
        # "not at most" is true of an unknown value too.
        if counter or not self.low[-1] <= low:
            self.low[-1] = low
        if counter or not self.high[-1] >= high:
            self.high[-1] = high


class _Buckets:
    """The buckets and their values.

    Args:
        keys: the subjects of each sample's values.
        points: limit of the number of buckets.
        step: seconds that the first longer buckets cover.
    """

    def __init__(self, keys: Sequence[Key], points: int, step: float) -> None:
        self.first, self.last = array("d"), array("d")
        self.width = 0.0
        """Seconds that a bucket covers; 0: each is one sample."""
        self.figures = {key: _Extremes(0) for key in keys}
        self.points = points
        self.step = step
        self._row = [(figure, key[0] in COUNTERS) for key, figure in self.figures.items()]
        """The figure that each value of a sample belongs to, and whether it is a counter."""
        self._begun = False
        """The figures lack the last bucket."""
        self._place: int | None = None
        """Number of the stretch of time that the last bucket covers."""
        self._waiting: list[Sequence[Value]] = []
        """Samples that the figures lack: those of the last bucket or, if a bucket is one sample, of the last buckets. Adding
        some at once takes a tenth of the time."""

    def add(self, time: float, values: Sequence[Value]) -> None:
        """Add a sample."""
        if self.width and self._place == math.floor(time / self.width):
            self.last[-1] = time
        else:
            if self.width:
                self.fold()
            self._open(time)
        self._waiting.append(values)
        if len(self._waiting) >= _WAITING:
            self.fold()

    def add_arrays(self, times: Array, columns: Sequence[Array]) -> None:
        """Add many samples, in order; `columns` has the values of each subject, NaN if unknown.

        Samples of one bucket are added as one, in a fifth of the time: the extremes of a bucket are those of its parts.
        """
        import numpy as np

        self.fold()
        places = np.floor(times / self.width) if self.width else np.arange(len(times))
        begins = np.flatnonzero(np.diff(places, prepend=math.nan))
        ends = np.append(begins[1:], len(times)) - 1
        extremes = []
        for (_, counter), values in zip(self._row, columns, strict=True):
            if counter:
                known = np.where(np.isnan(values), -1, np.arange(len(values)))
                last_known = np.maximum.reduceat(known, begins)
                low = high = np.where(last_known >= begins, values[last_known], math.nan)
            else:
                low, high = np.fmin.reduceat(values, begins), np.fmax.reduceat(values, begins)
            extremes.append(zip(low.tolist(), high.tolist(), strict=True))
        spans = zip(times[begins].tolist(), times[ends].tolist(), strict=True)
        for (first, last), *parts in zip(spans, *extremes, strict=True):
            self._open(first)
            self.last[-1] = last
            self._put(parts)

    def fold(self) -> None:
        """Add the waiting samples to the figures."""
        columns = zip(*self._waiting, strict=True)
        if self._waiting and not self.width:
            for (figure, _), column in zip(self._row, columns, strict=True):
                figure.begin_all(column)
            self._begun = False
        elif self._waiting:
            extremes = []
            for (_, counter), column in zip(self._row, columns, strict=True):
                known = [value for value in column if value is not None and value == value]  # noqa: PLR0124
                if not known:
                    extremes.append((_UNKNOWN, _UNKNOWN))
                else:
                    extremes.append((known[-1], known[-1]) if counter else (min(known), max(known)))
            self._put(extremes)
        self._waiting.clear()

    def _put(self, extremes: Iterable[tuple[float, float]]) -> None:
        """Add the smallest and the largest value of each figure to the last bucket; NaN: none is known."""
        if self._begun:
            self._begun = False
            for (figure, _), (low, high) in zip(self._row, extremes, strict=True):
                figure.begin(low, high)
            return
        for (figure, counter), (low, high) in zip(self._row, extremes, strict=True):
            if low == low:  # noqa: PLR0124 - not NaN
                figure.take(low, high, counter=counter)

    def _open(self, time: float) -> None:
        """Open a bucket for a sample at `time` that belongs to no existing bucket."""
        place = math.floor(time / self.width) if self.width else None
        if place is not None and place == self._place:  # since neighbours were joined
            self.last[-1] = time
            return
        if len(self.last) >= self.points:
            self._join_neighbours()
            self._open(time)
            return
        self._place = place
        self.first.append(time)
        self.last.append(time)
        self._begun = True

    def copy(self) -> _Buckets:
        """Return a copy that can be changed."""
        self.fold()
        twin = _Buckets(list(self.figures), self.points, self.step)
        twin.first, twin.last, twin.width, twin._place = self.first[:], self.last[:], self.width, self._place
        for key, figure in self.figures.items():
            copied = twin.figures[key]
            copied.low, copied.high, copied.known = figure.low[:], figure.high[:], figure.known
        return twin

    def _join_neighbours(self) -> None:
        """Lengthen the stretches of time until half as many are enough.

        A doubling joins at most two stretches, so more than a quarter of the buckets remain, however long the pauses between samples.
        """
        self.fold()
        begins = list(range(len(self.last)))
        while len(begins) > self.points // 2:
            self.width = self.width * 2 or 2 * self.step
            # A bucket's last sample gives its stretch: both ends of a longer one are ends of shorter ones.
            places = [math.floor(time / self.width) for time in self.last]
            begins = [i for i, place in enumerate(places) if i == 0 or place != places[i - 1]]
            self._place = places[-1]
        parts = list(pairwise((*begins, len(self.last))))
        for (name, _), figure in self.figures.items():
            counter = name in COUNTERS
            figure.low = _joined(figure.low, parts, _latest if counter else min)
            figure.high = _joined(figure.high, parts, _latest if counter else max)
        self.first = array("d", [self.first[begin] for begin, _ in parts])
        self.last = array("d", [self.last[end - 1] for _, end in parts])


def _joined(
    values: array[float], parts: Iterable[tuple[int, int]], choose: Callable[[list[float]], float]
) -> array[float]:
    """Return one value for each part of an array: the chosen one of its known values."""
    found, each = array("d"), values.tolist()
    for begin, end in parts:
        if end - begin == 1:
            found.append(each[begin])
        else:
            known = [value for value in each[begin:end] if value == value]  # noqa: PLR0124 - NaN
            found.append(choose(known) if known else _UNKNOWN)
    return found


def _latest(values: list[float]) -> float:
    return values[-1]


class Curves:
    """Collect samples and keep their curves; costs some 10 us a sample, 1 MiB in all.

    Args:
        columns: of the samples.
        info: `run.json` at the start, with all fields that `RunConditions.of` reads.
        points: limit of the number of buckets.
    """

    def __init__(self, columns: Sequence[Column], info: Mapping[str, Any], points: int = POINTS) -> None:
        self._conditions = conditions = RunConditions.of(info)
        self._started = conditions.started
        keys, self._pick = series_picker(columns, GAUGES | COUNTERS)
        fields = fields_in(columns)
        self._in_group = conditions.own_cgroup and {"usage", "file"} <= fields
        self._is_bounded = self._in_group or {"needed", "needed_low", "needed_high"} <= fields
        """The samples have the memory needed, and bounds between them."""
        if self._is_bounded:
            keys += [(NEEDED, ()), (LEAST, ()), (MOST, ())]
        self._buckets = _Buckets(keys, points, conditions.interval or 0.1)
        self._bounds = CgroupBounds(conditions) if self._in_group else LedgerWindows(conditions)
        self._held: tuple[float, Sequence[Value]] | None = None
        """The last sample: the bounds of its window are known with the next one."""
        self.lives = ProcessLives(conditions.started)

    def add(self, sample: Sample) -> None:
        """Add a sample. A sample out of order is omitted."""
        since_start, held = sample.time - self._started, self._held
        if held is not None and since_start < held[0]:
            return
        values, window = self._pick(sample.row), None
        if self._in_group:
            usage, file = sample.usage, sample.file
            values = (*values, None if usage is None or file is None else max(0, usage - file))
        elif self._is_bounded:
            needed, low = sample.needed, sample.needed_low
            values = (*values, needed if needed is None or low is None else max(needed, low))
        if self._is_bounded:
            window = self._bounds.add(sample)
        if held is not None:
            self._buckets.add(held[0], (*held[1], *self._bounds_of(window)))
        self._held = since_start, values

    def add_expected(self, samples: Iterable[Sample], seconds: float) -> bool:
        """Add all samples of a run of so many seconds, in half the time. Return whether the curves are those of `add`.

        The buckets begin with their final length, if there is no long pause. A stretch of time consists of shorter ones, so
        no neighbours are joined. Buckets without figures, at a tenth of the cost, show which length is right.
        """
        buckets = self._buckets
        lengths = _Buckets((), buckets.points, buckets.step)
        while (buckets.width or buckets.step) * buckets.points < seconds:
            buckets.width = buckets.width * 2 or 2 * buckets.step
        for sample in samples:
            held = self._held
            self.add(sample)
            if held is not None and self._held is not held:
                lengths.add(held[0], ())
        return lengths.width == buckets.width

    def add_all(self, samples: Samples) -> None:
        """Add all samples of a record, the first ones of these curves.

        Equal to `add` for each one, in a fifth of the time: a day at 10 Hz would take 6 s more (`bench_twins`).
        """
        import numpy as np

        moments = np.round(samples.time + self._started, TICK_DECIMALS)
        before_last = max(0, len(moments) - 1)
        values = {(column.metric, column.attributes): samples.values(column) for column in samples.columns}
        if self._is_bounded:
            values[NEEDED, ()] = needed_at_samples(samples, in_group=self._in_group)
            values[LEAST, ()], values[MOST, ()] = np.full((2, len(moments)), math.nan)
            if before_last:
                between = bounds_between if self._in_group else ledger_between
                _, ends, _, low, high = between(samples, self._conditions, all_ended=True)
                window_ends = np.searchsorted(moments, ends)
                values[MOST, ()][window_ends] = high
                if self._in_group:  # page faults give no lower bound between samples
                    values[LEAST, ()][window_ends] = low
        columns = [values[key] for key in self._buckets.figures]
        for begin in range(0, before_last, _TOGETHER):
            part = slice(begin, min(begin + _TOGETHER, before_last))
            self._buckets.add_arrays(moments[part] - self._started, [column[part] for column in columns])
        last_two = list(samples.last(2).each(self._started))
        for sample in last_two[:-1] if self._is_bounded else ():
            self._bounds.add(sample)
        for sample in last_two[-1:]:
            self.add(sample)

    def _bounds_of(self, window: CgroupWindow | None) -> tuple[Value, ...]:
        if not self._is_bounded:
            return ()
        return (None, None) if window is None else (window.low, window.high)

    def drawn(self, *, all_ended: bool) -> DrawnCurves:
        """Return the curves so far; more samples may follow. `all_ended`: no process of the tree was alive at the last one."""
        buckets = self._buckets.copy()
        if self._held is not None:
            time, values = self._held
            window = next(iter(self._bounds.rest(all_ended=all_ended)), None)
            buckets.add(time, (*values, *self._bounds_of(window)))
            buckets.fold()
        curves = {
            key: Curve(figure.low, figure.high) for key, figure in buckets.figures.items() if figure.known
        }
        return DrawnCurves(buckets.first, buckets.last, buckets.width, curves, self.lives)


def needed_at_samples(samples: Samples, *, in_group: bool) -> Array:
    """Return the memory needed at each sample, NaN if unknown.

    In a cgroup of the run's own it is what was charged, less page cache. Otherwise it is the best estimate, at least the
    lower bound.
    """
    import numpy as np

    if in_group:
        return np.maximum(0, samples.field("usage") - samples.field("file"))
    return np.maximum(samples.field("needed"), np.nan_to_num(samples.field("needed_low")))


def most_likely(peak: Peak | None) -> float:
    """Return the most that an estimate at a sample can be, in bytes: the best estimate of the run; infinite: none.

    Proportional sizes that were read after a sample may have lowered the run's figure.
    """
    if peak is None or peak.high is None:
        return math.inf
    return min(peak.high, max(peak.low or 0, peak.estimate or peak.high))


def curves_of(
    record: Record,
    samples: Samples | None = None,
    seconds: float = 0.0,
    lives: ProcessLives | None = None,
) -> Curves:
    """Return the curves of a record, equal to those of its monitor at the end. Read all samples and process lines once.

    `samples`: its samples with all drawn metrics, if they have been read and none of them is damaged.
    `seconds`: duration of the run; 0: unknown. `lives`: those of its processes, if they have been read.
    """
    columns = record.columns if samples is None else samples.columns
    curves = Curves(columns, record.info)
    if samples is not None:
        curves.add_all(samples)
    elif not (seconds and record.is_long and curves.add_expected(record.each_sample(), seconds)):
        if record.is_long:
            curves = Curves(columns, record.info)  # the other one may have samples
        for sample in record.each_sample():
            curves.add(sample)
    if lives is not None:
        curves.lives = lives
    else:
        for process in record.process_records():
            curves.lives.add(process)
    return curves
