"""How far the kernel's memory counters can be from the truth.

Before Linux 6.2 each thread held back up to 64 pages of each counter. Since 6.2 each processor holds back up to a batch of
max(32, 2 x processors) - 1 pages; statm and status add these up exactly (6.16 and stable releases with the change),
/proc/PID/stat and the watermark do not.
"""

from __future__ import annotations

import os
import re

PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
"""Bytes of a base page."""
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
"""Units a second of the times in /proc/PID/stat."""

PER_THREAD_PAGES = 64
"""Pages of one counter that a thread held back before 6.2."""
PER_CPU_COUNTERS = (6, 2)
"""Release with which the counters went from threads to processors."""


def parse_release(release: str) -> tuple[int, int]:
    """Major and minor number of a kernel release such as "6.1.0-18-amd64"; (0, 0) when it has none."""
    match = re.match(r"(\d+)\.(\d+)", release)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def has_thread_counters(release: str) -> bool:
    """Whether the error grows with the threads (before 6.2): too much to call a watermark exact."""
    return parse_release(release) < PER_CPU_COUNTERS


def rss_error(threads: int, cpus: int, release: str, gap: int | None = None) -> int:
    """Bytes by which a watermark (VmHWM, ru_maxrss) of a process can be below or above the truth.

    Args:
        threads: threads of the process, the most it had.
        cpus: processors that the process can run on.
        release: kernel release, as `os.uname().release`.
        gap: the largest live difference seen between statm (exact where the kernel sums) and stat (as the watermark
            is kept), in bytes; a second estimate that can only raise a bound that proved too small.
    """
    pages = PER_THREAD_PAGES * threads if has_thread_counters(release) else (max(32, 2 * cpus) - 1) * cpus
    return max(pages * PAGE_SIZE, gap or 0)
