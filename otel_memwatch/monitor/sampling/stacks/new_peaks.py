"""New peaks of a process tree, from cheap readings at short intervals.

The watch decides when a capture is worth its cost, and of which process. It reads `statm` of each process, and `status`
if the resident size has changed. Sizes are anonymous and shared memory: pages of files do not count.
"""

from __future__ import annotations

import contextlib
import os
import time

from otel_memwatch.runtime.kernel import read_once
from otel_memwatch.runtime.procfs.process import parse_resident_private, parse_shmem
from otel_memwatch.runtime.procfs.statm import parse_resident
from otel_memwatch.runtime.procfs.system import parse_last_pid
from otel_memwatch.runtime.typed import NamedTuple

STEP, LEAST_STEP = 1.05, 8 << 20
"""Growth of the tree's memory since the last capture that is worth another one: a factor, and bytes."""
WIDE_STEP = 1.2
"""The factor once half of the budget is used."""
SHARE, ADVANCE = 0.005, 1.0
"""CPU time of the tools: share of the run's time, and seconds that may be used ahead of it."""
_SEARCH_SECONDS = 0.5
"""Seconds after which children are searched for even if the kernel has assigned no new PID."""


class NewPeak(NamedTuple):
    """A new peak."""

    level: int
    """Memory of the tree in bytes."""
    pid: int
    """The process that has grown most since the last capture."""
    grown: int
    """By how many bytes."""


class _Process:
    """Sizes of one process, in bytes."""

    def __init__(self, size: int, inherited: int) -> None:
        self.resident = -1
        self.size = size
        self.inherited = inherited
        """Upper bound of the pages that it shares with its parent since the fork."""
        self.captured = inherited
        """Size at the last capture."""


class GrowthWatch:
    """Processes of the tree of `root`.

    Args:
        root: the target.
        adopter: the process that orphans of the tree become children of; `None`: unknown.
        exclude: children of the adopter that are not part of the tree.
        proc: mount point of /proc.

    Attributes:
        highest: largest level so far.

    """

    def __init__(self, root: int, adopter: int | None, exclude: frozenset[int], proc: str = "/proc") -> None:
        self._root, self._adopter, self._proc = root, adopter, proc
        self._exclude = exclude | {os.getpid()}
        self._processes: dict[int, _Process] = {}
        self._last_pid = self._searched = -1.0
        self.highest = self._captured = 0
        self._began = time.monotonic()
        self._spent = 0.0

    def poll(self) -> NewPeak | None:
        """Read all sizes. Return a new peak that is worth a capture, or `None`."""
        self._search()
        for pid, process in list(self._processes.items()):
            try:
                resident = parse_resident(self._read(pid, "statm"))
                if resident != process.resident:
                    process.resident, process.size = resident, self.size(pid)
            except (OSError, ValueError):
                del self._processes[pid]
        level = sum(max(0, one.size - one.inherited) for one in self._processes.values())
        self.highest = max(self.highest, level)
        left = ADVANCE + SHARE * (time.monotonic() - self._began) - self._spent
        step = STEP if left > ADVANCE / 2 else WIDE_STEP
        if left <= 0 or level < max(self._captured * step, self._captured + LEAST_STEP):
            return None
        pid, process = max(self._processes.items(), key=lambda item: item[1].size - item[1].captured)
        grown = process.size - process.captured
        return NewPeak(level, pid, grown) if grown > 0 else None

    def captured(self, growth: NewPeak, seconds: float) -> None:
        """Note a capture that took `seconds`."""
        self._captured = max(self._captured, growth.level)
        self.spend(seconds)
        for process in self._processes.values():
            process.captured = process.size

    def spend(self, seconds: float) -> None:
        """Count seconds against the budget; failed captures cost too."""
        self._spent += seconds

    def size(self, pid: int) -> int:
        """Return anonymous and shared memory of a process in bytes; 0 for a zombie. Raises `OSError`, `ValueError`."""
        status = self._read(pid, "status")
        return (parse_resident_private(status) or 0) + parse_shmem(status)

    def faults(self, pid: int) -> dict[int, int]:
        """Return the minor page faults of each thread so far; of ended ones nothing."""
        found = {}
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"{self._proc}/{pid}/task"):
                with contextlib.suppress(OSError, ValueError, IndexError):
                    stat = self._read(pid, f"task/{thread}/stat")
                    found[int(thread)] = int(stat[stat.rindex(b")") + 2 :].split(None, 8)[7])
        return found

    def _search(self) -> None:
        """Find new processes, if the kernel has assigned a PID since."""
        now = time.monotonic()
        try:
            last = parse_last_pid(read_once(f"{self._proc}/loadavg"))
        except (OSError, ValueError):
            last = -1
        if last == self._last_pid and now - self._searched < _SEARCH_SECONDS:
            return
        self._last_pid, self._searched = last, now
        found: dict[int, int | None] = {self._root: None}
        if self._adopter is not None:
            found.update((pid, None) for pid in self._children(self._adopter) if pid not in self._exclude)
        queue = list(found)
        while queue:
            above = queue.pop()
            for pid in self._children(above):
                if pid not in found and pid not in self._exclude:
                    found[pid] = above
                    queue.append(pid)
        for pid, parent in found.items():
            if pid not in self._processes:
                with contextlib.suppress(OSError, ValueError):
                    size = self.size(pid)
                    known = None if parent is None else self._processes.get(parent)
                    self._processes[pid] = _Process(size, 0 if known is None else min(size, known.size))
        for pid in self._processes.keys() - found.keys():
            del self._processes[pid]

    def _children(self, pid: int) -> list[int]:
        children: list[int] = []
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"{self._proc}/{pid}/task"):
                with contextlib.suppress(OSError):
                    children += map(int, self._read(pid, f"task/{thread}/children").split())
        return children

    def _read(self, pid: int, name: str) -> bytes:
        return read_once(f"{self._proc}/{pid}/{name}")
