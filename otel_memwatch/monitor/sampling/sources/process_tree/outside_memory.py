"""Memory that entered the tree without a page fault of its processes, for example by userfaultfd.

Visible memory of this kind counts as gained (`beyond_ledger`), or the page faults bound nothing any more
(`is_outside_ledger`). Both rules are in `truth.outside_faults`.
"""

from __future__ import annotations

import resource

from otel_memwatch.monitor.sampling.sources.process_tree.memory_scan import StatusReading
from otel_memwatch.runtime.kernel import PAGE_SIZE
from otel_memwatch.runtime.procfs.process import parse_pinned
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.truth.faults import gained
from otel_memwatch.truth.outside_faults import beyond_ledger, is_outside_ledger

if TYPE_CHECKING:
    from otel_memwatch.monitor.sampling.sources.process_tree.memory_scan import AddressSpace, MemberReading


class OutsideMemory:
    """Detection of such memory, and its bytes. `uncounted`: the kernel does not count huge pages of a size in use."""

    def __init__(self, *, uncounted: bool) -> None:
        self.broken = "huge pages that the kernel does not count" if uncounted else ""
        """Reason why page faults no longer bound the memory, in words; empty: they do."""
        self._most_mapped = 0
        """Maximum of a process's resident files and shared memory, in bytes."""
        self._floor = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        """Our own peak in bytes. wait4's maximum of a process that we started may be inherited from it."""

    def at_end(self, seen: AddressSpace | None, own_peak: int, faults: int, huge: int, error: int) -> int:
        """Return the bytes of an ended process's peak that no known source explains.

        Args:
            seen: the process as of the last scan; `None`: no scan saw it, or only in our address space.
            own_peak: its peak in bytes, from wait4.
            faults: its page faults.
            huge: bytes of huge pages that the machine has allocated so far.
            error: counter uncertainty, in bytes.
        """
        if own_peak <= self._floor:
            return 0
        if seen is None or seen.status is None:
            return beyond_ledger(own_peak, 0, gained(faults, huge, page=PAGE_SIZE), self._most_mapped, error)
        status = seen.status
        new = gained(max(0, faults - status.faults), huge - status.huge, page=PAGE_SIZE)
        return beyond_ledger(own_peak, max(status.rss, seen.mark), new, 0, error)

    def risen(
        self, reading: MemberReading, huge: int, new_huge: int, inherited: int, error: int, *, joining: bool
    ) -> int:
        """Return the bytes of a high-water mark's rise since its last reading that no known source explains.

        Args:
            reading: readings of the process.
            huge: bytes of huge pages that the machine has allocated so far.
            new_huge: bytes of these since the previous scan.
            inherited: upper bound of the bytes that it had at its birth, if this is its first reading.
            error: counter uncertainty, in bytes.
            joining: its earlier memory is unknown.
        """
        member, space = reading.member, reading.space
        mark, before, data = member.watermark.last, space.status, member.status_data
        if mark is None or member.shares_memory or (before is not None and before.data is data):
            return 0
        self._most_mapped = max(self._most_mapped, member.mapped)
        now = space.status = StatusReading(data, member.rss, member.mapped, reading.first, huge)
        if before is None:
            if joining:
                return 0
            before = StatusReading(b"", inherited, 0, space.base, huge - new_huge)
        elif mark <= space.mark:
            return 0
        new = gained(reading.last - before.faults, huge - before.huge, page=PAGE_SIZE)
        return beyond_ledger(mark, before.rss, new, now.mapped - before.mapped, error)

    def judge(self, reading: MemberReading, held: int, before: int | None, new: int, error: int) -> None:
        """Find pinned memory, and a process with more memory than page faults of the tree can have brought.

        Args:
            reading: readings of the process.
            held: bytes of private memory.
            before: upper bound of it at the previous scan, or of the tree's if it is new; `None`: unknown.
            new: bytes that the tree can have gained since.
            error: counter uncertainty of both readings, in bytes.
        """
        if parse_pinned(reading.member.status_data):
            self.broken = self.broken or "pinned memory"
        if before is not None and is_outside_ledger(before, held, new, error):
            self.broken = self.broken or "memory filled from outside"
