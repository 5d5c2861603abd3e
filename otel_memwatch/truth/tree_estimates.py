"""Best estimates of a tree's memory at one sample, without a cgroup. Sums of proportional sizes, read seldom, correct them."""

from __future__ import annotations

from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.truth.estimates import beside_cached_files, beside_large_folios
from otel_memwatch.truth.faults import BASE_PAGE
from otel_memwatch.truth.outside_faults import MAPPED_BY_FAULT

if TYPE_CHECKING:
    from collections.abc import Iterable

_STEADY = 1 / 8
"""Share of its largest reading within which a process's private memory may vary and still count as freeing nothing."""
_RESERVED = 16 << 20
"""Bytes of shared memory that a process maps, and that were there before, from which on they are a sign (`is_reserved`)."""
_ALIKE = 0.6
"""Least ratio of a rise of shared memory and written bytes that belong together: both are read at different moments."""


def likely_left(most: int, private: int) -> int:
    """Return the best estimate of the parts of huge pages that no process maps: a half of each page.

    Example: an allocator gives back 900 KiB of each of 112 huge pages of 2 MiB. It has 202 MiB, and its page faults brought 301:
    99 MiB, not 112.

    Args:
        most: bytes of the huge pages of which a part was freed (`left_of_huge_pages`).
        private: bytes of private memory that the tree can have beyond what it probably maps.
    """
    return max(0, min(most // 2, private))


def likely_burst(mark: int, held: int, file: int, shared: int, brought: int, *, huge: int) -> int:
    """Return the best estimate of private memory that a process had and freed between two samples, beyond what it holds.

    Its high-water mark includes pages of files, and shared memory that the tree has anyway. If its page faults can have
    brought the mark only as pages of cached files, they decide, as in `likely_of_any`.

    Examples: a process held 10 MiB at a sample and its mark rose to 80. It maps 4 MiB of files, and 60 MiB of shared memory
    that it has unmapped meanwhile: 6 MiB. A search holds 1 MiB, and 231 MiB of a file at a sample; its mark is 256 MiB after
    4 414 page faults (17 MiB): 0.3 MiB, not 24. Another holds 1 MiB, and its mark is 300 MiB after 800 page faults: 0.6 MiB.

    Args:
        mark: its high-water mark, in bytes.
        held: bytes of its private memory now.
        file: the most file pages that it had at a sample, in bytes.
        shared: bytes of shared memory of the tree, if the process ever mapped any; else 0.
        brought: bytes that its page faults brought so far, a page for each.
        huge: bytes of the huge pages that the machine allocated since the sample before.
    """
    likely = mark - file - shared
    if held <= brought + huge:  # else it has huge pages from before
        likely = beside_cached_files(likely, mark, brought, huge)
        likely = beside_large_folios(likely, brought + huge, brought)
    return max(0, likely - held)


def likely_grown(held: int, brought: int, new: int) -> int:
    """Return the best estimate of the memory that a process gained after its last sample, before it ended.

    Its page faults are known at its end. Those of private and shared memory are assumed to have the share that they had before.

    Example: a compiler has 34 MiB of memory after 60 MiB of page faults. The others brought files. It ends after 12 MiB more:
    6.8 MiB.

    Args:
        held: bytes of its private and shared memory at the last sample.
        brought: bytes that its page faults had brought by then, a page for each.
        new: bytes that they can have brought later, huge pages included.
    """
    return new * min(held, brought) // max(brought, 1)


def frees_memory(most: int, now: int) -> bool:
    """Return whether a process allocates and frees, so its page faults say little about its current memory.

    Growth alone is no sign: a server loads its data, forks workers, and these copy its pages.

    Example: 60 MiB after 80 at an earlier sample: it does. 75 after 80: it does not. 0 after 80: it is ending.

    Args:
        most: the largest reading of its private memory until now, in bytes.
        now: the present reading.
    """
    return 0 < now < (1 - _STEADY) * most


def brought_private(held: int, brought: int, shared: int) -> int:
    """Return the most private memory that a process's page faults probably brought.

    Faults of shared memory are counted too. A write faults for each page, a read maps up to 16 cached pages (`MAPPED_BY_FAULT`).

    Example: a worker fills 60 MiB of shared memory, and copies 2 MiB of its parent's 9: 2 MiB, of 62 MiB of page faults.

    Args:
        held: bytes of its private memory.
        brought: bytes that its page faults brought, a page for each.
        shared: bytes of shared memory that it maps.
    """
    around = MAPPED_BY_FAULT // BASE_PAGE
    return max(0, min(held, brought - (shared if brought >= shared else shared // around)))


def likely_of_member(
    own: int, whole: int, brought: int, least: int, oldest: int, *, family_frees: bool, copied: int = 0
) -> int:
    """Return the best estimate of the private memory that a forked process has beside its family's oldest member.

    | the family | estimate |
    | --- | --- |
    | frees memory (`frees_memory`) | its growth since the fork, and the pages it had copied before any was freed |
    | does not | the memory that its page faults brought: its growth and the pages it unshared |

    Example: a worker has 84 MiB, had 60 at its least, and 30 MiB of page faults; its parent has 71. The estimate is 30 MiB,
    or 24 if the worker frees. If it had copied 5 MiB before: 29.

    Args:
        own: bytes that it certainly shares with no ancestor (`own_pages`).
        whole: bytes that it certainly had.
        brought: bytes that its page faults can have brought, no more than it has.
        least: its smallest reading, in bytes.
        oldest: bytes that the oldest member certainly had.
        family_frees: whether any member of the family frees memory.
        copied: bytes that its page faults brought beyond its growth, until the family was first seen to free memory.
    """
    if not family_frees:
        return max(own, brought)
    return min(whole, max(own, whole - min(least, oldest)) + copied)


def likely_kept(brought: int, grown: int, snapshot: int) -> int:
    """Return the best estimate of the pages that forked processes keep while their parent writes new copies of them.

    A page fault of the parent without growth is a copy: the old page stays with the child. It lasts as long as a child does.

    Example: a database of 120 MiB forks a child that saves it, and rewrites 100 MiB meanwhile. It grows by 4 MiB: the child
    keeps 96 MiB that the parent no longer has.

    Args:
        brought: bytes that the parent's page faults brought since the birth of its eldest living child.
        grown: bytes by which the parent has grown since.
        snapshot: bytes that a child had of its parent's.
    """
    return max(0, min(snapshot, brought - max(0, grown)))


def likely_of_family(most: int, oldest: int, others: Iterable[int]) -> int:
    """Return the best estimate of a family's private memory: the oldest member in full, plus the others' additional memory.

    Args:
        most: bytes that the family certainly does not exceed.
        oldest: bytes that the oldest member certainly had, and `likely_kept`.
        others: `likely_of_member` of the others.
    """
    return min(most, oldest + sum(others))


def is_reserved(before: int, now: int, risen: int, rise: int) -> bool:
    """Return whether a process maps shared memory that existed before, so its file in memory is larger than its mappings.

    Example: a Java heap (ZGC) allocates 300 MiB with fallocate, and maps 140 MiB of it at a sample and 220 at the next. The
    machine's shared memory does not rise between them, and is 300 MiB above its least.

    Args:
        before: bytes that the process mapped at the last sample; no other process of the tree maps any.
        now: the same at this sample.
        risen: bytes by which the machine's shared memory has risen between both.
        rise: bytes of the machine's shared memory above its least sample.
    """
    return before > 0 and now <= rise and now - before - max(0, risen) >= _RESERVED


def likely_shared(
    most: int, mapped: int, rise: int | None, mapped_before: int, *, reserved: bool = False
) -> int:
    """Return the best estimate of the shared memory that the tree maps, each page once.

    A page stays in shared memory if the process that filled it ends, though no page table maps it any more.

    Example: a database server maps shared memory, of which its workers filled 30 MiB. Some have ended, and those alive map 12
    MiB. The machine's shared memory is 31 MiB above its least: 30 MiB.

    Args:
        most: bytes that the tree certainly does not exceed (`shared_at_tick`).
        mapped: sum of the processes' mappings now, each in full.
        rise: bytes of the machine's shared memory above its least sample; `None`: the tree is older than the first sample.
        mapped_before: the most of `mapped` so far.
        reserved: whether the tree has shared memory that it does not map yet (`is_reserved`).
    """
    if rise is None or not mapped:
        return min(most, mapped)
    return min(most, rise) if reserved else min(most, rise, mapped_before)


def likely_files(before: int, risen: int, written: int) -> int:
    """Return the best estimate of the files in memory (/dev/shm, tmpfs, memfd) that the tree has and does not map.

    /proc names no owner of such a file. The machine's shared memory rises by it while the tree writes it.

    Example: the machine's shared memory rises by 50 MiB between two samples. The tree writes 48 MiB that do not go to disk, in
    small files of whole pages: 50 MiB more. If it writes 2 MiB or 200 MiB, the rise belongs to other programs, and the tree wrote
    to a pipe.

    Args:
        before: bytes at the sample before.
        risen: bytes by which the machine's shared memory has risen since, beyond the tree's mappings.
        written: bytes of the tree's write calls since that did not go to disk.
    """
    if risen > 0 and not _ALIKE * risen <= written <= risen / _ALIKE:
        return before
    return max(0, before + risen)


def files_with_deleted(before: int, now: int, written: int) -> int:
    """Return the best estimate of the most files in memory between two samples.

    Example: 40 MiB at a sample, then 20 MiB are written, and the file is deleted: 60 MiB.

    Args:
        before: bytes at the first sample (`likely_files`).
        now: bytes at the second.
        written: bytes of write calls between both that did not go to disk.
    """
    return max(before + max(0, written), now) if now < before else now


def share_of_estimate(shares: int, estimate: int) -> float:
    """Return the factor by which an estimate from page faults is too high, from a sum of proportional sizes (PSS).

    Only PSS shows how much of their gains forked processes freed since. Other samples, without PSS, use the same factor.

    Example: an estimate of 200 MiB at a sample with 150 MiB of PSS: 0.75.

    Args:
        shares: the sum of proportional sizes, in bytes.
        estimate: of the same sample, in bytes, above 0.
    """
    return min(1.0, shares / estimate)


def correction(least: int, most: int, estimate: int) -> float:
    """Return the factor for an estimate of the moment at which a reading of proportional sizes (PSS) began.

    The tree changes during the reading, which takes a while if the machine is busy. So the sum is a range. The factor is
    the one nearest to 1.

    | the estimate | factor |
    | --- | --- |
    | is in the range | 1 |
    | is above it: forked processes have freed some of their gains | brings it to the upper end |
    | is below it: they have copied more pages | brings it to the lower end |

    Example: 200 MiB were estimated. The sum is 150 MiB, of which 10 were gained during the reading: 0.75.

    Args:
        least: bytes that certainly existed when the reading began.
        most: the sum, in bytes.
        estimate: at the sample at which the reading began, in bytes, above 0.
    """
    return max(least, min(estimate, most)) / estimate


def corrected(guess: int, factor: float, read: int) -> int:
    """Return a guess with the correction of another sample.

    The correction is for the memory at the reading of proportional sizes. Memory beyond that is not corrected.

    Example: 10 MiB were guessed at the reading, which found 7. A guess of 8 MiB is 5.6, and one of 26 is 23.

    Args:
        guess: in bytes.
        factor: `correction` of the reading.
        read: guess at the reading, in bytes.
    """
    return max(0, guess - round((1 - factor) * min(guess, read)))
