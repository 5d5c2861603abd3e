"""Files that a process tree maps or has open, and dropping them from the page cache.

The kernel charges a file page to the cgroup that reads it first. A run under a limit finds the pages of an earlier run in
memory, and the cgroup of this run never pays for them. In a new container they have to be read. So a trial drops them first.
"""

from __future__ import annotations

import contextlib
import os
import time

from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

_PAUSE = 0.05, 1.0
"""Seconds between two looks at a tree, shortest and longest."""


def files_of(pid: int) -> set[str]:
    """Return paths of the regular files that a process maps or has open; empty if it has ended."""
    found: set[str] = set()
    with (
        contextlib.suppress(OSError),
        open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as maps,
    ):
        for line in maps:
            fields = line.rstrip("\n").split(None, 5)
            if len(fields) == 6 and fields[5].startswith("/"):
                found.add(fields[5])
    with contextlib.suppress(OSError):
        for descriptor in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found.add(os.readlink(descriptor.path))
    return {path for path in found if path.startswith("/") and os.path.isfile(path)}


def collect(process: subprocess.Popen[bytes], files: set[str], deadline: float | None) -> bool:
    """Add the files of a process's descendants until it ends; return whether it ended before the deadline.

    Args:
        process: a monitor; its descendants are the tree.
        files: receives the paths.
        deadline: monotonic seconds; `None`: wait for the end.

    """
    import psutil

    pause, longest = _PAUSE
    while process.poll() is None:
        if deadline is not None and time.monotonic() > deadline:
            return False
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(process.pid).children(recursive=True):
                files |= files_of(child.pid)
        time.sleep(pause)
        pause = min(longest, pause * 1.1)  # files are opened early
    return True


def drop(files: set[str]) -> None:
    """Drop the clean pages of files from the page cache, except pages that living processes map."""
    for path in files:
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)
