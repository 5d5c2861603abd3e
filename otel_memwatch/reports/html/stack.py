"""Whose the memory was at each moment: the largest processes on top of each other, and the rest together.

The sum of all is read at every tick, each process every second at most. So a process has what was read last until it is read
again; but where the sum says that something has changed meanwhile, it has in those that may have changed:

| the sum | first changes, in proportion | then | then |
| --- | --- | --- | --- |
| is larger | what is read larger the next time, up to that | all, up to their peaks | others where there are any, else all |
| is smaller | what is read smaller the next time, down to that | all | |

Example: sort was read with 37 MiB at 0.1 s and with 161 at 1.1 s, gzip with 1. At 0.3 s all had 151 MiB together: sort had 150. On
a straight line between its readings it would have 62, and somebody else 88 that nobody ever had.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate

from otel_memwatch import catalog
from otel_memwatch.reports import phrases
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
"""Share of the largest process's memory below which another one is not drawn by itself: it could not be seen."""
_READ_TOGETHER = 0.001
"""Seconds that a process may have been read after the tick that it was read at: a record rounds the time of a tick."""


def stack_data(run: RecordedRun, curves: DrawnCurves, names: Mapping[Identity, str]) -> dict[str, Any] | None:
    """Resident memory of the largest processes at moments, and of the rest together; `None` for one process alone.

    Of each stretch of time the moment of the largest sum is taken: all values are of one moment, since the largest ones of
    each process would add up to more than there ever was. They add up to what all had at it.
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
    main, target = curves.find(catalog.PROCESS_MEMORY_USAGE), phrases.target_pid(run)
    for place, life in enumerate(lives):
        if main is not None and life.pid == target:
            # It was read at every tick.
            last[place] = following[place] = most[place] = [_known(main.high[index]) for index in moments]
    sums = [round(total.high[index]) for index in moments]
    rows = map(_shares, sums, zip(*last, strict=True), zip(*following, strict=True), zip(*most, strict=True))
    columns = list(zip(*rows, strict=True))
    labels = [_label(names.get((life.pid, life.start), ""), life.pid) for life in lives]
    if others:
        labels.append("all others")
    return {
        "at": moments,
        "names": labels,
        "pids": [life.pid for life in lives],
        "kib": [[value >> 10 for value in values] for values in columns[: len(labels)]],
    }


def _label(name: str, pid: int) -> str:
    return f"{shorten(name, 36)} ({pid})" if name else f"pid {pid}"


def _known(value: float) -> int:
    return round(value) if value == value else 0  # noqa: PLR0124 - NaN


def _moments(times: Sequence[float], totals: Sequence[float]) -> list[int]:
    """The place of the largest total in each of a few hundred stretches of time, and the first and the last place."""
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
    """At each moment what each that is drawn was last read with, and then with: two lists, in each one of the others together."""
    last: list[Sequence[int]] = []
    following: list[Sequence[int]] = []
    last_of_others: list[Sequence[int]] = [[0] * len(times)]
    following_of_others: list[Sequence[int]] = [[0] * len(times)]
    for life in lives:
        # Before its start and after its end it has nothing; what it had before it was read is on the way to that.
        changes = [(life.start, 0), *life.points, *([] if life.end is None else [(life.end, 0)])]
        # The clock of a start and that of a reading are not one: what is told of a later moment comes later.
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
    """What those that were alive at each moment had at most, together."""
    changes = [0] * (len(times) + 1)
    for process in processes:
        if process.peak is not None:
            end = len(times) if process.end is None else bisect_right(times, process.end)
            changes[min(end, bisect_left(times, process.start - _READ_TOGETHER))] += process.peak.bytes
            changes[end] -= process.peak.bytes
    return list(accumulate(changes))[:-1]


def _shares(total: int, last: Sequence[int], following: Sequence[int], most: Sequence[int]) -> list[int]:
    """What each had of `total` at a moment, all others last. See the table at the beginning of this module."""
    found = list(last)
    smaller = sum(found) > total
    # One that is not there has neither had anything nor will have.
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
