"""Private memory that the processes of the tree hold at a scan, and memory that no page fault of theirs explains."""

from __future__ import annotations

import os

from otel_memwatch.monitor.sampling.sources.process_tree.allocations import UNKNOWN
from otel_memwatch.monitor.sampling.sources.process_tree.memory_scan import is_releasing
from otel_memwatch.runtime.kernel import (
    PAGE_SIZE,
    counter_error,
    has_thread_counters,
    processors,
    sum_known,
)
from otel_memwatch.runtime.procfs.process import parse_swapped
from otel_memwatch.runtime.procfs.sums import sums_are_exact
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.truth.faults import certainly_there, gained, most_in_release
from otel_memwatch.truth.process import sum_error
from otel_memwatch.truth.tree_estimates import likely_burst

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from otel_memwatch.monitor.sampling.sources.process_tree.allocations import HugePages
    from otel_memwatch.monitor.sampling.sources.process_tree.families import Families
    from otel_memwatch.monitor.sampling.sources.process_tree.memory_scan import (
        LateBirths,
        MemberReading,
        MemoryScan,
    )
    from otel_memwatch.monitor.sampling.sources.process_tree.shared_memory import OutsideMemory


class HeldMemory:
    """Private memory of the members, scan by scan.

    Args:
        root: pid of the target.
        memory: readings of the members.
        families: gets the memory of each member.
        outside: finds memory that entered without a page fault.
        huge: huge pages of the machine.

    Attributes:
        have_huge: a process gained more memory than single pages of its page faults, so the tree has huge pages.
    """

    def __init__(
        self,
        root: int,
        memory: MemoryScan,
        families: Families,
        outside: OutsideMemory,
        huge: HugePages,
    ) -> None:
        self._root, self._memory, self._families = root, memory, families
        self._outside, self._huge = outside, huge
        self._cpus = processors()
        self._thread_counters = has_thread_counters(os.uname().release)
        self._exact_sums = sums_are_exact()
        self.have_huge = False

    def scan(
        self,
        readings: Sequence[MemberReading],
        late: LateBirths,
        huge_in_scan: int,
        tree_most: int,
        unfreed: Callable[[], int | None] | None,
    ) -> tuple[int | None, int]:
        """Add all readings to the families.

        Args:
            readings: readings of all members, parents first.
            late: processes born since the discovery.
            huge_in_scan: bytes of huge pages allocated during the scan.
            tree_most: upper bound of the tree's private memory since the previous scan, in bytes.
            unfreed: returns the most bytes that the machine has not freed; `None`: its counts came too late.

        Returns:
            Upper bound of the private memory that all processes hold, with what they are releasing; `None`: unknown.
            Bytes of their high-water marks that no known source explains.
        """
        held, released, beyond = self._add_members(readings, huge_in_scan, tree_most)
        held = sum_known((held, self._held_by_born(late)))
        released += sum(UNKNOWN for one in late.processes if is_releasing(one.stat))
        if held is not None and released:
            most = None if unfreed is None else unfreed()
            held += released if most is None else min(released, most)
        return held, beyond

    def _held_by_born(self, late: LateBirths) -> int | None:
        """Return an upper bound of the private memory of all processes born since the discovery; `None`: unknown."""
        if late.complete_at is None:
            return None
        return sum_known(sum_known((one.held, self._uncertain(one.stat.threads))) for one in late.processes)

    def _add_members(
        self, readings: Sequence[MemberReading], huge_in_scan: int, tree_most: int
    ) -> tuple[int | None, int, int]:
        """Return the private memory that all members hold, what they are releasing, and the unexplained, as `scan`."""
        self._families.begin()
        some_fresh = any(reading.fresh for reading in readings)
        readings_of = {reading.member.pid: reading for reading in readings} if some_fresh else {}
        inherited: dict[int, int | None] = {}
        held_by_all: int | None = 0
        released = beyond = 0
        for reading in readings:
            pid = reading.member.pid
            if reading.fresh:
                inherited[pid] = self._inherited(reading, readings_of, inherited)
            if reading.empty:
                # It still maps all, but /proc no longer reports it.
                held_by_all = sum_known((held_by_all, self._releasing(reading, 0)))
                continue
            if reading.held is None or self._has_foreign_memory(reading):
                self._families.add_unknown(reading)
                held_by_all = None
                continue
            high = self._add_to_family(reading, reading.held, huge_in_scan)
            held_by_all = sum_known((held_by_all, high))
            releasing = self._releasing(reading, high)
            released += UNKNOWN if releasing is None else releasing
            at_birth = inherited.get(pid)
            beyond += self._outside.risen(
                reading,
                self._huge.so_far,
                self._huge.by_faults,
                tree_most if at_birth is None else at_birth,
                self.error(reading.member.stat.threads),
                joining=self._memory.joining,
            )
        return held_by_all, released, beyond

    def _releasing(self, reading: MemberReading, high: int) -> int | None:
        """Return the most private bytes that a process may be releasing at the moment; `None`: unknown.

        `high`: upper bound of those that it maps.
        """
        if not reading.releasing or self._memory.joining or self._memory.is_ours(reading.space):
            return 0
        before = reading.space.left if reading.fresh else reading.space.held
        if before is None:
            return None
        faults = reading.new_faults
        return most_in_release(high, before, gained(faults, self._huge.of(faults), page=PAGE_SIZE))

    def _has_foreign_memory(self, reading: MemberReading) -> bool:
        """Return whether its memory may be another process's: ours before its exec, or it cannot be identified."""
        family = reading.space.family
        return self._memory.is_ours(reading.space) or family == -reading.member.pid

    def _add_to_family(self, reading: MemberReading, held: int, huge_in_scan: int) -> int:
        """Add a member with known memory to its family. Return the upper bound of this memory, in bytes."""
        member, space = reading.member, reading.space
        if space.least is None or held < space.least:
            space.least, space.least_at = held, self._memory.count
        space.most = max(space.most, held)
        faults = reading.last - reading.first
        scanned = gained(faults, min(huge_in_scan, faults * self._huge.size), page=PAGE_SIZE)
        inexact = 0 if self._exact_sums else self.error(member.stat.threads)
        uncertain = self._uncertain(member.stat.threads)
        high = held + uncertain + parse_swapped(member.status_data)
        self._families.add(reading, certainly_there(held - inexact, scanned), high, uncertain)
        return high

    def _inherited(
        self,
        reading: MemberReading,
        readings: Mapping[int, MemberReading],
        so_far: Mapping[int, int | None],
    ) -> int | None:
        """Return an upper bound of the private bytes inherited from the parent at birth; `None`: the parent is unknown.

        It is the parent's memory at the previous scan and its gains since, without siblings. After an exec the process
        has none of it, and its parent is of another family. `so_far` has the results of fresh parents: members follow their
        parents.
        """
        if reading.member.pid == self._root:
            return 0  # it began with an exec
        parent = readings.get(reading.member.stat.ppid)
        if parent is None or self._memory.joining:
            return None
        if parent.space.family != reading.space.family:
            return 0
        had = so_far.get(parent.member.pid) if parent.fresh else parent.space.held
        return None if had is None else had + gained(parent.new_faults, page=PAGE_SIZE)

    def judge(self, readings: Sequence[MemberReading], new: int, tree_before: int, shared: int) -> int:
        """Detect memory outside the ledger, and end the scan of each process.

        Args:
            readings: readings of all members.
            new: bytes that the tree can have gained since the previous scan by page faults.
            tree_before: upper bound of the tree's private memory at the previous scan, with bytes of high-water marks without
                a cause. A new process may have them from another one.
            shared: upper bound of the shared memory that the tree had at the previous scan or has now, in bytes.

        Returns:
            The largest rise of a high-water mark above the memory that its process holds now, in bytes.
        """
        burst = 0
        for reading in readings:
            member, space, held = reading.member, reading.space, reading.held
            if held is not None and not reading.empty:
                before, threads = space.held, member.stat.threads
                if reading.fresh:
                    known = not self._memory.joining and not self._has_foreign_memory(reading)
                    before = tree_before if known else None
                gained_since = new + PAGE_SIZE * threads
                alone = gained(reading.new_faults, page=PAGE_SIZE) + PAGE_SIZE * threads
                self.have_huge |= before is not None and held > before + alone
                self._outside.judge(reading, held, before, gained_since, 2 * self.error(threads))
                mark = member.watermark.last or 0
                apart = not member.shares_memory and not self._memory.is_ours(space)
                if held and mark > max(space.mark, self._earlier_mark(reading)) and apart:
                    likely = likely_burst(
                        mark,
                        held,
                        member.file or 0,
                        shared if member.shmem or space.shared else 0,
                        gained(reading.last, page=PAGE_SIZE),
                        huge=self._huge.since_scan,
                    )
                    burst = max(burst, likely)
                space.mark = mark
            space.base, space.held = reading.first, held
            space.shared = max(space.shared, member.shmem)
        return burst

    def _earlier_mark(self, reading: MemberReading) -> int:
        """Return the high-water mark that a new address space may have from the one before, in bytes.

        The mark is read before the memory. A process that calls exec in between has the memory of its new program, but the
        mark of the old one: a copy of its parent's memory.
        """
        parent = self._memory.known(reading.member.stat.ppid) if reading.fresh else None
        return 0 if parent is None else parent.mark

    def _uncertain(self, threads: int) -> int:
        """Return the bytes that a process may have beyond a reading of its private memory."""
        # A thread in the middle of a page fault maps its page later: no counter includes that page yet.
        return (0 if self._exact_sums else self.error(threads)) + PAGE_SIZE * threads

    def error(self, threads: int) -> int:
        """Return the uncertainty of a process's readings, in bytes.

        A high-water mark may be off by more. If it is too high, bytes without a cause widen the bounds, so they stay true.
        """
        error = counter_error(threads, self._cpus, per_thread=self._thread_counters)
        return sum_error(error, exact=self._exact_sums)
