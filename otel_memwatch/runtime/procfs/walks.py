"""Readings of /proc for which the kernel walks the page tables of a process: 11 ms per GiB.

During a walk, the kernel keeps the memory of the process, even if that ends. The next process then allocates beside it, so
a walk can raise the peak of what it measures: on a busy machine, a walk of 120 MiB took 1.4 s and doubled the peak. So only
processes that are not likely to end are read. The main process is always read, because nothing follows it.
"""

from __future__ import annotations

import time

from otel_memwatch.runtime.kernel import CLOCK_TICKS, read_once
from otel_memwatch.runtime.light import get_ident

PER_BYTE = 11e-3 / (1 << 30)
"""Seconds of a walk for each resident byte."""
_ASLEEP, _RUNNING, _AGE = 1.0, 10.0, 100.0
"""Age from which a process is read: seconds while it waits, seconds while it runs, and a multiple of the walk."""
_SMALL = 2 << 20
"""Resident bytes of a process that is read at any age."""

_WAIT = 0.001
"""Seconds between two looks at a walk that another thread is to end."""

_walks: dict[int, int] = {}
"""PID that each thread of ours reads at the moment."""
_kept: dict[int, float] = {}
"""Monotonic time at which a walk was over, by PID of a process that ended during the walk."""


def read_walking(proc: str, pid: int, name: str) -> bytes:
    """Return `/proc/PID/smaps`, `smaps_rollup` or `maps`. Raises `OSError`."""
    thread = get_ident()
    _walks[thread] = pid
    try:
        with open(f"{proc}/{pid}/{name}", "rb") as file:
            return file.read()
    finally:
        if _has_no_memory(proc, pid):
            _kept[pid] = time.monotonic()
        del _walks[thread]


def _has_no_memory(proc: str, pid: int) -> bool:
    try:
        return read_once(f"{proc}/{pid}/statm").startswith(b"0 ")
    except OSError:
        return True


def walked() -> frozenset[int]:
    """Return the processes that threads of ours read at the moment."""
    return frozenset(_walks.copy().values())


def kept_until(pid: int) -> float:
    """Return until when a walk of ours kept the memory of an ended process, in monotonic seconds; 0.0: none did.

    Waits for a walk that is not over: once it has returned, the memory is free.
    """
    while pid in walked():
        time.sleep(_WAIT)
    return _kept.pop(pid, 0.0)


def outlives_walk(proc: str, pid: int, resident: int) -> bool:
    """Return whether a process with so many resident bytes is old enough for a walk. A walk of an ended one fails at once."""
    if resident <= _SMALL:
        return True
    try:
        fields = read_once(f"{proc}/{pid}/stat").rpartition(b")")[2].split(None, 20)
        started = int(fields[19]) / CLOCK_TICKS
    except (OSError, ValueError, IndexError):
        return True
    least = max(_RUNNING if fields[0] == b"R" else _ASLEEP, _AGE * PER_BYTE * resident)
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started >= least
