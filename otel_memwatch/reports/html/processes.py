"""Processes for the page: their tree, and (`stack.py`) the memory of the largest ones over time."""

from __future__ import annotations

from otel_memwatch.reports import phrases
from otel_memwatch.reports.html.stack import stack_data
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.text import clean, command_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.run import ProcessFigures, RecordedRun
    from otel_memwatch.run.curves import DrawnCurves

ROWS = 400
"""Processes with a row: the largest, in addition to their ancestors."""
_COMMAND = 600
_NAME = 60


def processes_data(run: RecordedRun, curves: DrawnCurves) -> dict[str, Any]:
    """Return the total number of processes, rows with depths in tree order, and the stack of the largest."""
    listed = run.processes
    parents = _parents(listed)
    sizes = [-1 if process.peak is None else process.peak.bytes for process in listed]
    chosen = set(sorted(range(len(listed)), key=lambda i: (-sizes[i], i))[:ROWS])
    for index in list(chosen):
        parent = parents[index]
        while parent is not None and parent not in chosen:
            chosen.add(parent)
            parent = parents[parent]
    named = sorted(chosen)
    texts = phrases.process_names([listed[i] for i in named], _NAME, run.ranks)
    names = dict(zip(named, texts, strict=True))
    # Each process is followed by its descendants, siblings by start.
    children: dict[int | None, list[int]] = {}
    for index in sorted(chosen, key=lambda i: (listed[i].start, i), reverse=True):
        children.setdefault(parents[index], []).append(index)
    rows = []
    waiting = [(index, 0) for index in children.get(None, ())]
    while waiting:
        index, depth = waiting.pop()
        process = listed[index]
        end = run.seconds if process.end is None else process.end
        peak, start = process.peak, phrases.process_start(run, process)
        row = {
            "name": names[index],
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
            "end": phrases.process_ending(run, process),
            "bad": bool(process.signal or process.exit_code) or None,
        }
        rows.append({key: value for key, value in row.items() if value is not None})
        waiting.extend((child, depth + 1) for child in children.get(index, ()))
    by_identity = {(listed[index].pid, listed[index].start): name for index, name in names.items()}
    return {"total": len(listed), "rows": rows, "stack": stack_data(run, curves, by_identity)}


def _parents(listed: Sequence[ProcessFigures]) -> list[int | None]:
    """Return the index of each process's parent. The kernel reuses pids, so the parent must run at that time."""
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
        # Processes are sorted by start; a later parent would make a cycle.
        found.append(parent if parent is not None and parent < index else None)
    return found
