"""Time and processors that a job needs, from its runs."""

from __future__ import annotations

import math

from otel_memwatch.errors import RunError
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.wings.advice.prediction import above_mean, mean_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.wings.index.indexed_run import IndexedRun

_TIME_PRIOR = 0.1
"""Usual scatter of durations: standard deviation of their logarithms."""
_ONE_RUN_TIME = 2.0


def cores_over_time(rows: Sequence[IndexedRun], most: int = 10) -> float | None:
    """Return the 95th percentile of the processors that the newest runs used in each second; `None`: unknown.

    Reading the samples of one minute costs 10 ms.
    """
    import numpy as np

    from otel_memwatch import catalog
    from otel_memwatch.run import load

    seconds: list[float] = []
    for row in rows[-most:]:
        try:
            samples = load(row.path).samples([catalog.MEMWATCH_TREE_CPU_TIME])
        except RunError:
            continue
        columns = [column for column in samples.columns if column.metric == catalog.MEMWATCH_TREE_CPU_TIME]
        if len(samples) < 2 or not columns or samples.time[-1] < 1.0:
            seconds += [row.cores] if row.cores is not None else []
            continue
        used = sum(np.nan_to_num(samples.values(column)) for column in columns)
        at = np.arange(0.0, float(samples.time[-1]) + 1e-9, 1.0)
        seconds += np.diff(np.interp(at, samples.time, used)).tolist()
    return float(np.percentile(seconds, 95)) if seconds else None


def time_needed(seconds: Sequence[float], odds: float) -> float | None:
    """Return the seconds that the next run stays within, with these odds; `None`: no duration is known."""
    if not seconds:
        return None
    if len(seconds) == 1:
        return seconds[0] * _ONE_RUN_TIME
    logarithms = [math.log(max(value, 1e-3)) for value in seconds]
    above, _ = above_mean(logarithms, odds, _TIME_PRIOR)
    return max(math.exp(mean_of(logarithms) + above), *seconds)
