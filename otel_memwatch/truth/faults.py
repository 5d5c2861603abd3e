"""Memory that page faults can have brought: the fault ledger."""

from __future__ import annotations

BASE_PAGE = 4096
"""Bytes that a page fault brings at least; callers pass the page size of their machine."""

_HUGE_PAGE = 2 << 20


def gained(faults: int, huge: int = 0, *, page: int = BASE_PAGE) -> int:
    """Return the bytes of anonymous and shared memory that page faults can have brought.

    A process gets a new page only by a page fault. A kernel thread may take the fault on its behalf: read() into new
    memory, mlock, MAP_POPULATE. The kernel counts every fault (`min_flt`, `maj_flt`).

    * A fault brings one base page or one huge page. Huge pages are counted for the whole machine, as are those collapsed
      without a fault.
    * A fork brings no page: it adds entries for existing ones.
    * Faults that bring pages of files are counted too, so the ledger is never too low.

    Example: 25 600 faults, no huge page on the machine: at most 100 MiB, however it was shared or copied since.

    | a page without a fault of the tree | so |
    | --- | --- |
    | userfaultfd, a write into it by another program, KVM, KSM, pinned pages at a fork | `is_outside_ledger`, `beyond_ledger` |
    | a memory file's page, written by write() and not mapped | is not in it: `shared_most` |

    Args:
        faults: page faults, minor and major.
        huge: bytes of the huge pages that were allocated meanwhile.
        page: bytes of a base page.
    """
    return page * faults + huge


def gained_by_children(faults: int, own_faults: int, huge_pages: int, *, page: int = BASE_PAGE) -> int:
    """Return the bytes that the children of a process can have needed together beside it, by page faults.

    Each page that is new to a process costs it a fault. So does a page of the parent that a forked child goes on to use:
    the parent's faults count too.

    Example: children with 2 000 faults, 500 of the parent's, one huge page: 11.8 MiB.

    Args:
        faults: page faults of all children, from wait4.
        own_faults: page faults of the process meanwhile.
        huge_pages: huge pages that the machine handed out meanwhile; fewer than 0 count as none.
        page: bytes of a base page.
    """
    return gained(faults + own_faults, max(0, huge_pages) * _HUGE_PAGE, page=page)


def left_of_huge_pages(freed_since: int, partly_free: int | None, size: int = _HUGE_PAGE) -> int:
    """Return the most bytes that are charged for huge pages but that no process maps any more.

    If a process frees a part of a huge page, the kernel keeps the whole page until memory is short. No resident size has
    the freed part.

    Example: an allocator takes 300 MiB as 150 huge pages, and gives back 900 KiB of each of 112. 202 MiB are resident, 301
    MiB are charged, and up to 224 MiB can be left over.

    | the kernel counts | the tree's pages are at most |
    | --- | --- |
    | partly freed pages at present (since Linux 6.12) | the smaller count |
    | only the events | those since the start |

    Args:
        freed_since: huge pages of which a part was freed since the tree started, in the whole machine.
        partly_free: huge pages that are partly free at present, in the whole machine; `None`: not counted.
        size: bytes of a huge page.
    """
    return size * (freed_since if partly_free is None else min(freed_since, partly_free))


def tree_kept(before: int, new: int, held: int | None, left: int = 0) -> int:
    """Return an upper bound of the private pages of a process tree at one moment, in bytes.

    The tree has at most the pages that it had, plus the gains of its processes since (`gained`). Between both moments it
    never had more than this sum: freed memory may have been freed before or after. At the moment itself it also has at most
    the sum of its processes' resident private memory, if all processes are known.

    Example: a pool of four forked workers had 100 MiB before the forks, and each gained 10 since: 140 MiB. The sum of
    resident sizes is 540. A compiler that has freed 200 of 300 MiB: 100.

    Args:
        before: bytes that it had at the earlier moment.
        new: bytes that its processes gained since, those that have ended meanwhile included.
        held: sum of the resident private memory of all processes; `None`: a process may not have been found.
        left: bytes of huge pages that no process maps any more (`left_of_huge_pages`).
    """
    return before + new if held is None else min(before + new, held + left)


def most_in_release(held: int, before: int, new: int) -> int:
    """Return the most bytes that a process may be releasing at the moment.

    munmap, madvise and exit lower the resident size first and free the pages in batches of thousands. A process that loses its
    processor in between no longer maps pages that the kernel has not freed yet. Then it waits for a processor or a lock: a
    process that sleeps, is stopped or has ended is in no such call. The machine's counts of pages bound the sum of all
    processes (`parse_unfreed`).

    Example: 40 MiB at the previous scan, 12 gained, 40 now, and it runs: up to 12 MiB may still be there.

    Args:
        held: bytes that it maps.
        before: bytes that it had at the previous scan.
        new: bytes that it can have gained since.
    """
    return max(0, before + new - held)


def certainly_there(held: int, new: int) -> int:
    """Return the bytes that a process certainly had at a moment: its memory a little later, less its gain since.

    If all processes are read once, and then all again, the sum of this over families was there at once, in between. A
    **family** is a set of processes that descend from each other by fork without an exec. Only they map a given private
    page, so only the largest member of each family counts.

    Example: 300 MiB, and 100 faults between two readings 1 ms apart: 299.6 MiB were there in between.

    Args:
        held: bytes of private memory at the second reading.
        new: bytes that it can have gained between the readings.
    """
    return max(0, held - new)


def own_pages(held: int, least: int, error: int) -> int:
    """Return the bytes of private memory that a process certainly shares with no ancestor.

    A process gets its parent's pages at its birth and never again. So memory beyond its least reading is unshared.
    A page in swap is in no reading, and may be one of the parent's when it comes back: use this only without swapping.

    Example: a worker that was read with 60 MiB, all of its parent's or not, and has 84 now: at least 24 are unshared.

    Args:
        held: bytes that it certainly had at the moment.
        least: the least reading until then, in this address space.
        error: counter uncertainty, in bytes.
    """
    return max(0, held - least - error)


def family_there(whole: int, own: int) -> int:
    """Return the bytes of private memory that a family certainly had at a moment.

    One member counts in full, the others with their own pages (`own_pages`). The first member has none of these pages if
    it existed at the others' least readings: only a later fork could give it such pages. Processes that run in one
    address space count once.

    Example: a parent with 71 MiB, and three workers with 24 MiB each that they did not have before: 143 MiB.

    Args:
        whole: bytes that the first member certainly had.
        own: sum of the others' own pages.
    """
    return whole + own


def certainly_there_of_shares(shares: int, new: int, lost: int) -> int:
    """Return the bytes that were certainly there when reading a sum of proportional sizes (PSS) began.

    Each process counts its share of a page, so the sum has each page once. The reading takes time. Pages gained meanwhile
    were not there at the beginning. A page that one of its sharers loses after it was counted there counts too much, by
    half a page at most.

    Example: 300 MiB of shares, 2 MiB gained and 1 MiB lost during the reading: 297 MiB were there.

    Args:
        shares: the sum.
        new: bytes that the processes can have gained meanwhile.
        lost: bytes that they can have lost: by how much each one's resident size grew less than it gained.
    """
    return max(0, shares - new - lost)
