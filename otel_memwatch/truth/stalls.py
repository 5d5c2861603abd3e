"""Time that a run lost because it had too little memory or CPU.

Inputs are bytes and seconds of one window between two samples; nothing here reads the machine.

A run is short of memory if it reads files again that the kernel has dropped from its page cache at a limit. No single
reading shows it:

| reading | alone it is no proof, because |
| --- | --- |
| pressure (PSI) | on the machine, it includes other programs; while 1 000 reads took 6 s instead of 1 ms, it rose by 8 % |
| major faults | a cold start has them, too |
| bytes read from storage | a scan or a copy of a large file reads each byte once |
| charge at the limit | page cache of files that are read once fills any limit |
| refaults (pages reclaimed and read again) | the kernel also counts pages that an earlier run's cgroup dropped |
| refaults of this run's own pages | the kernel reads ahead, and drops pages that the program has not used yet |

A shortage needs all of these:

* The charge reached a limit.
* Refaults and bytes read from storage grew after that, and the refaults are more than a few of all bytes read (`are_enough`).
* The program asked for these bytes again (`asked_again`): by read calls, which pass more than its files have, or by page
  faults. The refaults of a copy are pages that were read ahead: read calls pass each byte once.
* The counter shows this run only: much was read for the first time (`are_proven`) while few of the bytes were refaults
  (`are_foreign`). Else only mapped bytes count that exceed the address space of the whole tree: they were read more than once.

| run at its limit | read calls pass | page faults | verdict |
| --- | --- | --- | --- |
| random reads of a mapped file | little | many | slow |
| same, after a run that dropped the file | little | many | slow, by address space |
| a file read by calls again and again | more than its size | few | slow |
| same, after a run that dropped the file | more than its size | few | unknown |
| copy or scan | its size | few | none |
| scan, after a run that dropped the file | its size | few | unknown |

Writing is another reason to wait. The kernel cannot reclaim a page before it is written to storage. If much of the page cache at
the limit is unwritten (`is_clogged`), a copy waits for the disk at each page, and reads nothing again. The time is the pressure of
memory, in which reclaim counts. A copy without a limit has none: its pages stay until the kernel writes them in the background.

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
"""Seconds that the kernel must have sought memory among unwritten pages. They are those of whole samples, and a short copy has few:
one of 128 MiB in 0.2 to 0.3 s had up to 56 % at a limit of 18 MiB, and was as quick without the limit."""
_LEAST_REREAD = 0.25
"""Share of the bytes read from storage that a shortage reads again. A copy loses a few pages that the kernel read ahead."""
_LEAST_OF_CALLS = 0.05
"""Share of the bytes passed to read calls that a shortage reads again. A copy of a file in memory reads little from storage, so
the few pages that it loses are most of that: 4 of 256 MiB at a limit of 18 MiB, where it is not slower."""
_LEAST_UNWRITTEN = 0.2
"""Share of the page cache from which unwritten pages are in the way. On version 2 the kernel keeps programs below it (dirty_ratio),
by letting them wait for the disk."""
_SLOWEST_READ = 50e6
"""Bytes in a second that any storage reads in sequence."""
_LONGEST_FAULT = 0.02
"""Seconds that a major fault takes on a busy disk."""
_LARGEST_READAHEAD = 8 << 20
"""Most bytes that the kernel reads for one major fault: cloud disks have `read_ahead_kb` up to 8192, others 128."""
_LARGEST_MAPPED = 2 << 20
"""Most bytes that the kernel maps for one minor fault of a file: a large folio. Small ones are mapped by 64 KiB
(`fault_around_bytes`). Linux 6.18 read a mapped file of 256 MiB in order with 3 major faults and 650 minor ones."""
_LEAST_PROOF = 8 << 20
"""Bytes read for the first time without refaults that show that the counter of refaults is the run's own."""
_FOREIGN = 0.1, 1 << 20
"""Share of the bytes read before the limit was reached, and bytes: more refaults come from an earlier run."""


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
    return min(outside, reread / _SLOWEST_READ + window.major_faults * _LONGEST_FAULT)


def are_enough(reread: int, read: int, read_chars: int) -> bool:
    """Return whether pages that were read again show a shortage.

    Args:
        reread: bytes of refaults after the charge reached a limit.
        read: bytes that the tree read from storage after that.
        read_chars: bytes that it read by system calls after that.
    """
    return reread > max(_LEAST_REREAD * read, _LEAST_OF_CALLS * read_chars)


