"""Lines of the panels, made from samples: few points, every peak, and a gap for unknown values."""

from __future__ import annotations

import numpy as np

from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from otel_memwatch.model import Column
    from otel_memwatch.record.samples import Samples
    from otel_memwatch.run import RecordedRun

    Array = NDArray[np.float64]

BUCKETS = 1500
"""Parts of the time axis. A line keeps the first, last, smallest and largest value of each."""

_PIECE = 65_536
"""Samples to put into buckets at a time."""

_GAP = 3.0
"""Sampling intervals without a sample that interrupt a line. One missed sample is no gap."""


class View(NamedTuple):
    """Run and time axis of a picture."""

    run: RecordedRun
    samples: Samples
    """Samples to draw."""
    begin: float
    end: float
    """Seconds at the ends of the time axis."""
    interval: float
    """Sampling interval in seconds."""
    scale: float
    """Seconds in the unit of the time axis."""
    unit: str
    byte_scale: float
    """Bytes in the unit of all sizes of the picture."""
    byte_unit: str


def time_unit(seconds: float) -> tuple[float, str]:
    """Return the best unit for a time axis of this length: its seconds and its name."""
    for longest, scale, name in (
        (1.0, 1e-3, "ms"),
        (180.0, 1.0, "s"),
        (10800.0, 60.0, "min"),
        (259200.0, 3600.0, "h"),
    ):
        if seconds < longest:
            return scale, name
    return 86400.0, "days"


class Line(NamedTuple):
    """Points in order of time; NaN interrupts the line."""

    time: Array
    value: Array
    lonely: NDArray[np.bool_]
    """Points without a neighbour to draw a line to."""

    def maximum(self) -> float | None:
        """Return the largest value; `None` without values."""
        return None if not len(self.value) or np.all(np.isnan(self.value)) else float(np.nanmax(self.value))


class RateSteps(NamedTuple):
    """Mean rates between edges."""

    edges: Array
    rates: Array

    def maximum(self) -> float:
        """Return the largest rate; 0 without rates."""
        return float(self.rates.max()) if len(self.rates) else 0.0


def line(samples: Samples, column: Column, interval: float) -> Line:
    """Return the line of a column, interrupted if samples or values are missing."""
    return line_of(samples.time, samples.values(column), column.period, interval)


def line_of(times: Array, values: Array, period: float, interval: float) -> Line:
    """Return the line of one value per sample; `period` is from the column, `interval` from the run."""
    unknown = np.isnan(values)
    # Avoid a copy of a day's samples if all are known.
    there = np.flatnonzero(~unknown) if unknown.any() else None
    time, known = (times, values) if there is None else (times[there], values[there])
    if not len(time):
        return Line(time, known, np.zeros(0, dtype=bool))
    step = np.diff(time)
    usual_step = float(np.median(step)) if len(step) else 0.0
    width = float(time[-1] - time[0]) / BUCKETS
    missing = step > max(_GAP * max(interval, period, usual_step), 2 * width)
    if there is not None:
        ticks = np.diff(there)
        usual_ticks = float(np.quantile(ticks, 0.25)) if len(ticks) else 1.0
        if usual_ticks <= 1 and period <= interval:
            # A sample with an unknown value interrupts too, unless the gap is too short to be visible.
            missing |= (ticks > 1) & (step > 2 * width)
    kept = _kept(time, known, width) if len(time) > 4 * BUCKETS and width > 0 else np.arange(len(time))
    # Insert a NaN before each point that follows a gap.
    at = np.searchsorted(kept, np.flatnonzero(missing) + 1, "left")
    at = np.unique(at[(at > 0) & (at < len(kept))])
    starts = np.zeros(len(kept) + 1, dtype=bool)
    starts[[0, -1]] = True
    starts[at] = True
    lonely = starts[:-1] & starts[1:]
    time, value = time[kept], known[kept]
    return Line(np.insert(time, at, time[at]), np.insert(value, at, np.nan), np.insert(lonely, at, False))


def _kept(time: Array, value: Array, width: float) -> NDArray[np.intp]:
    """Return the indices of the first, last, smallest and largest value of each bucket.

    This goes bucket by bucket: sorting a day's values takes ten times their memory.
    """
    bucket = np.empty(len(time), dtype=np.int16)
    for begin in range(0, len(time), _PIECE):
        part = slice(begin, begin + _PIECE)
        bucket[part] = np.minimum((time[part] - time[0]) / width, BUCKETS - 1)
    first = np.flatnonzero(np.diff(bucket, prepend=np.int16(-1)))
    last = np.append(first[1:], len(time)) - 1
    kept = [first, last]
    for begin, end in zip(first.tolist(), last.tolist(), strict=True):
        values = value[begin : end + 1]
        kept.append(np.array((begin + values.argmin(), end - values[::-1].argmax())))
    return np.unique(np.concatenate(kept))


def draw_line(axes: Axes, line: Line, time_scale: float, scale: float, **look: Any) -> None:
    """Draw `line` with its gaps in the units of the axes; `look` has all arguments of `Axes.plot`.

    A point without a neighbour is drawn as a point.
    """
    time, value = line.time / time_scale, line.value / scale
    axes.plot(time, value, markeredgewidth=0, zorder=3, **look)
    lonely = line.lonely
    if not look["marker"] and lonely.any():
        axes.plot(
            time[lonely], value[lonely], linestyle="", marker="o", markersize=2.5, color=look["color"], markeredgewidth=0,
            zorder=3,
        )  # fmt: skip


def rates(time: Array, counter: Array, shortest: float, buckets: int = BUCKETS // 3) -> RateSteps:
    """Return mean rates of a counter, in steps of at least `shortest` seconds.

    A counter gives the exact mean over a gap, so gaps do not interrupt. A counter may fall if children end without being
    waited for; this counts as rate 0.
    """
    there = ~np.isnan(counter)
    time, counter = time[there], counter[there]
    if len(time) < 2 or time[-1] <= time[0]:
        return RateSteps(np.zeros(0), np.zeros(0))
    width = max(shortest, float(time[-1] - time[0]) / buckets)
    # Use slightly less than the width: samples are some microseconds late and must not shift by one each time.
    grid = np.arange(time[0], time[-1] + width, width)
    places = np.unique(np.clip(np.searchsorted(time, grid - width / 4, "left"), 0, len(time) - 1))
    if places[-1] != len(time) - 1:
        places = np.append(places, len(time) - 1)
    if len(places) > 2 and time[places[-1]] - time[places[-2]] < width / 2:
        # The last sample is taken when the command ends; a rate over so short a time is noise.
        places = np.delete(places, -2)
    edges = time[places]
    keep = np.append(True, np.diff(edges) > 0)
    edges, counter = edges[keep], counter[places][keep]
    return RateSteps(edges, np.maximum(0.0, np.diff(counter)) / np.diff(edges))


def total(samples: Samples, metric: str, **attributes: str) -> Array | None:
    """Return the counter of a metric and its attributes (underscores for dots); `None` if it was not recorded."""
    named = {name.replace("_", "."): value for name, value in attributes.items()}
    found = samples.find(metric, named)
    return samples.values(found[0]) if found else None
