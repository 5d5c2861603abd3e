"""Detection of kernels whose readings of a living process are exact sums.

Since Linux 6.2 each processor holds back pages of a process's counters (`runtime.kernel`). Since 6.16, and in stable
releases with the change, statm and status add these pages. The release alone does not show it: 6.12.107 has the change,
6.12 has not.
"""

from __future__ import annotations

import functools
import mmap
import os

from otel_memwatch.runtime.kernel import PAGE_SIZE, has_thread_counters
from otel_memwatch.runtime.procfs.statm import parse_resident

_STEPS = (20, 7)
"""Pages to touch, fewer than any batch: the smallest batch of a processor is 32 pages."""
_TRIES = 3
"""Another allocation of this process spoils a try."""


@functools.cache
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
