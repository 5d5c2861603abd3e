"""Progress of a running job from its last samples: as cheap for a day as for a second.

* Most samples hold only the first columns. CPU time is in all of them; the lower bound of the tree may be some samples back.
* The rest of the record is not read: fifty running jobs can be listed every second.
* An earlier peak is in `live`, and in the row once the run has ended.
"""

from __future__ import annotations

import os

from otel_memwatch import catalog
from otel_memwatch.record.fields import mapping, number
from otel_memwatch.record.format import SAMPLES_FILE
from otel_memwatch.record.jsonl import open_regular, parse
from otel_memwatch.runtime.typed import NamedTuple

_END = 64 * 1024
"""Bytes read at either end of the file; a line has about 300."""

_FLOORS = (
    (catalog.MEMWATCH_TREE_MEMORY_NEEDED_LOW,),
    (catalog.MEMWATCH_TREE_MEMORY_PSS_NEEDED,),
    (catalog.MEMWATCH_PROCESS_MEMORY_LINUX_ANON, catalog.MEMWATCH_PROCESS_MEMORY_LINUX_SHMEM),
)
"""Columns that add up to a lower bound of the tree at that moment: no file pages, each page once."""
_GROUP_FLOOR = (catalog.MEMWATCH_CGROUP_MEMORY_ANON, catalog.MEMWATCH_CGROUP_MEMORY_SHMEM)
"""Lower bound from the run's own cgroup. Any other cgroup includes other programs."""


class Progress(NamedTuple):
    """Last sample of a run; `None`: unknown."""

    time: float | None = None
    """Monotonic seconds."""
    at_least: int | None = None
    """Lower bound of the tree's peak so far, in bytes."""
    cpu_seconds: float | None = None


def progress(directory: str | os.PathLike[str]) -> Progress:
    """Return the last sample of the run in `directory`; empty before the first one, or if the file is unreadable."""
    try:
        with os.fdopen(open_regular(f"{os.fspath(directory)}/{SAMPLES_FILE}"), "rb") as file:
            head = file.read(_END)
            file.seek(max(0, os.fstat(file.fileno()).st_size - _END))
            tail = file.read(_END)
    except OSError:
        return Progress()
    columns: list[str] = []
    for line in head.split(b"\n"):
        if line.startswith(b"{"):  # the columns are declared again if a driver is found late
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
    """Return the figures of one sample; its first value is the time."""
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
