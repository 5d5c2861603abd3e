"""The source process_tree: what happens at a tick, in which order."""

from __future__ import annotations

import math
import os
from collections import deque

from otel_memwatch.errors import Unavailable
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
"""Members up to which every status is read at every tick; above, each one about once a second."""
ROUND_SECONDS = 1.0
EVERY_GROUP = 20
"""Members whose control groups are read at a slow tick, in turn: a quarter of a millisecond."""
MOST_LATE = 64
"""Processes born during a tick that are looked at."""
WALK_SECONDS = 1.0
"""Time between two listings of all children, which find what the fork counter does not lead to."""


_MARKS_BEGIN = 1.0
"""Seconds that may pass on a busy machine between a process's first reset and the file in which it marks operations."""


class TickDelta:
    """Changes of the members in one sample. The ledgers hold those of their children."""

    __slots__ = ("born", "figures", "presumed", "removed", "reported_unseen")

    def __init__(self) -> None:
        self.born = False
        """A process became a member."""
        self.presumed: dict[int, Stat] = {}
        """Members of `removed` whose parents vanished too: an ancestor is assumed to have waited for them."""
        self.figures = False
        """A figure of a member, or the set of members, changed: sums must be computed again."""
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
    """Processes vanished together with their parents, so it is unknown who waited for them."""
    all_known: bool = True
    """The owners of all pids until then were known."""


