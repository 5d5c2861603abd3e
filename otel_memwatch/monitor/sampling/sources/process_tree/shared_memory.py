"""Shared memory of the tree: mapped by its processes, or in files in memory that no process maps.

The machine counts its shared memory and no owner. What the tree's processes map is theirs; the rest of the machine's rise
may belong to other programs, unless the tree's write calls match it.
"""

from __future__ import annotations

import resource

from otel_memwatch.model import ProcessNote
from otel_memwatch.monitor.sampling.sources.process_tree.memory_scan import StatusReading
from otel_memwatch.runtime.kernel import PAGE_SIZE
from otel_memwatch.runtime.procfs.process import parse_pinned
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.truth.faults import gained
from otel_memwatch.truth.outside_faults import beyond_ledger, is_outside_ledger, shared_at_tick, shared_most
from otel_memwatch.truth.tree_estimates import files_with_deleted, is_reserved, likely_files, likely_shared

if TYPE_CHECKING:
    from collections.abc import Collection

    from otel_memwatch.monitor.sampling.sources.process_tree.allocations import Allocations
    from otel_memwatch.monitor.sampling.sources.process_tree.member import Member
    from otel_memwatch.monitor.sampling.sources.process_tree.memory_scan import AddressSpace, MemberReading


class SharedNow(NamedTuple):
    """Shared memory of one scan, in bytes."""

    high: int
    """To add to the upper bound since the previous scan."""
    low: int
    """Certainly resident."""


class SharedMemory:
    """Shared memory of one tree, scan by scan.

    Args:
        machine: counts of the machine.
        joined: the tree existed before the run, so the machine's rise is not that of the run.

    Attributes:
        most: upper bound at the end of the last scan, in bytes.
        in_objects: best estimate of the tree's shared memory.
        files: best estimate of the tree's files in memory, unmapped: the most since the previous scan.
        unwritten: the most bytes between two scans by which the machine's shared memory rose beyond the tree's mappings and
            write calls, if it maps any. Another program took them, or the tree without write calls (fallocate).
    """

    def __init__(self, machine: Allocations, *, joined: bool) -> None:
        self._machine = machine
        self._joined = joined
        self.most = self.in_objects = self.files = self.unwritten = 0
        self._mapped = self._mapped_most = self._rise = 0
        """Sum of the shared memory that processes map at the last scan, its maximum, and the rise of the machine's."""
        self._reserved = False
        """The tree has shared memory that it does not map yet."""
        self._files_now = 0
        """Best estimate of the tree's unmapped files at the last scan."""
        self._written = None if joined else 0
        """Bytes that the tree wrote to memory by the last scan; `None`: the tree is older, and there was none."""
        self._unclaimed = 0, 0
        """Rise and written bytes of the last scan that did not match."""
        self._unmapped = 0
        """Rise of the machine's shared memory beyond the tree's, at the last scan."""

    def scan(self, members: Collection[Member], new: int, written: int) -> SharedNow:
        """Add a scan.

        Args:
            members: all processes.
            new: gains since the previous scan that are already counted, in bytes.
            written: bytes of the tree's write calls so far, less the bytes that went to disk.
        """
        before, files_before = self.most, self._files_now
        mapped = [member.shmem for member in members if not member.zombie]
        secret = sum(member.secret for member in members if not member.zombie)
        rise = self._machine.shared_rise
        new = min(new, max(0, sum(mapped) - self._mapped))
        if sum(map(bool, mapped)) == 1:  # others map what one of them has filled
            reserved = is_reserved(self._mapped, sum(mapped), rise - self._rise, rise)
            self._reserved = self._reserved or reserved
        self._mapped, self._rise = sum(mapped), rise
        self._mapped_most = max(self._mapped, self._mapped_most)
        self.most = shared_at_tick(self._mapped, self._machine.shared, rise, secret)
        self.in_objects = likely_shared(
            self.most,
            self._mapped,
            None if self._joined else rise,
            self._mapped_most,
            reserved=self._reserved,
        )
        self.files = self._likely_files(written)
        high = max(shared_most(before, self.most, new), before + self.files - files_before)
        return SharedNow(high, min(max(mapped, default=0), rise))

    def _likely_files(self, written: int) -> int:
        """Return the most bytes of the tree's files in memory since the previous scan, and note those at this one."""
        new = 0 if self._written is None else written - self._written
        unmapped = self._machine.shared_rise - self.in_objects
        risen, self._unmapped, self._written = unmapped - self._unmapped, unmapped, written
        # The machine is read after the write calls: a sample may have the rise, and the next one the call.
        early_rise, early_calls = self._unclaimed if risen > 0 else (0, 0)
        if self._mapped_most:  # else it is another program's
            self.unwritten = max(self.unwritten, risen - max(0, new))
        before = self._files_now
        self._files_now = now = likely_files(before, risen + early_rise, new + early_calls)
        self._unclaimed = (
            max(0, min(risen, risen + early_rise - now + before)),
            max(0, min(new, new + early_calls - now + before)),
        )
        return files_with_deleted(before, now, new)


class OutsideMemory:
    """Detection of memory that entered the tree without a page fault of its processes, and its bytes.

    An example is userfaultfd. Visible memory of this kind counts as gained (`beyond_ledger`), or the page faults bound
    nothing any more (`is_outside_ledger`). Both rules are in `truth.outside_faults`. `uncounted`: the kernel does not
    count huge pages of a size in use.
    """

    def __init__(self, *, uncounted: bool) -> None:
        self.broken = ProcessNote.OUTSIDE_LEDGER if uncounted else None
        """Reason why page faults no longer bound the memory; `None`: they do."""
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
            self.broken = ProcessNote.PINNED
        if before is not None and is_outside_ledger(before, held, new, error):
            self.broken = self.broken or ProcessNote.OUTSIDE_LEDGER
