"""Bounds of the memory that a tree needs, from page faults and resident private memory, for runs without a cgroup.

The rules and their reasons are in `truth.faults`: `gained`, `family_kept`, `family_most`, `certainly_there`, `own_pages`
and `family_there`. This module reads for them at every sample, and the order of the readings defines three moments:

    sample:  stat of all (first) ... new processes ... | t |  statm of all  | b |  stat of all (last)  last pid

* At `t` every process has been read exactly once. Its memory in statm, less its page faults since, was resident at `t`,
  for all processes at once.
* Of its memory at `t`, a process's own pages are those beyond the minimum that earlier samples read.
* At `b` a family has no more pages than its members hold. All later gains are among the faults since `first`.
* The bound of a window reaches from one sample's `b` to the next, and counts all faults up to `last`.

Two kinds of processes need special care:

* Discovery misses a child born during a sample. The child may hold pages that its parent has released since. So the pids
  assigned during the sample are probed: the child's faults count, and memory held by others bounds nothing at that sample.
* A process that ended unseen may have left pages to its children. These count outside the families until all processes
  are known.
"""

from __future__ import annotations

import os
import resource
from collections import deque

from otel_memwatch.monitor.sampling.sources.process_tree.allocations import Allocations
from otel_memwatch.monitor.sampling.sources.process_tree.files import read_once
from otel_memwatch.monitor.sampling.sources.process_tree.member import own_faults
from otel_memwatch.runtime.kernel import (
    PAGE_SIZE,
    counter_error,
    has_thread_counters,
    parse_release,
    processors,
)
from otel_memwatch.runtime.procfs import address_spaces
from otel_memwatch.runtime.procfs.process import parse_pinned, parse_stat, parse_swapped
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.truth.estimates import frees_memory, likely_of_family, likely_of_member
from otel_memwatch.truth.faults import (
    certainly_there,
    family_kept,
    family_most,
    family_there,
    gained,
    own_pages,
)
from otel_memwatch.truth.outside_faults import beyond_ledger, is_outside_ledger, shared_at_tick, shared_most

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping
    from pathlib import Path

    from otel_memwatch.monitor.sampling.sources.process_tree.member import Member
    from otel_memwatch.runtime.procfs.system import Allocated

EXACT_SUMS = (6, 16)
"""First Linux release with exact sums of the per-CPU counters in statm."""
SCANS_BELIEVED = 16
"""Scans that may use a watermark before the event of its reset arrives, on a busy machine."""
MOST_APART = 32
"""Members per family with compared address spaces: each pair once, at 5 us."""
WORTH_COMPARING = 1 << 20
"""Minimum private memory, in bytes, to compare a process."""
UNKNOWN = 1 << 62
"""Placeholder for an unknown number of bytes, larger than any real value."""


class NeededNow(NamedTuple):
    """Bounds of one sample, in bytes; `None`: unknown."""

    low: int | None
    """Certainly resident at one moment of the sample."""
    high: int | None
    """Certainly not exceeded since the previous sample, except by gains of processes that no later sample saw."""
    estimate: int | None
    """Best estimate since the previous sample."""


class TickFindings(NamedTuple):
    """Findings of the earlier steps of the same sample."""

    born: bool
    """A process was seen for the first time."""
    gone: bool
    """A process has ended."""
    unseen_faults: int | None
    """Page faults of unseen processes, and of known ones after their last reading; `None`: unknown."""
    reset: Container[int]
    """Processes with a watermark that another program was seen to reset."""
    newly_reset: bool
    """One of these resets was noticed since the last scan."""
    told_before: int
    """The `unseen_faults` of the last scan."""
    may_be_before: bool
    """Faults reported now may precede the end of that scan."""
    orphans: bool
    """Unseen processes became our children and ended, so their parents are unknown."""
    late: Callable[[], list[int] | None]
    """Returns the page faults of each process born since the discovery; `None`: too many to probe."""


