"""Sums of the runs of a group: per instant on one host, and the sum of the hosts' peaks across hosts.

Requests are per host, and hosts have different clocks. So a job on several hosts needs the sum of the hosts' peaks,
each at the worst instant of its host. Several processes read the samples if there are many.

The samples become windows with bounds, for `truth.ranks` to add up. A window is the time between two samples. Its upper
bound holds for the maximum, its lower bound for the whole window:

* Cgroup of the run: `cgroup_bounds.bounds_between`; private memory less page faults.
* Page faults: `memwatch.tree.memory.needed.high` plus faults of unseen processes;
  `memwatch.tree.memory.needed.low` less page faults.
* Neither: the peak of the run; 0.

The peak of the run limits every window.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

from otel_memwatch.record.format import SAMPLES_FILE, TICK_DECIMALS
from otel_memwatch.record.sample_files import samples_size
from otel_memwatch.record.schema import FIELDS
from otel_memwatch.run.cgroup_bounds import bounds_between
from otel_memwatch.run.conditions import RunConditions
from otel_memwatch.run.recorded_run import load
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.truth.cgroup import is_charged
from otel_memwatch.truth.ranks import Bins, Bound, Windows, held_through, in_bins

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.model import Peak
    from otel_memwatch.record.samples import Array, Samples
    from otel_memwatch.run.recorded_run import RecordedRun


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


_OF_GROUP = (
    "usage", "window", "gap", "watermark", "file", "locked", "moved", "anon", "cgroup_faults", "faults", "processes",
)  # fmt: skip
_OF_LEDGER = ("needed_low", "needed_high", "needed", "unseen_faults", "faults", "rss")


def windows_of(run: RecordedRun) -> Windows:
    """Return the windows of a run, in monotonic seconds of its machine."""
    import numpy as np

    peak = run.peaks.tree
    most = _most(peak)
    conditions = RunConditions.of(run.info)
    own = conditions.own_cgroup and is_charged(peak)
    samples = run.samples({FIELDS[field][0] for field in (_OF_GROUP if own else _OF_LEDGER)})
    if not len(samples):
        return without_ticks(run)
    start, time = run.started, np.round(samples.time + run.started, TICK_DECIMALS)
    ended = run.fields.ended.monotonic
    if own:
        low, high, guess = _of_group(samples, conditions)
    elif conditions.own_cgroup:  # processes left the cgroup, so its bounds do not cover the run
        guess = samples.field("rss")
        low, high = np.zeros(len(guess)), np.full(len(guess), math.inf)
    else:
        low, high, guess = _of_ledger(samples, conditions)
    begins = np.concatenate(([min(start, time[0])], time[:-1]))
    ends = time
    if ended is not None and ended > time[-1]:
        begins, ends = np.append(begins, time[-1]), np.append(time, ended)
        # Growth after the last sample is unknown.
        low, high, guess = np.append(low, 0.0), np.append(high, math.inf), np.append(guess, guess[-1])
    high = np.minimum(np.where(np.isnan(high), math.inf, high), most)
    low = np.minimum(np.where(np.isnan(low), 0.0, low), high)
    return Windows(begins, ends, low, high, np.clip(np.nan_to_num(guess), low, high))


def without_ticks(run: RecordedRun) -> Windows:
    """Return one window for a run without samples: no lower bound, and the peak as the upper bound."""
    import numpy as np

    end = run.started + run.seconds
    empty = np.zeros(1)
    return Windows(np.array([run.started]), np.array([end]), empty, np.array([_most(run.peaks.tree)]), empty)


def _most(peak: Peak | None) -> float:
    return math.inf if peak is None or peak.high is None else float(peak.high)


def _of_group(samples: Samples, conditions: RunConditions) -> tuple[Array, Array, Array]:
    """Return lower and upper bound of each window, and the charged memory without page cache."""
    import numpy as np

    all_ended = bool(samples.field("processes")[-1] == 0)
    *_, high = bounds_between(samples, conditions, all_ended=all_ended)
    held = samples.field("anon") - conditions.charge_error
    faults = np.fmax(samples.field("faults"), samples.field("cgroup_faults"))
    low = held_through(held, faults, conditions.fault_bytes)
    return low, high, samples.field("usage") - np.nan_to_num(samples.field("file"))


def _of_ledger(samples: Samples, conditions: RunConditions) -> tuple[Array, Array, Array]:
    """Return bounds and estimates from page faults, like `ledger_bounds.LedgerBounds`."""
    import numpy as np

    unseen = samples.field("unseen_faults")
    gained = np.append(unseen[1:], unseen[-1:]) - np.concatenate((np.zeros(1), unseen[:-1]))
    high = samples.field("needed_high") + np.maximum(0.0, gained) * conditions.page_bytes
    low = held_through(samples.field("needed_low"), samples.field("faults"), conditions.fault_bytes)
    guess = samples.field("needed")
    return low, high, np.where(np.isnan(guess), samples.field("rss"), guess)