def faulted_again(reread: int, major_faults: int, minor_faults: int) -> int:
    """Return bytes of refaults in one window that page faults can have asked for, at most.

    A copy at its limit has some major faults, when its program is read again. They explain few of its refaults if each
    window counts alone.

    Args:
        reread: bytes of refaults.
        major_faults: in the window.
        minor_faults: in the window; a sequential reading of a mapping has few others.
    """
    return min(reread, major_faults * _LARGEST_READAHEAD + minor_faults * _LARGEST_MAPPED)


def asked_again(reread: int, first: int, read_chars: int, faulted: int) -> int:
    """Return bytes of refaults that the program itself asked for again, at most.

    The kernel reads ahead. At a small limit it drops such pages before the program uses them, and reads them again. A copy of
    256 MiB then reads 620 to 760 MiB in sequence and is little slower.

    Args:
        reread: bytes of refaults after the charge reached a limit.
        first: bytes read from storage that were no refaults.
        read_chars: bytes that the tree read by system calls.
        faulted: sum of `faulted_again`.
    """
    return min(reread, max(0, read_chars - first) + faulted)


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


def is_clogged(unwritten: int, cache: int) -> bool:
    """Return whether pages that wait to be written are in the way of reclaim.

    The kernel passes over a few of them. A copy of 256 MiB at limits of 32 to 264 MiB had a quarter to a half of its page cache
    unwritten, which is the part that its writes add.

    Args:
        unwritten: bytes of page cache that wait to be written, while memory is full.
        cache: bytes of page cache.
    """
    return unwritten >= _LEAST_UNWRITTEN * cache > 0


def are_proven(first_read: int) -> bool:
    """Return whether enough was read for the first time to see that refaults are the run's own.

    Args:
        first_read: bytes that the tree read from storage while few of them were refaults (`are_foreign`).
    """
    return first_read >= _LEAST_PROOF


def are_foreign(refaulted: int, read: int) -> bool:
    """Return whether refaults show pages that an earlier run dropped, if this run had dropped nothing.

    Args:
        refaulted: bytes of refaults so far.
        read: bytes that the tree read from storage so far.
    """
    share, least = _FOREIGN
    return refaulted > max(least, share * read)


def not_own(refaulted: int, read: int, held: int, written: int) -> tuple[int, int]:
    """Return refaults of pages that the run read for the first time, at least, and bytes of such first readings, at most.

    Page cache that was not written was read for a first time. As many bytes read are no refaults of the run.

    Args:
        refaulted: bytes of all refaults.
        read: bytes that the tree read from storage.
        held: largest page cache charged.
        written: bytes that the tree wrote, which may be in the page cache.
    """
    first = max(0, min(read, held - written))
    return max(0, refaulted - (read - first)), first


def surplus(read: int, read_chars: int, virtual: int) -> int:
    """Return bytes that were certainly read more than once through mappings.

    Args:
        read: bytes that the tree read from storage.
        read_chars: bytes that it read by system calls, which explain as many bytes from storage.
        virtual: largest address space of the tree, which holds all of its mappings.
    """
    return max(0, read - read_chars - virtual)


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


class Shortage(NamedTuple):
    """Files that a run read again, in bytes."""

    reread: int
    files: int | None
    """Distinct bytes of files; `None`: unknown."""
    short: int | None
    """Memory that was missing to keep them; `None`: unknown."""


def shortage(read: int, reread: int, refaulted: int, held: int) -> Shortage:
    """Return the size of the files that a run read again, and the missing memory.

    Of the bytes read from storage, the first reading of each page is no refault:

        2.4 GiB read, 2.15 GiB of them refaults: 256 MiB of files. 98 MiB of page cache were kept: 158 MiB were missing.

    Args:
        read: bytes that the tree read from storage.
        reread: bytes of refaults after the charge reached a limit.
        refaulted: bytes of all refaults.
        held: largest page cache charged.
    """
    files = max(0, read - refaulted)
    if files <= held:
        # Files were in memory before the run: the first reading of their pages is not among the bytes read.
        return Shortage(reread, None, None)
    return Shortage(reread, files, files - held)


def is_worth_naming(share: float | None, seconds: float | None) -> bool:
    """Return whether a stall made a run slow.

    Args:
        share: of the time; `None`: unknown.
        seconds: duration of the run; `None`: unknown, so the share alone decides.
    """
    if share is None or share < WORTH_NAMING:
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
