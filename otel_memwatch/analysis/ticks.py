"""Questions about a stretch of a run's ticks, answered quickly for thousands of stretches."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any

from otel_memwatch.analysis.tally import METRICS, columns_for_total

if TYPE_CHECKING:
    from otel_memwatch.record.reader import Samples

_BLOCK = 1024


class Series:
    """One column's known values.

    Args:
        times: monotonic seconds, rising.
        values: one for each time.

    """

    def __init__(self, times: list[float], values: list[float]) -> None:
        self._times = times
        self._values = values
        self._blocks = [max(values[i : i + _BLOCK]) for i in range(0, len(values), _BLOCK)]

    @property
    def known(self) -> bool:
        """Whether there is any value."""
        return bool(self._times)

    def largest(self, start: float, end: float) -> int | None:
        """The largest value of the ticks from `start` to `end`; `None` when none of them has one."""
        first, last = bisect_left(self._times, start), bisect_right(self._times, end)
        if first >= last:
            return None
        low, high = -(-first // _BLOCK), last // _BLOCK
        if low >= high:
            return int(max(self._values[first:last]))
        edges = self._values[first : low * _BLOCK] + self._values[high * _BLOCK : last]
        return int(max(self._blocks[low:high] + edges))

    def first_from(self, time: float) -> int | None:
        """The value of the first tick not before `time`."""
        place = bisect_left(self._times, time)
        return int(self._values[place]) if place < len(self._times) else None

    def last_until(self, time: float) -> int | None:
        """The value of the last tick not after `time`."""
        place = bisect_right(self._times, time)
        return int(self._values[place - 1]) if place else None

    def between(self, start: float, end: float) -> float | None:
        """How much a counter grew from `start` to `end`, as if it grew evenly between ticks."""
        if len(self._times) < 2:
            return None
        return max(0.0, self._level(end) - self._level(start))

    def rises(self, start: float) -> list[tuple[float, float, float]]:
        """Every stretch in which a counter rose, the first from `start` on: from, to, by how much."""
        found = []
        before, level = start, 0.0
        for time, value in zip(self._times, self._values, strict=True):
            if value > level:
                found.append((before, time, value - level))
                level = value
            before = time
        return found

    def _level(self, time: float) -> float:
        place = bisect_right(self._times, time)
        if place == 0 or place == len(self._times):
            return self._values[max(0, place - 1)]
        begin, stop = self._times[place - 1], self._times[place]
        low, high = self._values[place - 1], self._values[place]
        return low + (high - low) * (time - begin) / (stop - begin) if stop > begin else high


class TreeTicks:
    """The columns that tell of the tree, as series of their known values."""

    def __init__(self, samples: Samples, started: float) -> None:
        self._samples = samples
        self._started = started
        self.main = self._series("process.memory.usage")
        self.rss = self._series("memwatch.tree.memory.usage")
        self.pss = self._series("memwatch.tree.memory.pss")
        self.unobserved = self._series("memwatch.tree.unobserved")
        prefix = "memwatch.cgroup.memory."
        self.watermark = self._series(prefix + "peak")
        self.needed = self._difference(prefix + "usage", prefix + "file")
        self.unmapped = self._difference(prefix + "shmem", prefix + "kernel", sign=1)
        self.counters = {name: series for name in _COUNTERS if (series := self._counter(name)) is not None}

    def _series(self, metric: str) -> Series:
        return self._of(self._samples.column(metric))

    def _difference(self, metric: str, other: str, sign: int = -1) -> Series:
        return self._of(self._samples.column(metric) + sign * self._samples.column(other))

    def _counter(self, name: str) -> Series | None:
        columns = columns_for_total(self._samples.columns, name)
        if not columns:
            return None
        series = self._of(sum(self._samples.values(column) for column in columns))
        return series if series.known else None

    def _of(self, values: Any) -> Series:
        known = values == values  # noqa: PLR0124 - not NaN
        return Series((self._samples.time[known] + self._started).tolist(), values[known].tolist())


_COUNTERS = ("cpu_seconds", "read_bytes", "write_bytes", "read_chars", "write_chars", "major_faults")

__all__ = ["METRICS", "Series", "TreeTicks"]
