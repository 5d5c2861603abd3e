"""What runs with noise tell about a difference: scipy's tests, and nothing of our own beside their combination.

A group of runs gives one number each; where a number is only known to lie in an interval, it gives the lower and the
upper ends. The difference of the groups is certainly above that of one's lower and the other's upper ends: Welch's test
and interval are asked once for each of the two, and the careful answer counts. Where all is exact they are the same.
"""

from __future__ import annotations

import math
import statistics

from otel_memwatch.errors import Unavailable
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

ERROR = 0.01
"""Share of calls on identical programs in which anything may be said to differ, and of intervals that miss the truth."""

RANKS_ERROR = 0.05
"""What the test by ranks may say of a difference beside Welch's: a single odd run, which moves a mean, moves no ranks."""

MOST_RUNS = 100
"""More runs than these are asked of nobody."""


class RunValues(NamedTuple):
    """One figure of several runs of one program."""

    values: Sequence[float]
    lows: Sequence[float]
    highs: Sequence[float]
    """Infinite: no upper bound."""

    @property
    def typical(self) -> float:
        """The median of the values."""
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """From the smallest value to the largest."""
        return max(self.values) - min(self.values)


class Difference(NamedTuple):
    """How far one group is above another one."""

    low: float
    high: float
    """The truth lies between the two, with a confidence of 1 - `ERROR`; infinite: no bound."""
    p: float
    """How often identical programs would seem to differ by as much, in either direction."""


def difference(base: RunValues, head: RunValues, resolution: float) -> Difference:
    """How far `head` is above `base`, of two runs or more each. Raises `Unavailable` without scipy.

    `resolution`: the step in which the values are counted. Values that are all the same have at least its noise.
    """
    low, _, up = _welch(base.highs, head.lows, resolution)
    _, high, down = _welch(base.lows, head.highs, resolution)
    p = up if low > 0 else down if high < 0 else max(up, down)
    if low > 0 or high < 0:
        stats = _stats()
        ranks = stats.mannwhitneyu(head.values, base.values, method="auto").pvalue
        if ranks > RANKS_ERROR:
            p = 1.0
    return Difference(low, high, p)


def _welch(base: Sequence[float], head: Sequence[float], resolution: float) -> tuple[float, float, float]:
    """Interval of the difference of the means, and the two-sided p-value."""
    if not all(map(math.isfinite, [*base, *head])):
        return -math.inf, math.inf, 1.0
    stats = _stats()
    n, m = len(base), len(head)
    step = resolution**2 / 12  # variance of a value that was rounded to a step
    base_part = (statistics.variance(base) + step) / n
    head_part = (statistics.variance(head) + step) / m
    error = math.sqrt(base_part + head_part)
    freedom = (base_part + head_part) ** 2 / (base_part**2 / (n - 1) + head_part**2 / (m - 1))
    middle = statistics.fmean(head) - statistics.fmean(base)
    half = float(stats.t.isf(ERROR / 2, freedom)) * error
    return middle - half, middle + half, 2 * float(stats.t.sf(abs(middle) / error, freedom))


def reach(group: RunValues, resolution: float) -> float:
    """How far the mean of such runs may lie from that of these, with a confidence of 1 - `ERROR`; of two runs or more."""
    runs = len(group.values)
    if runs < 2:
        return math.inf
    variance = statistics.variance(group.values) + resolution**2 / 12
    return float(_stats().t.isf(ERROR / 2, runs - 1)) * math.sqrt(variance / runs)


def corrected(values: Sequence[float]) -> list[float]:
    """The p-values of one call, corrected for their number (Benjamini and Hochberg)."""
    return [float(p) for p in _stats().false_discovery_control(values)] if values else []


def runs_needed(base: RunValues, head: RunValues, wanted: float, resolution: float) -> int | None:
    """Runs of each group for which the interval would reach no further than `wanted` to either side.

    `None`: more than `MOST_RUNS`, so that runs are not what would help.
    """
    import numpy as np

    variance = statistics.variance(base.values) + statistics.variance(head.values) + resolution**2 / 6
    runs = np.arange(2, MOST_RUNS + 1)
    reach = _stats().t.isf(ERROR / 2, 2 * runs - 2) * np.sqrt(variance / runs)
    enough = np.flatnonzero(reach <= wanted)
    return int(runs[enough[0]]) if len(enough) else None


def _stats() -> Any:
    """The module scipy.stats."""
    try:
        from scipy import stats
    except ImportError:
        raise Unavailable(
            "Runs with noise are compared by scipy, which is not installed.",
            "pip install 'otel-memwatch[compare]'",
        ) from None
    return stats
