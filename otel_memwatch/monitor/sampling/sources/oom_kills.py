"""Counts what the kernel's OOM killer does to the group that we are in, from before the target starts.

A sampler's first tick may come too late for a program that dies at once. Imports little: it is needed before the start.
"""

from __future__ import annotations

from pathlib import Path

from otel_memwatch.runtime.procfs.control_group import (
    locate,
    parse_keyed,
    parse_memberships,
    parse_mounts,
)


class OomKills:
    """Processes of our own memory control group that the OOM killer has killed since this was made.

    Version 1 counts those of the group itself, version 2 those of the groups below it as well. Other programs in the
    group are counted too.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._file: Path | None = None
        self._before: int | None = None
        try:
            memberships = parse_memberships((proc / "self/cgroup").read_bytes())
            mounts = parse_mounts((proc / "self/mountinfo").read_bytes())
        except OSError:
            return
        location = locate(memberships, mounts, "memory")
        if location is not None:
            name = "memory.oom_control" if location.version == 1 else "memory.events"
            self._file = Path(location.path) / name
            self._before = self._count()

    def since(self) -> int | None:
        """How many there were; `None` where the kernel does not count them (Linux before 4.13, no memory group)."""
        now = self._count()
        return None if now is None or self._before is None else now - self._before

    def _count(self) -> int | None:
        if self._file is None:
            return None
        try:
            return parse_keyed(self._file.read_bytes()).get("oom_kill")
        except OSError:
            return None
