"""Heaps of JVMs, from the counters that they publish: at most one reading a second, later one a minute."""

from __future__ import annotations

import os
import time

from otel_memwatch.runtime.kernel import CLOCK_TICKS, PAGE_SIZE, read_once
from otel_memwatch.runtime.procfs.hsperfdata import jvm_folders, read_hsperfdata
from otel_memwatch.runtime.procfs.process import parse_private, parse_status, parse_threads
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.truth.heap import JVM_HEAP, AllocatorBooks, HeapReading

if TYPE_CHECKING:
    from collections.abc import Sequence

_FIRST, _PERIOD, _LONGEST = 0.5, 1.0, 60.0
"""Seconds until the first reading, and between two of them: at first, and at most."""
_LEAST = 16 << 20
"""Resident private bytes from which a process is looked at: a JVM has 30 MiB."""
_PROCESSES = 32


class JavaHeaps:
    """Reader of the JVMs of a tree."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._pause = _PERIOD
        self.due = 0.0
        """Monotonic seconds of the next reading."""

    def read(self, pids: Sequence[int], now: float) -> list[HeapReading]:
        """Return a reading of each large JVM if one is due."""
        if now < self.due or not self.due:
            self.due = self.due or now + _FIRST
            return []
        self.due = now + self._pause
        self._pause = min(_LONGEST, 1.5 * self._pause)
        found = []
        folders: dict[tuple[int, int], list[str]] = {}
        for pid in pids[:_PROCESSES]:
            try:
                reading = self._reading(pid, now, folders)
            except (OSError, ValueError, IndexError):  # it has ended, or is another user's
                continue
            if reading is not None:
                found.append(reading)
        return found

    def _reading(self, pid: int, now: float, folders: dict[tuple[int, int], list[str]]) -> HeapReading | None:
        """Return the reading of a process, `None` unless it is a large JVM. `folders`: names by directory for files."""
        _, resident, shared = map(int, read_once(f"{self._proc}/{pid}/statm").split()[:3])
        if (resident - shared) * PAGE_SIZE < _LEAST:
            return None
        of_tmp = os.stat(f"{self._proc}/{pid}/root/tmp")
        key = of_tmp.st_dev, of_tmp.st_ino
        if key not in folders:
            folders[key] = jvm_folders(self._proc, pid)
        if not folders[key]:
            return None
        status = read_once(f"{self._proc}/{pid}/status")
        inner = int(status.partition(b"\nNSpid:")[2].partition(b"\n")[0].split()[-1])
        ticks = int(read_once(f"{self._proc}/{pid}/stat").rpartition(b")")[2].split(None, 20)[19])
        started = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / CLOCK_TICKS
        java = read_hsperfdata(self._proc, pid, inner, folders[key], started)
        anonymous = parse_status(status).anon
        if java is None or anonymous is None:
            return None
        books = (
            AllocatorBooks(JVM_HEAP, java.old_used, java.old_committed - java.old_used, 0),
            AllocatorBooks("JVM young generation", java.young, 0, 0),
            AllocatorBooks(
                "JVM classes", java.metaspace_used, java.metaspace_committed - java.metaspace_used, 0
            ),
        )
        return HeapReading(pid, now, anonymous, parse_private(status), parse_threads(status), books)
