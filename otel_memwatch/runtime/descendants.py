"""Living descendants of a process."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from otel_memwatch.runtime.kernel import read_once


def descendants(pid: int) -> list[int]:
    """Return the pids of all living descendants; empty if the process has ended. Costs 20 us; a search of /proc takes 30 ms."""
    if sys.platform.startswith("linux"):
        with suppress(OSError):
            found = _children(pid)
            for child in found:  # the list grows meanwhile, to include children of children
                with suppress(OSError):  # the process may have ended
                    found += _children(child)
            return found
    import psutil

    with suppress(psutil.Error):
        return [process.pid for process in psutil.Process(pid).children(recursive=True)]
    return []


def _children(pid: int) -> list[int]:
    """Raise `OSError` if the process has ended, or if the kernel does not list children."""
    found: list[int] = []
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            found += map(int, read_once(f"/proc/{pid}/task/{task}/children").split())
        except (FileNotFoundError, ProcessLookupError):
            # The thread has ended. The main thread's file exists unless the kernel does not support it.
            if task == str(pid):
                raise
    return found
