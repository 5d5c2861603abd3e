"""Largest values and growth of a run's columns between two moments, fast enough for thousands of operations."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from math import inf

from otel_memwatch.record.format import TICK_DECIMALS
from otel_memwatch.record.schema import FIELDS
from otel_memwatch.run.aggregate import TOTALS
from otel_memwatch.run.cgroup_bounds import CgroupWindow, bounds_between
from otel_memwatch.run.ledger_bounds import ledger_between
from otel_memwatch.run.tree_bounds import Span
from otel_memwatch.runtime.kernel import GROUP_LAG_SECONDS
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.truth.cgroup import UncountedFaults

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_memwatch.record.samples import Samples
    from otel_memwatch.run.conditions import RunConditions

    Numbers = array[float] | memoryview

METRICS = frozenset(
    FIELDS[field][0]
    for field in (
        "main", "main_file", "rss", "pss", "needed", "needed_low", "needed_high", "needed_left", "unseen", "unseen_faults",
        "processes", "faults", "cgroup_faults", "reading", "usage", "file", "anon", "shmem", "kernel", "locked", "window", "gap",
        "watermark", "moved", *TOTALS,
    )
)  # fmt: skip
"""Metrics of `TreeSeries`: other columns of a long record stay on disk."""

_BLOCK = 1024


class SampleSeries:
    """One column's known values.

    Args:
        times: monotonic seconds, rising.
        values: one for each time.
        untils: moments by which the values were read, rising; by default the same as `times`.

    """

    def __init__(self, times: Numbers, values: Numbers, untils: Numbers | None = None) -> None:
        self._times = times
        self._untils = times if untils is None else untils
        self._values = values
        self._blocks = [max(values[i : i + _BLOCK]) for i in range(0, len(values), _BLOCK)]

    @property
    def known(self) -> bool:
        """True if the series has any value."""
        return bool(self._times)

    def largest(self, start: float, end: float) -> int | None:
        """Return the largest value of the samples that were read from `start` to `end`; `None`: none has one."""
        largest = self.extreme(start, end)
        return None if largest is None else int(largest)

    def extreme(self, start: float, end: float) -> float | None:
        """Return the largest value, infinity included; `None`: no sample has one."""
        first, last = bisect_left(self._times, start), bisect_right(self._untils, end)
        if first >= last:
            return None
        low, high = -(-first // _BLOCK), last // _BLOCK
        if low >= high:
            return float(max(self._values[first:last]))
        edges = *self._values[first : low * _BLOCK], *self._values[high * _BLOCK : last]
        return float(max(*self._blocks[low:high], *edges))

    def largest_known(self) -> float:
        """Return the largest finite value; 0 without one."""
        return max((value for value in self._values if value != inf), default=0.0)

    def last_positive(self) -> float:
        """Return the moment of the last sample with a value above 0; minus infinity: none has one."""
        pairs = zip(reversed(self._times), reversed(self._values), strict=True)
        return next((time for time, value in pairs if value > 0), -inf)

    def least_beside(self, start: float, end: float) -> int | None:
        """Return the smaller value of the last sample before `start` and the first after `end`; `None` without both."""
        before, after = bisect_left(self._times, start) - 1, bisect_right(self._times, end)
        if before < 0 or after == len(self._times):
            return None
        return int(min(self._values[before], self._values[after]))

    def growths(self, starts: Sequence[float], ends: Sequence[float]) -> list[float] | None:
        """Return a counter's growth between each of `starts` and its `ends`, as if it grew evenly between samples."""
        if len(self._times) < 2:
            return None
        first = self._values[0]
        if all(value == first for value in self._values):
            return [0.0] * len(starts)
        both = zip(self._levels(starts), self._levels(ends), strict=True)
        return [after - before if after > before else 0.0 for before, after in both]

    def rises(self, start: float) -> list[tuple[float, float, float]]:
        """Return begin, end and rise for each sample at which a counter of ended processes rose, from `start` on.

        Each covers two intervals between samples, as the end of a process may be reported one sample late. Its end is when the
        sample was read.
        """
        found = []
        earlier, before, level = start, start, 0.0
        for time, until, value in zip(self._times, self._untils, self._values, strict=True):
            if value > level:
                found.append((earlier, until, value - level))
                level = value
            earlier, before = before, time
        return found

    def _levels(self, moments: Iterable[float]) -> list[float]:
        """Return the counter's value at each moment: short successive operations lie between the same samples."""
        times, values = self._times, self._values
        begin = stop = low = rise = seconds = 0.0
        found = []
        for time in moments:
            if not begin <= time < stop:
                index = bisect_right(times, time)
                if index == 0 or index == len(times):
                    found.append(values[max(0, index - 1)])
                    continue
                begin, stop, low = times[index - 1], times[index], values[index - 1]
                rise, seconds = values[index] - low, stop - begin
            found.append(low + rise * (time - begin) / seconds)
        return found