class ProcessTree:
    """The tree of `context.root`.

    Cost of a sample: 25 us and about 15 us for each process. Members are kept in the
    order in which they were found, which has parents before their children.
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
        """/proc may hide descendants from us: they are looked for whenever one can have begun or become hidden."""
        self._ended_in: dict[int, bytes] = {}
        self._hidden: dict[int, float] = {}
        """Those that it hides, and when each was found to be."""
        self._members: dict[int, Member] = {}
        self._presumed: dict[int, Stat] = {}
        """Those of `TickDelta.presumed` that the tick before found."""
        self._removed: dict[int, Member] = {}
        """Members that the tick before found to be no more."""
        self._exits: deque[ChildExit] = deque()
        """What the supervisor has reported since the tick before."""
        # Where the target is our child, whatever began after it may have been its child, and be gone by now.
        self._pids = PidLedger(self._forks, context.root if context.adopt else self._forks.last)
        self._faults = FaultLedger()
        self._began: float | None = None
        """Time of the first tick."""
        self._unseen_faults = 0
        """Page faults of unseen processes, as of the last tick at which they were known."""
        self._account = Account()
        self._records = Records(
            self._proc,
            fault_bytes(context.sys, os.uname().release),
            context.on_process,
            context.marks_operations,
        )
        self._needed = self._open_needed()
        self._range: tuple[int, int | None] = (0, None)
        """Of `needed_range`."""
        self._between = EarlySamplePolicy(context.interval)
        self._scanned = LastScan()
        self._resets = ForeignResets(self._proc, self._descriptors)
        self._reset_since: dict[int, float] = {}
        """When it was noticed of which members that somebody resets their watermark."""
        self._newly_reset = False
        """One was added to these since the last scan of what the tree needs."""
        self._slow_pace = context.pace()
        self._walk_pace = context.pace(WALK_SECONDS)
        self._round = self._group_round = 0
        """Members of a large tree whose status, and whose cgroup, is read next."""
        self._sum = Totals()
        self._fast: list[Value] = []
        """The values of the last tick at which a figure had changed."""
        self.columns = columns(
            context.slow_period(),
            needed=self._needed is not None,
            own_cgroup=context.own_cgroup is not None,
        )
        self._not_due: list[Value] = [None] * sum(column.period > 0 for column in self.columns)

    def _open_needed(self) -> FaultLedgerBounds | None:
        """What bounds the memory that is needed; `None`: a control group of the run's own tells, or /proc lacks counters."""
        context = self._context
        if context.own_cgroup is not None:
            return None
        try:
            return FaultLedgerBounds(
                self._proc,
                context.sys,
                context.root,
                context.marks_operations,
                joined=not context.adopt,
                allocated_before=context.allocated_before,
            )
        except (OSError, ValueError):
            return None

    def _oldest(self) -> int:
        """Start of the target in clock ticks: what is older is not of its tree."""
        try:
            return parse_stat(read_once(f"{self._proc}/{self._context.root}/stat")).start
        except OSError:
            if not self._context.adopt:
                raise Unavailable(f"There is no process {self._context.root}.") from None
        # It has ended and been waited for already: the supervisor will report it.
        return parse_stat(read_once(f"{self._proc}/{os.getpid()}/stat")).start

    # -- for others

    def pids(self) -> Sequence[int]:
        """Living processes with memory of their own as of the last reading, the target first."""
        return tuple(
            pid for pid, member in self._members.items() if not member.zombie and not member.shares_memory
        )

    def needed_range(self) -> tuple[int, int] | None:
        """Return the largest lower bound so far and the upper bound since the sample before; `None`: unknown."""
        low, high = self._range
        return None if high is None else (low, high)

    def note_exit(self, end: ChildExit) -> None:
        """Take in what the kernel said of a child that was waited for. May be called from another thread."""
        self._exits.append(end)

    def ended_in(self) -> Mapping[int, bytes]:
        """Control groups, as /proc told of their zombies, of the children whose ends the last reading took in."""
        return self._ended_in

    def totals(self) -> Mapping[str, float | int | None]:
        """Totals of the tree so far, reaped children included; `None`: not known."""
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
        """Record the last of every process, and close all files. Not while `read` is running."""
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

    # -- between ticks

    @property
    def glance_within(self) -> float:
        """Seconds after which a glance is worth its cost; infinite: none is, as where a control group tells what is needed."""
        return self._between.within

    def glance(self, now: float) -> bool:  # noqa: ARG002 - the signature is EarlySampleSource's
        """Whether a tick now keeps the bounds of what the tree needs nearer. Costs 6 us and 9 us for each process."""
        needed = self._needed
        return needed is not None and self._between.is_worth_it(moved_since(self._members, needed.scanned))

    # -- a tick

    def read(self, now: float) -> Sequence[Value]:
        """One value for each column. Raises `OSError` only where /proc itself cannot be read."""
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

    # -- first step: what the supervisor has waited for

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
            member = None  # the pid has been given to another process since
        if member is not None:
            self._confirm_reset(pid, reaped.exit.time)
            self._remove(member, changes)
        else:
            member = self._account.awaited(pid)
        before = self._removed.get(pid)
        if member is None and before is not None and stat is not None and before.stat.start == stat.start:
            # At the tick before, it was its parent's to wait for; the parent did not, and its end is recorded already.
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
        """Whether wait4 tells of less than was read while the process lived: somebody else has reset its watermark."""
        watermark = member.watermark
        if watermark.largest is None or end.max_rss <= 0 or self._context.marks_operations(member.pid):
            return False
        return not watermark.reset_by_others and end.max_rss < watermark.largest - rss_error(
            member.stat.threads
        )

    # -- second step: what the members have now

    def _read_members(self, changes: TickDelta, now: float) -> None:
        """Read all members, and the parents of those that are no more again: what these had is in the parents' figures then."""
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
        """A member is no more: find out who waited for it, and so where its totals and its page faults are.

        ==================================  ===================================================================
        its parent                          its totals
        ==================================  ===================================================================
        is the monitor                      will be reported by the supervisor
        is a member that heeds SIGCHLD      are in its parent's
        is no more, and heeded SIGCHLD      are in its parent's, or will be reported: nobody knows
        ignores SIGCHLD, or is unknown      are lost: what was read last is all there is
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
            # Whoever waits for the parent inherits what it has inherited; an orphan would be ours to wait for.
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
        """Give up waiting for exact figures of members for which they were due before `until`."""
        for gone in self._account.overdue(until):
            self._records.gone(gone.member, now, unreaped=gone.reaped_by is ReapedBy.UNKNOWN)

    # -- third step: processes that are not members yet

    def _find_members(self, changes: TickDelta, now: float) -> None:
        """Look for processes that began before this tick; pids given since the last look say whether there are any."""
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
        # A child may have been waited for after its parent was read, and before the discovery looked for it. The next
        # tick would find its faults with the parent, and take it for a child that began after this tick. So where
        # pids are unexplained and a parent has waited since, all members are read again now.
        if self._pids.unexplained() and any(member.has_waited() for member in self._members.values()):
            self._read_members(changes, now)

    def _find_hidden(self, unread: Sequence[int], changes: TickDelta, now: float) -> None:
        """Record the living children that could not be read, where /proc hides processes."""
        for pid in unread:
            if self._hides and pid not in self._hidden:
                self._hidden[pid] = now
                if pid not in changes.removed:
                    self._pids.joined(pid)
                self._records.hidden(pid, now)

    def _add(self, pid: int, changes: TickDelta, now: float) -> bool:
        """Make a process a member; `False` when it has gone already."""
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
        """Whether it runs in its parent's memory, between vfork (posix_spawn, subprocess) and exec.

        Such a process has its parent's address space to the byte, while its parent waits. A forked one has not: fork
        leaves out most file pages.
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
        """Read the statuses: of those members of a small tree of which something has changed, of a large one's in turn.

        A process that had no page fault has no more memory than before; what another process brought into it is
        found when `all_of_them` are read: the watermark stays until then.
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
        """Record whose watermark somebody else has reset: `pids`, and those whose watermark has fallen.

        A process that begins to mark operations resets its own before it says so: `_MARKS_BEGIN` is waited for, unless
        all is `over`.
        """
        fallen = (pid for pid, member in self._members.items() if member.watermark.has_fallen)
        for pid in (*pids, *fallen):
            if pid in self._members and pid not in self._reset_since:
                self._reset_since[pid] = now
                self._newly_reset = True
        for pid, since in list(self._reset_since.items()):
            if over or now - since >= _MARKS_BEGIN:
                self._confirm_reset(pid, now)

    def _confirm_reset(self, pid: int, now: float) -> None:
        """Decide about a reset that was noticed."""
        member = self._members[pid]
        if member.watermark.reset_by_others or self._reset_since.get(pid) is None:
            return
        if self._context.marks_operations(pid):
            del self._reset_since[pid]
            member.watermark.has_fallen = False
            return
        member.watermark.reset_by_others = True
        self._records.reset_by_others(member, now)

    # -- who is still in the run's own control group

    def _look_at_groups(self, now: float) -> None:
        """Look whether members are still where their memory is counted; of a large tree's, some at a time."""
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

    # -- fifth step: the processes that nobody saw

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

    # -- sixth step: what the tree needs

    def _bound_needed(self, needed: FaultLedgerBounds, changes: TickDelta, now: float) -> NeededNow:
        """Bound what the tree needs, where no control group tells."""
        total, before = self._faults.unseen, self._unseen_faults
        self._unseen_faults = before if total is None else total
        unseen = None if total is None else total - before
        told = needed.unchanged()
        if not changes.figures and unseen == 0 and told is not None and not self._newly_reset:
            self._between.scanned(told, 0, needed.kept)
            return told
        self._find_resets(self._resets.read(), now)
        found = TickFindings(
            changes.born,
            bool(changes.removed),
            unseen,
            self._reset_since,
            self._newly_reset,
            self._scanned.told,
            self._may_be_before(changes),
            changes.reported_unseen or self._faults.own_moved,
            self._born_since,
        )
        self._newly_reset = False
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
        """Whether page faults that are told now may have been before the end of the last scan.

        Told now is what processes had that have ended since they were read. Those which the last scan read had it after that,
        and of one that ended during that scan `FaultLedgerBounds` knows. Of others it can have been before:

        =======================================================  =====================================================
        a process that the last scan                             its faults were told then
        =======================================================  =====================================================
        found to be no more                                      unless its parent was no more either: that was read again
        never saw, begun before its tick, waited for by a        always: the members were read again after the discovery
        member
        never saw, begun before its tick, waited for by us       perhaps not
        never saw, begun during its tick                         perhaps not
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
        """Page faults of each process of the tree that was born since this tick began; `None`: too many to look."""
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
            known[pid] = known.get(stat.ppid, known.get(self._context.root))  # type: ignore[assignment] # for its key alone
            faults.append(own_faults(stat))
            return True

        self._discovery.probe(self._forks.given(begun, newest), known, add)
        return faults

    # -- last step: the values

    def _values(self, changes: TickDelta, now: float, *, slow: bool) -> Sequence[Value]:
        """Where nothing has changed since the tick before, what follows from the figures is not made again."""
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
