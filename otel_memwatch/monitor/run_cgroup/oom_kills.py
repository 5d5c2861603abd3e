"""Kills of the OOM killer in our cgroup, counted from before the target starts.

The first sample may come too late for a program that dies at once. This module imports little, because it is needed
before the start.
"""

from __future__ import annotations

from otel_memwatch.runtime.procfs.control_group import (
    locate,
    parse_keyed,
    parse_memberships,
    parse_mounts,
)


class OomKills:
    """Processes of our memory cgroup that the OOM killer has killed since this object was made.

    Version 1 counts the cgroup alone, version 2 also the cgroups below it. Other programs in the cgroup count too.
    """

    def __init__(self, proc: str = "/proc") -> None:
        self._file: str | None = None
        self._before: int | None = None
        try:
            memberships = parse_memberships(_read(f"{proc}/self/cgroup"))
            mounts = parse_mounts(_read(f"{proc}/self/mountinfo"))
        except OSError:
            return
        location = locate(memberships, mounts, "memory")
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
            return parse_keyed(_read(self._file)).get("oom_kill")
        except OSError:
            return None


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
