"""Memory that the run's cgroup needed between two samples, from its peak and the traffic of its page cache."""

from __future__ import annotations

from otel_memwatch.truth.exact import EXACT_BYTES

_CHARGE_BATCH = 64 * 4096
"""Bytes that the kernel charges to a cgroup ahead of their use, per processor."""

_OTHERS = 2
"""Processors on which the kernel itself is assumed to charge memory of a run, besides those that handle its packets."""

_TOUCHED_PER_SECOND = 5e9
"""Upper bound of the bytes that one processor touches in a second. Measured: 2e9 with small pages, 5e9 with huge ones."""


def charge_error(cpus: int) -> int:
    """Return the bytes by which a cgroup's counters may be off: a batch of 64 pages for each processor (8: 2 MiB)."""
    return _CHARGE_BATCH * cpus


def peak_error(error: int) -> int:
    """Return the bytes by which memory may exceed a cgroup's peak, which includes all that is charged ahead of its use.

    The kernel notes the peak without a lock, so of some charges at once the largest may be lost.

    Example: 1 MiB on 64 processors. There the peak may be 16 MiB too high, but not so much too low.

    Args:
        error: `charge_error` of the machine.
    """
    return min(error, EXACT_BYTES)


def needed_at_sample(charged: int, file: int, cpus: int) -> int:
    """Return the bytes that a cgroup certainly needed at a sample, to the error of an exact figure.

    Memory that is charged ahead of its use is not needed: the kernel takes it back at the limit.

    Example: 80 MiB charged, 10 of them page cache: 70 MiB with 2 processors, 55 with 64.

    Args:
        charged: memory charged to the cgroup, in bytes.
        file: page cache in it.
        cpus: processors of the machine.
    """
    return max(0, charged - file - max(0, charge_error(cpus) - EXACT_BYTES))


def needed_between_samples(
    top: int | None,
    ceiling: int | None,
    *,
    file_before: int | None,
    file: int | None,
    locked: int,
    moved: int | None,
    reset_gap: float | None,
    error: int,
    cpus: int,
) -> tuple[int | None, int | None]:
    """Return the lower and upper bound of the run's cgroup between two samples, without page cache.

    The cgroup's peak between the samples is known, but not its page cache at that moment. Cache comes from storage or
    becomes dirty, and the kernel counts both for the tree. Let `g` be the bytes that the tree moved to and from storage
    around that time. Then the cache was never above its first value plus `g`, and never below its last value less `g`:

        top - (file_before + g) - error  <=  needed  <=  top - (file - locked - g) + error

    Of the error, only `peak_error` raises the upper bound of a group without page cache. The figure of the cache lags, by as
    much again: processors hold back their share of it too.

    Pages of memfd_secret count as cache and cannot be dropped. The kernel counts them among locked pages, with some that
    are no cache: `locked` is an upper bound of them.

    If the cache grew by more than `g`, `g` is its growth: some file systems are outside the kernel's accounting. Memory
    that came and went between reading a peak and resetting it is missed. If that took long, the upper bound includes all
    memory that the processors can touch in the time.

    Example: a peak of 502 MiB, 2 MiB of cache before and after, nothing moved: 500 MiB, to the error.

    Args:
        top: the peak between the samples; `None`: unknown, so there is no lower bound.
        ceiling: a peak that reaches further back; with `top`, the same.
        file_before: page cache at the first sample, without shared memory.
        file: page cache at the second sample.
        locked: pages that cannot be reclaimed at the second sample, of any kind.
        moved: bytes read from and written to storage, from the sample before the first to the sample after the second.
            One more sample at each end counts because the readings of one sample are not of one instant.
        reset_gap: seconds between reading the peak at the first sample and resetting it.
        error: `charge_error` of the machine.
        cpus: processors of the machine.
    """
    low, high = less_cache(top, file_before, file, moved), None
    low = None if low is None else max(0, low - error)
    if file_before is not None and file is not None and moved is not None:
        moved = max(moved, file - file_before)
        if ceiling is not None:
            lag = error - peak_error(error)
            high = ceiling - max(0, file - locked - moved - lag) + peak_error(error)
    elif ceiling is not None:
        high = ceiling + peak_error(error)
    if high is not None and reset_gap:
        high += touched(reset_gap, cpus)
    return low, high


def less_cache(top: int | None, file_before: int | None, file: int | None, moved: int | None) -> int | None:
    """Return a peak between two samples less all page cache that the cgroup can have held then; `None`: not known.

    Example: a peak of 502 MiB, 2 MiB of cache before, 10 MiB read: 490 MiB.
    """
    if top is None or file_before is None or file is None or moved is None:
        return None
    return top - file_before - max(moved, file - file_before)


