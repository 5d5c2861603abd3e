"""What the tree needs, bounded at every tick from page faults and resident private memory: where no control group tells.

The rules, and why they hold, are `gained`, `family_kept`, `family_most`, `certainly_there`, `own_pages` and `family_there` of
`certainty`. This module reads for them, in an order from which the moments follow:

    tick:  stat of all (first) ... new processes ... | t |  statm of all  | b |  stat of all (last)  last pid

* At `t` all processes have been read once, and none has been read again: what each holds a little later, less its page
  faults in between, was there at `t`, all at once.
* Of what was there at `t` each process's own pages are those that it has beyond the least that an earlier tick read of it.
* At `b` a family has no more pages than its members hold. Whatever they gain later is among the faults since `first`.
* The bound of a window reaches from one tick's `b` to that of the next, and counts all faults up to `last`.

A child that is born while a tick is taken is missed by its discovery, and may hold pages that its parent has given back
since. So the pids given meanwhile are looked at: the child's faults count, and what the others hold bounds nothing
at that tick. What ended unseen may have left pages to its children: that is kept beside the families until all is known.
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
"""Release since which statm adds up what processors hold back of the counters."""
SCANS_BELIEVED = 16
"""Scans that may have believed a watermark before the kernel tells of its reset, when the process goes on: on a busy machine."""
MOST_APART = 32
"""Members of one family whose address spaces are compared with each other: each pair once, at 5 us."""
WORTH_COMPARING = 1 << 20
"""Bytes of private memory from which on a process is compared."""
UNKNOWN = 1 << 62
"""Bytes that nothing has: in place of what is not known."""


class NeededNow(NamedTuple):
    """What one tick tells, in bytes; `None`: nothing."""

    low: int | None
    """Certainly there at one moment of the tick."""
    high: int | None
    """Certainly not exceeded since the tick before, but for what processes gained that nobody saw afterwards."""
    estimate: int | None
    """The most likely, since the tick before."""


class TickFindings(NamedTuple):
    """What the steps of the tick before this one have found."""

    born: bool
    """A process was seen for the first time."""
    gone: bool
    """A process is no more."""
    unseen_faults: int | None
    """Page faults that unseen processes had, and known ones after they were last read; `None`: not known."""
    reset: Container[int]
    """Processes whose watermark somebody else was noticed to reset."""
    newly_reset: bool
    """One of them was noticed since the last scan."""
    told_before: int
    """The `unseen_faults` of the last scan."""
    may_be_before: bool
    """Those told now may have been before the end of that scan."""
    orphans: bool
    """Processes have become our children and ended, and nobody saw them: whoever was theirs before is not known."""
    late: Callable[[], list[int] | None]
    """Gives the page faults of each process that was born since the discovery; `None`: there are too many to look."""


class _ProcessState:
    """One process in one address space, as it was at the tick before."""

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
        """Number of the scan that saw it first; of the one that read the least of it."""
        self.least: int | None = None
        """Least bytes of private memory that it was read with; `None`: not read yet."""
        self.most = 0
        """Most of these."""
        self.base = base
        """Page faults up to which its gains are in its family's pages."""
        self.children: tuple[int, int] | None = None
        """Page faults, minor and major, that it had inherited of its children when it was read last."""
        self.held: int | None = None
        """Bytes of private memory that it held; `None`: not known."""
        self.mark = 0
        """Its watermark."""
        self.is_reset = False
        """Somebody resets its watermark, which then does not reach back to the tick before."""
        self.reading: _StatusReading | None = None
        """When its watermark was read last; `None`: not yet."""


class _StatusReading(NamedTuple):
    """A reading of a process's status, with what was known just before. Sizes are bytes."""

    data: bytes
    rss: int
    mapped: int
    """Files and shared memory."""
    faults: int
    huge: int
    """Of the huge pages that the machine had allocated until then."""


class _OwnedPages(NamedTuple):
    """What a member of a family certainly had at the moment `t`, in bytes."""

    pid: int
    holder: _ProcessState
    whole: int
    """All of it."""
    own: int
    """Of that, what is its own for certain."""
    gained: int
    """What of it its page faults can have brought."""


