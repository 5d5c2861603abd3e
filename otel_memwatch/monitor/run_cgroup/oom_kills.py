"""Kills of the OOM killer in our cgroup, counted from before the target starts.

The first sample may come too late for a program that dies at once. This module imports little, because it is needed
before the start.
"""

from __future__ import annotations

from otel_memwatch.runtime.kernel import read_once
from otel_memwatch.runtime.procfs.control_group import (
    own_location,
    parse_keyed,
)


class OomKills:
    """Processes of our memory cgroup that the OOM killer has killed since this object was made.

    Version 1 counts the cgroup alone, version 2 also the cgroups below it. Other programs in the cgroup count too.
    """

    def __init__(self) -> None:
        self._file: str | None = None
        self._before: int | None = None
        try:
            location = own_location("/proc")
        except OSError:
            return
        if location is not None:
            name = "memory.oom_control" if location.version == 1 else "memory.events"
            self._file = f"{location.path}/{name}"
            self._before = self._count()

    def since(self) -> int | None:
        """Return their number; `None` if the kernel does not count them (Linux before 4.13, no memory cgroup)."""
        now = self._count()
        return None if now is None or self._before is None else now - self._before

    def _count(self) -> int | None:
        if self._file is None:
            return None
        try:
            return parse_keyed(read_once(self._file)).get("oom_kill")
        except OSError:
            return None
