"""Memory of the largest processes at each moment, stacked, and of all other processes together.

Every sample has the sum of all processes; each process is read at most once per second. Between two readings a process
keeps its last value, unless the sum changed. Then the change is attributed in this order, each time in proportion:

| sum | first | then | then |
| --- | --- | --- | --- |
| larger | processes with a larger next reading, up to that | all, up to their peaks | other processes if any, else all |
| smaller | processes with a smaller next reading, down to that | all | |

Example: sort had 37 MiB at 0.1 s and 161 MiB at 1.1 s; gzip had 1 MiB both times. At 0.3 s the sum was 151 MiB, so sort
had 150 MiB. Linear interpolation would give sort 62 MiB and leave 88 MiB that belong to no process.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate

from otel_memwatch import catalog
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.text import shorten

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_memwatch.run import ProcessFigures, RecordedRun
    from otel_memwatch.run.curves import DrawnCurves
    from otel_memwatch.run.process_curves import ProcessLife

    Identity = tuple[int, float]

STACKED = 8
_POINTS = 600
_THIN = 0.02
"""Least share of the largest process's memory for a separate area; a smaller one would be invisible."""
_READ_TOGETHER = 0.001
"""Seconds by which the reading of a process may follow its sample: the record rounds the time of a sample."""


def stack_data(run: RecordedRun, curves: DrawnCurves, names: Mapping[Identity, str]) -> dict[str, Any] | None:
    """Return resident memory of the largest processes and of the rest together; `None` for a single process.

    Each stretch of time is represented by the moment of its largest sum. All values are for that moment and add up to
    the sum. The maxima of the processes would add up to more than the sum ever was.
    """
    total = curves.find(catalog.MEMWATCH_TREE_MEMORY_USAGE)
    every = curves.lives.largest(len(run.processes))
    least = _THIN * max((life.largest for life in every), default=0)
    lives = [life for life in every[:STACKED] if life.largest >= least]
    moments = [] if total is None or len(run.processes) < 2 else _moments(curves.last, total.high)
    if total is None or len(moments) < 2:
        return None
    times = [curves.last[index] for index in moments]
    drawn = {(life.pid, life.start) for life in lives}
    others = [process for process in run.processes if (process.pid, process.start) not in drawn]
    last, following = _readings(every, drawn, times)
    peak_of = {(process.pid, process.start): process.peak.bytes for process in run.processes if process.peak}
    most = [[peak_of.get((life.pid, life.start), life.largest)] * len(times) for life in lives]
    most.append(_peaks_together(others, times))
    main, target = curves.find(catalog.PROCESS_MEMORY_USAGE), run.fields.target.pid
    for place, life in enumerate(lives):
        if main is not None and life.pid == target:
            # The main process is read at every sample.
            resident = [main.high[index] for index in moments]
            known = [round(value) if value == value else 0 for value in resident]  # noqa: PLR0124 - NaN
            last[place] = following[place] = most[place] = known
    sums = [round(total.high[index]) for index in moments]
    rows = map(_shares, sums, zip(*last, strict=True), zip(*following, strict=True), zip(*most, strict=True))
    columns = list(zip(*rows, strict=True))
    labels = []
    for life in lives:
        name = names.get((life.pid, life.start), "")
        labels.append(f"{shorten(name, 36)} ({life.pid})" if name else f"pid {life.pid}")
    if others:
        labels.append("all others")
    return {
        "at": moments,
        "names": labels,
        "pids": [life.pid for life in lives],
        "kib": [[value >> 10 for value in values] for values in columns[: len(labels)]],
    }


def _moments(times: Sequence[float], totals: Sequence[float]) -> list[int]:
    """Return the index of the largest total in each of `_POINTS` stretches of time, and the first and last index."""
    known = [index for index, value in enumerate(totals) if value == value]  # noqa: PLR0124 - NaN
    if len(known) <= _POINTS:
        return known
    begin, width = times[known[0]], (times[known[-1]] - times[known[0]]) / _POINTS or 1.0
    best: dict[int, int] = {}
    for index in known:
        place = int((times[index] - begin) / width)
        if place not in best or totals[index] > totals[best[place]]:
            best[place] = index
    return sorted({known[0], *best.values(), known[-1]})


def _readings(
    lives: Iterable[ProcessLife], drawn: set[Identity], times: Sequence[float]
) -> tuple[list[Sequence[int]], list[Sequence[int]]]:
    """Return the last and the next reading of each drawn process at each moment; the others are added up in the last row."""
    last: list[Sequence[int]] = []
    following: list[Sequence[int]] = []
    last_of_others: list[Sequence[int]] = [[0] * len(times)]
    following_of_others: list[Sequence[int]] = [[0] * len(times)]
    for life in lives:
        # A process has no memory before its start and after its end. Before its first reading it grows towards that.
        changes = [(life.start, 0), *life.points, *([] if life.end is None else [(life.end, 0)])]
        # Starts and readings use different clocks, so enforce their order.
        places = list(accumulate((bisect_left(times, time - _READ_TOGETHER) for time, _ in changes), max))
        values = [0, *(value for _, value in changes)]
        had: list[int] = []
        will: list[int] = []
        for begin, end, now, then in zip(
            [0, *places], [*places, len(times)], values, [0, *values[2:], values[-1]], strict=True
        ):
            had += [now] * (end - begin)
            will += [then] * (end - begin)
        is_drawn = (life.pid, life.start) in drawn
        (last if is_drawn else last_of_others).append(had)
        (following if is_drawn else following_of_others).append(will)
    last.append(list(map(sum, zip(*last_of_others, strict=True))))
    following.append(list(map(sum, zip(*following_of_others, strict=True))))
    return last, following


def _peaks_together(processes: Iterable[ProcessFigures], times: Sequence[float]) -> list[int]:
    """Return the sum of the peaks of the processes that ran at each moment."""
    changes = [0] * (len(times) + 1)
    for process in processes:
        if process.peak is not None:
            end = len(times) if process.end is None else bisect_right(times, process.end)
            changes[min(end, bisect_left(times, process.start - _READ_TOGETHER))] += process.peak.bytes
            changes[end] -= process.peak.bytes
    return list(accumulate(changes))[:-1]


def _shares(total: int, last: Sequence[int], following: Sequence[int], most: Sequence[int]) -> list[int]:
    """Divide `total` among the processes at a moment, all others last. The module's docstring has the rules."""
    found = list(last)
    smaller = sum(found) > total
    # A process that does not run has neither a last nor a next reading.
    peaks = [
        peak if before or after else 0 for peak, before, after in zip(most, last, following, strict=True)
    ]
    peaks[-1] = most[-1]
    for bounds in (following, [0] * len(found) if smaller else peaks):
        rooms = [
            min(0, bound - value) if smaller else max(0, bound - value)
            for bound, value in zip(bounds, found, strict=True)
        ]
        if any(rooms):
            share = min(1.0, (total - sum(found)) / sum(rooms))
            found = [value + round(room * share) for value, room in zip(found, rooms, strict=True)]
    left = total - sum(found)
    if most[-1] or not any(found):
        found[-1] = max(0, found[-1] + left)
        return found
    return [value + round(left * value / sum(found)) for value in found]