class CgroupHistory:
    """Bounds of the memory needed between samples: of the run's cgroup or, without one, of the tree by its page faults.

    Args:
        starts: of the windows, in monotonic seconds, rising; the others have one for each of them.
        ends: of the windows: the times of samples.
        untils: moments by which these samples were read, when their windows are certainly over.
        low: lower bounds; 0: nothing is certain.
        high: upper bounds; infinity: unknown.
    """

    def __init__(
        self,
        starts: Numbers,
        ends: Numbers,
        untils: Numbers,
        low: Numbers,
        high: Numbers,
    ) -> None:
        self._starts, self._ends, self._untils = starts, ends, untils
        self._low_values = low
        self._low, self._high = SampleSeries(ends, low), SampleSeries(ends, high)

    @classmethod
    def of(cls, windows: Iterable[CgroupWindow]) -> CgroupHistory:
        """Return the history of windows in their order."""
        bounds = [
            (
                window.start,
                window.end,
                window.until,
                window.low or 0,
                inf if window.high is None else window.high,
            )
            for window in windows
        ]
        columns = zip(*bounds, strict=True) if bounds else [()] * 5
        return cls(*(array("d", values) for values in columns))

    def least(self, start: float, end: float) -> int | None:
        """Return the lower bound of the needed memory between two moments, by the windows inside; `None`: no such window."""
        first = bisect_left(self._starts, start)
        last = bisect_right(self._untils, end) - 1
        if last < first:
            return None
        return self._low.largest(self._ends[first], self._ends[last])

    @property
    def highest(self) -> float:
        """The largest known upper bound of all windows; 0: none is known."""
        return self._high.largest_known()

    def certain(self) -> tuple[Numbers, Numbers]:
        """Return the ends of all windows, and the lower bound of each; 0: nothing is certain."""
        return self._ends, self._low_values

    def most(self, start: float, end: float, *, later: int = 0) -> int | None:
        """Return the upper bound of the needed memory between two moments, by all windows that overlap them.

        `None`: a bound is unknown, or the last window was over before. `later`: windows after these, whose bounds may include
        reports about them.
        """
        if not self._starts or start > self._untils[-1]:
            return None
        first = bisect_left(self._untils, start)
        last = max(0, bisect_right(self._starts, end) - 1)
        first, last = min(first, last), min(last + later, len(self._starts) - 1)
        highest = self._high.extreme(self._ends[first], self._ends[last])
        return None if highest is None or highest == inf else int(highest)


class TreeSeries:
    """Columns of the tree as series of known values, equal to those of `SampleHistory`, from arrays.

    A day at 10 Hz would take 9 s more from its samples one by one (`bench_twins`). `all_ended`: no process of the tree outlived
    the last sample.
    """

    def __init__(self, samples: Samples, conditions: RunConditions, *, all_ended: bool) -> None:
        import numpy as np

        self._samples = samples
        self._started = conditions.started
        reading = samples.field("reading")
        reading[reading != reading] = conditions.reading_seconds  # noqa: PLR0124 - NaN
        self._monotonic = np.round(samples.time + conditions.started, TICK_DECIMALS)
        self._read = self._monotonic + reading
        self._times, self._untils = _view(self._monotonic), _view(self._read)
        self.longest_reading: float = float(reading.max()) if len(reading) else conditions.reading_seconds
        """The most seconds that reading a sample took."""
        self.main = self._series("main")
        self.rss = self._series("rss")
        self.pss = self._series("pss")
        self.certain = self._series("needed_low")
        """Lower bound of the needed memory at samples; with the run's cgroup, of the window before."""
        self.likely = self._series("needed")
        """Best estimate of the needed memory at samples."""
        self.left = self._series("needed_left")
        """Parts of huge pages that no process maps, at samples."""
        self._unseen = self._series("unseen")
        self.watermark = self._series("watermark")
        self.most_charged = self.watermark.largest(-inf, inf) or 0
        """The cgroup's high-water mark at the last sample that could read it, in bytes."""
        self.faults, self.uncounted = self._count_faults(conditions.faults_before)
        """Page faults of the tree, and the faults among them that the run's cgroup did not count."""
        if conditions.own_cgroup and self.watermark.known:
            starts, ends, untils, low, high = bounds_between(samples, conditions, all_ended=all_ended)
        else:
            starts, ends, untils, low, high = ledger_between(samples, conditions, all_ended=all_ended)
        columns = starts, ends, untils, np.nan_to_num(low), np.where(np.isnan(high), inf, high)
        self.windows = CgroupHistory(*(_view(np.ascontiguousarray(part, "f8")) for part in columns))
        self.mapped = self._series("main_file").largest(-inf, inf) or 0
        """Most file-backed memory of the target's process at a sample, in bytes."""
        self.needed = self._of(samples.field("usage") - samples.field("file"))
        self.unmapped = self._of(samples.field("shmem") + samples.field("kernel"))
        self.counters = {name: series for name in TOTALS if (series := self._series(name)).known}

    def unseen_spans(self) -> list[Span]:
        """Return the processes that no sample saw: their number, and the two intervals between samples they lived in."""
        return [Span(begin, end, 0, int(rise)) for begin, end, rise in self._unseen.rises(self._started)]

    def _series(self, field: str) -> SampleSeries:
        return self._of(self._samples.field(field))

    def _count_faults(self, before: int | None) -> tuple[int, UncountedFaults]:
        """Return the counts of `FaultsElsewhere`, from all samples at once."""
        samples = self._samples
        faults = samples.field("faults")
        charged = samples.field("cgroup_faults")
        elsewhere = faults - charged
        both = elsewhere > -inf  # which NaN is not
        if not both.any():
            return 0, UncountedFaults(before=before)
        time, faults, charged = samples.time[both], faults[both], charged[both]
        later = time.searchsorted(time + GROUP_LAG_SECONDS).clip(max=len(time) - 1)
        settled, at_end = max(0, int((faults - charged[later]).max())), int(faults[-1] - charged[-1])
        return int(faults.max()), UncountedFaults(settled, at_end, before)

    def _of(self, values: Any) -> SampleSeries:
        """Return a series without a copy of the values, if all are known: those of a day take 7 MiB for each column."""
        known = values == values  # noqa: PLR0124 - not NaN
        if known.all():
            return SampleSeries(self._times, _view(values), self._untils)
        times, untils = self._monotonic[known], self._read[known]
        return SampleSeries(_view(times), _view(values[known]), _view(untils))


def _view(values: Any) -> memoryview:
    return memoryview(values)
