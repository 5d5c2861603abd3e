"""The source `process_tree`: the steps of a sample, in order."""

from __future__ import annotations

import math
import os
from collections import deque

from otel_memwatch.errors import TargetEnded, Unavailable
from otel_memwatch.model import ChildExit
from otel_memwatch.monitor.sampling.sources import Context
from otel_memwatch.monitor.sampling.sources.process_tree.accounting import (
    Account,
    Reaped,
    ReapedBy,
    read_exit,
)
from otel_memwatch.monitor.sampling.sources.process_tree.columns import columns, fast_values, slow_values
from otel_memwatch.monitor.sampling.sources.process_tree.discovery import Discovery, ForkCounter
from otel_memwatch.monitor.sampling.sources.process_tree.early_sample_policy import (
    EarlySamplePolicy,
    moved_since,
)
from otel_memwatch.monitor.sampling.sources.process_tree.fault_bounds import (
    FaultLedgerBounds,
    NeededNow,
    TickFindings,
)
from otel_memwatch.monitor.sampling.sources.process_tree.files import Descriptors, read_once
from otel_memwatch.monitor.sampling.sources.process_tree.ledgers import FaultLedger, PidLedger
from otel_memwatch.monitor.sampling.sources.process_tree.member import GONE, Member, Totals, own_faults
from otel_memwatch.monitor.sampling.sources.process_tree.records import Records
from otel_memwatch.monitor.sampling.sources.process_tree.resets import ForeignResets
from otel_memwatch.runtime.kernel import PAGE_SIZE, rss_error
from otel_memwatch.runtime.procfs.mounted import hides_others
from otel_memwatch.runtime.procfs.process import Io, Stat, parse_stat
from otel_memwatch.runtime.procfs.system import fault_bytes
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_memwatch.model import Value

EVERY_STATUS = 20
"""Members up to which each sample can read every status. Above, each status is read about once a second."""
ROUND_SECONDS = 1.0
EVERY_GROUP = 20
"""Members with cgroups read at a slow sample, in turn: 0.25 ms."""
MOST_LATE = 64
"""Maximum number of pids assigned during a sample for a probe of their processes."""
WALK_SECONDS = 1.0
"""Seconds between two listings of all children. They find processes that the fork counter does not lead to."""


_MARKS_BEGIN = 1.0
"""Maximum seconds, on a busy machine, between a process's first reset and the file in which it marks operations."""


class TickDelta:
    """Changes of the members in one sample. The ledgers record changes of their children."""

    __slots__ = ("born", "figures", "presumed", "removed", "reported_unseen")

    def __init__(self) -> None:
        self.born = False
        """A process became a member."""
        self.presumed: dict[int, Stat] = {}
        """Members of `removed` with vanished parents. The ledger assumes that an ancestor waited for them."""
        self.figures = False
        """A figure of a member, or the set of members, changed. The sums must be computed again."""
        self.removed: dict[int, Member] = {}
        """Members that vanished."""
        self.reported_unseen = False
        """The supervisor waited for a process that was never a member."""


class LastScan(NamedTuple):
    """State of the tree at the end of the last scan of memory needed."""

    told: int = 0
    """Page faults of unseen processes, reported since the scan before."""
    unobserved: int = 0
    """Upper bound of the number of unseen processes so far."""
    presumed: bool = False
    """Processes vanished together with their parents. The process that waited for them is unknown."""
    all_known: bool = True
    """The owners of all pids until then were known."""


