"""How far a run is that is still being recorded, from its last ticks: as cheap for a day as for a second.

Most ticks hold only some of the columns, those in front. CPU time stands in all of them; what the tree certainly needed may
stand some ticks back. The rest of the record is not read, so that fifty running jobs can be listed every second: a peak of
some time ago is in `live`, and in the row once the run has ended.
"""

from __future__ import annotations

import os
from pathlib import Path

from otel_memwatch import catalog
from otel_memwatch.record.fields import mapping, number
from otel_memwatch.record.format import SAMPLES_FILE
from otel_memwatch.record.jsonl import open_regular, parse
from otel_memwatch.runtime.typed import NamedTuple

_END = 64 * 1024
"""Bytes at either end of the file that are read: a line has some 300."""

_FLOORS = (
    (catalog.MEMWATCH_TREE_MEMORY_NEEDED_LOW,),
    (catalog.MEMWATCH_TREE_MEMORY_PSS_NEEDED,),
    (catalog.MEMWATCH_PROCESS_MEMORY_LINUX_ANON, catalog.MEMWATCH_PROCESS_MEMORY_LINUX_SHMEM),
)
"""Columns that together are no more than what the tree needed at that moment: no pages of files, each page once."""
_GROUP_FLOOR = (catalog.MEMWATCH_CGROUP_MEMORY_ANON, catalog.MEMWATCH_CGROUP_MEMORY_SHMEM)
"""The same of a control group, where it is the run's own: of another one they are other programs' too."""


class Progress(NamedTuple):
    """The last tick of a run; `None`: not known."""

    time: float | None = None
    """Monotonic seconds."""
    at_least: int | None = None
    """Bytes that the tree has certainly needed at some moment up to now."""
    cpu_seconds: float | None = None


def progress(directory: Path) -> Progress:
    """The last tick of the run in `directory`; empty before its first one, or where it cannot be read."""
    try:
        with os.fdopen(open_regular(directory / SAMPLES_FILE), "rb") as file:
            head = file.read(_END)
            file.seek(max(0, os.fstat(file.fileno()).st_size - _END))
            tail = file.read(_END)
    except OSError:
        return Progress()
    columns: list[str] = []
    for line in head.split(b"\n"):
        if line.startswith(b"{"):  # declared again where a driver came late
            listed = mapping(parse(line)).get("columns")
            columns = (
                [str(mapping(one).get("metric")) for one in listed] if isinstance(listed, list) else columns
            )
    last: Progress | None = None
    for line in reversed(tail.split(b"\n")):
        values = parse(line) if line.startswith(b"[") else None
        if isinstance(values, list) and values:
            found = _of_tick(columns, values)
            last = last or found
            if found.at_least is not None:
                return last._replace(at_least=found.at_least)
    return last or Progress()


def _of_tick(columns: list[str], values: list[object]) -> Progress:
    """The figures of one tick, whose first value is its time."""
    known = [
        (metric, amount)
        for metric, value in zip(columns, values[1:], strict=False)
        if (amount := number(value)) is not None
    ]

    def added(*metrics: str) -> float | None:
        amounts = [amount for metric, amount in known if metric in metrics]
        return sum(amounts) if amounts else None

    own = catalog.MEMWATCH_CGROUP_MEMORY_WINDOW in columns
    floors = [added(*metrics) for metrics in (*_FLOORS, *((_GROUP_FLOOR,) if own else ()))]
    certain = [floor for floor in floors if floor is not None]
    return Progress(
        number(values[0]),
        int(max(certain)) if certain else None,
        added(catalog.MEMWATCH_TREE_CPU_TIME),
    )
