"""Adds up the runs of many hosts in bins of time, in several processes where there is much to read."""

from __future__ import annotations

import math
import os

from otel_memwatch.record.format import SAMPLES_FILE
from otel_memwatch.run.recorded_run import load
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.truth.ranks import Bins, Bound, Windows, in_bins, steps, widened
from otel_memwatch.wings.ranks.clock_bounds import Alignment
from otel_memwatch.wings.ranks.rank_windows import windows_of, without_ticks

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Sums = tuple[Array, Array, Array]

_MUCH = 64 << 20
"""Bytes of ticks from which on it is worth starting processes."""
_MOST_PROCESSES = 8


class RankPlace(NamedTuple):
    """Where a run is."""

    path: str
    shift: float
    """Seconds to take off its monotonic time for that of the machine."""


class HostRuns(NamedTuple):
    """The runs of one start of a machine."""

    host: str
    alignment: Alignment
    runs: Sequence[RankPlace]


class HostFigures(NamedTuple):
    """What the runs of one host needed together at one instant, in bytes."""

    host: str
    low: float
    high: float
    """Infinite: not known."""
    guess: float
    runs: int


def sum_of_hosts(hosts: Sequence[HostRuns], bins: Bins) -> tuple[Sums, list[HostFigures]]:
    """The bounds and the most likely value of the sum in each bin, and what each host needed at most."""
    workers = min(_MOST_PROCESSES, len(hosts), _processors())
    if workers < 2 or sum(_size(place.path) for host in hosts for place in host.runs) < _MUCH:
        return _summed(hosts, bins)
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    parts = [hosts[index::workers] for index in range(workers)]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        results = list(pool.map(_summed, parts, [bins] * workers))
    total = results[0][0]
    for more, _ in results[1:]:
        total = total[0] + more[0], total[1] + more[1], total[2] + more[2]
    figures = [results[index % workers][1][index // workers] for index in range(len(hosts))]
    return total, figures


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _size(path: str) -> int:
    try:
        return os.stat(f"{path}/{SAMPLES_FILE}").st_size
    except OSError:
        return 0


def _summed(hosts: Sequence[HostRuns], bins: Bins) -> tuple[Sums, list[HostFigures]]:
    import numpy as np

    low, high, guess = np.zeros(bins.number), np.zeros(bins.number), np.zeros(bins.number)
    figures = []
    for host in hosts:
        bound, likely, figure = _of_host(host, bins)
        figures.append(figure)
        guess += likely
        if math.isinf(host.alignment.error):
            # Nobody knows when it was: it may have had its most at any instant, and is certain at none.
            high += figure.high
            continue
        bound = widened(bound, steps(host.alignment.error, bins))
        low += bound.low
        high += bound.high
    return (low, high, guess), figures


def _of_host(host: HostRuns, bins: Bins) -> tuple[Bound, Array, HostFigures]:
    """The sum of a host's runs, which have one clock: in the time of the bins where that is known, else in bins of its own."""
    import numpy as np

    total = Bound(np.zeros(bins.number), np.zeros(bins.number))
    likely = np.zeros(bins.number)
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
        read.append(in_reference(windows, place.shift, host.alignment))
    if math.isinf(host.alignment.error) and read:
        own = _own_bins(read, bins)
        inside = (
            bins.begin <= own.begin + own.number * own.width
            and own.begin <= bins.begin + bins.number * bins.width
        )
    else:
        own, inside = bins, True
    if own is not bins:
        total = Bound(np.zeros(own.number), np.zeros(own.number))
    guess = np.zeros(own.number)
    for windows in read:
        total = total.plus(in_bins(windows, own))
        guess += _likely(windows, own)
    if own is bins:
        likely = guess
    elif inside:
        for windows in read:
            likely += _likely(windows, bins)
    low = max(least, float(total.low.max()))
    high = min(most, float(total.high.max())) if read else 0.0
    return total, likely, HostFigures(host.host, low, max(low, high), float(guess.max()), len(host.runs))


def in_reference(windows: Windows, shift: float, alignment: Alignment) -> Windows:
    """The windows in the reference's time."""
    import numpy as np

    starts, ends = windows.start - shift, windows.end - shift
    return windows._replace(
        start=starts + np.interp(starts, alignment.moments, alignment.distances),
        end=ends + np.interp(ends, alignment.moments, alignment.distances),
    )


def _own_bins(read: Sequence[Windows], bins: Bins) -> Bins:
    begin = min(float(windows.start[0]) for windows in read)
    end = max(float(windows.end[-1]) for windows in read)
    width = max(bins.width, (end - begin) / (1 << 16))
    return Bins(begin - width, width, math.ceil((end - begin) / width) + 2)


def _likely(windows: Windows, bins: Bins) -> Array:
    """What it had most likely in the middle of each bin: as at the end of the window."""
    import numpy as np

    values: Array = np.interp(bins.middles(), windows.end, windows.guess, left=0.0, right=0.0)
    return values
