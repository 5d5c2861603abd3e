"""Prediction bounds for the next run, from earlier runs, with the odds that it exceeds them.

| runs | bound |
| --- | --- |
| one | its high end and a stated margin, without odds |
| two and more | mean + t * s * sqrt(1 + 1/n) of the logarithms: the next run exceeds it with the requested odds |
| runs that scatter oddly | the smaller of two bounds: the one above, and one from the upper half |

* The bound from the upper half is the median plus the scatter of the runs above it: a few low runs widen nothing.
* For runs that scatter oddly, the bound is also at least twice the largest run less the median.
* The bound is never below the largest high end that counts, nor below any low end.

The scatter of few runs is itself uncertain. The usual scatter of jobs is added, with the weight of four runs. It is an
inverse gamma prior, which keeps the form of the bound. Without it, two similar runs would give a bound without headroom,
and two different ones ten times the needed memory.

A wide range of a run is a property of the record, not of the job. The best known quarter of the runs, and at least three,
show how far the job can be above its low ends. The other runs are assumed to be no further above theirs. If fewer than three
runs are known well, a wide range counts with its high end and a stated margin, without odds.

Pure functions on numbers: every run's summary calls them, and `statistics` takes 15 ms to load.
"""

from __future__ import annotations

import math

from otel_memwatch.runtime.light import lru_cache
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

ONE_RUN_MARGIN = 0.10
"""Share of the high end that is added for a single run."""
_PRIOR_SCATTER, _PRIOR_RUNS = 0.02, 4
"""Usual scatter of jobs, as a standard deviation of logarithms, and its weight in runs."""
_WIDE = 0.05, 3 << 20
"""An interval that is narrower than this share of its low end, or than so many bytes, is never wide."""
_LEAST_KNOWN = 3
"""Runs, and a quarter of all, that show how far above its low end a run can be."""
_KNOWN_WELL = 0.25
"""Width of a range, as a share of its low end, up to which the run shows the scatter of the job."""
_REJECTED = 1.035
"""Value of the Anderson-Darling statistic above which 1 % of normal samples lie."""
_LEAST_TESTED = 8


def mean_of(values: Sequence[float]) -> float:
    """Return the mean of one value or more."""
    return math.fsum(values) / len(values)


def median_of(values: Sequence[float]) -> float:
    """Return the median of one value or more."""
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


class Interval(NamedTuple):
    """Range of one run: between `low` and `high`; `high` is `None` if unbounded, for example after a kill."""

    low: float
    high: float | None

    @property
    def width(self) -> float:
        """Width of the range, as a share of its low end; infinite without a high end."""
        return math.inf if self.high is None else (self.high - self.low) / max(self.low, 1.0)


class PredictionBound(NamedTuple):
    """Upper bound for the next run."""

    value: float
    runs: int
    """Number of runs that it is based on."""
    odds: float | None
    """Probability that a run needs more; `None`: one run gives no estimate."""
    lowered: int = 0
    """Number of runs that count with less than their high ends."""
    odd: bool = False
    """True if the logarithms of the runs are not normally distributed."""
    wide: int = 0
    """Number of runs with wide ranges that exceed the bound from the better known runs; then `odds` is `None`."""