class _ProcessState:
    """One process in one address space, as of the previous sample."""

    __slots__ = (
        "base",
        "children",
        "family",
        "held",
        "is_reset",
        "least",
        "least_at",
        "mark",
        "most",
        "reading",
        "seen_at",
    )

    def __init__(self, family: int, base: int, scan: int) -> None:
        self.family = family
        self.seen_at = self.least_at = scan
        """Number of the first scan that saw it, and of the scan with the minimum reading."""
        self.least: int | None = None
        """Minimum of its private memory in bytes; `None`: not read yet."""
        self.most = 0
        """Maximum of its private memory in bytes."""
        self.base = base
        """Page fault count up to which its gains are in its family's pages."""
        self.children: tuple[int, int] | None = None
        """Page faults, minor and major, inherited from its children at the last reading."""
        self.held: int | None = None
        """Bytes of private memory; `None`: unknown."""
        self.mark = 0
        """Its watermark."""
        self.is_reset = False
        """Another program resets its watermark, which then does not reach back to the previous sample."""
        self.reading: _StatusReading | None = None
        """Last reading of its watermark; `None`: none yet."""


class _StatusReading(NamedTuple):
    """A reading of a process's status, with the values just before it. Sizes are bytes."""

    data: bytes
    rss: int
    mapped: int
    """Files and shared memory."""
    faults: int
    huge: int
    """Huge pages that the machine had allocated until then."""


class _OwnedPages(NamedTuple):
    """Certain memory of a family's member at the moment `t`, in bytes."""

    pid: int
    holder: _ProcessState
    whole: int
    """All of its pages."""
    own: int
    """Pages that certainly belong to it alone."""
    gained: int
    """Upper bound of the pages from its page faults."""


class _Family:
    """Processes that descend from each other by fork without an exec. Sizes are bytes."""

    __slots__ = (
        "all_known", "apart", "before", "compared", "gives_back", "held", "kept", "largest", "members", "most", "new", "owns",
        "resident", "same", "watermarks",
    )  # fmt: skip

    def __init__(self) -> None:
        self.apart: list[int] = []
        """Members with pairwise different address spaces."""
        self.compared: set[int] = set()
        """Members already checked for a shared address space."""
        self.kept = 0
        """Its private pages at the previous sample."""
        self.resident = 0
        """Largest private memory of a member; `before`: at the previous sample."""
        self.gives_back = False
        """A member was seen to release memory."""
        self.begin()

    def begin(self) -> None:
        """Begin a sample."""
        self.members = 0
        """Number of members with an address space."""
        self.new = 0
        """Gains of its members since the previous sample."""
        self.held = 0
        """Sum of its members' private memory; `all_known`: it includes every member."""
        self.all_known = True
        self.watermarks = 0
        """Sum of its members' watermarks; `same`: it includes every member, and none has changed since the previous sample."""
        self.same = True
        self.largest = 0
        """Largest certain memory of one member at the moment `t`."""
        self.owns: list[_OwnedPages] = []
        """Certain memory of each member at the moment `t`."""
        self.most = 0
        """Largest certain memory of one member at its reading."""
        self.before, self.resident = self.resident, 0


class _MemberReading(NamedTuple):
    """Readings of one process in one sample."""

    member: Member
    holder: _ProcessState
    fresh: bool
    """It was not in this address space at the previous sample."""
    held: int | None
    first: int
    last: int
    children: tuple[int, int]
    """Page faults, minor and major, inherited from its children when `last` was read."""

    @property
    def empty(self) -> bool:
        """Return whether it has lost its address space: it is a zombie or about to become one."""
        return self.member.zombie or (self.held == 0 and not self.member.stat.stack)


