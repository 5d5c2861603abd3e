"""The step of a sample that bounds memory needed, for runs without a cgroup, and the early samples that narrow it."""

from __future__ import annotations

import math
import os
import time

from otel_memwatch.model import ProcessNote
from otel_memwatch.monitor.sampling.sources.process_tree.fault_bounds import FaultLedgerBounds, TickFindings
from otel_memwatch.monitor.sampling.sources.process_tree.member import own_faults
from otel_memwatch.monitor.sampling.sources.process_tree.memory_scan import BornInScan, LateBirths
from otel_memwatch.runtime.kernel import PAGE_SIZE, read_once
from otel_memwatch.runtime.procfs.process import parse_stat, parse_swapped
from otel_memwatch.runtime.procfs.statm import parse_private
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.truth.kernel_memory import likely_of_ended
from otel_memwatch.truth.outside_faults import excludes_memory_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from otel_memwatch.monitor.sampling.auto_interval import AutoInterval
    from otel_memwatch.monitor.sampling.sources import Context
    from otel_memwatch.monitor.sampling.sources.process_tree.fault_bounds import NeededNow
    from otel_memwatch.monitor.sampling.sources.process_tree.member import Member
    from otel_memwatch.monitor.sampling.sources.process_tree.membership import Membership, TickDelta
    from otel_memwatch.monitor.sampling.sources.process_tree.records import Records


MOST_PROBED = 64
"""Maximum number of pids probed one by one. Of more, the living processes are listed."""
MOST_ROUNDS = 4
"""Maximum number of probes after a scan: during each of them processes may be born."""


class LastScan(NamedTuple):
    """State of the tree at the end of the last scan of memory needed."""

    reported: int = 0
    """Page faults of unseen processes, reported since the scan before."""
    unobserved: int = 0
    """Upper bound of the number of unseen processes so far."""
    presumed: bool = False
    """Processes vanished together with their parents. The process that waited for them is unknown."""
    all_known: bool = True
    """The owners of all pids until then were known."""
    awaited: bool = False
    """The supervisor had yet to report faults."""
    time: float = -math.inf
    """Monotonic seconds."""


