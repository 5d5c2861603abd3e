"""Memory that a run may fill: its limit, the limits of the cgroups around it, and the machine.

A scope is probed by one file. How soon a probe is due depends on the memory that is left: no program touches memory faster than
`_FASTEST`, so a scope with 100 GiB left needs no probe for seconds.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque

from otel_memwatch.runtime.kernel import read_once, usable_processors
from otel_memwatch.runtime.procfs.control_group import (
    ancestors,
    own_location,
    parse_key,
    parse_limit,
)
from otel_memwatch.runtime.procfs.system import parse_memory
from otel_memwatch.truth.time_left import WINDOWS

_FASTEST = 8 << 30
"""Bytes a second that one processor touches at most: huge pages, zeroed by the kernel."""
PROBE_SECONDS = 0.1
"""Least time between two probes of a scope."""
_FILES = {1: ("memory.limit_in_bytes", "memory.usage_in_bytes"), 2: ("memory.max", "memory.current")}
_RECLAIMABLE = {1: (b"total_inactive_file", b"total_active_file"), 2: (b"inactive_file", b"active_file")}
"""Page cache in memory.stat that the kernel drops before it kills. It excludes files that exist only in memory."""


class MemoryScope:
    """Memory with an end, of which a run uses a part.

    Attributes:
        of: "limit" (`--limit`), "cgroup" (one around the run) or "machine".
        bytes: where it ends.
        due: monotonic seconds of the next probe.
        armed: shares of it at which a warning is due, and whether it may be written.
        samples: time and bytes of the last seconds, the oldest first.

    """

    def __init__(self, of: str, size: int) -> None:
        self.of, self.bytes = of, size
        self.due = 0.0
        self.armed: dict[float, bool] = {}
        self.samples: deque[tuple[float, int]] = deque()
        self._rate = float(_FASTEST * usable_processors())

    def used(self, enough: int) -> int:
        """Return the bytes that cannot be reclaimed; below `enough`, perhaps also some that can. Raises `OSError`."""
        raise NotImplementedError

    def probe(self, now: float, enough: int) -> int:
        """Read the memory in use and set when the next probe is due.

        Args:
            now: monotonic seconds.
            enough: bytes from which the caller acts.

        """
        used = self.used(enough)
        self.samples.append((now, used))
        # Keep one sample that is older than the longest window.
        while len(self.samples) > 2 and now - self.samples[1][0] >= WINDOWS[-1]:
            self.samples.popleft()
        self.due = now + max(PROBE_SECONDS, (enough - used) / self._rate)
        return used

    def close(self) -> None:
        """Close its files."""


class CgroupScope(MemoryScope):
    """A cgroup with a limit."""

    def __init__(self, of: str, path: str, version: int, size: int) -> None:
        super().__init__(of, size)
        self._files = [
            os.open(f"{path}/{name}", os.O_RDONLY | os.O_CLOEXEC)
            for name in (_FILES[version][1], "memory.stat")
        ]
        self._reclaimable = _RECLAIMABLE[version]

    def used(self, enough: int) -> int:
        """Return the charge, without page cache if the charge reaches `enough`: page cache fills any limit."""
        usage, stat = self._files
        used = int(os.pread(usage, 64, 0))
        if used < enough:
            return used
        numbers = os.pread(stat, 8192, 0)
        return max(0, used - sum(parse_key(numbers, name) or 0 for name in self._reclaimable))

    def close(self) -> None:
        """Close its files."""
        for file in self._files:
            os.close(file)


class MachineScope(MemoryScope):
    """The machine: its memory without swap."""

    def __init__(self) -> None:
        self._meminfo = os.open("/proc/meminfo", os.O_RDONLY | os.O_CLOEXEC)
        super().__init__("machine", parse_memory(os.pread(self._meminfo, 8192, 0)).total)

    def used(self, enough: int) -> int:  # noqa: ARG002 - exact in any case
        """Return total minus available memory."""
        memory = parse_memory(os.pread(self._meminfo, 8192, 0))
        return memory.total - memory.available

    def close(self) -> None:
        """Close its file."""
        os.close(self._meminfo)


def cgroups_around(machine: int) -> list[MemoryScope]:
    """Return our cgroup and its ancestors that have a limit below the machine's memory. Raises `OSError`."""
    location = own_location()
    found: list[MemoryScope] = []
    for path in [] if location is None else ancestors(location):
        assert location is not None
        with contextlib.suppress(OSError, ValueError):
            size = parse_limit(read_once(f"{path}/{_FILES[location.version][0]}"))
            if size is not None and size < machine:
                found.append(CgroupScope("cgroup", path, location.version, size))
    return found
