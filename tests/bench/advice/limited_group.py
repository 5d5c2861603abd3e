"""A control group with a memory limit, for a job that is to show whether the limit is enough."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from otel_memwatch.monitor.run_cgroup.own_cgroup import OwnCgroup


class LimitedGroup:
    """A group with a limit; swap does not help. `enter` is called in the child before it executes."""

    def __init__(self, group: OwnCgroup, limit: int) -> None:
        self._group = group
        one = group.version == 1
        self._write("memory.limit_in_bytes" if one else "memory.max", str(limit))
        with contextlib.suppress(OSError):  # without swap there is no such file
            self._write("memory.memsw.limit_in_bytes" if one else "memory.swap.max", str(limit if one else 0))

    def _write(self, name: str, text: str) -> None:
        Path(self._group.path, name).write_text(text)

    def enter(self) -> None:
        """Puts the calling process into the group."""
        os.write(self._group.entrance, b"0")

    def kills(self) -> int:
        """Processes that the kernel has killed in it."""
        return self._group.oom_kills()

    def watermark(self) -> int:
        """The most that was charged to it."""
        return self._group.peak()


@contextlib.contextmanager
def limited_group(limit: int) -> Iterator[LimitedGroup]:
    """Makes a group with a limit in bytes, and removes it. Raises `Unavailable` where there can be none."""
    group = OwnCgroup.create()
    try:
        yield LimitedGroup(group, limit)
    finally:
        group.remove()
