"""Memory that no page fault of the tree brought: filled by other programs, shared files, writes to files in memory."""

from __future__ import annotations

from otel_memwatch.truth.exact import tolerance

_UNREAD_FILES = 64 * 1024**2
"""Bytes of file pages assumed for a process that no sample saw: program and libraries of a short command."""

MAPPED_BY_FAULT = 64 * 1024
"""Bytes of cached files that one page fault maps (`fault_around_bytes` of the kernel)."""


def is_outside_ledger(held_before: int, held: int, new: int, error: int) -> bool:
    """Return whether a process got pages that no page fault of the tree brought; then the fault ledger gives no bound.

    userfaultfd, writes by another program, virtual machines and pages that KSM unshares bring pages without a fault of
    the tree. They show if a process has more than before, by more than the whole tree can have gained.

    Example: 10 MiB, and 80 MiB at the next sample, with 200 page faults in the whole tree: it was filled from outside.

    Args:
        held_before: bytes of private memory at a reading.
        held: bytes at the next one.
        new: bytes that the whole tree can have gained meanwhile.
        error: counter uncertainty of both readings, in bytes.
    """
    return held > held_before + new + error


def beyond_ledger(mark: int, before: int, new: int, mapped: int, error: int) -> int:
    """Return the bytes of a process's high-water mark without a known cause; 0 if within the error.

    A process has at most the sum of:

    * its earlier memory,
    * pages that its faults brought,
    * files and shared memory that it maps in addition: one fault may map many of their pages.

    A rise beyond that may be memory that another program filled, freed again before a sample. It may also be files mapped
    in between. Both look alike, so it counts as gained.

    Example: 5 MiB, then 30 page faults, 1 MiB more of libraries, and a mark of 30 MiB. So 24 MiB were filled, or mapped
    and unmapped.

    Not noticed:

    * memory filled while the process had less than its mark,
    * memory filled after pages of files, or of a parent, had been freed,
    * memory filled in a process that no sample saw and that another process waited for.

    Args:
        mark: the high-water mark, in bytes.
        before: resident memory of all kinds at the reading before.
        new: bytes that page faults can have brought since.
        mapped: bytes of files and shared memory that it maps in addition.
        error: counter uncertainty, in bytes.
    """
    beyond = mark - before - new - max(0, mapped)
    return beyond if beyond > error else 0


def shared_at_tick(mapped: int, machine: int, rise: int, secret: int = 0) -> int:
    """Return the bytes of shared memory (shared mappings, memfd, tmpfs) that the tree had at a sample.

    The figure is the larger of two: the sum of the processes' mappings, each in full, and the machine's rise above its
    least sample. It is at most the machine's shared memory. Pages of memfd_secret are in no figure of the machine, and
    look like locked file pages.

    Example: four processes map the same 80 MiB, on a machine that had 8 MiB before. 320 are mapped, 88 exist: 88.

    Not in it:

    * files written while other programs free as much, and not mapped: /proc does not name their owner,
    * files that came and went between two samples by write().

    Args:
        mapped: sum of the shared resident memory of all processes.
        machine: shared memory of the machine.
        rise: `machine` less its smallest value at any sample so far.
        secret: pages of files that processes have locked in memory, summed.
    """
    return min(machine, max(mapped, rise)) + secret


def shared_most(before: int, now: int, new: int) -> int:
    """Return the bytes of shared memory to add to the ledger between two samples (`gained` covers the faults).

    Example: 20 MiB at the first sample, 120 at the second; processes map 30 MiB more, and had faults for them. 70 MiB
    were written to files, and 90 are added. Faults count only for additional mappings: others may have brought
    private memory, freed again, beside 100 MiB written to files.

    Args:
        before: bytes at the first sample (`shared_at_tick`).
        now: bytes at the second.
        new: bytes of it that count as gained by page faults: no more than processes map in addition.
    """
    return max(before, now - new)


def excludes_memory_files(written: int, high: int) -> bool:
    """Return whether an upper bound without a cgroup may lack files in memory that came and went between samples.

    A file in /dev/shm, on another tmpfs or of memfd_create takes memory that no process maps, if it is filled by write calls.
    A sample sees it in the machine's shared memory. Between two samples only the bytes of the write calls are counted
    (`wchar`), less those that went to disk (`write_bytes`).

    The bound is marked, and not raised. Write calls also go to pipes, sockets, terminals and /dev/null: `cat big > /dev/null`
    writes some 200 MiB between two samples and needs 1 MiB. fallocate and io_uring take memory without a write call. So the
    bound is marked as well if samples saw the machine's shared memory rise beyond the tree's mappings and write calls.

    Example: 200 MiB written to /dev/shm and removed between two samples, processes with 0.2 to 60.8 MiB: marked. 30 KiB of
    text to a terminal: not marked.

    Args:
        written: the most bytes between two samples that write calls wrote and that did not go to disk, or such a rise.
        high: the upper bound, in bytes.
    """
    return written > 2 * tolerance(high)


def with_unseen_fill(high: int, attained: int, file: int | None, floor: int) -> int:
    """Return an upper bound by page faults, raised to the maximum of one process less the most file pages of any.

    Example: 3 MiB of page faults, and wait4 reports 60 MiB. No process was seen with more than 5 MiB of files. So 55 MiB may
    have been filled by userfaultfd between two samples.

    Args:
        high: the bound by page faults.
        attained: largest ru_maxrss of all processes we waited for, in bytes.
        file: the most file pages of any process at a sample; `None`: not read.
        floor: peak of the launcher, in bytes; smaller values of wait4 may be inherited from it.
    """
    return high if attained <= floor else max(high, attained - (file or 0))


def beyond_files(attained: int, file: int | None, floor: int, faults: int) -> int:
    """Return the bytes of a process's maximum that pages of files do not explain: a sign of memory, and no bound.

    The maximum was between two samples, so its file pages were not read. They can be as many as one page fault maps, for
    each fault. 0 if file pages were never read.

    Example: wait4 reports 200 MiB after 500 faults: 136 MiB beyond 64 MiB for program and libraries. After 4 000 faults,
    250 MiB can all be a mapped log file: 0.

    Args:
        attained: the largest maximum that wait4 reports.
        file: the most file pages of any process at a sample; `None`: not read.
        floor: bytes up to which wait4's figure may be that of the launcher.
        faults: page faults of the tree.
    """
    if file is None or attained <= floor:
        return 0
    return max(0, attained - max(file, _UNREAD_FILES, faults * MAPPED_BY_FAULT))