def prediction_bound(known: Sequence[Interval], odds: float) -> PredictionBound | None:
    """Return the bound for the next run; `None` if no run has a high end.

    Args:
        known: range of each run; values are above 0.
        odds: probability that the next run needs more than the bound, for example 0.001.

    """
    used = narrowed(known)
    highs = [float(interval.high) for interval in used if interval.high]
    if not highs:
        return None
    least = max([*highs, *(interval.low for interval in known)])
    lowered = sum(1 for one, other in zip(used, known, strict=True) if one.high != other.high)
    if len(highs) == 1:
        return PredictionBound(max(highs[0] * (1 + ONE_RUN_MARGIN), least), 1, None, lowered)
    scattered = _as_narrow_as_the_best(used)
    logarithms = [math.log(high) for high in scattered]
    above = above_mean(logarithms, odds, _PRIOR_SCATTER)
    value = math.exp(mean_of(logarithms) + above)
    wide = sum(1 for high, counted in zip(highs, scattered, strict=True) if high > max(counted, value))
    if wide:
        # The upper end of a record is no scatter of the job, and proves nothing about the odds.
        return PredictionBound(max(least * (1 + ONE_RUN_MARGIN), value), len(highs), None, lowered, wide=wide)
    odd = not looks_normal(logarithms)
    if odd:
        # The values above the median alone: a few low ones, such as idle runs, widen nothing.
        middle = median_of(logarithms)
        upper = [one - middle for one in logarithms if one > middle]
        freedom = len(upper) + _PRIOR_RUNS
        spread = math.sqrt((math.fsum(d * d for d in upper) + _PRIOR_RUNS * _PRIOR_SCATTER**2) / freedom)
        above = student_quantile(odds, freedom) * spread * math.sqrt(1 + 1 / len(logarithms))
        value = max(min(value, math.exp(middle + above)), 2 * max(highs) - median_of(highs))
    return PredictionBound(max(value, least), len(highs), odds, lowered, odd)


