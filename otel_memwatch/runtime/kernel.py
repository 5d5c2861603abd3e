"""Facts about the kernel: units, clock, and the error of its memory counters.

The watched program imports this module too, so it imports only modules that a bare Python has already loaded.

A high-water mark has an error for this reason. Resident size is the sum of three counters: anonymous pages, file pages
and shared memory. The kernel updates them in batches:

* Before Linux 6.2, each thread holds back up to 64 pages of each counter.
* Since 6.2, each processor holds back up to `max(32, 2 * processors) - 1` pages of each counter. Since 6.16, and in
  stable releases with the change, statm and status add these pages. `/proc/PID/stat` and the high-water mark do not.

Observed: the high-water mark of a sort fell by 268 KiB on two processors. There the error of one counter is up to 248
KiB.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False  # type checkers know this name; `typing` takes 2 ms to import
if TYPE_CHECKING:
    from collections.abc import Iterable

_SYSCONF = hasattr(os, "sysconf")

PAGE_SIZE = os.sysconf("SC_PAGE_SIZE") if _SYSCONF else 4096
"""Bytes of a base page."""
KERNEL_STACK = max(16384, PAGE_SIZE) if hasattr(os, "uname") and "64" in os.uname().machine else 8192
"""Bytes of a thread's kernel stack (THREAD_SIZE): 16 KiB on 64-bit processors, or a larger base page; else 8 KiB."""
CLOCK_TICKS = os.sysconf("SC_CLK_TCK") if _SYSCONF else 100
"""Clock ticks per second, the unit of times in /proc/PID/stat."""
MAXRSS_BYTES = 1 if hasattr(os, "uname") and os.uname().sysname == "Darwin" else 1024
"""Bytes in a unit of `ru_maxrss`."""

_READ = 4096
"""Bytes per read of such a file."""

_COUNTERS = 3
"""Number of page counters that add up to a resident size."""
PER_THREAD_PAGES = _COUNTERS * 64
"""Maximum of pages that a thread holds back before Linux 6.2."""
PER_CPU_COUNTERS = (6, 2)
"""Release that moved the counters from threads to processors."""

GROUP_LAG_SECONDS = 5.0
"""Largest delay of a cgroup's memory.stat behind events in cgroups below it.

The kernel updates the figures after enough changes, which a cgroup below may fail to report, and otherwise every two
seconds (FLUSH_TIME in mm/memcontrol.c). An idle processor postpones this timer. Without cgroups below, the error is at
most some hundred pages."""


def parse_release(release: str) -> tuple[int, int]:
    """Return major and minor number of a kernel release such as "6.1.0-18-amd64"; (0, 0) if it has none."""
    major, _, rest = release.partition(".")
    digits = 0
    while rest[digits : digits + 1].isdecimal():
        digits += 1
    return (int(major), int(rest[:digits])) if major.isdecimal() and digits else (0, 0)


def has_thread_counters(release: str) -> bool:
    """Return whether the error grows with the number of threads (before 6.2), too much for an exact high-water mark."""
    return parse_release(release) < PER_CPU_COUNTERS


PROCESSORS_VARIABLE = "MEMWATCH_TEST_PROCESSORS"
"""Number of processors to assume, so tests can run as on another machine."""


_QUEUES = "/proc/self/net/softnet_stat"
"""The kernel's list of queues for received packets: one line for each processor that is online. It begins with the number of
packets that the processor has handled, in eight digits."""
_online = 0
"""Result of `processors`, once it is known."""


def processors() -> int:
    """Return the number of processors that are online, on which the kernel's batches depend; 1 if unknown.

    `os.cpu_count()` obeys PYTHON_CPU_COUNT and `-X cpu_count` (Python 3.13). The affinity mask and the cpuset show only the
    processors that a process may use now; others may still hold back its pages. `sysconf` counts only these too, in a
    container with lxcfs (LXC, Incus, Proxmox), and with musl.
    """
    assumed = os.environ.get(PROCESSORS_VARIABLE, "")
    if assumed.isdecimal():
        return max(1, int(assumed))
    global _online  # noqa: PLW0603 - read once
    if not _online:
        counted = os.sysconf("SC_NPROCESSORS_ONLN") if _SYSCONF else os.cpu_count() or 1
        _online = max(1, counted, len(packets()))
    return _online


def packets() -> tuple[bytes, ...]:
    """Return what stands for the number of packets that each processor that is online has handled so far; empty if unknown."""
    try:
        return tuple(line[:8] for line in read_once(_QUEUES).splitlines())
    except OSError:  # no Linux
        return ()


def usable_processors() -> int:
    """Return the number of processors that this process and its children may use."""
    if os.environ.get(PROCESSORS_VARIABLE, "").isdecimal() or not hasattr(os, "sched_getaffinity"):
        return processors()
    return len(os.sched_getaffinity(0))


def counter_error(threads: int, cpus: int, *, per_thread: bool) -> int:
    """Return the error of a process's high-water mark (VmHWM, ru_maxrss) in bytes, in either direction.

    The mark may fall by the same amount without a reset. Readings of a living process include the pages that processors
    hold back. The kernel's note when memory is freed, and wait4, exclude them.

    Args:
        threads: largest number of threads that the process had.
        cpus: processors of the machine.
        per_thread: result of `has_thread_counters`, which frequent callers compute once.
    """
    pages = PER_THREAD_PAGES * threads if per_thread else _COUNTERS * (max(32, 2 * cpus) - 1) * cpus
    return pages * PAGE_SIZE


def vmstat_error(pages: int, cpus: int) -> int:
    """Return the pages by which one page count in /proc/vmstat may be off.

    Each processor keeps up to a threshold to itself (calculate_normal_threshold in mm/vmstat.c).

    Example: 24 GiB and 2 processors: 72 pages.
    """
    blocks = pages * PAGE_SIZE >> 27
    return cpus * min(125, 2 * cpus.bit_length() * (1 + blocks.bit_length()))


def rss_error(threads: int = 1, cpus: int | None = None, release: str | None = None) -> int:
    """Return `counter_error` for a kernel release. Missing arguments are those of this machine."""
    release = os.uname().release if release is None else release
    cpus = processors() if cpus is None else cpus
    return counter_error(threads, cpus, per_thread=has_thread_counters(release))


def monotonic_start(ticks: int) -> float:
    """Return the start of a process in monotonic seconds, from field 22 of its stat (clock ticks since boot). Linux only.

    The result has a resolution of one clock tick and does not change, so with the PID it identifies the process.
    """
    # The start of a process counts from boot; the monotonic clock omits the time for which the machine was suspended.
    suspended = round(time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic(), 3)
    return round(ticks / CLOCK_TICKS - suspended, 3)


def sum_known(values: Iterable[int | None]) -> int | None:
    """Return the sum of the values; `None` if one of them is unknown."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def read_once(path: str) -> bytes:
    """Return the whole of a file in memory, such as those of /proc and of a cgroup: half the calls of `open`. Raises `OSError`."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = part = os.read(fd, _READ)
        while part:
            part = os.read(fd, _READ)
            data += part
        return data
    finally:
        os.close(fd)
