"""Sums of the runs of a group: per instant on one host, and the sum of the hosts' peaks across hosts.

Requests are per host, and hosts have different clocks. So a job on several hosts needs the sum of the hosts' peaks,
each at the worst instant of its host. Several processes read the samples if there are many.
"""

from __future__ import annotations

import os
from pathlib import Path

from otel_memwatch.record.format import SAMPLES_FILE
from otel_memwatch.record.sample_files import samples_size
from otel_memwatch.run.recorded_run import load
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.truth.ranks import Bins, Bound, Windows, in_bins
from otel_memwatch.wings.ranks.rank_windows import windows_of, without_ticks

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

_PARALLEL_BYTES = 64 << 20
"""Size of the samples above which several processes read them."""
_MOST_PROCESSES = 8


class RankPlace(NamedTuple):
    """The record of a run."""

    path: str
    ahead: float
    """Seconds by which the wall clock of its host is ahead of the run's monotonic clock."""


class HostRuns(NamedTuple):
    """The runs of one host, which share its clock."""

    host: str
    runs: Sequence[RankPlace]


class HostFigures(NamedTuple):
    """Memory that the runs of one host needed at one instant, in bytes."""

    host: str
    low: float
    high: float
    """Infinite: unknown."""
    guess: float
    runs: int


class HostSum(NamedTuple):
    """The runs of one host, added up."""

    figures: HostFigures
    bound: Bound
    """In bins of the host's time."""
    guess: Array
    """In the bins of the group."""


def sum_hosts(hosts: Sequence[HostRuns], bins: Bins) -> tuple[Bound | None, Array, list[HostFigures]]:
    """Add up the runs of each host, and the best estimates of all hosts.

    Returns:
        The bounds in each bin, or `None` if there are several hosts: their clocks differ.
        The best estimate in each bin, with hosts side by side by their wall clocks: good for a curve only.
        The figures of each host.

    """
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = min(_MOST_PROCESSES, len(hosts), processors)
    if len(hosts) == 1:
        only = _sum_of_host(hosts[0], bins, bins)
        return only.bound, only.guess, [only.figures]
    files = (Path(place.path, SAMPLES_FILE) for host in hosts for place in host.runs)
    if workers < 2 or sum(map(samples_size, files)) < _PARALLEL_BYTES:
        return None, *_sum_of_hosts(hosts, bins)
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    parts = [hosts[index::workers] for index in range(workers)]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        results = list(pool.map(_sum_of_hosts, parts, [bins] * workers))
    guess = results[0][0]
    for more, _ in results[1:]:
        guess = guess + more
    return None, guess, [results[index % workers][1][index // workers] for index in range(len(hosts))]


def _sum_of_hosts(hosts: Sequence[HostRuns], bins: Bins) -> tuple[Array, list[HostFigures]]:
    import numpy as np

    guess, figures = np.zeros(bins.number), []
    for host in hosts:
        one = _sum_of_host(host, None, bins)
        guess += one.guess
        figures.append(one.figures)
    return guess, figures


def _sum_of_host(host: HostRuns, own: Bins | None, bins: Bins) -> HostSum:
    """Add up the runs of one host in the bins `own`; `None`: make bins as fine as those of the group."""
    import numpy as np

    least, most, read = 0.0, 0.0, []
    for place in host.runs:
        run = load(place.path)
        try:
            windows = windows_of(run)
        except OSError:
            windows = without_ticks(run)
        peak = run.peaks.tree
        least = max(least, float(peak.low or 0) if peak is not None else 0.0)
        most += float(windows.high.max()) if peak is None or peak.high is None else float(peak.high)
        read.append(in_wall_time(windows, place.ahead))
    if own is None:
        begin = min(float(windows.start[0]) for windows in read)
        own = Bins.across(begin, max(float(windows.end[-1]) for windows in read), bins.width)
    total = Bound(np.zeros(own.number), np.zeros(own.number))
    for windows in read:
        total = total.plus(in_bins(windows, own))
    estimate = sum((_estimate(windows, own) for windows in read), np.zeros(own.number))
    guess = estimate
    if own is not bins:
        guess = sum((_estimate(windows, bins) for windows in read), np.zeros(bins.number))
    low = max(least, float(total.low.max()))
    high = max(low, min(most, float(total.high.max())))
    return HostSum(HostFigures(host.host, low, high, float(estimate.max()), len(host.runs)), total, guess)


def in_wall_time(windows: Windows, ahead: float) -> Windows:
    """Return the windows with their times by the wall clock of the host."""
    return windows._replace(start=windows.start + ahead, end=windows.end + ahead)


def _estimate(windows: Windows, bins: Bins) -> Array:
    """Return the likely memory in the middle of each bin, from the samples."""
    import numpy as np

    values: Array = np.interp(bins.middles(), windows.end, windows.guess, left=0.0, right=0.0)
    return values