def low_with_processes(low: int | None, there: int | None, high: int | None) -> int | None:
    """Return the larger of two lower bounds of the run's cgroup, but no more than its upper bound; `None`: neither is known.

    Sums of the processes' pages are exact on any number of processors, and lack kernel memory. Files in memory may be
    charged to another cgroup: so they never raise the bound above the upper one.

    Example: a peak of 100 MiB on 64 processors, so at least 84. The processes had 97 MiB at a sample: at least 97.

    Args:
        low: lower bound by the cgroup, in bytes; `None`: unknown.
        there: bytes that the processes certainly needed at the sample that ended the window; `None`: not read.
        high: upper bound by the cgroup; `None`: unknown.
    """
    if there is None:
        return low
    return max(low or 0, there if high is None else min(there, high))


def low_on_few_processors(charged: int, cpus: int, placements: int, left: int, moved: int) -> int:
    """Return the bytes that a run's cgroup certainly needed, once all its processes have ended.

    A processor charges ahead when a thread takes memory on it. A thread comes to a processor when it begins, and when it runs
    again after a pause. A processor that handles a received packet charges it to the cgroup too. So the run was charged ahead on
    no more processors than that, and two are added for threads of the kernel. Objects that the kernel frees on yet another
    processor stay charged there for a while, but no more than were freed.

    The figure of the page cache may lag. What it lacks is in what the run moved to and from storage, or is still charged to the
    cgroup when all has ended.

    Example: a program began once and execve moved it once. On 64 processors, 24.6 MiB were charged and 0.3 are left. It needed
    at least 23.3 MiB, instead of 8.6.

    Args:
        charged: a peak of the cgroup less all page cache that it can have held, in bytes.
        cpus: processors of the machine.
        placements: the most times that threads of the run began, or ran again, and processors that handled packets.
        left: bytes charged to the cgroup at the end.
        moved: bytes that the run read from and wrote to storage.
    """
    lag = min(charge_error(cpus), left + moved)
    return max(0, charged - charge_error(min(cpus, placements + _OTHERS)) - lag)


def slab_in_use(reclaimable: int, unreclaimable: int) -> int:
    """Return an upper bound of the reclaimable slab that the kernel cannot reclaim, since files in memory need it.

    The kernel counts every dentry as reclaimable, also that of a file in /dev/shm, which stays as long as the file. Such a
    file also has an inode in unreclaimable slab, of more than twice the size (about 700 and 192 bytes).

    Example: `find /` leaves 42 MiB of dentries and inodes, with 1 MiB of other slab: 0.5 MiB may be in use.

    Args:
        reclaimable: bytes of slab_reclaimable in memory.stat.
        unreclaimable: bytes of slab_unreclaimable.
    """
    return min(reclaimable, unreclaimable // 2)


def touched(seconds: float, cpus: int) -> int:
    """Return the bytes of memory that all processors together can touch for the first time in so many seconds.

    That much may have come and gone between reading a peak and resetting it.

    Example: a monitor waits for its processor for 11 ms just then, on two processors: 110 MB.
    """
    return int(seconds * cpus * _TOUCHED_PER_SECOND)


def missed_seconds(gap: float, top: int, ever: int | None, cpus: int) -> float:
    """Return the seconds of a gap in which memory above `top` can have been missed.

    A peak that is never reset bounds what came and went during the gap. On version 1 it is the peak of memory and swap together,
    which is never below that of memory.

    Example: the monitor waits 58 ms between reading a peak of 80 MiB and resetting it. The peak that is never reset is 80 MiB
    too: nothing was missed. If it is 100 MiB, two processors touch the difference in 2 ms.

    Args:
        gap: seconds between reading the peak and resetting it.
        top: the peak that was read, in bytes.
        ever: the peak that is never reset, in bytes, read after the gap; `None`: the kernel has none.
        cpus: processors of the machine.
    """
    return gap if ever is None else min(gap, max(0, ever - top) / (cpus * _TOUCHED_PER_SECOND))


def taken_from_windows(ever: int, ever_before: int, window: int, next_window: int) -> int:
    """Return the bytes by which a cgroup's peak of all time rose above the peaks of its windows.

    The peak of all time is read a moment after a window's. So a rise is in that window or in the next one. Memory that came
    and went between reading a window's peak and resetting it is in neither. More than that was taken by another program: if
    one resets the watermark of a cgroup of version 2, the kernel gives the windows of all others only what is charged at
    that moment. From then on the peak of all time is the upper bound of every window.

    Example: a peak of all time of 40 MiB, 10 before, and windows of 12 and 13 MiB: 27 MiB.

    Args:
        ever: the peak that is never reset, in bytes, read at the sample that ended the window.
        ever_before: the same at the sample before.
        window: the peak of the window.
        next_window: the peak of the next one.
    """
    return max(0, ever - max(ever_before, window, next_window))
