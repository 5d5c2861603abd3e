"""What is known of the kernel: its units, its clock, and how far its memory counters can be from the truth.

The watched program imports this too, so it imports nothing that a bare Python has not loaded already.

Why a watermark can be off: a resident size is the sum of three counters, of anonymous pages, files and shared memory, and
the kernel does not add every page to them at once. Before Linux 6.2 each thread held back up to 64 pages of each. Since 6.2
each processor holds back up to a batch of max(32, 2 x processors) - 1 pages of each; statm and status add these up exactly
(6.16, and stable releases that have the change), /proc/PID/stat and the watermark do not. Seen: a sort whose watermark fell
by 268 KiB on two processors, where one counter can be off by 248.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False  # the name that type checkers know; `typing` takes 2 ms to import
if TYPE_CHECKING:
    from collections.abc import Iterable

_SYSCONF = hasattr(os, "sysconf")

PAGE_SIZE = os.sysconf("SC_PAGE_SIZE") if _SYSCONF else 4096
"""Bytes of a base page."""
CLOCK_TICKS = os.sysconf("SC_CLK_TCK") if _SYSCONF else 100
"""Clock ticks in a second: the times in /proc/PID/stat are counted in them."""

_COUNTERS = 3
"""Counters of pages whose sum is a resident size."""
PER_THREAD_PAGES = _COUNTERS * 64
"""Pages that a thread held back before 6.2."""
PER_CPU_COUNTERS = (6, 2)
"""Release with which the counters went from threads to processors."""

GROUP_LAG_SECONDS = 5.0
"""How long what memory.stat says of a group may be behind what happened in groups below it.

A group's figures are brought up to date when enough has changed, which a group below can fail to tell it, and every two
seconds at the latest (FLUSH_TIME in mm/memcontrol.c), by a timer that an idle processor puts off. In a group that has none
below, they are off by some hundred pages at the most."""


def parse_release(release: str) -> tuple[int, int]:
    """Major and minor number of a kernel release such as "6.1.0-18-amd64"; (0, 0) when it has none."""
    major, _, rest = release.partition(".")
    digits = 0
    while rest[digits : digits + 1].isdecimal():
        digits += 1
    return (int(major), int(rest[:digits])) if major.isdecimal() and digits else (0, 0)


def has_thread_counters(release: str) -> bool:
    """Whether the error grows with the threads (before 6.2): too much to call a watermark exact."""
    return parse_release(release) < PER_CPU_COUNTERS


PROCESSORS_VARIABLE = "MEMWATCH_TEST_PROCESSORS"
"""Number of processors to assume, so tests can run as on another machine."""


def processors() -> int:
    """Return the number of processors that are online, on which the kernel's batches depend; 1 if unknown.

    `os.cpu_count()` would obey PYTHON_CPU_COUNT and `-X cpu_count` (Python 3.13), and the affinity says only where a process
    may run now: pages that it left behind on other processors are still held back there.
    """
    assumed = os.environ.get(PROCESSORS_VARIABLE, "")
    if assumed.isdecimal():
        return max(1, int(assumed))
    return max(1, os.sysconf("SC_NPROCESSORS_ONLN")) if _SYSCONF else os.cpu_count() or 1


def usable_processors() -> int:
    """Return the number of processors that this process, and what it starts, may run on."""
    if os.environ.get(PROCESSORS_VARIABLE, "").isdecimal() or not hasattr(os, "sched_getaffinity"):
        return processors()
    return len(os.sched_getaffinity(0))


def counter_error(threads: int, cpus: int, *, per_thread: bool) -> int:
    """Bytes by which a watermark (VmHWM, ru_maxrss) of a process can be below or above the truth.

    By as much it may fall without a reset: a reading of a living process adds up all that processors hold back; what the
    kernel notes when memory is given back, and what wait4 tells, does not.

    Args:
        threads: threads of the process, the most it had.
        cpus: processors of the machine.
        per_thread: what `has_thread_counters` says of the kernel, asked once by who calls this often.
    """
    pages = PER_THREAD_PAGES * threads if per_thread else _COUNTERS * (max(32, 2 * cpus) - 1) * cpus
    return pages * PAGE_SIZE


def rss_error(threads: int = 1, cpus: int | None = None, release: str | None = None) -> int:
    """As `counter_error`, of a kernel release; what is not given is that of this machine."""
    release = os.uname().release if release is None else release
    cpus = processors() if cpus is None else cpus
    return counter_error(threads, cpus, per_thread=has_thread_counters(release))


def boot_offset() -> float:
    """Seconds from boot to the zero of the monotonic clock, to 1 ms: the time that the machine was suspended. Linux."""
    return round(time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic(), 3)


def monotonic_start(ticks: int) -> float:
    """Start of a process in monotonic seconds, from field 22 of its stat (clock ticks since boot). Linux.

    True to one clock tick, and the same whenever it is asked for: with the pid it identifies the process.
    """
    return round(ticks / CLOCK_TICKS - boot_offset(), 3)


def sum_known(values: Iterable[int | None]) -> int | None:
    """The sum of the values; `None` when one of them is not known."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total
