"""A small run with something of everything, for tests that damage it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from otel_memwatch.model import ProcessEvent, ProcessRecord
from tests.support.run_directory import MIB, PID, STARTED, RunDirectory, column

OPENING = {"open": 2, "time": 0.2, "name": "Load", "trace": "1" * 32, "span": "2" * 16, "parent": None, "thread": 1,
           "rss": 10 * MIB, "segment": 12 * MIB}  # fmt: skip
CLOSING = {"close": 2, "time": 0.7, "status": "ok", "error": None, "rss": 20 * MIB, "segment": 30 * MIB,
           "peak": 30 * MIB, "low": 29 * MIB, "high": 31 * MIB, "certainty": "exact", "cpu_user": 0.1,
           "cpu_system": 0.1, "gpu": {"GPU-1": {"peak": 5 * MIB}}}  # fmt: skip


def sound(place: Path, **fields: Any) -> RunDirectory:
    """A small run with everything in it."""
    run = RunDirectory(place, **fields)
    run.columns(
        [
            column("process.memory.usage"),
            column("memwatch.tree.memory.usage"),
            column("memwatch.tree.process.count"),
            column("process.cpu.time", cpu__mode="user"),
            column("memwatch.cgroup.memory.usage", 1.0),
        ]
    )
    for step in range(8):
        run.tick(step * 0.1, (10 + step) * MIB, (12 + step) * MIB, 2, step * 0.01)
    for pid, start in ((PID, 0.0), (PID + 1, 0.2)):
        run.process(
            ProcessRecord(
                ProcessEvent.SEEN, STARTED + start, pid, STARTED + start, ppid=4000, command="python"
            )
        )
        run.process(
            ProcessRecord(
                ProcessEvent.EXIT,
                STARTED + 0.8,
                pid,
                STARTED + start,
                peak=30 * MIB,
                exit_code=0,
                cpu_user=0.1,
            )
        )
    run.operations([OPENING, CLOSING])
    return run