def narrowed(known: Sequence[Interval]) -> list[Interval]:
    """Return the runs in their order, wide ranges narrowed to the relative width that better known runs show."""
    widths = sorted(interval.width for interval in known if interval.high is not None)
    if len(widths) < _LEAST_KNOWN:
        return list(known)
    reach = widths[max(_LEAST_KNOWN - 1, (len(widths) - 1) // 4)]
    share, least = _WIDE
    return [
        interval._replace(high=interval.low * (1 + reach))
        if interval.high is not None
        and interval.width > max(share, reach)
        and interval.high - interval.low > least
        else interval
        for interval in known
    ]


def _as_narrow_as_the_best(used: Sequence[Interval]) -> list[float]:
    """Return the high ends for the scatter. If fewer than three runs are known well, wide ranges are as narrow as the best.

    If one reaches as high as the best known run, it counts as being as high. Example: 0.8 to 41 MiB beside 24 to 41 MiB is no
    scatter.
    """
    known = [(interval.low, interval.high, interval.width) for interval in used if interval.high]
    share, least = _WIDE
    widths = sorted(width for *_, width in known)
    if len(known) > _LEAST_KNOWN and widths[_LEAST_KNOWN - 1] <= _KNOWN_WELL:
        return [high for _, high, _ in known]
    _, top, best = min(known, key=lambda one: one[2])
    return [
        min(high, max(top, low * (1 + best))) if width > max(share, 2 * best) and high - low > least else high
        for low, high, width in known
    ]


def above_mean(values: Sequence[float], odds: float, prior: float, *, lost: int = 1) -> float:
    """Return the distance of the bound for one more value above the mean.

    Args:
        values: residuals of a fit, or the values themselves.
        odds: probability that the next value lies above.
        prior: scatter that has the weight of four values.
        lost: degrees of freedom that the fit took: 1 for a mean, 2 for a line.

    """
    mean = mean_of(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    freedom = len(values) - lost + _PRIOR_RUNS
    spread = math.sqrt((squares + _PRIOR_RUNS * prior**2) / freedom)
    return student_quantile(odds, freedom) * spread * math.sqrt(1 + 1 / len(values))


@lru_cache(64)
def student_quantile(odds: float, freedom: int) -> float:
    """Return the value that Student's t exceeds with these odds (below 0.5), by bisection of its exact distribution.

    The figures of an advice share it: 0.2 ms for 30 runs, 1 ms for 200.
    """
    low, high = 0.0, 1.0
    while student_exceeds(high, freedom) > odds:
        high *= 2.0
    while low < (middle := (low + high) / 2) < high:
        if student_exceeds(middle, freedom) > odds:
            low = middle
        else:
            high = middle
    return high


def student_exceeds(value: float, freedom: int) -> float:
    """Return the probability that Student's t exceeds a value of 0 or more.

    Finite sums of Abramowitz and Stegun, 26.7.3 and 26.7.4. Above 200 degrees of freedom, the sums for 200 apply: this errs
    on the safe side by less than 1 % of a quantile.
    """
    freedom = min(freedom, 200)
    angle = math.atan2(value, math.sqrt(freedom))
    cosine = math.cos(angle)
    if freedom % 2:
        total, term = 0.0, cosine
        for k in range(1, (freedom - 1) // 2 + 1):
            total += term
            term *= cosine**2 * 2 * k / (2 * k + 1)
        inside = 2 / math.pi * (angle + math.sin(angle) * total)
    else:
        total, term = 0.0, 1.0
        for k in range(freedom // 2):
            total += term
            term *= cosine**2 * (2 * k + 1) / (2 * k + 2)
        inside = math.sin(angle) * total
    return max(0.0, (1 - inside) / 2)


def looks_normal(values: Sequence[float]) -> bool:
    """Return whether values fit a normal distribution: the Anderson-Darling test at 1 %; fewer than 8 values always fit.

    Values that scatter by less than the kernel's counting unit count as equal.
    """
    count = len(values)
    if count < _LEAST_TESTED:
        return True
    mean = mean_of(values)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    if spread < 1e-4:
        return True
    below = [math.erfc((mean - value) / spread / math.sqrt(2)) / 2 for value in sorted(values)]
    shares = [min(max(share, 1e-12), 1 - 1e-12) for share in below]
    total = math.fsum(
        (2 * i + 1) * (math.log(shares[i]) + math.log(1 - shares[count - 1 - i])) for i in range(count)
    )
    statistic = -count - total / count
    return statistic * (1 + 0.75 / count + 2.25 / count**2) <= _REJECTED


class ScaledBound(NamedTuple):
    """A bound that grows with an input: `base + slope * input`, and `spread` more for the scatter around it."""

    base: float
    slope: float
    above: float
    """Distance of the bound above the fitted line."""
    explained: float
    """Share of the variance that the line explains."""
    runs: int
    least: float
    """Smallest bound: the one for the smallest measured input."""
    smallest: float
    largest: float
    """Largest measured input. Outside `smallest` to `largest`, the line is a guess."""

    def at(self, amount: float) -> float:
        """Return the bound for an input of this size."""
        return max(self.least, self.base + self.slope * amount + self.above)


LEAST_EXPLAINED, LEAST_SCALED = 0.8, 8
"""An input explains a peak that explains this share of its variance, in so many runs at least."""


def scaled_bound(inputs: Sequence[float], highs: Sequence[float], odds: float) -> ScaledBound | None:
    """Return the bound as a line over an input, by least squares; `None`: the input does not explain it."""
    if len(highs) < LEAST_SCALED or len(set(inputs)) < 3:
        return None
    import statistics

    slope, base = statistics.linear_regression(inputs, highs)
    if slope <= 0 or statistics.pvariance(highs) == 0:
        return None
    rest = [high - base - slope * amount for amount, high in zip(inputs, highs, strict=True)]
    explained = 1 - statistics.pvariance(rest) / statistics.pvariance(highs)
    if explained < LEAST_EXPLAINED:
        return None
    above = above_mean(rest, odds, _PRIOR_SCATTER * mean_of(highs), lost=2)
    # At the ends of the measured inputs the line is less certain: add the least-squares term of the farthest input.
    middle = mean_of(inputs)
    squares = math.fsum((amount - middle) ** 2 for amount in inputs)
    farthest = max((amount - middle) ** 2 for amount in inputs) / squares
    above *= math.sqrt((1 + 1 / len(highs) + farthest) / (1 + 1 / len(highs)))
    above = max([above, *rest])
    smallest, largest = min(inputs), max(inputs)
    return ScaledBound(
        base, slope, above, explained, len(highs), base + slope * smallest + above, smallest, largest
    )