class _Family:
    """Processes that descend from each other by fork without an exec. Sizes are bytes."""

    __slots__ = (
        "all_known", "apart", "before", "compared", "gives_back", "held", "kept", "largest", "members", "most", "new", "owns",
        "resident", "same", "watermarks",
    )  # fmt: skip

    def __init__(self) -> None:
        self.apart: list[int] = []
        """Members of which no two run in one address space."""
        self.compared: set[int] = set()
        """Members of which that has been asked."""
        self.kept = 0
        """Its private pages at the tick before."""
        self.resident = 0
        """The largest private memory that one of its members had; `before`: at the tick before."""
        self.gives_back = False
        """One of its members was seen to have had more than it had later."""
        self.begin()

    def begin(self) -> None:
        """Begin a tick."""
        self.members = 0
        """Those that have an address space."""
        self.new = 0
        """What they gained since the tick before."""
        self.held = 0
        """What they hold, summed; `all_known`: of all of them."""
        self.all_known = True
        self.watermarks = 0
        """Their watermarks, summed; `same`: they are the same as at the tick before, and these cover all of them."""
        self.same = True
        self.largest = 0
        """What one of them certainly held at the moment `t`."""
        self.owns: list[_OwnedPages] = []
        """What each of them certainly held at the moment `t`."""
        self.most = 0
        """What one of them certainly holds."""
        self.before, self.resident = self.resident, 0


class _MemberReading(NamedTuple):
    """What one tick reads of a process."""

    member: Member
    holder: _ProcessState
    fresh: bool
    """It was not in this address space at the tick before."""
    held: int | None
    first: int
    last: int
    children: tuple[int, int]
    """Page faults, minor and major, that it had inherited of its children when `last` was read."""

    @property
    def empty(self) -> bool:
        """It has no address space any more: a zombie, or one that is about to be."""
        return self.member.zombie or (self.held == 0 and not self.member.stat.stack)


