"""Bounds of the memory that a tree needs, from page faults and resident private memory, for runs without a cgroup.

The upper bound is one sum for the tree (`truth.faults`: `gained`, `tree_kept`):

* The tree never had more than its memory at the previous scan plus the gains since.
* At a scan it has no more than its processes hold together (`memory_scan` defines the moments), with what they are
  releasing.

`families` has the lower bound and the best estimate, `shared_memory` the memory that processes share, `outside_memory` the
memory that no page fault brought.

Discovery misses a child born during a sample. The child may hold pages that its parent has released since. So the pids
assigned during the sample are probed, until no pid is assigned during a probe: then all processes have been read. The
child's faults and memory count. If births never pause, memory held bounds nothing at that scan.
"""

from __future__ import annotations

import math
import os
import time

from otel_memwatch.monitor.sampling.sources.process_tree.allocations import Allocations
from otel_memwatch.monitor.sampling.sources.process_tree.families import Families, gained_before_end
from otel_memwatch.monitor.sampling.sources.process_tree.lone_process import LoneEnd, LoneProcess
from otel_memwatch.monitor.sampling.sources.process_tree.member import own_faults
from otel_memwatch.monitor.sampling.sources.process_tree.memory_scan import MemoryScan, is_releasing
from otel_memwatch.monitor.sampling.sources.process_tree.shared_memory import OutsideMemory, SharedMemory
from otel_memwatch.runtime.kernel import (
    PAGE_SIZE,
    counter_error,
    has_thread_counters,
    processors,
    read_once,
    sum_known,
)
from otel_memwatch.runtime.procfs.process import parse_swapped
from otel_memwatch.runtime.procfs.sums import sums_are_exact
from otel_memwatch.runtime.procfs.walks import walked
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.truth.faults import certainly_there, gained, most_in_release, tree_kept
from otel_memwatch.truth.kernel_memory import likely_of_tasks
from otel_memwatch.truth.process import sum_error
from otel_memwatch.truth.tree_estimates import likely_burst, likely_left

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from otel_memwatch.model import ProcessNote
    from otel_memwatch.monitor.sampling.repeated import WatchedFile
    from otel_memwatch.monitor.sampling.sources.process_tree.member import Member
    from otel_memwatch.monitor.sampling.sources.process_tree.memory_scan import MemberReading
    from otel_memwatch.runtime.procfs.process import FirstThread, Stat
    from otel_memwatch.runtime.procfs.system import AllocationCounters

UNKNOWN = 1 << 62
"""Placeholder for an unknown number of bytes, larger than any real value."""

_REST_SECONDS = 0.09
"""Longest time between two readings of the machine's counts while the tree does not change; one takes 25 us. Shared memory
that other programs release meanwhile, and the tree takes at once, would be missing."""

_LATE = 1e-3
"""Seconds after which counts of the machine no longer belong to the readings of the processes."""


class NeededNow(NamedTuple):
    """Bounds of one sample, in bytes; `None`: unknown."""

    low: int | None
    """Certainly resident at one moment of the sample."""
    high: int | None
    """Certainly not exceeded since the previous sample, except by gains of processes that no later sample saw."""
    estimate: int | None
    """Best estimate since the previous sample."""
    left: int = 0
    """The most that the tree can have in huge pages that no process maps, included in `high`."""


class BornInScan(NamedTuple):
    """Reading of a process of the tree that was born since the discovery."""

    stat: Stat
    held: int | None
    """Bytes of private memory, in swap too; `None`: unknown."""


class LateBirths(NamedTuple):
    """Processes of the tree born since the discovery."""

    processes: list[BornInScan]
    complete_at: float | None
    """Monotonic seconds at which no other process of the tree existed; `None`: perhaps there always was one."""


class TickFindings(NamedTuple):
    """Findings of the earlier steps of the same sample."""

    came_or_went: bool
    """A process was seen for the first time, or has ended."""
    unseen_faults: int | None
    """Page faults of unseen processes, and of known ones after their last reading; `None`: unknown."""
    reported_before: int
    """The `unseen_faults` of the last scan."""
    may_be_before: bool
    """Faults reported now may precede the end of that scan."""
    late: Callable[[], LateBirths]
    """Returns the processes born since the discovery."""
    written: int
    """Bytes of the tree's write calls so far, less the bytes that went to disk."""
    awaits: bool = False
    """The supervisor has yet to report faults of ended processes. A later scan's bound covers this window too."""
    unfreed: int = 0
    """Best estimate of the kernel memory that ended processes still occupy, in bytes."""
    unobserved: int = 0
    """The most processes since the last scan that no scan saw."""


