"""Bounds of the memory that several runs on one host needed at one instant. Pure functions on arrays of numbers.

The figure is the largest sum, over all instants, of the memory of every run at that instant. Peaks reached at different
times are not added up. All runs of one host share its monotonic clock, so their windows can be added as they are.

* **Upper bound.** Between two samples no run had more than its peak counter, or its page faults, allow (`cgroup_windows`,
  `faults`). The largest sum of these is an upper bound.
* **Lower bound.** A page of the second sample that was not gained since the first was held all the time in between
  (`held_through`). The largest sum of these is a lower bound.

Time is cut into **bins** of one length. A bin has the largest upper bound and the smallest lower bound of all windows that
touch it. That widens the range by the change within a bin, and never makes it wrong.

Hosts have different clocks. Across hosts the hosts' own peaks are added up instead (`wings/ranks/rank_group.py`).
"""

from __future__ import annotations

import math

from otel_memwatch.model import Evidence, Peak
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.truth.exact import around, is_one_figure

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


class Windows(NamedTuple):
    """Bounds of one run between its samples; rows by time, each from one sample to the next."""

    start: Array
    """Seconds."""
    end: Array
    low: Array
    """Bytes that it had all the time in between."""
    high: Array
    """Bytes that it never exceeded; infinite: not known."""
    guess: Array
    """Bytes at the end of the window, as they were read."""


MOST_BINS = 1 << 16


class Bins(NamedTuple):
    """A stretch of time in bins of equal width."""

    begin: float
    width: float
    number: int

    @classmethod
    def across(cls, begin: float, end: float, width: float) -> Bins:
        """Cut a stretch of time into bins at least `width` wide, with one empty bin at either side."""
        width = max(width, (end - begin) / MOST_BINS, 1e-6)
        return cls(begin - width, width, math.ceil((end - begin) / width) + 2)

    def middles(self) -> Array:
        """Return the middle of each bin."""
        import numpy as np

        middles: Array = self.begin + (np.arange(self.number, dtype=np.float64) + 0.5) * self.width
        return middles

    def of(self, times: Array) -> NDArray[np.int64]:
        """Return the bin of each moment; moments outside count for the nearest bin."""
        import numpy as np

        places = np.floor((times - self.begin) / self.width)
        return np.clip(places, 0, self.number - 1).astype(np.int64)


class Bound(NamedTuple):
    """Bounds in each bin."""

    low: Array
    high: Array

    def plus(self, other: Bound) -> Bound:
        """Return the sum in each bin."""
        return Bound(self.low + other.low, self.high + other.high)


def held_through(held: Array, faults: Array, per_fault: float) -> Array:
    """Return the bytes that a run had all the time between two samples, for the window that ends at each sample.

    A page comes into a tree by a page fault of one of its processes, and each is counted (`gained`). So each page at a sample
    either existed since the previous sample or came by a fault meanwhile:

        held through the window  >=  held at its end  -  faults meanwhile * bytes of one fault

    Reading a sample takes a moment. A fault may be counted only at the next sample. The count at the beginning may lack some
    earlier faults. So all faults from the sample before the window to the sample after it count.

    Example: 300 MiB at a sample, no fault around the window: 300 MiB all the time. 100 faults of up to 4 KiB: 299.6 MiB.

    Args:
        held: bytes of private memory at each sample; NaN: not known, and then nothing is certain.
        faults: page faults so far, at each sample.
        per_fault: bytes that one fault can bring.
    """
    import numpy as np

    if not len(held):
        return held
    known = np.maximum.accumulate(np.nan_to_num(faults, nan=0.0))
    after = np.append(known[1:], known[-1])
    before = np.concatenate((known[:1] * 0, known[:1] * 0, known[:-2])) if len(known) > 1 else known * 0
    low = held - (after - before) * per_fault
    low[np.isnan(held) | np.isnan(faults)] = 0.0
    above: Array = np.maximum(low, 0.0)
    return above


def in_bins(windows: Windows, bins: Bins) -> Bound:
    """Return the bounds of a run in each bin. Before its first window and after its last one it had nothing.

    Args:
        windows: of the run, in the time of the bins.
        bins: the stretch of time.
    """
    import numpy as np

    low = np.full(bins.number, math.inf)
    high = np.zeros(bins.number)
    if not len(windows.start):
        return Bound(np.zeros(bins.number), np.zeros(bins.number))
    first, last = bins.of(windows.start), bins.of(windows.end)
    np.maximum.at(high, first, windows.high)
    np.minimum.at(low, first, windows.low)
    longest = int((last - first).max())
    for step in range(1, longest + 1):
        reach = first + step <= last
        if not reach.any():
            break
        if step > 64 and reach.sum() < 8:
            # A few long windows: each at once.
            for index in np.flatnonzero(reach):
                part = slice(int(first[index]) + step, int(last[index]) + 1)
                np.maximum(high[part], windows.high[index], out=high[part])
                np.minimum(low[part], windows.low[index], out=low[part])
            break
        np.maximum.at(high, first[reach] + step, windows.high[reach])
        np.minimum.at(low, first[reach] + step, windows.low[reach])
    # The bins at both ends are partly outside of the run, and those that no window touches are not in it.
    begin, end = int(first[0]), int(last.max())
    low[: begin + 1] = 0.0
    low[end:] = 0.0
    low[np.isinf(low)] = 0.0
    return Bound(low, high)


def sum_at_one_instant(low: int, high: int | None, guess: int, evidence: Evidence = Evidence.RANKS) -> Peak:
    """Return the largest sum of the memory of several runs: EXACT if both bounds are near enough.

    Example: between 403 and 405 MiB: 404 MiB, exactly. Between 300 and 405, best estimate 380: between 300 and 405 MiB.

    Args:
        low: bytes that all certainly needed together.
        high: bytes that they never needed together; `None`: unknown, for example if a record stops early or goes on.
        guess: the best estimate.
        evidence: the kind of sum: at one instant of one host, or of the hosts' separate peaks.
    """
    guess = max(low, guess)
    if high is None:
        return Peak.interval(low, None, estimate=guess, evidence=(evidence,))
    if is_one_figure(low, high):
        return around((low + high) // 2, low, high, evidence=(evidence,))
    return Peak.interval(low, high, estimate=min(guess, high), evidence=(evidence,))
