"""Whether counts of a group may be behind, because groups below it have not passed theirs on."""

from __future__ import annotations

import contextlib
import os

from otel_memwatch.runtime.kernel import GROUP_LAG_SECONDS
from otel_memwatch.runtime.procfs.control_group import parse_key

_MOST = 64
"""Groups that are read at a tick."""


class GroupsBelow:
    """Tells of the groups that a program has made below the run's own: a container runtime, a sandbox, another `wrap`.

    What memory.stat says is passed on from group to group late (`GROUP_LAG_SECONDS`): 100 MiB of page cache stood as none, and
    so as needed memory, for more than a second. The watermark and the usage are never late.

    Where the directory cannot be opened, none are seen.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._directory = -1
        self._changed: int | None = None
        self._until = float("-inf")
        with contextlib.suppress(OSError):
            # The kernel keeps the times of a group's directory only from the first time that somebody sets one.
            os.utime(path)
        with contextlib.suppress(OSError):
            self._directory = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self._changed = os.fstat(self._directory).st_mtime_ns

    def lately(self, now: float) -> bool:
        """Whether there is a group below, or was one until lately (1 us). `now`: monotonic seconds."""
        if self._directory < 0:
            return False
        status = os.fstat(self._directory)
        if status.st_nlink > 2 or status.st_mtime_ns != self._changed:
            self._changed = status.st_mtime_ns
            self._until = now + GROUP_LAG_SECONDS
        return now < self._until

    def private_bytes(self, version: int) -> int:
        """Bytes of private memory of the group and those below it, each read on its own, which is never late (20 us each).

        At least these are held: of more than `_MOST` groups, of one that goes just now, and of what is charged to a group of
        version 2 that has others below it, nothing is counted.
        """
        total, waiting = 0, [self._path]
        for _ in range(_MOST):
            if not waiting:
                break
            group = waiting.pop()
            with contextlib.suppress(OSError):
                below = [entry.path for entry in os.scandir(group) if entry.is_dir(follow_symlinks=False)]
                waiting += below
                # What version 1 tells without "total_" is of the group alone; version 2 adds up those below.
                if version == 1 or not below:
                    with open(f"{group}/memory.stat", "rb") as file:
                        total += parse_key(file.read(), b"rss" if version == 1 else b"anon") or 0
        return total

    def close(self) -> None:
        """Close the directory."""
        if self._directory >= 0:
            os.close(self._directory)
            self._directory = -1
