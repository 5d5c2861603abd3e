"""Statistics of noisy runs: scipy's tests, combined.

Each run of a group gives one number, or a lower and an upper bound. Welch's test and interval are computed twice:

* from the lower bounds of one group and the upper bounds of the other, and
* the other way round.

The conservative result counts. If all numbers are exact, both results are equal.
"""

from __future__ import annotations

import math
import statistics

from otel_memwatch.errors import Unavailable
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

ERROR = 0.01
"""Accepted share of comparisons of identical programs that report a difference, and of intervals that miss the truth."""

RANKS_ERROR = 0.05
"""Largest p-value of the rank test beside Welch's: a single odd run moves a mean, but no ranks."""

MOST_RUNS = 100
"""Largest number of runs to suggest."""


class RunValues(NamedTuple):
    """One figure of several runs of one program."""

    values: Sequence[float]
    lows: Sequence[float]
    highs: Sequence[float]
    """Infinite: no upper bound."""

    @property
    def typical(self) -> float:
        """Median of the values."""
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """Distance from the smallest value to the largest."""
        return max(self.values) - min(self.values)


class Difference(NamedTuple):
    """Difference of two groups."""

    low: float
    high: float
    """Upper end of the interval that contains the truth with a confidence of 1 - `ERROR`; infinite: no bound."""
    p: float
    """Two-sided p-value: probability that identical programs seem to differ by as much."""


def difference(base: RunValues, head: RunValues, resolution: float) -> Difference:
    """Return how far `head` is above `base`; each needs two runs or more. Raises `Unavailable` without scipy.

    `resolution`: the step in which the values are counted. Equal values have at least its noise.
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
    """Return the interval of the difference of the means, and the two-sided p-value."""
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
    """Return how far the true mean may lie from the mean of these runs, with a confidence of 1 - `ERROR`.

    Infinite for fewer than two runs.
    """
    runs = len(group.values)
    if runs < 2:
        return math.inf
    variance = statistics.variance(group.values) + resolution**2 / 12
    return float(_stats().t.isf(ERROR / 2, runs - 1)) * math.sqrt(variance / runs)


def corrected(values: Sequence[float]) -> list[float]:
    """Return the p-values of one call, corrected for their number (Benjamini and Hochberg)."""
    return [float(p) for p in _stats().false_discovery_control(values)] if values else []


def runs_needed(base: RunValues, head: RunValues, wanted: float, resolution: float) -> int | None:
    """Return the runs of each group for which the interval reaches at most `wanted` to either side.

    `None`: more than `MOST_RUNS`; further runs would not help.
    """
    import numpy as np

    variance = statistics.variance(base.values) + statistics.variance(head.values) + resolution**2 / 6
    runs = np.arange(2, MOST_RUNS + 1)
    reach = _stats().t.isf(ERROR / 2, 2 * runs - 2) * np.sqrt(variance / runs)
    enough = np.flatnonzero(reach <= wanted)
    return int(runs[enough[0]]) if len(enough) else None


def _stats() -> Any:
    """Return the module scipy.stats."""
    try:
        from scipy import stats
    except ImportError:
        raise Unavailable(
            "Runs with noise are compared by scipy, which is not installed.",
            "pip install 'otel-memwatch[compare]'",
        ) from None
    return stats
