"""The size of this program and its descendants at this very moment, read once, where a tick would come too late.

The monitor's own source, `monitor.sampling.sources.process_tree`, would tell the same. It is not used here since this runs in the
program that is measured: loading that source takes 2 MiB of it, and one look by it ten times as long as this one.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import NamedTuple


class Size(NamedTuple):
    """Bytes, summed over the processes: pages that they share count once for each."""

    rss: int
    vms: int


def tree_now() -> Size:
    """The sum over this process and all its living descendants. Costs some 20 us, more with many threads or processes."""
    pids = [os.getpid(), *descendants()]
    sizes = [size for pid in pids if (size := size_of(pid)) is not None]
    return Size(sum(size.rss for size in sizes), sum(size.vms for size in sizes))


def descendants() -> list[int]:
    """Pids of all living descendants of this process."""
    if sys.platform.startswith("linux"):
        with suppress(OSError):
            found = _children(os.getpid())
            for pid in found:  # which grows meanwhile: the children of children are found too
                with suppress(OSError):  # it has ended by now
                    found += _children(pid)
            return found
    import psutil

    return [process.pid for process in psutil.Process().children(recursive=True)]


def _children(pid: int) -> list[int]:
    """Raises `OSError` when the process has ended, or the kernel does not list children."""
    found: list[int] = []
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found += map(int, file.read().split())
        except (FileNotFoundError, ProcessLookupError):
            # A thread that ended while we looked; the main thread's file is there unless the kernel has none.
            if task == str(pid):
                raise
    return found


def size_of(pid: int) -> Size | None:
    """Size of one process; `None`: it has ended."""
    if sys.platform.startswith("linux"):
        from otel_memwatch.runtime.kernel import PAGE_SIZE

        try:
            with open(f"/proc/{pid}/statm", "rb") as file:
                virtual, resident = file.read().split()[:2]
        except OSError:
            return None
        return Size(int(resident) * PAGE_SIZE, int(virtual) * PAGE_SIZE)
    import psutil

    try:
        memory = psutil.Process(pid).memory_info()
    except psutil.Error:
        return None
    return Size(memory.rss, memory.vms)


def system_used() -> int:
    """Memory of the machine that is not available."""
    if sys.platform.startswith("linux"):
        from otel_memwatch.runtime.procfs.system import parse_memory

        with open("/proc/meminfo", "rb") as file:
            memory = parse_memory(file.read())
        return memory.total - memory.available
    import psutil

    virtual = psutil.virtual_memory()
    return int(virtual.total - virtual.available)