class ProcessTree:
    """The tree of `context.root`.

    Cost of a sample: 25 us and about 15 us for each process. Members are in discovery order, parents before children.
    """

    name = "process_tree"
    blind: str | None = None

    def __init__(self, context: Context) -> None:
        self._context = context
        self._proc = str(context.proc)
        self._descriptors = Descriptors()
        try:
            self._forks = ForkCounter(self._proc, self._descriptors)
        except OSError as error:
            raise Unavailable(f"{error.filename}: {error.strerror}.", "is /proc mounted?") from None
        self._adopter = os.getpid() if context.adopt else None
        self._since = self._oldest()
        self._discovery = Discovery(
            self._proc, context.exclude, self._adopter, self._since, self._descriptors
        )
        self._hides = hides_others(self._proc)
        """/proc may hide descendants from us. They are searched for whenever one may have begun or become hidden."""
        self._ended_in: dict[int, bytes] = {}
        self._hidden: dict[int, float] = {}
        """Hidden processes, with the time at which each was found to be hidden."""
        self._members: dict[int, Member] = {}
        self._presumed: dict[int, Stat] = {}
        """`TickDelta.presumed` of the previous sample."""
        self._removed: dict[int, Member] = {}
        """Members that vanished by the previous sample."""
        self._exits: deque[ChildExit] = deque()
        """Reports of the supervisor since the previous sample."""
        # If the target is our child, every later process may be its child and may have ended already.
        self._pids = PidLedger(self._forks, context.root if context.adopt else self._forks.last)
        self._faults = FaultLedger()
        self._began: float | None = None
        """Time of the first sample."""
        self._unseen_faults = 0
        """Page faults of unseen processes, as of the last sample with a known number."""
        self._account = Account()
        self._records = Records(
            self._proc,
            fault_bytes(context.sys, os.uname().release),
            context.on_process,
            context.marks_operations,
        )
        self._needed = self._open_needed()
        self._range: tuple[int, int | None] = (0, None)
        """Result of `needed_range`."""
        self._between = EarlySamplePolicy(context.interval)
        self._scanned = LastScan()
        self._resets = ForeignResets(self._proc, self._descriptors)
        self._reset_since: dict[int, float] = {}
        """Members with a watermark that another program resets, with the time at which this was noticed."""
        self._slow_pace = context.pace()
        self._walk_pace = context.pace(WALK_SECONDS)
        self._round = self._group_round = 0
        """Index of the member of a large tree to read next: its status, and its cgroup."""
        self._sum = Totals()
        self._fast: list[Value] = []
        """Values of the last sample with a changed figure."""
        self.columns = columns(
            context.slow_period(),
            needed=self._needed is not None,
            own_cgroup=context.own_cgroup is not None,
        )
        self._not_due: list[Value] = [None] * sum(column.period > 0 for column in self.columns)

    def _open_needed(self) -> FaultLedgerBounds | None:
        """Return the bounds of memory needed; `None`: the run's cgroup measures it, or /proc lacks counters."""
        context = self._context
        if context.own_cgroup is not None:
            return None
        try:
            return FaultLedgerBounds(
                self._proc,
                context.sys,
                context.root,
                joined=not context.adopt,
                allocated_before=context.allocated_before,
            )
        except (OSError, ValueError):
            return None

    def _oldest(self) -> int:
        """Return the start of the target in clock ticks. Older processes do not belong to its tree."""
        try:
            return parse_stat(read_once(f"{self._proc}/{self._context.root}/stat")).start
        except OSError:
            if not self._context.adopt:
                raise TargetEnded(f"There is no process {self._context.root}.") from None
        # It has already ended, and the supervisor has waited for it and will report it.
        return parse_stat(read_once(f"{self._proc}/{os.getpid()}/stat")).start

    # -- interface

    def pids(self) -> Sequence[int]:
        """Return living processes with separate memory as of the last reading, the target first."""
        return tuple(
            pid for pid, member in self._members.items() if not member.zombie and not member.shares_memory
        )

    def needed_range(self) -> tuple[int, int] | None:
        """Return the largest lower bound so far and the upper bound since the previous sample; `None`: unknown."""
        low, high = self._range
        return None if high is None else (low, high)

    def note_exit(self, end: ChildExit) -> None:
        """Queue the kernel's report of a reaped child. May be called from another thread."""
        self._exits.append(end)

    def ended_in(self) -> Mapping[int, bytes]:
        """Return cgroups of children that ended by the last sample, read from /proc while they were zombies."""
        return self._ended_in

    def totals(self) -> Mapping[str, float | int | None]:
        """Return the totals of the tree so far, including reaped children; `None`: unknown."""
        io = self._sum.io
        return {
            "cpu_user": self._sum.cpu_user,
            "cpu_system": self._sum.cpu_system,
            "minor_faults": self._sum.minor_faults,
            "major_faults": self._sum.major_faults,
            **(dict.fromkeys(Io._fields) if io is None else io._asdict()),
            "processes": self._pids.seen,
            "unobserved": self._pids.unobserved,
        }

    def finish(self, now: float) -> None:
        """Record the last figures of every process and close all files. Do not call while `read` is running."""
        changes = TickDelta()
        self._find_resets(self._resets.read(), now)
        self._read_exits(changes)
        if self._hidden:
            living = self._discovery.walk(self._members, lambda _pid: False)
            for pid in self._hidden.keys() - set(living):
                self._records.hidden_ended(pid, self._hidden[pid], now)
        for member in list(self._members.values()):
            try:
                whole = member.last_look()
            except GONE:
                self._vanish(member, changes, now)
            else:
                self._records.last(member, now, whole=whole)
        self._find_resets((), now, over=True)
        self._settle(now, math.inf)
        self._sum = self._account.sum(self._members.values())
        for member in self._members.values():
            member.close()
        self._resets.close()
        self._forks.close()
        self._discovery.close()
        if self._needed is not None:
            self._needed.close()

    # -- between samples

    @property
    def glance_within(self) -> float:
        """Return the seconds until an early sample is worth its cost; infinite: none is, for example if the run has a cgroup."""
        return self._between.within

    def glance(self, now: float) -> bool:  # noqa: ARG002 - the signature is EarlySampleSource's
        """Return whether a sample now narrows the bounds of memory needed. Costs 6 us and 9 us for each process."""
        needed = self._needed
        return needed is not None and self._between.is_worth_it(moved_since(self._members, needed.scanned))

    # -- a sample

    def read(self, now: float) -> Sequence[Value]:
        """Return one value for each column. Raises `OSError` only if /proc itself is unreadable."""
        slow = self._slow_pace.due(now)
        changes = TickDelta()
        self._find_resets(self._resets.read(), now)
        self._pids.open()
        self._faults.open()
        if self._needed is not None:
            self._needed.open()
        self._read_exits(changes)
        self._read_members(changes, now)
        self._find_members(changes, now)
        self._read_watermarks(all_of_them=slow)
        if slow:
            self._look_at_groups(now)
        self._find_resets((), now)
        self._close_ledgers(changes)
        return self._values(changes, now, slow=slow)

    # -- first step: processes that the supervisor has waited for

    def _read_exits(self, changes: TickDelta) -> None:
        self._ended_in = {}
        while self._exits:
            changes.figures = True
            end = self._exits.popleft()
            self._faults.reported(end.minor_faults)
            if end.pid not in self._context.exclude:
                if end.cgroup is not None:
                    self._ended_in[end.pid] = end.cgroup
                self._read_exit(read_exit(end), changes)
        if not self._pids.settled:
            self._faults.compare_with_own()

    def _read_exit(self, reaped: Reaped, changes: TickDelta) -> None:
        pid, stat = reaped.exit.pid, reaped.stat
        if stat is not None and stat.start < self._since:
            return
        presumed = self._presumed.pop(pid, None)
        if presumed is not None and (stat is None or presumed.start == stat.start):
            self._faults.was_left_to_us(presumed)
        member = self._members.get(pid)
        if member is not None and stat is not None and member.stat.start != stat.start:
            member = None  # the kernel has reassigned the pid since
        if member is not None:
            self._confirm_reset(pid, reaped.exit.time)
            self._remove(member, changes)
        else:
            member = self._account.awaited(pid)
        before = self._removed.get(pid)
        if member is None and before is not None and stat is not None and before.stat.start == stat.start:
            # The previous sample expected its parent to wait for it. The parent did not, and its end is already recorded.
            self._account.reaped(reaped, before.io)
            return
        hidden = self._hidden.pop(pid, None) if member is None else None
        if member is None and hidden is None:
            self._pids.joined(pid)
            changes.reported_unseen = True
        self._faults.ended(
            stat,
            0 if member is None else member.stat.child_minor_faults,
            0 if member is None else member.stat.child_major_faults,
            ignored_sigchld=reaped.ignored_sigchld,
        )
        self._account.reaped(reaped, None if member is None else member.io)
        if self._needed is not None:
            childless = stat is not None and not stat.child_minor_faults
            self._needed.ended(
                pid, None if stat is None else own_faults(stat), reaped.exit.max_rss if childless else None
            )
        own = self._context.own_cgroup
        if own is not None and own.held(reaped.exit.cgroup) is False:
            self._records.reaped_elsewhere(reaped, member)
        if member is not None and self._has_lost(member, reaped.exit):
            member.watermark.reset_by_others = True
            self._records.reset_by_others(member, reaped.exit.time)
        self._records.reaped(reaped, member, hidden)

    def _has_lost(self, member: Member, end: ChildExit) -> bool:
        """Return whether wait4 reports less than its watermark showed before: another program has reset the watermark."""
        watermark = member.watermark
        if watermark.largest is None or end.max_rss <= 0 or self._context.marks_operations(member.pid):
            return False
        return not watermark.reset_by_others and end.max_rss < watermark.largest - rss_error(
            member.stat.threads
        )

    # -- second step: current figures of the members

    def _read_members(self, changes: TickDelta, now: float) -> None:
        """Read all members. Then read the parents of vanished members again: they have inherited the members' totals."""
        known = set(changes.removed)
        for member in list(self._members.values()):
            self._read_member(member, changes, now)
        while parents := {changes.removed[pid].stat.ppid for pid in changes.removed.keys() - known}:
            known.update(changes.removed)
            for parent in parents & self._members.keys():
                self._read_member(self._members[parent], changes, now)
        if self._account.pending:
            changes.figures = True
            self._settle(now, now)

    def _read_member(self, member: Member, changes: TickDelta, now: float) -> None:
        before = member.stat
        try:
            changed = member.refresh()
            if member.shares_memory and not self._shares(member):
                member.leaves_parent()
                changed = member.refresh() or changed
        except GONE:
            self._vanish(member, changes, now)
            return
        stat = member.stat
        if changed:
            changes.figures = True
        if stat is before:
            return
        if stat.threads > before.threads:
            self._pids.threads_began(stat.threads - before.threads)
        if stat.child_minor_faults != before.child_minor_faults:
            self._faults.inherited_by_member(before, stat)
        self._records.executed(member, now)

    def _vanish(self, member: Member, changes: TickDelta, now: float) -> None:
        """Remove a vanished member. Find the process that waited for it and inherited its totals and page faults.

        ==================================  ===================================================================
        its parent                          its totals
        ==================================  ===================================================================
        the monitor                         reported later by the supervisor
        a member that heeds SIGCHLD         included in the parent's
        has vanished, and heeded SIGCHLD    included in the parent's, or reported later: unknown which
        ignores SIGCHLD, or is unknown      lost: only the last reading remains
        ==================================  ===================================================================
        """
        self._confirm_reset(member.pid, now)
        self._remove(member, changes)
        changes.figures = True
        stat = member.stat
        if stat.ppid == self._adopter:
            self._faults.left_to_us()
            self._account.vanished(member, now, ReapedBy.MONITOR)
            return
        if self._needed is not None:
            self._needed.vanished(member.pid, own_faults(stat))
        living = self._members.get(stat.ppid)
        parent = living or changes.removed.get(stat.ppid)
        heeds = parent is not None and not parent.ignores_sigchld
        if living is not None and heeds:
            self._faults.left_to_member(stat)
            self._records.gone(member, now)
            return
        if heeds and self._adopter is not None:
            # The process that waits for the parent inherits these totals too. We would have to wait for an orphan.
            self._faults.left_to_ancestor(stat)
            changes.presumed[member.pid] = stat
        else:
            self._faults.left_to_nobody_known()
        self._account.vanished(member, now, ReapedBy.PARENT if heeds else ReapedBy.UNKNOWN)

    def _remove(self, member: Member, changes: TickDelta) -> None:
        del self._members[member.pid]
        self._resets.forget(member.pid)
        self._reset_since.pop(member.pid, None)
        member.close()
        changes.removed[member.pid] = member

    def _settle(self, now: float, until: float) -> None:
        """Stop waiting for exact figures that were due before `until`."""
        for gone in self._account.overdue(until):
            self._records.gone(gone.member, now, unreaped=gone.reaped_by is ReapedBy.UNKNOWN)

    # -- third step: new processes

    def _find_members(self, changes: TickDelta, now: float) -> None:
        """Search for processes that began before this sample, if the kernel has assigned pids since the last search."""
        given, pids = self._pids.not_looked_for()
        walk = self._walk_pace.due(now)
        if walk or given or not self._pids.seen or (self._hides and changes.removed):

            def add(pid: int) -> bool:
                return self._add(pid, changes, now)

            if not self._pids.seen:
                add(self._context.root)
            cheap = given and self._discovery.cheaper_to_probe(given, self._members)
            if cheap and not walk:
                self._pids.are_strangers(self._discovery.probe(pids, self._members, add))
            if walk or self._hides or (given and not cheap):
                self._find_hidden(self._discovery.walk(self._members, add), changes, now)
        # A parent may wait for a child after its reading and before the discovery searches for the child. The next
        # sample would find the child's faults with the parent, and assume that the child began after this sample.
        # So if pids are unexplained and a parent has waited since, read all members again now.
        if self._pids.unexplained() and any(member.has_waited() for member in self._members.values()):
            self._read_members(changes, now)

    def _find_hidden(self, unread: Sequence[int], changes: TickDelta, now: float) -> None:
        """Record living but unreadable children, if /proc hides processes."""
        for pid in unread:
            if self._hides and pid not in self._hidden:
                self._hidden[pid] = now
                if pid not in changes.removed:
                    self._pids.joined(pid)
                self._records.hidden(pid, now)

    def _add(self, pid: int, changes: TickDelta, now: float) -> bool:
        """Make a process a member. Return `False` if it has already ended."""
        try:
            member = Member(self._proc, pid, self._descriptors)
        except (OSError, ValueError):
            return False
        if self._shares(member):
            member.enters_parent()
        try:
            member.refresh_status()
        except (OSError, ValueError):
            member.close()
            return False
        self._members[pid] = member
        changes.born = True
        self._resets.watch(pid)
        if self._began is not None and not self._context.adopt and member.start < self._began:
            self._account.joined(member)
        changes.figures = True
        self._pids.joined(pid, member.stat.threads)
        self._faults.joined(member.stat)
        self._records.seen(member, now)
        self._look_at_group(member, now)
        return True

    def _shares(self, member: Member) -> bool:
        """Return whether it runs in its parent's memory, between vfork (posix_spawn, subprocess) and exec.

        Such a process has the same address space as its parent, to the byte, while its parent waits. A forked process
        differs: fork omits most file pages.
        """
        parent = self._members.get(member.stat.ppid)
        if (
            parent is None
            or parent.stat.virtual != member.stat.virtual
            or parent.stat.stack != member.stat.stack
        ):
            return False
        return parent.stat.state == "D" or (parent.stat.threads > 1 and parent.rss == member.rss > 0)

    # -- fourth step: watermarks

    def _read_watermarks(self, *, all_of_them: bool) -> None:
        """Read statuses: in a small tree of changed members, in a large tree of some members in turn.

        Without a page fault a process has no more memory than before. Another process may have added memory to it: the
        watermark keeps this until `all_of_them` are read.
        """
        members = list(self._members.values())
        if len(members) > EVERY_STATUS:
            count = max(1, int(len(members) * self._context.interval / ROUND_SECONDS) + 1)
            self._round %= len(members)
            members = (members + members)[self._round : self._round + min(count, len(members))]
            self._round += count
        elif not all_of_them:
            members = [member for member in members if member.status_outdated]
        for member in members:
            try:
                member.refresh_status()
            except GONE:
                continue

    def _find_resets(self, pids: Iterable[int], now: float, *, over: bool = False) -> None:
        """Record members with a watermark that another program has reset: `pids`, and members with a fallen watermark.

        A process that begins to mark operations resets its watermark before it announces this. So the decision waits
        `_MARKS_BEGIN` seconds, unless the run is `over`.
        """
        fallen = (pid for pid, member in self._members.items() if member.watermark.has_fallen)
        for pid in (*pids, *fallen):
            if pid in self._members and pid not in self._reset_since:
                self._reset_since[pid] = now
        for pid, since in list(self._reset_since.items()):
            if over or now - since >= _MARKS_BEGIN:
                self._confirm_reset(pid, now)

    def _confirm_reset(self, pid: int, now: float) -> None:
        """Decide whether a noticed reset is the process's or another program's. Record the latter."""
        member = self._members[pid]
        if member.watermark.reset_by_others or self._reset_since.get(pid) is None:
            return
        if self._context.marks_operations(pid):
            del self._reset_since[pid]
            member.watermark.has_fallen = False
            return
        member.watermark.reset_by_others = True
        self._records.reset_by_others(member, now)

    # -- members outside the run's cgroup

    def _look_at_groups(self, now: float) -> None:
        """Check whether members are still in the run's cgroup; in a large tree, some members in turn."""
        if self._context.own_cgroup is None:
            return
        members = list(self._members.values())
        if len(members) > EVERY_GROUP:
            self._group_round %= len(members)
            begin, self._group_round = self._group_round, self._group_round + EVERY_GROUP
            members = (members + members)[begin : begin + EVERY_GROUP]
        for member in members:
            self._look_at_group(member, now)

    def _look_at_group(self, member: Member, now: float) -> None:
        own = self._context.own_cgroup
        if own is None or member.left_cgroup or member.zombie:
            return
        if own.holds(member.pid, self._context.proc) is False:
            member.left_cgroup = True
            self._records.left_cgroup(member, now)

    # -- fifth step: unseen processes

    def _close_ledgers(self, changes: TickDelta) -> None:
        self._removed, self._presumed = changes.removed, changes.presumed
        signs = bool(changes.removed) or self._pids.moved or self._faults.signs
        if self._pids.close_if_none_given(signs=signs):
            self._faults.close_if_none_given()
            return
        self._faults.close(
            ignores_sigchld=any(
                member.ignores_sigchld for member in (*self._members.values(), *changes.removed.values())
            )
        )
        self._pids.close(suspicious=self._faults.suspicious)

    # -- sixth step: memory needed

    def _bound_needed(self, needed: FaultLedgerBounds, changes: TickDelta, now: float) -> NeededNow:
        """Bound the memory that the tree needs, for runs without a cgroup."""
        total, before = self._faults.unseen, self._unseen_faults
        self._unseen_faults = before if total is None else total
        unseen = None if total is None else total - before
        told = needed.unchanged()
        if not changes.figures and unseen == 0 and told is not None:
            self._between.scanned(told, 0, needed.kept)
            return told
        found = TickFindings(
            changes.born,
            bool(changes.removed),
            unseen,
            self._scanned.told,
            self._may_be_before(changes),
            self._born_since,
        )
        whole = not needed.broken
        values = needed.scan(self._members, found)
        self._scanned = LastScan(
            unseen or 0, self._pids.unobserved, bool(changes.presumed), self._pids.all_known
        )
        self._between.scanned(values, None if unseen is None else unseen * PAGE_SIZE, needed.kept)
        if whole and needed.broken:
            main = self._members.get(self._context.root) or next(iter(self._members.values()), None)
            if main is not None:
                self._records.outside_ledger(main, now)
        return values

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
                                                                 had vanished too
        never saw it; it began before that sample, and a         yes: the members were read again after the discovery
        member waited for it
        never saw it; it began before that sample, and we        perhaps not
        waited for it
        never saw it; it began during that sample                perhaps not
        =======================================================  =====================================================
        """
        before = self._scanned
        ours = changes.reported_unseen or self._faults.own_moved
        others = self._pids.unobserved > before.unobserved
        return (
            before.presumed
            or (ours and not before.all_known)
            or ((ours or others) and self._pids.given_in_scan > 0)
        )

    def _born_since(self) -> list[int] | None:
        """Return page faults of each process of the tree born since this sample began; `None`: too many to probe."""
        newest = self._forks.read()
        begun = self._pids.begun
        given = self._pids.given_in_scan = self._forks.between(begun, newest)
        if not given:
            return []
        if given > MOST_LATE:
            return None
        known, faults = dict(self._members), []

        def add(pid: int) -> bool:
            try:
                stat = parse_stat(read_once(f"{self._proc}/{pid}/stat"))
            except (OSError, ValueError):
                return False
            known[pid] = known.get(stat.ppid, known.get(self._context.root))  # type: ignore[assignment] # only the key matters
            faults.append(own_faults(stat))
            return True

        self._discovery.probe(self._forks.given(begun, newest), known, add)
        return faults

    # -- last step: the values

    def _values(self, changes: TickDelta, now: float, *, slow: bool) -> Sequence[Value]:
        """Return the values of a sample. If no figure has changed, reuse the values of the previous sample."""
        if self._began is None:
            self._began = now
        members = self._members.values()
        main = self._members.get(self._context.root)
        if changes.figures or slow or not self._fast:
            self._sum = self._account.sum(members)
            self._records.figures(members, now)
            self._fast = fast_values(main, members, self._sum)
        fast = [*self._fast, self._pids.unobserved, self._faults.unseen]
        if self._needed is not None:
            bounds = self._bound_needed(self._needed, changes, now)
            self._range = max(self._range[0], bounds.low or 0), bounds.high
            fast += bounds
        elif self._context.own_cgroup is not None:
            fast += (None, None)
        if not slow:
            return fast + self._not_due
        for member in members:
            member.retry_io()
        return fast + slow_values(self._proc, now, main, members)
