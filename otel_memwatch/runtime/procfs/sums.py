"""Properties of this kernel that make figures less certain, and whether its readings of living processes are exact sums.

Since Linux 6.2 each processor holds back pages of a process's counters (`runtime.kernel`). Since 6.16, and in stable
releases with the change, statm and status add these pages. The release alone does not show it: 6.12.107 has the change,
6.12 has not.
"""

from __future__ import annotations

import mmap
import os

from otel_memwatch.runtime.kernel import (
    PAGE_SIZE,
    PER_THREAD_PAGES,
    has_thread_counters,
    parse_release,
    processors,
    rss_error,
)
from otel_memwatch.runtime.light import lru_cache
from otel_memwatch.runtime.procfs.mounted import hides_others, shows_others
from otel_memwatch.runtime.procfs.statm import parse_resident

_STEPS = (20, 7)
"""Pages to touch, fewer than any batch: the smallest batch of a processor is 32 pages."""
_TRIES = 3
"""Another allocation of this process spoils a try."""


@lru_cache(None)
def sums_are_exact() -> bool:
    """Return whether statm and status of this machine's processes are exact sums. Costs 0.1 ms once.

    A few pages of our own are touched. An exact sum rises by just these. A counter that processors hold back stays the
    same, or rises by a whole batch.
    """
    return not has_thread_counters(os.uname().release) and any(_rises_by_page() for _ in range(_TRIES))


def _rises_by_page(path: str = "/proc/self/statm") -> bool:
    """Return whether the resident size in `path` rises by exactly the pages that we touch."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        with mmap.mmap(-1, sum(_STEPS) * PAGE_SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            if hasattr(mmap, "MADV_NOHUGEPAGE"):
                memory.madvise(mmap.MADV_NOHUGEPAGE)
            page = 0
            for step in _STEPS:
                before = os.pread(descriptor, 128, 0)
                for _ in range(step):
                    memory[page * PAGE_SIZE] = 1
                    page += 1
                after = os.pread(descriptor, 128, 0)
                if parse_resident(after) - parse_resident(before) != step * PAGE_SIZE:
                    return False
            return True
    except (OSError, ValueError):
        return False
    finally:
        os.close(descriptor)


PEAK_FILE = (5, 19)
"""First release in which version 2 cgroups have a watermark."""
MANY_CPUS_ERROR = 4 << 20
"""Bytes of possible error from which the report mentions it."""


def quirks(proc: str | os.PathLike[str] = "/proc", release: str | None = None) -> list[str]:
    """Return sentences on the properties of this machine that make figures less certain (50 us)."""
    release = os.uname().release if release is None else release
    found = []
    if has_thread_counters(release):
        found.append(
            f"Linux {release} counts resident memory in parts of up to {PER_THREAD_PAGES * PAGE_SIZE >> 10} KiB per thread: peaks "
            "of processes are ranges (since Linux 6.2 the number of processors decides)."
        )
    elif rss_error() >= MANY_CPUS_ERROR:
        found.append(
            f"With {processors()} processors, watermarks of processes may be off by up to {rss_error() >> 20} MiB."
        )
    if not os.path.exists(f"{proc}/self/io"):
        found.append("The kernel does not count I/O of processes (CONFIG_TASK_IO_ACCOUNTING).")
    if not os.path.exists(f"{proc}/self/clear_refs"):
        found.append(
            "The kernel cannot reset watermarks (CONFIG_PROC_PAGE_MONITOR): peaks of operations are ranges."
        )
    if not shows_others(proc) and not os.path.exists(f"{proc}/self/task/{os.getpid()}/children"):
        found.append(
            "The kernel does not list children (CONFIG_PROC_CHILDREN): all processes are searched, which costs more."
        )
    if hides_others(proc):
        found.append(
            "/proc hides processes of other users (hidepid), including setuid programs. A run with such processes is measured by "
            "wait4 alone, without an upper bound. Root and CAP_SYS_PTRACE see all processes, and usually the group in the mount's gid=."
        )
    if parse_release(release) < PEAK_FILE:
        found.append(f"Linux {release} has no watermark for version 2 cgroups (since Linux 5.19).")
    return found