class FaultLedgerBounds:
    """Bounds of one tree.

    A sample costs 15 us and about 8 us for each process. A new process costs 5 us for each member of its family.

    Args:
        proc, sys: mount points of these file systems.
        root: pid of the target.
        marks_operations: returns whether a process resets its watermark itself.
        joined: the tree existed before the run, so it has pages from earlier page faults.
        allocated_before: allocations of the machine before the tree started; `None`: unknown.
    """

    def __init__(
        self,
        proc: str,
        sys: Path,
        root: int,
        marks_operations: Callable[[int], bool],
        *,
        joined: bool,
        allocated_before: Allocated | None = None,
    ) -> None:
        self._machine = Allocations(proc, sys, allocated_before)
        self._root = root
        self._marks_operations = marks_operations
        self._joining = self._joined = joined
        self._scans = 0
        self._cpus = processors()
        release = os.uname().release
        self._thread_counters = has_thread_counters(release)
        self._exact_sums = parse_release(release) >= EXACT_SUMS
        self._own_stack = parse_stat(read_once(f"{proc}/self/stat")).stack
        """Address of our stack. Before its exec the target has our memory, which does not belong to the tree."""
        self._merges_pages = _merges_pages(sys)
        self._holders: dict[int, _ProcessState] = {}
        self._families: dict[int, _Family] = {}
        self._ended_new = 0
        """Gains of ended processes since the previous sample."""
        self._unclaimed = 0
        """Gains of ended processes that their children may hold, since all processes were last known."""
        self._calm = False
        """No process was born during the previous sample."""
        self._before = 0
        """Bound of the last scan's window."""
        self._cut_short = False
        """A process ended during that scan."""
        self._first = True
        self._huge_so_far = 0
        """Bytes of huge pages that the machine has allocated since the first reading."""
        self._most_mapped = 0
        """Maximum of a process's resident files and shared memory, in bytes."""
        self._floor = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        """Our own peak in bytes. wait4's maximum of a process that we started may be inherited from it."""
        self._shared = 0
        self._mapped = 0
        """Sum of the shared memory that processes map. The rest of the machine's rise may belong to other programs."""
        self._by_faults = self._collapsed = 0
        """Bytes of huge pages from page faults, and of collapsed ones, since the last scan."""
        self.kept = 0
        """Upper bound of the tree's bytes at the end of the last scan."""
        self._told: NeededNow | None = None
        self._left: set[int] = set()
        """Families that a member has left by an exec since the previous sample: their watermarks no longer cover it."""
        self._reset: Container[int] = ()
        """Processes with a watermark that another program was seen to reset."""
        self._unmarked: deque[int] = deque(maxlen=SCANS_BELIEVED)
        """Bounds of the last scans without watermarks."""
        self._departed: dict[int, _ProcessState] = {}
        """Processes that vanished by the last sample. Their final page faults may still be reported."""
        self.broken = "huge pages that the kernel does not count" if self._machine.uncounted else ""
        """Reason why page faults no longer bound the memory, in words; empty: they do."""

    def ended(self, pid: int, faults: int | None, own_peak: int | None) -> None:
        """Count the gains of a process that we waited for.

        Args:
            pid: its pid.
            faults: its page faults without children; `None`: unknown.
            own_peak: wait4's maximum in bytes, if it belongs to this process; `None`: it waited for children.
        """
        holder = self._holders.get(pid) or self._departed.get(pid)
        if faults is None:
            self._ended_new += UNKNOWN
            return
        base = 0 if holder is None else holder.base
        self._ended_new += gained(max(0, faults - base), page=PAGE_SIZE)
        if own_peak is None or own_peak <= self._floor:
            return
        seen = None if holder is None or holder.family == self._own_stack else holder.reading
        before, at, huge, mapped = 0, 0, 0, self._most_mapped
        if seen is not None and holder is not None:
            before, at, huge, mapped = max(seen.rss, holder.mark), seen.faults, seen.huge, 0
        new = gained(max(0, faults - at), self._huge_so_far - huge, page=PAGE_SIZE)
        error = counter_error(1, self._cpus, per_thread=self._thread_counters)
        self._ended_new += beyond_ledger(own_peak, before, new, mapped, error)

    def vanished(self, pid: int, faults: int) -> None:
        """Count the gains of a vanished process; a process of the tree has inherited its `faults`.

        Its faults since the last scan are in no other figure: the inherited faults are reported without those that were read.
        """
        holder = self._holders.get(pid)
        base = 0 if holder is None else holder.base
        self._ended_new += gained(max(0, faults - base), page=PAGE_SIZE)

    def open(self) -> None:
        """Begin a sample. Raises `OSError` without /proc."""
        self._count_huge()

    def _count_huge(self) -> int:
        """Count the huge pages allocated since the last reading. Return their bytes."""
        self._machine.read()
        self._by_faults += self._machine.faulted
        self._collapsed += self._machine.collapsed
        found = self._machine.faulted + self._machine.collapsed
        self._huge_so_far += found
        return found

    def unchanged(self) -> NeededNow | None:
        """Return the result of the previous sample, if no process has changed since; `None`: none yet.

        Then nothing has been gained. The next scan finds released memory: its window begins at the end of the last scan.
        """
        return self._told

    def scan(self, members: Mapping[int, Member], found: TickFindings) -> NeededNow:
        """Read all members and bound the memory that the tree needs. Raises `OSError` without /proc."""
        self._scans += 1
        self._left.clear()
        self._reset = found.reset
        readings, cut_short = self._read(members)
        late = found.late()
        came_or_went = found.born or found.gone or late != [] or cut_short or self._ended_new > 0
        quiet = not came_or_went and found.unseen_faults == 0
        faults = sum(reading.last - reading.holder.base for reading in readings)
        in_scan = self._count_huge()
        by_faults, collapsed = self._by_faults, self._collapsed
        # If no process started or ended, the tree has at most one huge page from each of its page faults.
        huge = (min(by_faults, faults * self._machine.huge_page) if quiet else by_faults) + collapsed
        if self._first and self._machine.since_unknown and not self._joining:
            huge = UNKNOWN  # the number before the first reading is unknown
        self._first = False
        unseen = UNKNOWN if found.unseen_faults is None else gained(found.unseen_faults, page=PAGE_SIZE)
        late_new = UNKNOWN if late is None else gained(sum(late), page=PAGE_SIZE)
        tree_new = gained(faults, huge, page=PAGE_SIZE) + self._ended_new + unseen + late_new

        # A zombie, and a process that executed a program during this sample, may have the family of the program before.
        left_behind = sum(
            reading.last - reading.holder.base
            for reading in readings
            if reading.empty or reading.holder.family == self._own_stack
        )
        elsewhere = self._unclaimed + self._ended_new + unseen + late_new
        elsewhere += gained(left_behind, page=PAGE_SIZE)
        some_fresh = found.born or self._left
        readings_of = {reading.member.pid: reading for reading in readings} if some_fresh else {}
        certain = late == [] and self._calm and found.unseen_faults is not None and not found.orphans
        self._begin_families(self._changed_families(readings, readings_of), certain=certain)
        inherited: dict[int, int | None] = {}
        for reading in readings:
            pid = reading.member.pid
            if reading.fresh:
                inherited[pid] = self._inherited(reading, readings_of, inherited)
            self._enter(reading, in_scan, elsewhere, inherited.get(pid))
        self._judge_families(huge, unseen + late_new)
        low, burst = self._judge(readings, huge, tree_new)
        high, loose, counted = self._close_families(
            self._unclaimed + self._ended_new + late_new, huge, unseen, complete=late == []
        )
        shared, shared_low = self._shared_memory(members, counted + self._ended_new + unseen + late_new)
        guess = sum(map(_likely, self._families.values()))
        high += shared
        self.kept = self._unclaimed + sum(family.kept for family in self._families.values()) + self._shared
        high = self._reaching_back(high, found)
        unmarked = high + loose
        if found.newly_reset:
            high = max([high, *self._unmarked])
        self._unmarked.append(unmarked)
        self._cut_short = cut_short
        self._calm, self._ended_new = late == [], 0
        self._by_faults = self._collapsed = 0
        self._departed = {pid: self._holders.pop(pid) for pid in self._holders.keys() - members.keys()}
        self._told = NeededNow(
            None if self._merges_pages else low + shared_low,
            None if self.broken or self._joining or high >= UNKNOWN else high,
            guess + burst + min(self._shared, self._mapped),
        )
        return self._told

    def _reaching_back(self, high: int, found: TickFindings) -> int:
        """Return the upper bound of this window.

        If faults reported now may belong to the previous window, return the larger of both bounds. The previous bound then
        includes these faults and those reported then.
        """
        before, self._before = self._before, high
        if not (self._cut_short or found.may_be_before):
            return high
        return max(high, before + gained(found.told_before, page=PAGE_SIZE) + self._ended_new)

    def scanned(self, pid: int) -> tuple[int, int]:
        """Return page faults and private bytes of a process at the last scan; zeros: not read."""
        holder = self._holders.get(pid)
        return (0, 0) if holder is None else (holder.base, holder.held or 0)

    # -- reading

    def _read(self, members: Mapping[int, Member]) -> tuple[list[_MemberReading], bool]:
        """Read statm of all, then stat of all. Also return whether one has ended during this."""
        held: list[int | None] = []
        cut_short = False
        for member in members.values():
            size = None
            if not member.zombie:
                try:
                    size = member.read_private()
                except OSError:
                    size, cut_short = 0, True
            held.append(size)
        readings = []
        for member, size in zip(members.values(), held, strict=True):
            stat = member.stat
            try:
                data = member.stat_file.read()
                if data != member.stat_file.last:
                    stat = parse_stat(data)
            except OSError:
                cut_short = cut_short or not member.zombie
            first, last = own_faults(member.stat), own_faults(stat)
            children = stat.child_minor_faults, stat.child_major_faults
            holder, fresh = self._holder(member, size)
            readings.append(_MemberReading(member, holder, fresh, size, first, last, children))
        return readings, cut_short

    def _holder(self, member: Member, held: int | None) -> tuple[_ProcessState, bool]:
        """Return the process in its present address space, and whether that is new."""
        holder = self._holders.get(member.pid)
        if holder is not None:
            same = holder.family == (member.stat.stack or -member.pid)
            if same or member.zombie or (not member.stat.stack and held == 0):
                return holder, False
        base = 0 if holder is None else holder.base
        if holder is not None:
            self._left.add(holder.family)
        if holder is None and self._joining:
            base = own_faults(member.stat)
        new = self._holders[member.pid] = _ProcessState(member.stat.stack or -member.pid, base, self._scans)
        return new, True

    # -- families

    def _begin_families(self, changed: set[int] | None, *, certain: bool) -> None:
        """Begin a sample for all families.

        Families outside `changed` have the same members as before. Without `certain` this holds for none.
        """
        for key, family in self._families.items():
            family.begin()
            family.same = certain and changed is not None and key not in changed

    def _changed_families(
        self, readings: list[_MemberReading], readings_of: Mapping[int, _MemberReading]
    ) -> set[int] | None:
        """Return families with changed members since the last scan, in case of doubt too; `None`: any of them.

        ==========================================  ==========================================================
        a member                                    is detected by
        ==========================================  ==========================================================
        has ended                                   its reading in the last scan
        has executed a program                      its other address space
        was born, with or without an exec since     it is fresh, and its parent belongs to the family
        was born and has ended                      page faults that its parent has inherited; or it is a zombie
        ==========================================  ==========================================================
        """
        present = {reading.member.pid for reading in readings}
        changed = {holder.family for pid, holder in self._holders.items() if pid not in present}
        changed |= self._left
        anyones = False
        for reading in readings:
            holder = reading.holder
            if reading.children != holder.children:
                changed.add(holder.family)
            holder.children = reading.children
            if not reading.fresh:
                continue
            changed.add(holder.family)
            parent = readings_of.get(reading.member.stat.ppid)
            if parent is not None:
                changed.add(parent.holder.family)
            elif reading.member.pid != self._root:
                anyones = True
        return None if anyones else changed

    def _inherited(
        self,
        reading: _MemberReading,
        readings: Mapping[int, _MemberReading],
        so_far: Mapping[int, int | None],
    ) -> int | None:
        """Return an upper bound of the private bytes inherited from the parent at birth; `None`: the parent is unknown.

        It is the parent's memory at the previous sample and its gains since, without siblings. After an exec the process
        has none of it, and its parent is of another family. `so_far` has the results of fresh parents: members follow their
        parents.
        """
        if reading.member.pid == self._root:
            return 0  # it began with an exec
        parent = readings.get(reading.member.stat.ppid)
        if parent is None or self._joining:
            return None
        if parent.holder.family != reading.holder.family:
            return 0
        had = so_far.get(parent.member.pid) if parent.fresh else parent.holder.held
        if had is None:
            return None
        return had + gained(parent.last - parent.holder.base, page=PAGE_SIZE)

    def _enter(self, reading: _MemberReading, huge: int, elsewhere: int, inherited: int | None) -> None:
        """Add the readings of a process to its family.

        Args:
            reading: readings of the process.
            huge: bytes of huge pages allocated during the sample.
            elsewhere: gains in bytes of processes that are no longer visible; their children may hold them.
            inherited: upper bound of the bytes that a fresh process had from its parent at birth; `None`: parent unknown.
        """
        member, holder, fresh, held, first, last, _ = reading
        family = self._families.get(holder.family)
        if family is None:
            family = self._families[holder.family] = _Family()
            family.same = False
        family.new += gained(last - holder.base, page=PAGE_SIZE)
        if reading.empty:
            family.same = False
            return
        family.members += 1
        # A thread in the middle of a page fault maps its page later: no counter includes that page yet.
        in_flight = PAGE_SIZE * member.stat.threads
        error = counter_error(member.stat.threads, self._cpus, per_thread=self._thread_counters)
        if held is None or holder.family in (self._own_stack, -member.pid):
            family.all_known = family.same = False
            return
        inexact = 0 if self._exact_sums else error
        family.most = max(family.most, held - error)
        family.held += held + parse_swapped(member.status_data) + in_flight + inexact
        scanned = gained(last - first, min(huge, (last - first) * self._machine.huge_page), page=PAGE_SIZE)
        there = certainly_there(held - inexact, scanned)
        family.largest = max(family.largest, there)
        if holder.least is None or held < holder.least:
            holder.least, holder.least_at = held, self._scans
        holder.most = max(holder.most, held)
        own = own_pages(there, holder.least, in_flight + inexact)
        family.gives_back = family.gives_back or frees_memory(holder.most, holder.least)
        brought = min(held, gained(last, page=PAGE_SIZE))
        family.owns.append(_OwnedPages(member.pid, holder, there, own, brought))
        watermark = member.watermark
        mark, marked_at = watermark.last, watermark.last_faults
        family.new += self._beyond_faults(reading, family, error, elsewhere, inherited)
        if not fresh and mark is not None and mark < holder.mark - error:
            holder.is_reset = True
        if (
            mark is None
            or fresh
            or holder.is_reset
            or member.pid in self._reset
            or watermark.reset_by_others
            or member.shares_memory
            or marked_at != first
            or self._marks_operations(member.pid)
        ):
            family.same = False
        else:
            family.watermarks += mark + error + in_flight + scanned

    def _beyond_faults(
        self, reading: _MemberReading, family: _Family, error: int, elsewhere: int, inherited: int | None
    ) -> int:
        """Return the rise of a process's watermark since its last reading that no known source explains, in bytes."""
        member, holder, last = reading.member, reading.holder, reading.last
        mark, before, data = member.watermark.last, holder.reading, member.status_data
        others, family.resident = family.resident, max(family.resident, member.rss - member.mapped)
        if mark is None or member.shares_memory or (before is not None and before.data is data):
            return 0
        now = _StatusReading(data, member.rss, member.mapped, reading.first, self._huge_so_far)
        self._most_mapped = max(self._most_mapped, member.mapped)
        holder.reading = now
        if before is None and self._joining:
            return 0
        if before is None:
            # It has the memory of its parent at the fork, or none if it began with an exec.
            own = gained(last - holder.base, page=PAGE_SIZE)
            if inherited is None:
                inherited = max(family.before, others, family.kept) + family.new - own + elsewhere
            before = now._replace(
                rss=inherited, mapped=0, faults=holder.base, huge=now.huge - self._by_faults
            )
        elif mark <= holder.mark:
            return 0
        new = gained(last - before.faults, self._huge_so_far - before.huge, page=PAGE_SIZE)
        return beyond_ledger(mark, before.rss, new, now.mapped - before.mapped, error)

    def _judge_families(self, huge: int, unseen: int) -> None:
        """Find a process with more memory than its whole family can have, including processes new in this sample.

        Args:
            huge: bytes of huge pages allocated since the previous sample.
            unseen: gains in bytes of unseen processes; their children may hold them.
        """
        if self._joining:
            return
        elsewhere = huge + unseen + self._unclaimed + self._ended_new
        for family in self._families.values():
            if is_outside_ledger(family.kept, family.most, family.new + elsewhere, PAGE_SIZE):
                self.broken = self.broken or "memory filled from outside"

    def _judge(self, readings: list[_MemberReading], huge: int, tree_new: int) -> tuple[int, int]:
        """Detect memory outside the ledger. Return the lower bound, and the largest rise of a watermark above it."""
        burst = 0
        for reading in readings:
            member, holder, fresh, held, first, *_ = reading
            if held is not None and not reading.empty:
                error = counter_error(member.stat.threads, self._cpus, per_thread=self._thread_counters)
                in_flight = PAGE_SIZE * member.stat.threads
                if parse_pinned(member.status_data):
                    self.broken = self.broken or "pinned memory"
                if (
                    not fresh
                    and holder.held is not None
                    and is_outside_ledger(holder.held, held, tree_new + huge + in_flight, 2 * error)
                ):
                    self.broken = self.broken or "memory filled from outside"
                mark = member.watermark.last or 0
                if mark > holder.mark and not member.shares_memory and holder.family != self._own_stack:
                    burst = max(burst, mark - (member.file or 0) - member.shmem - held)
                holder.mark = mark
            holder.base, holder.held = first, held
        return self._there(), burst

    def _there(self) -> int:
        """Return the bytes of private memory certainly resident at the moment `t`."""
        low = 0
        for family in self._families.values():
            apart = [own for own in family.owns if own.pid in family.apart]
            # Pages of the tree may have been in swap before we attached. A page that returns from swap may be shared.
            trusted = apart and not self._joined and not self._machine.swaps
            low += _most_there(family.largest, apart) if trusted else family.largest
            _compare(family)
        return low

    def _close_families(self, high: int, huge: int, unseen: int, *, complete: bool) -> tuple[int, int, int]:
        """Update each family's memory. Return the upper bound of private memory since the previous sample.

        Also return how much larger it would be without watermarks, and the families' gains that it includes.

        Args:
            high: bytes that belong to no family.
            huge: bytes of huge pages allocated since the previous sample.
            unseen: gains in bytes of unseen processes.
            complete: every process alive during the readings of memory is known.
        """
        complete = complete and not any(key < 0 and f.members for key, f in self._families.items())
        unclaimed = self._unclaimed + unseen + self._ended_new
        if unseen or self._ended_new:
            unclaimed += huge
        settled = True
        loose, counted = 0, huge
        for key, family in list(self._families.items()):
            watermarks = family.watermarks if family.same and complete else None
            most = family_most(family.kept, family.new, watermarks)
            high += most
            if watermarks is not None:
                loose += family_most(family.kept, family.new, None) - most
            counted += max(0, most - family.kept)
            if not family.members and complete:
                del self._families[key]
                continue
            held = family.held if complete and family.all_known and family.members else None
            new = family.new + min(huge, family.new // PAGE_SIZE * self._machine.huge_page + self._collapsed)
            if held is None:
                settled = False
                family.kept = family_kept(family.kept, new, None)
            elif self._joining:
                family.kept = held  # from page faults before the run
            else:
                family.kept = family_kept(family.kept, new + unclaimed, held)
        self._unclaimed = 0 if settled else unclaimed
        self._joining = self._joining and not settled
        # No watermark bounds huge pages: the rest of a partly released one is charged but not mapped.
        return high + huge, loose, counted

    # -- shared memory

    def _shared_memory(self, members: Mapping[int, Member], new: int) -> tuple[int, int]:
        """Return bytes of shared memory to add to the bound since the previous sample, and bytes certainly resident.

        `new`: gains since the previous sample that are already counted.
        """
        mapped = [member.shmem for member in members.values() if not member.zombie]
        new = min(new, max(0, sum(mapped) - self._mapped))
        self._mapped = sum(mapped)
        before, rise = self._shared, self._machine.shared_rise
        secret = sum(member.secret for member in members.values() if not member.zombie)
        self._shared = shared_at_tick(sum(mapped), self._machine.shared, rise, secret)
        most = shared_most(before, self._shared, new)
        return most, min(max(mapped, default=0), rise)

    def close(self) -> None:
        """Close the files."""
        self._machine.close()


def _most_there(largest: int, members: list[_OwnedPages]) -> int:
    """Return bytes that these members of a family certainly had at once, with the largest or the oldest member in full."""
    for whole in (max(members, key=lambda m: m.whole), min(members, key=lambda m: m.holder.seen_at)):
        own = sum(m.own for m in members if m is not whole and m.holder.least_at >= whole.holder.seen_at)
        largest = max(largest, family_there(whole.whole, own))
    return largest


def _compare(family: _Family) -> None:
    """Find new members with an unshared address space. The result counts from the next scan on.

    Only then the readings certainly belong to this address space: a process between vfork and exec leaves its parent's.
    """
    present = {own.pid for own in family.owns}
    family.compared &= present
    if len(family.compared) == len(present) or len(present) == 1:
        return
    family.apart = [pid for pid in family.apart if pid in present]
    for own in family.owns:
        if own.pid not in family.compared and own.whole >= WORTH_COMPARING and len(family.apart) < MOST_APART:
            family.compared.add(own.pid)
            if all(address_spaces.are_apart(own.pid, other) for other in family.apart):
                family.apart.append(own.pid)


def _likely(family: _Family) -> int:
    """Return the best estimate of a family's bytes. The oldest member is best known; the others were forked."""
    most = family.kept if not family.all_known else min(family.kept, family.held)
    if len(family.owns) < 2 or not family.all_known:
        return most
    oldest = min(family.owns, key=lambda m: m.holder.seen_at)
    others = (
        likely_of_member(
            own.own,
            own.whole,
            own.gained,
            own.holder.least or 0,
            oldest.whole,
            family_frees=family.gives_back,
        )
        for own in family.owns
        if own is not oldest
    )
    return likely_of_family(most, oldest.whole, others)


def _merges_pages(sys: Path) -> bool:
    """Return whether KSM merges equal pages. Then several families may share one page."""
    try:
        return read_once(str(sys / "kernel/mm/ksm/run")).strip() == b"1"
    except OSError:
        return False
