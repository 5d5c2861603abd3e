"""Requests that other recommenders would have made for recorded runs.

==========  =============================================================================================================
rule        request
==========  =============================================================================================================
VPA         90th percentile of the peaks of the runs plus 15 %, at least 250 MiB a pod; scraped once a minute
KRR         largest scraped size plus 15 %, at least 100 MiB
seff        largest size that Slurm polled
==========  =============================================================================================================

Each samples a run at fixed intervals, the first time at random within the interval. A run that ends before its first sample
is not seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from otel_memwatch import catalog
from otel_memwatch.errors import RunError
from otel_memwatch.run import load
from otel_memwatch.wings.index.indexed_run import IndexedRun

_MIB = 1 << 20
VPA_FLOOR, KRR_FLOOR = 250 * _MIB, 100 * _MIB


def curve(row: IndexedRun) -> tuple[list[float], list[float]]:
    """Return seconds since the start and the resident memory of the tree at each: what scrapers and pollers read."""
    try:
        samples = load(row.path).samples([catalog.MEMWATCH_TREE_MEMORY_USAGE])
    except RunError:
        return [], []
    for column in samples.columns:
        if column.metric == catalog.MEMWATCH_TREE_MEMORY_USAGE:
            pairs = zip(samples.time.tolist(), samples.values(column).tolist(), strict=True)
            known = [(time, size) for time, size in pairs if size == size]
            return [time for time, _ in known], [size for _, size in known]
    return [], []


def polled(times: Sequence[float], sizes: Sequence[float], period: float, first: float) -> float | None:
    """Return the largest size at `first`, `first + period`, ...; `None`: the run ended before the first.

    Args:
        times: seconds since the start of the run, of each size, ascending.
        sizes: bytes, each until the next.
        period: seconds between two samples.
        first: when the first is, between 0 and `period`.

    """
    seen: float | None = None
    index, look = 0, first
    while times and look <= times[-1]:
        while index + 1 < len(times) and times[index + 1] <= look:
            index += 1
        if times[index] <= look:
            seen = sizes[index] if seen is None else max(seen, sizes[index])
        look += period
    return seen


def vpa(seen: Sequence[float | None]) -> float:
    """Return the Vertical Pod Autoscaler's target, in bytes."""
    values = sorted(value for value in seen if value is not None)
    if not values:
        return float(VPA_FLOOR)
    percentile = values[min(len(values) - 1, math.ceil(0.9 * len(values)) - 1)]
    return max(percentile * 1.15, VPA_FLOOR)


def krr(seen: Sequence[float | None]) -> float:
    """Return KRR's request and limit, in bytes."""
    return max(max((value for value in seen if value is not None), default=0.0) * 1.15, KRR_FLOOR)


def seff(seen: Sequence[float | None]) -> float:
    """Return the memory in Slurm's efficiency report, in bytes; 0 if nothing was seen."""
    return max((value for value in seen if value is not None), default=0.0)


RULES: dict[str, Callable[[Sequence[float | None]], float]] = {"VPA": vpa, "KRR": krr, "seff": seff}
