"""Cgroups below the run's: while there are any, some of its counts are late."""

from __future__ import annotations

import contextlib
import os

from otel_memwatch.runtime.kernel import GROUP_LAG_SECONDS
from otel_memwatch.runtime.procfs.control_group import parse_key

_MOST = 64
"""Number of cgroups to read in one sample."""


class GroupsBelow:
    """Detector of cgroups that a program has made below the run's: a container runtime, a sandbox, another `wrap`.

    The kernel passes the counts of memory.stat from cgroup to cgroup late (`GROUP_LAG_SECONDS`). For more than a
    second, 100 MiB of page cache were missing there, and therefore counted as needed memory. The watermark and the
    usage are never late.

    If the directory cannot be opened, none are detected.

    Args:
        path: directory of the cgroup.
        ours: it was made for the run. The times of other directories are not set, so a cgroup that comes and goes between
            two samples is not detected there.
    """

    def __init__(self, path: str, *, ours: bool) -> None:
        self._path = path
        self._directory = -1
        self._changed: int | None = None
        self._until = float("-inf")
        if ours:
            with contextlib.suppress(OSError):
                # The kernel maintains the times of a cgroup's directory only after the first call that sets one.
                os.utime(path)
        with contextlib.suppress(OSError):
            self._directory = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self._changed = os.fstat(self._directory).st_mtime_ns

    def lately(self, now: float) -> bool:
        """Return whether there is a cgroup below, or was one lately (1 us). `now`: monotonic seconds."""
        if self._directory < 0:
            return False
        status = os.fstat(self._directory)
        if status.st_nlink > 2 or status.st_mtime_ns != self._changed:
            self._changed = status.st_mtime_ns
            self._until = now + GROUP_LAG_SECONDS
        return now < self._until

    def private_bytes(self, version: int) -> int:
        """Return bytes of private memory of the cgroup and those below it (20 us each).

        Each cgroup is read separately, so the sum is never late. It is a lower bound, without:

        - cgroups after the first `_MOST`;
        - a cgroup that is being removed;
        - in version 2, memory charged directly to a cgroup with others below it.
        """
        total, waiting = 0, [self._path]
        for _ in range(_MOST):
            if not waiting:
                break
            group = waiting.pop()
            with contextlib.suppress(OSError):
                below = [entry.path for entry in os.scandir(group) if entry.is_dir(follow_symlinks=False)]
                waiting += below
                # Version 1 counts the cgroup alone in fields without "total_"; version 2 includes the cgroups below.
                if version == 1 or not below:
                    with open(f"{group}/memory.stat", "rb") as file:
                        total += parse_key(file.read(), b"rss" if version == 1 else b"anon") or 0
        return total

    def close(self) -> None:
        """Close the directory."""
        if self._directory >= 0:
            os.close(self._directory)
            self._directory = -1
