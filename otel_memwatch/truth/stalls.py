"""Time that a run lost because it had too little memory or CPU.

Inputs are bytes and seconds of one window between two samples; nothing here reads the machine. Whether a run is short of memory
at all is decided in `refaults`.

Writing is another reason to wait. The kernel cannot reclaim a page before it is written to storage. If much of the page cache at
the limit is unwritten (`is_clogged`), a copy waits for the disk at each page, and reads nothing again. The time is the pressure of
memory, in which reclaim counts. A copy without a limit has none: its pages stay until the kernel writes them in the background.
Version 1 of cgroups has no pressure. That of the machine includes other programs, so it gives an upper bound (`longest_stall`)
and no verdict.

In such a window the program waits while it runs no code in user mode. It waits for storage and locks, and for the kernel, which
reclaims and copies. It may also sleep, or wait for a processor. So two bounds limit this time: the plausible duration of its
reads, and the pressure of memory and storage (`longest_wait`).
"""

from __future__ import annotations

from otel_memwatch.runtime.typed import NamedTuple

AT_LIMIT = 0.9
"""Share of a limit from which the kernel may have reclaimed: it charges in batches and reads ahead."""
MACHINE_FULL = 0.95
"""Share of the machine's memory in use from which the kernel may have reclaimed."""
WORTH_NAMING = 0.1
"""Share of a run's time from which a stall is reported, and from which the run shows no size for full speed."""
CONTENTION_WORTH_NAMING = 0.25
"""Share of a run's time from which contention is reported: on a shared machine, less is usual."""
_LEAST_WAIT = 0.1
"""Seconds below which a stall is not reported. Times of the same program differ by as much."""
LEAST_CLOGGED = 1.0
"""Seconds that the kernel must have sought memory among unwritten pages. They are those of whole samples, and a short copy has few.
They are no certain loss: copies of 128 MiB that sync their data had up to 62 % in 0.3 s, and were as quick without the limit."""
_LEAST_UNWRITTEN = 0.2
"""Share of the page cache from which unwritten pages are in the way. On version 2 the kernel keeps programs below it (dirty_ratio),
by letting them wait for the disk."""
SLOWEST_READ = 50e6
"""Bytes in a second that any storage reads in sequence."""
_LONGEST_FAULT = 0.02
"""Seconds that a major fault takes on a busy disk."""
BRIEF = 3.0
"""Seconds from the start in which waiting for processors is read with every sample, if there are few threads."""
_UNREAD_DELAY, _UNREAD_SAMPLES = 1.0, 2
"""Most seconds of waiting for a processor after a process's last reading; in a brief run, samples."""


class StallWindow(NamedTuple):
    """Readings between samples after the charge reached a limit: one window with reads, and those without that follow it."""

    seconds: float
    user_seconds: float
    """CPU time of the tree in user mode."""
    read_bytes: int
    """Bytes that the tree read from storage."""
    reread_bytes: int
    """Bytes of refaulted pages."""
    major_faults: int


def waited(window: StallWindow) -> float:
    """Return the seconds of a window in which the tree waited for pages that it had before."""
    reread = min(window.reread_bytes, window.read_bytes)
    if reread <= 0:
        return 0.0
    outside = max(0.0, window.seconds - window.user_seconds) * reread / window.read_bytes
    return min(outside, reread / SLOWEST_READ + window.major_faults * _LONGEST_FAULT)


def blocked(
    outside: float, system: float, delay: float, others: float, *, seconds: float, interval: float
) -> float:
    """Return the seconds in which a run neither executed code nor waited for a processor, at least.

    Args:
        outside: seconds in which it executed no code in user mode.
        system: CPU seconds of the kernel for it.
        delay: seconds of waiting for a processor, as far as they were read.
        others: CPU seconds of all other programs: it cannot have waited longer for them.
        seconds: duration.
        interval: seconds between samples.
    """
    unread = _UNREAD_SAMPLES * interval if seconds <= BRIEF else _UNREAD_DELAY
    return max(0.0, outside - system - min(others, delay + unread))


def longest_wait(memory: float, io: float, system: float, *, again: int, read: int, read_chars: int) -> float:
    """Return an upper bound of the seconds that a run waited to read files again.

    Pressure includes other tasks: the bound is high on a busy disk, but it excludes waiting for a processor.

    Args:
        memory: seconds in which any task waited for memory: it reclaimed, or read dropped pages again.
        io: seconds in which any task waited for storage.
        system: CPU seconds of the kernel for the tree: it reclaims, and copies what was read.
        again: bytes that were read again.
        read: bytes that the tree read from storage.
        read_chars: bytes that it read by system calls, which the kernel copies as well.
    """
    return memory + again / max(read, 1) * io + again / max(read + read_chars, 1) * system


def longest_stall(pressure: float, seconds: float, others: float | None, processors: int) -> float:
    """Return an upper bound of the seconds that a run stalled, from the pressure of the machine.

    The kernel averages the stalls of all processors, weighted by the time that each is in use. A stall on one of two busy
    processors counts half: a mapped file, read at random in 64 MiB beside a busy program, stalled for 41 % of the time, and
    the machine for 20 %. The bound assumes that the run uses its processor or waits for memory or storage all the time.

    Args:
        pressure: seconds.
        seconds: duration.
        others: processors that other programs used on average; `None`: unknown.
        processors: of the machine.
    """
    return min(seconds, pressure * (processors if others is None else min(processors, 1 + others)))


def is_clogged(unwritten: int, cache: int) -> bool:
    """Return whether pages that wait to be written are in the way of reclaim.

    The kernel passes over a few of them. A copy of 256 MiB at limits of 32 to 264 MiB had a quarter to a half of its page cache
    unwritten, which is the part that its writes add.

    Args:
        unwritten: bytes of page cache that wait to be written, while memory is full.
        cache: bytes of page cache.
    """
    return unwritten >= _LEAST_UNWRITTEN * cache > 0


def contended_share(delay: float, others: float, used: float, seconds: float, processors: float) -> float:
    """Return the share of a window for which a run waited for processors that other programs used.

    A run with more threads than processors waits for itself. It can lose neither more than other programs used, nor more than
    it left unused.

    Args:
        delay: seconds that its threads waited for a processor.
        others: CPU seconds of all other programs of the machine.
        used: CPU seconds of the run.
        seconds: duration.
        processors: that the run may use.
    """
    lost = min(delay, others, seconds * processors - used)
    wanted = max(seconds, min(used + delay, seconds * processors))
    return max(0.0, min(1.0, lost / wanted)) if wanted > 0 else 0.0


def is_worth_naming(share: float | None, seconds: float | None, least: float = WORTH_NAMING) -> bool:
    """Return whether a stall made a run slow.

    Args:
        share: of the time; `None`: unknown.
        seconds: duration of the run; `None`: unknown, so the share alone decides.
        least: share from which it counts.
    """
    if share is None or share < least:
        return False
    return seconds is None or share * seconds >= _LEAST_WAIT


def throttled_share(throttled: float, seconds: float, processors: float) -> float:
    """Return the least share of the time for which a CPU limit stopped the run.

    Args:
        throttled: seconds, which the kernel adds for each processor.
        seconds: duration.
        processors: most processors that can have been stopped at once: the machine's, or the run's threads if fewer.
    """
    return min(1.0, throttled / (seconds * max(1.0, processors))) if seconds > 0 else 0.0
