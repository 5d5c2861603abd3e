"""Pages that a run read again because it had too little memory: refaults, and what proves them.

Inputs are bytes; nothing here reads the machine.

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
  faults. The refaults of a copy are pages that were read ahead (`ahead_again`): read calls pass each byte once. They count
  for the time in which the run was blocked (`stalls.blocked`).
* The counter shows this run only: much was read for the first time (`are_proven`) while few of the bytes were refaults
  (`are_foreign`). Else only mapped bytes count that exceed the address space of the whole tree: they were read more than once.
  They also count if they are more than the refaults (`are_some`): at a limit of some MiB, the kernel forgets which pages it dropped.

| run at its limit | read calls pass | page faults | verdict |
| --- | --- | --- | --- |
| random reads of a mapped file | little | many | slow |
| same, after a run that dropped the file | little | many | slow, by address space |
| a file read by calls again and again | more than its size | few | slow |
| same, after a run that dropped the file | more than its size | few | unknown |
| copy or scan | its size | few | slow if blocked while much was read ahead again |
| scan, after a run that dropped the file | its size | few | unknown |
"""

from __future__ import annotations

from otel_memwatch.runtime.typed import NamedTuple

_LEAST_REREAD = 0.25
"""Share of the bytes read from storage that a shortage reads again. A copy loses a few pages that the kernel read ahead."""
_SOME = 0.1
"""Share of the bytes read from storage from which refaults may be a part of the pages that were dropped. A program that maps a file
piece by piece has more to read than its address space, and no refaults."""
_LEAST_PASSED = 0.2
"""Share of the bytes read from storage that read calls must pass before pages read ahead count. The kernel counts the bytes of a
call at its end, so a copy in one call passes none until then."""
_LEAST_OF_CALLS = 0.05
"""Share of the bytes passed to read calls that a shortage reads again. A copy of a file in memory reads little from storage, so
the few pages that it loses are most of that: 4 of 256 MiB at a limit of 18 MiB, where it is not slower."""
_LARGEST_READAHEAD = 8 << 20
"""Most bytes that the kernel reads for one major fault: cloud disks have `read_ahead_kb` up to 8192, others 128."""
_LARGEST_MAPPED = 2 << 20
"""Most bytes that the kernel maps for one minor fault of a file: a large folio. Small ones are mapped by 64 KiB
(`fault_around_bytes`). Linux 6.18 read a mapped file of 256 MiB in order with 3 major faults and 650 minor ones."""
_LEAST_PROOF = 8 << 20
"""Bytes read for the first time without refaults that show that the counter of refaults is the run's own."""
_FOREIGN = 0.1, 1 << 20
"""Share of the bytes read before the limit was reached, and bytes: more refaults come from an earlier run."""


def are_enough(reread: int, read: int, read_chars: int) -> bool:
    """Return whether pages that were read again show a shortage.

    Args:
        reread: bytes of refaults after the charge reached a limit.
        read: bytes that the tree read from storage after that.
        read_chars: bytes that it read by system calls after that.
    """
    return reread > max(_LEAST_REREAD * read, _LEAST_OF_CALLS * read_chars)


def are_some(reread: int, read: int) -> bool:
    """Return whether refaults may be only a part of the pages that were dropped.

    A file of 256 MiB, read at random through a mapping at 8 MiB: 552 MiB read by 92 major faults, but only 126 MiB of refaults.
    """
    return reread >= _SOME * read > 0


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


def ahead_again(surplus: int, reread: int, read: int, read_chars: int) -> int:
    """Return bytes that the kernel read ahead, dropped before the program used them, and read again; 0 if that is not certain.

    Copies of 256 MiB at 18 to 48 MiB read 430 to 770 MiB and took 1.5 to 3.2 times as long. A checksum at 24 MiB read 592 MiB
    and was as quick: it computes meanwhile.

    Args:
        surplus: bytes that were certainly read more than once.
        reread: bytes of refaults after the charge reached a limit.
        read: bytes that the tree read from storage.
        read_chars: bytes that it read by system calls.
    """
    return min(surplus, reread) if are_some(reread, read) and read_chars >= _LEAST_PASSED * read else 0


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