class _Gains(NamedTuple):
    """Bytes that the tree can have gained since the previous scan."""

    known: int
    """Gains of members, and of ended processes that we waited for, huge pages included."""
    unseen: int
    """Gains of processes that no scan saw, and of known ones after their last reading. Another process waited for them."""
    late: int
    """Gains of processes born during the sample. The next scan counts them again."""

    @property
    def all(self) -> int:
        """Return the sum."""
        return self.known + self.unseen + self.late


class FaultLedgerBounds:
    """Bounds of one tree.

    A sample costs 15 us and about 8 us for each process. A new process costs 5 us for each member of its family.

    Args:
        proc, sys: mount points of these file systems.
        root: pid of the target.
        joined: the tree existed before the run, so it has pages from earlier page faults.
        allocated_before: allocations of the machine before the tree started; `None`: unknown.
    """

    def __init__(
        self,
        proc: str,
        sys: str | os.PathLike[str],
        root: int,
        *,
        joined: bool,
        allocated_before: AllocationCounters | None = None,
    ) -> None:
        self._machine = Allocations(proc, sys, allocated_before)
        self._root = root
        self._joined = joined
        self._cpus = processors()
        self._thread_counters = has_thread_counters(os.uname().release)
        self._exact_sums = sums_are_exact()
        self._merges_pages = _merges_pages(sys)
        self._memory = MemoryScan(proc, joined=joined)
        self._families = Families()
        self._outside = OutsideMemory(uncounted=self._machine.uncounted)
        self._ended_new = 0
        """Gains of ended processes since the previous scan."""
        self._faults_at_end = self._likely = 0
        """Page faults of ended processes after the last scan; best estimate of the memory at that scan, in bytes."""
        self._private = 0
        """Upper bound of the tree's private memory at the end of the last scan."""
        self._before = 0
        """Bound of the last scan's window."""
        self._cut_short = False
        """A process ended during that scan."""
        self._huge_unknown = self._machine.since_unknown and not joined
        """Huge pages of the tree before the first reading are unknown."""
        self._huge_so_far = self._huge_by_faults = self._huge_collapsed = 0
        """Bytes of huge pages that the machine has allocated: all, and since the last scan began from faults or collapsed."""
        self._huge_if_late = 0
        """Bytes of huge pages from faults in the last window, if no process came or went, without those during its scan."""
        self.shared = SharedMemory(self._machine, joined=joined)
        self._kernel = self.tasks = 0
        """Page tables and kernel stacks as of the last scan, and the best estimate of the kernel's other memory for tasks."""
        self.left = 0
        """Best estimate of the huge pages' parts that no process maps, as of the last scan."""
        self._has_huge = False
        """A process gained more memory than single pages of its page faults, so the tree has huge pages."""
        self._lone = LoneProcess(joined=joined)
        self._last: NeededNow | None = None
        self._resting = False
        """No process changed in the last sample."""
        self._opened_at = -math.inf
        """Time of the last reading of the machine's counts."""

    @property
    def broken(self) -> ProcessNote | None:
        """Return the reason why page faults no longer bound the memory; `None`: they do."""
        return self._outside.broken

    @property
    def kept(self) -> int:
        """Return the upper bound of the tree's bytes at the end of the last scan."""
        return self._private + self.shared.most + self._kernel

    # -- before a scan

    def ended(
        self, pid: int, faults: int | None, own_peak: int | None, thread: FirstThread | None = None
    ) -> LoneEnd | None:
        """Count the gains of a process that we waited for.

        Args:
            pid: its pid.
            faults: its page faults without children; `None`: unknown.
            own_peak: wait4's maximum in bytes, if it belongs to this process; `None`: it waited for children.
            thread: its only thread; `None`: perhaps there were others.
        """
        if faults is None:
            self._ended_new += UNKNOWN
            return None
        space = self._memory.known_or_departed(pid)
        self._ended_new += gained(max(0, faults - (space.base if space else 0)), page=PAGE_SIZE)
        if space is not None and self._memory.known(pid) is space:
            self._faults_at_end += max(0, faults - space.base)
        if own_peak is not None:
            if space is not None and self._memory.is_ours(space):
                space = None
            self._ended_new += self._outside.at_end(
                space, own_peak, faults, self._huge_so_far, self._error(threads=1)
            )
        if pid != self._root or own_peak is None or thread is None or self.broken:
            return None
        return self._lone.ended(self._machine, thread.migrations)

    def vanished(self, pid: int, faults: int) -> None:
        """Count the gains of a vanished process; a process of the tree has inherited its `faults`.

        Its faults since the last scan are in no other figure: the inherited faults are reported without those that were read.
        """
        space = self._memory.known(pid)
        self._ended_new += gained(max(0, faults - (space.base if space else 0)), page=PAGE_SIZE)
        if space:
            self._faults_at_end += max(0, faults - space.base)

    def open(self, now: float, *, at_once: bool) -> bool:
        """Begin a sample: read the counts of the machine. Raises `OSError` without /proc.

        While the tree does not change, they are read ten times a second. Return `False` if they are not read: then open again
        with `at_once` if the tree has changed, and read its members after that.
        """
        if not at_once and self._resting and now < self._opened_at + _REST_SECONDS:
            return False
        self._opened_at = now
        self._count_huge()
        self._machine.begin_window()
        return True

    def _count_huge(self) -> int:
        """Count the huge pages allocated since the last reading. Return their bytes."""
        self._machine.read()
        self._huge_by_faults += self._machine.faulted
        self._huge_collapsed += self._machine.collapsed
        found = self._machine.faulted + self._machine.collapsed
        self._huge_so_far += found
        return found

    def files_at_rest(self) -> tuple[WatchedFile, ...] | None:
        """Return the file of the machine's counts, which `open` reads while the tree rests; `None`: it reads more, or at once."""
        file = (
            None
            if not self._resting
            else self._machine.watched(self._opened_at + _REST_SECONDS, _REST_SECONDS)
        )
        return None if file is None else (file,)

    def note_repeated(self, content: bytes) -> None:
        """Note that the machine's shared memory has not changed since; `content`: the file of its counts at the last reading."""
        self._machine.note_repeated(content)

    def unchanged(self) -> NeededNow | None:
        """Return the bounds of a sample before which no process has changed; `None`: there was no scan yet.

        Nothing was gained since the last scan. So the tree had at most what it had at the end of that scan. The scan's own
        bound covers the time before too, with memory that was released before its end.
        """
        self._resting = True
        last = self._last
        if last is not None and last.high is not None and last.high > self.kept and not self._cut_short:
            self._last = last._replace(high=self.kept)
        return self._last

    def allocated(self) -> int | None:
        """Return the base pages that the machine has allocated since the previous sample began; `None`: unknown."""
        return None if self._machine.swaps else self._machine.pages_of_window()

    # -- a scan

    def scan(self, members: Mapping[int, Member], found: TickFindings) -> NeededNow:
        """Read all members and bound the memory that the tree needs. Raises `OSError` without /proc."""
        self._resting = False
        being_read = walked()
        readings, cut_short = self._memory.read(members)
        late = found.late()
        born = late.complete_at is None or late.processes != []
        came_or_went = found.came_or_went or born or cut_short or self._ended_new > 0
        quiet = not came_or_went and found.unseen_faults == 0 and not found.awaits
        huge_in_scan = self._count_huge()
        counted_late = late.complete_at is None or time.monotonic() - late.complete_at > _LATE
        gains = self._gains(readings, found.unseen_faults, late.processes, quiet=quiet)
        held, released, beyond = self._add_members(readings, huge_in_scan, gains.all)
        held = sum_known((held, self._held_by_born(late)))
        released += sum(UNKNOWN for one in late.processes if is_releasing(one.stat))
        if held is not None and released:
            unfreed = None if counted_late else self._machine.unfreed()
            held += released if unfreed is None else min(released, unfreed)
        before_end = self._before_end(members, readings, found)
        burst = self._judge(readings, UNKNOWN if found.awaits else gains.all, beyond)
        gains = gains._replace(known=gains.known + beyond)
        shared = self.shared.scan(members.values(), gains.all, found.written)
        # Nothing counts page tables between two scans: the larger of both holds.
        kernel_before = self._kernel
        self._kernel, kernel_low = self._families.kernel_memory(self._memory, readings)
        ours = [r for r in readings if not r.empty and not self._memory.is_ours(r.space)]
        self._lone.scanned(ours, shared.high + max(kernel_before, self._kernel))
        self.tasks = found.unfreed + likely_of_tasks(len(ours), sum(r.member.stat.threads for r in ours))
        high = self._private + gains.known + gains.late + shared.high + max(kernel_before, self._kernel)
        kept_by_us = (being_read | walked()).difference(r.member.pid for r in readings if not r.empty)
        held = None if kept_by_us else held
        left = self._machine.left_of_huge_pages()
        self._private = self._kept(gains._replace(unseen=UNKNOWN) if found.awaits else gains, held, left)
        known_now = self._memory.joining and held is not None
        if known_now or found.awaits:
            # Memory from before the run, or from faults that are not reported yet, belongs to this window.
            self._memory.joining = self._memory.joining and not known_now
            high = max(high, self.kept)
        # Faults reported now may belong to the previous window. Its bound includes these and those reported then.
        before, self._before = self._before, high
        if self._cut_short or found.may_be_before:
            high = max(high, before + gained(found.reported_before, page=PAGE_SIZE) + self._ended_new)
            if found.awaits:
                self._before = high
        # Pages of the tree may have been in swap before we attached. A page that returns from swap may be shared.
        low = self._families.low(trusted=not self._joined and not self._machine.swaps)
        # The bound lacks the memory from before the run until that is known.
        estimate = min(self._families.estimate(), UNKNOWN if self._memory.joining else self._private)
        # Other programs' huge pages may be the ones of which a part was freed.
        self.left = likely_left(left, self._private - estimate) if self._has_huge else 0
        self._memory.close(members)
        self._cut_short = cut_short
        self._ended_new = self._faults_at_end = 0
        # A process may have got a huge page after its reading: it is not in its memory, and belongs to the next window too.
        self._huge_by_faults, self._huge_collapsed = self._machine.faulted, self._machine.collapsed
        self._likely = (
            estimate + self.left + self.shared.in_objects + self.shared.files + self._kernel + self.tasks
        )
        unknown = self.broken or self._memory.joining or found.unseen_faults is None or high >= UNKNOWN
        self._last = NeededNow(
            None if self._merges_pages else low + shared.low + kernel_low,
            None if unknown else high,
            max(self._likely + burst, before_end),
            left,
        )
        return self._last

    def _before_end(
        self, members: Mapping[int, Member], readings: list[MemberReading], found: TickFindings
    ) -> int:
        """Return the best estimate of the tree's memory before processes ended, in bytes; 0: none gained any since the last scan."""
        faults = found.unseen_faults
        grown = gained_before_end(
            readings,
            self._memory.gone(members),
            None if found.unobserved or faults is None else self._faults_at_end + faults,
            self._huge_by_faults if self._has_huge else 0,
        )
        return self._likely + grown if grown else 0

    def _gains(
        self, readings: list[MemberReading], unseen: int | None, late: list[BornInScan], *, quiet: bool
    ) -> _Gains:
        """Return the gains since the previous scan, without those of `OutsideMemory`.

        `quiet`: the tree has the same processes as at the previous scan.
        """
        faults = sum(reading.new_faults for reading in readings)
        huge = self._huge_by_faults
        if quiet:
            # The tree has at most one huge page from each of its page faults. If a process came and went, and its faults
            # are reported at the next scan, all belong to that window too.
            self._huge_if_late = huge - self._machine.faulted
            huge = min(huge, faults * self._machine.huge_page)
        else:
            huge, self._huge_if_late = huge + self._huge_if_late, 0
        if self._huge_unknown:
            huge, self._huge_unknown = UNKNOWN, False
        return _Gains(
            gained(faults, huge + self._huge_collapsed, page=PAGE_SIZE) + self._ended_new,
            UNKNOWN if unseen is None else gained(unseen, page=PAGE_SIZE),
            gained(sum(own_faults(one.stat) for one in late), page=PAGE_SIZE),
        )

    def _held_by_born(self, late: LateBirths) -> int | None:
        """Return an upper bound of the private memory of all processes born since the discovery; `None`: unknown."""
        if late.complete_at is None:
            return None
        return sum_known(sum_known((one.held, self._uncertain(one.stat.threads))) for one in late.processes)

    def _uncertain(self, threads: int) -> int:
        """Return the bytes that a process may have beyond a reading of its private memory."""
        # A thread in the middle of a page fault maps its page later: no counter includes that page yet.
        return (0 if self._exact_sums else self._error(threads)) + PAGE_SIZE * threads

    def _add_members(
        self, readings: list[MemberReading], huge_in_scan: int, new: int
    ) -> tuple[int | None, int, int]:
        """Add all readings to the families.

        Args:
            readings: readings of all members, parents first.
            huge_in_scan: bytes of huge pages allocated during the scan.
            new: bytes that the tree can have gained since the previous scan.

        Returns:
            Upper bound of the private memory that all members hold; `None`: unknown.
            Bytes that they may be releasing.
            Bytes of their high-water marks that no known source explains.
        """
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
                self._huge_so_far,
                self._huge_by_faults,
                self._private + new if at_birth is None else at_birth,
                self._error(reading.member.stat.threads),
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
        huge = min(self._huge_by_faults, faults * self._machine.huge_page) + self._huge_collapsed
        return most_in_release(high, before, gained(faults, huge, page=PAGE_SIZE))

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
        scanned = gained(faults, min(huge_in_scan, faults * self._machine.huge_page), page=PAGE_SIZE)
        inexact = 0 if self._exact_sums else self._error(member.stat.threads)
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

    def _judge(self, readings: list[MemberReading], new: int, beyond: int) -> int:
        """Detect memory outside the ledger, and end the scan of each process.

        Args:
            readings: readings of all members.
            new: bytes that the tree can have gained since the previous scan by page faults.
            beyond: further bytes of high-water marks. A new process may have them from another one.

        Returns:
            The largest rise of a high-water mark above the memory that its process holds now, in bytes.
        """
        burst = 0
        shared = max(self.shared.most, self._machine.shared_rise)
        for reading in readings:
            member, space, held = reading.member, reading.space, reading.held
            if held is not None and not reading.empty:
                before, threads = space.held, member.stat.threads
                if reading.fresh:
                    known = not self._memory.joining and not self._has_foreign_memory(reading)
                    before = self._private + beyond if known else None
                gained_since = new + PAGE_SIZE * threads
                alone = gained(reading.new_faults, page=PAGE_SIZE) + PAGE_SIZE * threads
                self._has_huge |= before is not None and held > before + alone
                self._outside.judge(reading, held, before, gained_since, 2 * self._error(threads))
                mark = member.watermark.last or 0
                apart = not member.shares_memory and not self._memory.is_ours(space)
                if held and mark > max(space.mark, self._earlier_mark(reading)) and apart:
                    likely = likely_burst(
                        mark,
                        held,
                        member.file or 0,
                        shared if member.shmem or space.shared else 0,
                        gained(reading.last, page=PAGE_SIZE),
                        huge=self._huge_by_faults + self._huge_collapsed,
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

    def _error(self, threads: int) -> int:
        """Return the uncertainty of a process's readings, in bytes.

        A high-water mark may be off by more. If it is too high, bytes without a cause widen the bounds, so they stay true.
        """
        error = counter_error(threads, self._cpus, per_thread=self._thread_counters)
        return sum_error(error, exact=self._exact_sums)

    def _kept(self, gains: _Gains, held: int | None, left: int) -> int:
        """Return the upper bound of private memory at the end of this scan.

        Args:
            gains: since the previous scan.
            held: the members' sum; `None`: unknown.
            left: bytes of huge pages that no process maps.
        """
        if held is not None and self._memory.joining:
            return held + left  # from page faults before the run
        return tree_kept(self._private, gains.known + gains.unseen, held, left)

    # -- between scans

    def new_elsewhere(self, faults: int) -> tuple[int, int]:
        """Return bytes of the machine that may be the tree's, after so many page faults of the tree since the last scan.

        The first are those of shared memory above its maximum at all scans: a file may go soon. The second are huge pages.
        """
        shared, faulted, collapsed = self._machine.since_read()
        huge = min(self._huge_by_faults + faulted, faults * self._machine.huge_page)
        return max(0, shared), huge + self._huge_collapsed + collapsed

    def scanned(self, pid: int) -> tuple[int, int]:
        """Return page faults and private bytes of a process at the last scan; zeros: not read."""
        space = self._memory.known(pid)
        return (0, 0) if space is None else (space.base, space.held or 0)

    def close(self) -> None:
        """Close the files."""
        self._machine.close()


def _merges_pages(sys: str | os.PathLike[str]) -> bool:
    """Return whether KSM merges equal pages. Then several families may share one page."""
    try:
        return read_once(f"{sys}/kernel/mm/ksm/run").strip() == b"1"
    except OSError:
        return False
