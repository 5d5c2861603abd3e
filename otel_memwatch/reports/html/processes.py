"""Processes for the page: a tree of them, and the memory of the largest ones over time."""

from __future__ import annotations

from bisect import bisect_right

from otel_memwatch import catalog
from otel_memwatch.reports import phrases
from otel_memwatch.reports.formatting import clean, command_line, shorten
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_memwatch.analysis import ProcessFigures, RecordedRun
    from otel_memwatch.analysis.curves import DrawnCurves
    from otel_memwatch.analysis.process_lives import ProcessLife

ROWS = 400
"""Processes of which the page has a row: the largest, and those that they descend from."""
STACKED = 8
_POINTS = 600
_COMMAND = 600
_NEWS = 1.0
"""Seconds after which a change of a process is recorded."""
_NAME = 60
_THIN = 0.02
"""Share of the largest process's memory below which another one is not drawn by itself: it could not be seen."""


def processes_data(run: RecordedRun, curves: DrawnCurves) -> dict[str, Any]:
    """The rows in the order of the tree, each with its depth, how many processes have none, and the stack of the largest."""
    listed = run.processes
    parents = _parents(listed)
    chosen = set(sorted(range(len(listed)), key=lambda i: (-_size(listed[i]), i))[:ROWS])
    for index in list(chosen):
        parent = parents[index]
        while parent is not None and parent not in chosen:
            chosen.add(parent)
            parent = parents[parent]
    named = sorted(chosen)
    told = phrases.process_names([listed[i] for i in named], _NAME, run.ranks)
    names = dict(zip(named, told, strict=True))
    rows = [
        _row(run, listed[index], names[index], depth) for index, depth in _in_order(chosen, parents, listed)
    ]
    by_identity = {(listed[index].pid, listed[index].start): name for index, name in names.items()}
    return {"total": len(listed), "rows": rows, "stack": _stack(run, curves, by_identity)}


def _size(process: ProcessFigures) -> int:
    return -1 if process.peak is None else process.peak.bytes


def _parents(listed: Sequence[ProcessFigures]) -> list[int | None]:
    """Place of each process's parent: the one of that pid which had begun and not ended. Pids are used again."""
    by_pid: dict[int, list[int]] = {}
    for index, process in enumerate(listed):
        by_pid.setdefault(process.pid, []).append(index)
    found: list[int | None] = []
    for index, process in enumerate(listed):
        candidates = [
            other
            for other in by_pid.get(process.ppid or -1, ())
            if other != index
            and listed[other].start <= process.start
            and ((end := listed[other].end) is None or end >= process.start)
        ]
        parent = candidates[-1] if candidates else None
        # By their start they are in a row: a parent that comes later would make a circle.
        found.append(parent if parent is not None and parent < index else None)
    return found


def _in_order(
    chosen: set[int], parents: Sequence[int | None], listed: Sequence[ProcessFigures]
) -> list[tuple[int, int]]:
    """Places and depths, each process followed by its descendants, siblings by their start."""
    children: dict[int | None, list[int]] = {}
    for index in sorted(chosen, key=lambda i: (listed[i].start, i), reverse=True):
        children.setdefault(parents[index], []).append(index)
    order = []
    waiting = [(index, 0) for index in children.get(None, ())]
    while waiting:
        index, depth = waiting.pop()
        order.append((index, depth))
        waiting.extend((child, depth + 1) for child in children.get(index, ()))
    return order


def _row(run: RecordedRun, process: ProcessFigures, name: str, depth: int) -> dict[str, Any]:
    end = run.seconds if process.end is None else process.end
    peak, start = process.peak, phrases.process_start(run, process)
    row = {
        "name": name,
        "command": command_line(process.argv, _COMMAND) if process.argv else None,
        "pid": process.pid,
        "ppid": process.ppid,
        "depth": depth,
        "start": start,
        "seconds": round(max(0.0, end - start), 4),
        "peak": None if peak is None else [peak.bytes, peak.certainty.value, peak.low, peak.high],
        "how": clean(peak.how) if peak is not None else None,
        "cpu": process.cpu_seconds,
        "read": process.read_bytes,
        "write": process.write_bytes,
        "end": phrases.process_ending(process),
        "bad": bool(process.signal or process.exit_code) or None,
    }
    return {key: value for key, value in row.items() if value is not None}


def _stack(
    run: RecordedRun, curves: DrawnCurves, names: Mapping[tuple[int, float], str]
) -> dict[str, Any] | None:
    """Resident memory of the largest processes at moments, and of the rest together; `None` for one process alone.

    Of each stretch of time the moment of the largest sum is taken: all values are of one moment, since the largest ones of
    each process would add up to more than there ever was.
    """
    total = curves.find(catalog.MEMWATCH_TREE_MEMORY_USAGE)
    lives = curves.lives.largest(STACKED)
    least = _THIN * max((life.largest for life in lives), default=0)
    lives = [life for life in lives if life.largest >= least]
    moments = [] if total is None or len(run.processes) < 2 else _moments(curves.last, total.high)
    if total is None or len(moments) < 2:
        return None
    times = [curves.last[index] for index in moments]
    main = curves.find(catalog.PROCESS_MEMORY_USAGE)
    target = phrases.target_pid(run)
    columns = [
        # The target's own process was read at every tick, the others every second at most.
        [_known(main.high[index]) for index in moments]
        if main is not None and life.pid == target
        else [_memory_at(life, time) for time in times]
        for life in lives
    ]
    labels = [_label(names.get((life.pid, life.start), ""), life.pid) for life in lives]
    if len(run.processes) > len(lives):
        sums = zip(*columns, strict=True)
        columns.append(
            [max(0, round(total.high[i]) - sum(row)) for i, row in zip(moments, sums, strict=True)]
        )
        labels.append("all others")
    return {
        "times": [round(time * 1000) for time in times],
        "names": labels,
        "pids": [life.pid for life in lives],
        "kib": [[value >> 10 for value in values] for values in columns],
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


def _memory_at(life: ProcessLife, time: float) -> int:
    """Resident bytes at a moment; none outside of its life.

    What does not change is not recorded again: a reading holds until shortly before the next one, and a straight line
    between them stands for the change.
    """
    points = life.points
    if not points or time < life.start or (life.end is not None and time > life.end):
        return 0
    after = bisect_right(points, (time, 1 << 62))
    if after == 0:
        return points[0][1]
    if after == len(points):
        return points[-1][1]
    (begin, low), (end, high) = points[after - 1], points[after]
    begin = max(begin, end - _NEWS)
    if time <= begin:
        return low
    return round(low + (high - low) * (time - begin) / (end - begin)) if end > begin else high