class NeededMemory:
    """Bounds of memory needed, sample by sample.

    Args:
        context: context of the run.
        tree: members of the tree. It reports ended processes to the bounds.
        records: recorder of single processes.
    """

    def __init__(self, context: Context, tree: Membership, records: Records) -> None:
        self._context = context
        self._proc = str(context.proc)
        self._bounds = tree.bounds = FaultLedgerBounds(
            self._proc,
            context.sys,
            context.root,
            joined=not context.adopt,
            allocated_before=context.allocated_before,
        )
        self._tree = tree
        self._records = records
        self._early = EarlySamplePolicy(context.interval, context.auto)
        self._scanned = LastScan()
        self._unwritten_files = False
        """The record has a note of files in memory without write calls."""
        self._unseen_faults = 0
        """Page faults of unseen processes, as of the last sample with a known number."""

    @property
    def probe_after(self) -> float:
        """Return the seconds until an early sample may be worth its cost; infinite: none is."""
        return self._early.probe_after

    @property
    def kept(self) -> int:
        """Return the upper bound of the tree's bytes at the end of the last scan."""
        return self._bounds.kept

    @property
    def beside_private(self) -> tuple[int, int]:
        """Return the parts of the last best estimate in no mapping, and in shared memory.

        The first are files in memory, the kernel's memory, and the rest of huge pages.
        """
        bounds = self._bounds
        return bounds.shared.files + bounds.tasks + bounds.left, bounds.shared.in_objects

    def is_sample_worth_it(self) -> bool:
        """Return whether a sample now narrows the bounds.

        Costs 1 us for each process that sleeps, otherwise 5 us, and 25 us more if one has changed.
        """
        if self._tree.sleep.still_lasts():
            return self._early.is_worth_it(NO_CHANGE)
        moved = moved_since(self._tree.members, self._bounds.scanned)
        if moved is None:
            return self._early.is_worth_it(NO_CHANGE)
        shared, huge = self._bounds.new_elsewhere(moved.gained // PAGE_SIZE)
        return self._early.is_worth_it(moved._replace(gained=moved.gained + shared, huge=huge))

    def close(self) -> None:
        """Close all files."""
        self._bounds.close()

    def read(self, changes: TickDelta, now: float, written: int) -> NeededNow:
        """Return the bounds of this sample. Raises `OSError` without /proc.

        Args:
            changes: changes of the tree in this sample.
            now: monotonic seconds.
            written: bytes of the tree's write calls so far, less the bytes that went to disk.
        """
        bounds, tree = self._bounds, self._tree
        total, before = tree.faults.unseen, self._unseen_faults
        self._unseen_faults = before if total is None else total
        unseen = None if total is None else total - before
        if not changes.figures and unseen == 0 and (last := bounds.unchanged()) is not None:
            return last
        found = TickFindings(
            changes.born or bool(changes.removed),
            unseen,
            self._scanned.reported,
            self._may_be_before(changes),
            self._born_since,
            written,
            tree.faults.awaits,
            likely_of_ended(
                len(changes.removed),
                tree.pids.unobserved - self._scanned.unobserved,
                unseen or 0,
                now - self._scanned.time,
            ),
            tree.pids.unobserved - self._scanned.unobserved,
        )
        broken = bounds.broken
        values = bounds.scan(tree.members, found)
        self._scanned = LastScan(
            unseen or 0,
            tree.pids.unobserved,
            bool(changes.presumed),
            tree.pids.all_known,
            tree.faults.awaits,
            now,
        )
        self._early.scanned(values, None if unseen is None else unseen * PAGE_SIZE, bounds.kept)
        if bounds.broken is not None and bounds.broken is not broken:
            self._note(bounds.broken, now)
        if not self._unwritten_files and excludes_memory_files(bounds.shared.unwritten, bounds.kept):
            self._unwritten_files = self._note(ProcessNote.UNWRITTEN_FILES, now)
        return values

    def _note(self, note: ProcessNote, now: float) -> bool:
        """Record that page faults do not show some memory of the tree, and why; return whether a process was left for it."""
        members = self._tree.members
        main = members.get(self._context.root) or next(iter(members.values()), None)
        if main is not None:
            self._records.outside_ledger(main, now, note)
        return main is not None

    def _may_be_before(self, changes: TickDelta) -> bool:
        """Return whether page faults reported now may precede the end of the last scan.

        They belong to processes that have ended since their last reading:

        * If the last scan read the process, these faults are later than the scan.
        * If the process ended during that scan, `FaultLedgerBounds` knows it.
        * Otherwise they may be earlier, unless they were reported then:

        =======================================================  =====================================================
        the last scan                                            its faults were reported then
        =======================================================  =====================================================
        found that it had vanished                               yes, since its parent was read again, unless the parent
                                                                 had vanished too, or we are its parent
        never saw it; it began before that sample, and a         yes: the members were read again after the discovery
        member waited for it
        never saw it; it began before that sample, and we        perhaps not
        waited for it
        never saw it; it began during that sample                perhaps not
        =======================================================  =====================================================
        """
        before = self._scanned
        ours = changes.reported_unseen or self._tree.faults.own_moved
        others = self._tree.pids.unobserved > before.unobserved
        return (
            before.presumed
            or before.awaited
            or (ours and not before.all_known)
            or ((ours or others) and self._tree.pids.given_in_scan > 0)
        )

    def _born_since(self) -> LateBirths:
        """Return the processes of the tree born since this sample began."""
        tree, pids, forks = self._tree, self._tree.pids, self._tree.forks
        known: dict[int, Member] = {}
        born: list[BornInScan] = []

        def add(pid: int) -> bool:
            process = read_born(self._proc, pid)
            if process is None:
                return False
            known[pid] = known.get(process.stat.ppid, known.get(self._context.root))  # type: ignore[assignment] # only the key matters
            born.append(process)
            return True

        newest, complete, at = pids.begun, False, 0.0
        for _ in range(MOST_ROUNDS):
            at, before, newest = time.monotonic(), newest, forks.read()
            if complete := newest == before:
                break
            known = known or dict(tree.members)
            tree.discovery.probe(self._given(before, newest), known, add)
        pids.given_in_scan = forks.between(pids.begun, newest)
        return LateBirths(born, at if complete else None)

    def _given(self, earlier: int, later: int) -> Iterable[int]:
        """Return the pids assigned between two readings; of many only the living processes: most of them have ended."""
        forks, given = self._tree.forks, self._tree.forks.between(earlier, later)
        if given <= MOST_PROBED:
            return forks.given(earlier, later)
        living = [int(name) for name in os.listdir(self._proc) if name.isdigit()]
        return [pid for pid in living if 0 < forks.between(earlier, pid) <= given]


def read_born(proc: str, pid: int) -> BornInScan | None:
    """Read a process that may be of the tree; `None`: it has ended."""
    try:
        held = parse_private(read_once(f"{proc}/{pid}/statm"))
        # After the memory: a page that returns from swap meanwhile costs a page fault.
        stat = parse_stat(read_once(f"{proc}/{pid}/stat"))
        swapped = parse_swapped(read_once(f"{proc}/{pid}/status"))
    except (OSError, ValueError):
        return None
    leader_ended = not held and stat.threads > 1  # its other threads have the memory
    return BornInScan(stat, None if leader_ended else held + swapped)


SHARE = 0.03
"""Share of the tree's largest memory that it may release between two samples without an early one."""
LEAST = 1 << 20
"""Bytes that it may always release: the error of an exact figure."""
GROWTH = 0.1
"""Growth beyond the largest lower bound that requires an early sample: from 10 MiB to 10 GiB in 73 steps."""
WITHIN = 0.01
"""Minimum seconds between two probes."""
PATIENCE = 10
"""Probes without a finding before the pause doubles, to spare an idle program."""
LONGEST_INTERVAL = 0.1
"""Longest sampling interval, in seconds, with early samples: a longer one was chosen to sample less."""


class PrivateMemoryChange(NamedTuple):
    """Private memory that the tree gained and released since the last scan, in bytes."""

    gained: int
    given_back: int
    huge: int = 0
    """Huge pages of the whole machine, as far as the tree can have got them."""


NO_CHANGE = PrivateMemoryChange(0, 0)


class EarlySamplePolicy:
    """Decision between samples whether an early one pays.

    Page faults count memory that a process gains and releases between two samples, but no sample sees it. So it widens
    the upper bound of memory needed. Frequent samples narrow it, but cost too much all the time. An early sample pays
    in two cases:

    * The tree released much memory, and its bound would be the largest so far. Every sample sees a growing tree.
    * The tree has clearly more memory than any sample saw. The memory may be gone at the next sample.

    Both need stat and statm alone, at a tenth of the cost of a sample.

    Args:
        interval: seconds between samples; the shortest, if they vary.
        auto: the interval that follows the run. While it is long, an idle tree is probed less.
    """

    def __init__(self, interval: float, auto: AutoInterval | None = None) -> None:
        self._interval = interval
        self._auto = auto
        self._kept = 0
        """Upper bound in bytes at the end of the last scan."""
        self._most = 0
        """Largest upper bound of a window so far."""
        self._least = self._low = 0
        """Largest lower bound so far, and that of the last scan."""
        self._idle = 0
        """Consecutive probes without a finding."""
        self._huge = 0
        """Bytes of huge pages at the last probe since the scan."""
        self.within = math.inf
        """Seconds until the next probe at the shortest interval; infinite: none."""

    @property
    def probe_after(self) -> float:
        """Return the seconds until the next probe: at least a tenth of the interval. More probes would use up the budget."""
        return (
            self.within
            if self._auto is None
            else max(self.within, self._auto.now * WITHIN / LONGEST_INTERVAL)
        )

    @property
    def little(self) -> float:
        """Return the bytes too few for an early sample."""
        return max(LEAST, SHARE * self._least)

    def scanned(self, bounds: NeededNow, unseen: int | None, kept: int) -> None:
        """Plan the next probe from the results of a scan.

        Args:
            bounds: bounds of the scan.
            unseen: gains in bytes that no sample saw; `None`: unknown.
            kept: upper bound in bytes at the end of the scan.
        """
        had, self._kept, self._huge = self._kept, kept, 0
        if bounds.high is None or unseen is None or self._interval > LONGEST_INTERVAL:
            self.within = math.inf
            return
        high = bounds.high + unseen
        self._low = bounds.low or 0
        self._most, self._least = max(self._most, high), max(self._least, self._low)
        if high - max(kept, had) > self.little or math.isinf(self.within):
            self._idle, self.within = 0, WITHIN

    def is_worth_it(self, moved: PrivateMemoryChange) -> bool:
        """Return whether a sample now narrows the range, given the changes since the last one."""
        if moved.gained + moved.given_back <= self.little / 4:
            self._idle += 1
            pause = math.inf if self._auto is None else self._auto.probe_after
            longest = self._interval if math.isinf(pause) else pause
            self.within = min(WITHIN * 2 ** (self._idle // PATIENCE), longest)
            return self._is_widened(moved)
        self._idle, self.within = 0, WITHIN
        if self._low + moved.gained - moved.given_back > self._least + max(LEAST, GROWTH * self._least):
            return True
        # The same amount may be gained or released until the next probe and count in the same window.
        most = self._kept + moved.gained + max(moved.gained, moved.given_back)
        return (moved.given_back > self.little and most > self._most) or self._is_widened(moved)

    def _is_widened(self, moved: PrivateMemoryChange) -> bool:
        """Return whether the machine's huge pages would make the bound the largest so far by the next probe."""
        if self._auto is None or self._auto.now <= LONGEST_INTERVAL or moved.huge <= self.little:
            return False
        more, self._huge = moved.huge - self._huge, moved.huge
        return self._kept + moved.gained + moved.huge + more > self._most


def moved_since(
    members: Mapping[int, Member], scanned: Callable[[int], tuple[int, int]]
) -> PrivateMemoryChange | None:
    """Return the private memory that the members gained and released since their scan; `None`: no stat has changed.

    Args:
        members: by their pids.
        scanned: returns page faults and bytes of private memory of a process at its scan.
    """
    gained = given_back = 0
    changed = False
    left: dict[int, int] = {}
    for pid, member in members.items():
        base, held = scanned(pid)
        try:
            data = member.stat_file.read()
            if data == member.stat_file.last and base == own_faults(member.stat):
                continue
            changed = True
            stat = parse_stat(data)
            now = member.read_private()
        except OSError:
            # Its parent inherits its page faults, if it has waited for it.
            given_back += held
            changed = True
            left[member.stat.ppid] = left.get(member.stat.ppid, 0) - base
            continue
        new = PAGE_SIZE * max(0, own_faults(stat) - base)
        gained += new
        if now is not None:
            # A page fault may bring a huge page.
            gained += max(0, now - held - new)
            given_back += max(0, held + new - now)
        before = member.stat
        ended = stat.child_minor_faults + stat.child_major_faults
        ended -= before.child_minor_faults + before.child_major_faults
        if ended:
            left[pid] = left.get(pid, 0) + ended
    if not changed:
        return None
    ended_gained = PAGE_SIZE * sum(max(0, faults) for faults in left.values())
    return PrivateMemoryChange(gained + ended_gained, given_back + ended_gained)