class FaultLedgerBounds:
    """The bounds of one tree. A tick costs 15 us and about 8 us for each process; one that is new 5 us for each that it is forked with.

    Args:
        proc, sys: where these file systems are mounted.
        root: pid of the target.
        marks_operations: whether a process resets its own watermark.
        joined: whether the tree was there before the run: then it has pages that no page fault in the run has brought.
        allocated_before: what the machine had allocated before the tree was there; `None`: not known.
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
        """Before its exec the target has our memory, which is nothing of the tree's."""
        self._merges_pages = _merges_pages(sys)
        self._holders: dict[int, _ProcessState] = {}
        self._families: dict[int, _Family] = {}
        self._ended_new = 0
        """What processes that we waited for had gained since the tick before."""
        self._unclaimed = 0
        """What processes gained that have ended, and that a child of theirs may have: since all was known last."""
        self._calm = False
        """No process was born while the tick before was taken."""
        self._before = 0
        """The bound of the last scan's window."""
        self._cut_short = False
        """A process ended during that scan."""
        self._first = True
        self._huge_so_far = 0
        """Bytes of huge pages that the machine has allocated since the first reading."""
        self._most_mapped = 0
        """Most bytes of files and shared memory that a process was seen with."""
        self._floor = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        """What wait4 tells of a process that we have started may be this, which we had ourselves."""
        self._shared = 0
        self._mapped = 0
        """Shared memory that processes map, summed: what the machine has more than before may be other programs'."""
        self._by_faults = self._collapsed = 0
        """Bytes of huge pages that page faults brought, and that were made of small ones, since the last scan."""
        self.kept = 0
        """Bytes that the tree had at most at the end of the last scan."""
        self._told: NeededNow | None = None
        self._left: set[int] = set()
        """Families that a member has left since the tick before, by an exec: their watermarks are not of all that were there."""
        self._reset: Container[int] = ()
        """Processes whose watermark somebody was noticed to reset."""
        self._unmarked: deque[int] = deque(maxlen=SCANS_BELIEVED)
        """What the bounds of the last scans would have been if no watermark had been believed."""
        self._departed: dict[int, _ProcessState] = {}
        """Processes that the last tick did not find any more: it may yet be told how many page faults they had."""
        self.broken = "huge pages that the kernel does not count" if self._machine.uncounted else ""
        """Why page faults tell nothing any more, in words; empty: they do."""

    def ended(self, pid: int, faults: int | None, own_peak: int | None) -> None:
        """A process was waited for by us.

        Args:
            pid: its pid.
            faults: page faults of its own; `None`: not known.
            own_peak: bytes that wait4 told of it, where that is its own; `None`: it waited for children.
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
        """A process is no more, and a process of the tree has inherited its page faults, of which it was read to have had these.

        Those since the last scan are in no other figure: what others inherit is told less what was read.
        """
        holder = self._holders.get(pid)
        base = 0 if holder is None else holder.base
        self._ended_new += gained(max(0, faults - base), page=PAGE_SIZE)

    def open(self) -> None:
        """Begin a tick. Raises `OSError` without /proc."""
        self._count_huge()

    def _count_huge(self) -> int:
        """Count the huge pages that were allocated since the last reading; gives their bytes."""
        self._machine.read()
        self._by_faults += self._machine.faulted
        self._collapsed += self._machine.collapsed
        found = self._machine.faulted + self._machine.collapsed
        self._huge_so_far += found
        return found

    def unchanged(self) -> NeededNow | None:
        """What the tick before told, where no process has changed since; `None`: there was none.

        Then nothing has been gained, and what was given back since is found by the next tick: its window begins where that of
        the last scan ended.
        """
        return self._told

    def scan(self, members: Mapping[int, Member], found: TickFindings) -> NeededNow:
        """Read all members, and bound what the tree needs. Raises `OSError` without /proc."""
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
        # Where nobody came or went, a huge page that a fault brought is the tree's only where the tree had a fault.
        huge = (min(by_faults, faults * self._machine.huge_page) if quiet else by_faults) + collapsed
        if self._first and self._machine.since_unknown and not self._joining:
            huge = UNKNOWN  # how many of these there were before the first reading is not known
        self._first = False
        unseen = UNKNOWN if found.unseen_faults is None else gained(found.unseen_faults, page=PAGE_SIZE)
        late_new = UNKNOWN if late is None else gained(sum(late), page=PAGE_SIZE)
        tree_new = gained(faults, huge, page=PAGE_SIZE) + self._ended_new + unseen + late_new

        # The family of a zombie, and of a process that has executed a program during this tick, may be that of the program before.
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
        """The bound of this window, and of the one before where what is told now may have been in that, beside what was told then."""
        before, self._before = self._before, high
        if not (self._cut_short or found.may_be_before):
            return high
        return max(high, before + gained(found.told_before, page=PAGE_SIZE) + self._ended_new)

    def scanned(self, pid: int) -> tuple[int, int]:
        """The page faults and the bytes of private memory with which the last scan read a process; zeros: it did not."""
        holder = self._holders.get(pid)
        return (0, 0) if holder is None else (holder.base, holder.held or 0)

    # -- reading

    def _read(self, members: Mapping[int, Member]) -> tuple[list[_MemberReading], bool]:
        """Read statm of all, then stat of all. Also gives whether one has ended meanwhile."""
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
        """The process in its present address space, and whether that is a new one."""
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
        """Begin a tick for all families, but for those `changed` the same as before; for none of them where that is not `certain`."""
        for key, family in self._families.items():
            family.begin()
            family.same = certain and changed is not None and key not in changed

    def _changed_families(
        self, readings: list[_MemberReading], readings_of: Mapping[int, _MemberReading]
    ) -> set[int] | None:
        """Families that have, or may have had, other members since the last scan; `None`: it may be any of them.

        ==========================================  ==========================================================
        a member                                    is seen by
        ==========================================  ==========================================================
        is no more                                  that the last scan had read it
        has executed a program                      that it is in another address space
        was born, whatever it has executed since    that it is fresh: its parent is of the family
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
        """Most bytes of private memory that a process had of its parent at its birth; `None`: its parent is not known.

        That is what the parent had at the tick before, and gained since: nothing of its siblings. A process that has executed
        a program since its birth has nothing of it, and its parent is of another family. `so_far` has the parents that
        are fresh themselves: members stand behind their parents.
        """
        if reading.member.pid == self._root:
            return 0  # it has begun with an exec
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
        """Enter what was read of a process into its family.

        Args:
            reading: what was read.
            huge: bytes of huge pages that came while the tick was taken.
            elsewhere: bytes that processes gained which nobody sees any more, and that a child of theirs may have.
            inherited: of one that is fresh, the most that it had of its parent at its birth; `None`: its parent is not known.
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
        # Before its watermark, a page is in no figure that a thread in the middle of a page fault is about to map.
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
        """What a process's watermark has risen by, and nothing has brought that is known, since it was read before."""
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
            # It has the memory of the process that it was forked from, or none: then it has begun with an exec.
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
        """Look for a process with more than its whole family can have: also one that no earlier tick has seen.

        Args:
            huge: bytes of huge pages that were allocated since the tick before.
            unseen: bytes that processes gained which nobody saw, and that a child of theirs may have.
        """
        if self._joining:
            return
        elsewhere = huge + unseen + self._unclaimed + self._ended_new
        for family in self._families.values():
            if is_outside_ledger(family.kept, family.most, family.new + elsewhere, PAGE_SIZE):
                self.broken = self.broken or "memory filled from outside"

    def _judge(self, readings: list[_MemberReading], huge: int, tree_new: int) -> tuple[int, int]:
        """Look for what breaks the ledger; gives what was certainly there, and how much more a watermark saw since."""
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
        """Bytes of private memory that were certainly there at the moment `t`."""
        low = 0
        for family in self._families.values():
            apart = [own for own in family.owns if own.pid in family.apart]
            # What was attached to may have had pages in swap before, and a page that comes back is nobody's own.
            trusted = apart and not self._joined and not self._machine.swaps
            low += _most_there(family.largest, apart) if trusted else family.largest
            _compare(family)
        return low

    def _close_families(self, high: int, huge: int, unseen: int, *, complete: bool) -> tuple[int, int, int]:
        """The upper bound of private memory since the tick before; what each family has now is entered.

        Also gives by how much it would be larger without watermarks, and what of the families' gains is counted in it as such.

        Args:
            high: bytes that belong to no family.
            huge: bytes of huge pages that were allocated since the tick before.
            unseen: bytes that processes gained which nobody saw.
            complete: whether every process is known that was alive when the members' memory was read.
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
                family.kept = held  # no page fault that we know of has brought it
            else:
                family.kept = family_kept(family.kept, new + unclaimed, held)
        self._unclaimed = 0 if settled else unclaimed
        self._joining = self._joining and not settled
        # No watermark bounds these: what is left of a huge page that was given back in part is charged, and not mapped.
        return high + huge, loose, counted

    # -- shared memory

    def _shared_memory(self, members: Mapping[int, Member], new: int) -> tuple[int, int]:
        """Bytes of shared memory to add to the bound since the tick before, and bytes that were certainly there.

        `new`: what is counted already of all that was gained meanwhile.
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
    """Bytes that these members of a family certainly had at once: with the largest of them, or the oldest, in full."""
    for whole in (max(members, key=lambda m: m.whole), min(members, key=lambda m: m.holder.seen_at)):
        own = sum(m.own for m in members if m is not whole and m.holder.least_at >= whole.holder.seen_at)
        largest = max(largest, family_there(whole.whole, own))
    return largest


def _compare(family: _Family) -> None:
    """Find out of members that are new which of them have an address space of their own: that counts from the next scan on.

    By then it is certain that what was read is of this address space: a process between vfork and exec leaves its parent's.
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
    """Bytes that a family has most likely, where most is known of its oldest member: the others were forked."""
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
    """Whether KSM merges equal pages, so that several families may have one page."""
    try:
        return read_once(str(sys / "kernel/mm/ksm/run")).strip() == b"1"
    except OSError:
        return False
