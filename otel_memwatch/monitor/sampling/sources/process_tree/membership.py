"""Membership of the tree: processes that have ended, changed or begun since the previous sample."""

from __future__ import annotations

import math
import os
from time import monotonic

from otel_memwatch.errors import TargetEnded, Unavailable
from otel_memwatch.monitor.sampling.sources.process_tree.accounting import (
    Account,
    ReapedBy,
    ReapedProcess,
    read_exit,
)
from otel_memwatch.monitor.sampling.sources.process_tree.discovery import (
    Discovery,
    ForkCounter,
    GroupDiscovery,
)
from otel_memwatch.monitor.sampling.sources.process_tree.ledgers import FaultLedger, PidLedger, Placements
from otel_memwatch.monitor.sampling.sources.process_tree.member import GONE, Member, Totals, own_faults
from otel_memwatch.monitor.sampling.sources.process_tree.proc_files import Descriptors
from otel_memwatch.monitor.sampling.sources.process_tree.resets import ForeignResets
from otel_memwatch.monitor.sampling.sources.process_tree.sleep import Sleep
from otel_memwatch.runtime.kernel import CLOCK_TICKS, read_once
from otel_memwatch.runtime.light import deque
from otel_memwatch.runtime.procfs.mounted import hides_others
from otel_memwatch.runtime.procfs.process import parse_first_thread, parse_stat
from otel_memwatch.runtime.procfs.walks import kept_until
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.truth.process import ran_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.model import ChildExit
    from otel_memwatch.monitor.sampling.repeated import WatchedFile
    from otel_memwatch.monitor.sampling.sources import Context
    from otel_memwatch.monitor.sampling.sources.process_tree.fault_bounds import FaultLedgerBounds
    from otel_memwatch.monitor.sampling.sources.process_tree.records import Records
    from otel_memwatch.runtime.procfs.process import FirstThread, Stat

FEW_GROUPS, EVERY_GROUP = 2, 20
"""Members from which on the cgroup's list is read first, and most members with cgroups read at a slow sample: 0.25 ms."""
WALK_SECONDS = 1.0
"""Seconds between two listings of all children, while a member runs.

They find processes that the fork counter does not lead to."""


class TickDelta:
    """Changes of the members in one sample. The ledgers record changes of their children."""

    __slots__ = ("born", "figures", "lost", "presumed", "removed", "reported_unseen")

    def __init__(self) -> None:
        self.born = False
        """A process became a member."""
        self.presumed: dict[int, Stat] = {}
        """Members of `removed` with vanished parents. The ledger assumes that an ancestor waited for them."""
        self.figures = False
        """A figure of a member, or the set of members, changed. The sums must be computed again."""
        self.removed: dict[int, Member] = {}
        """Members that vanished."""
        self.lost = False
        """A process of another program may have waited for a vanished member: the member's last totals are unknown."""
        self.reported_unseen = False
        """The supervisor waited for a process that was never a member."""


class Membership:
    """Members of the tree of `context.root`, their totals, and the ledgers of processes that no sample saw.

    Args:
        context: context of the run.
        records: recorder of single processes.
    """

    def __init__(self, context: Context, records: Records) -> None:
        self._context = context
        self._records = records
        self.bounds: FaultLedgerBounds | None = None
        """Bounds of memory needed, which count the gains of ended processes; `None`: the run has a cgroup."""
        self._proc = str(context.proc)
        self._descriptors = Descriptors()
        try:
            self.forks = ForkCounter(self._proc, self._descriptors)
        except OSError as error:
            raise Unavailable(f"{error.filename}: {error.strerror}.", "is /proc mounted?") from None
        self._adopter = os.getpid() if context.adopt else None
        self._since = _start_of_target(context)
        """Start of the target in clock ticks. Older processes do not belong to its tree."""
        self.discovery = (
            Discovery(self._proc, context.exclude, self._adopter, self._since, self._descriptors)
            if context.target_group is None
            else GroupDiscovery(context.target_group, context.exclude)
        )
        self._hides = hides_others(self._proc)
        """/proc may hide descendants from us. They are searched for whenever one may have begun or become hidden."""
        self._hidden: dict[int, float] = {}
        """Hidden processes, with the time at which each was found to be hidden."""
        self.members: dict[int, Member] = {}
        """Members by pid, in discovery order: parents before children."""
        self._presumed: dict[int, Stat] = {}
        """`TickDelta.presumed` of the previous sample."""
        self._removed: dict[int, Member] = {}
        """Members that vanished by the previous sample."""
        self.exits: deque[ChildExit] = deque()
        """Reports of the supervisor since the previous sample."""
        self.ended_in: dict[int, bytes] = {}
        """Cgroups of children that ended by the last sample, read from /proc while they were zombies."""
        # If the target is our child, every later process may be its child and may have ended already.
        self.pids = PidLedger(self.forks, context.root if context.adopt else self.forks.last)
        self.faults = FaultLedger()
        self._placements = Placements(context, self.pids)
        self._account = Account()
        self._counted_by_parent: set[int] = set()
        """Members that ended during the last sample. Their parents have their totals."""
        self._reading_since = monotonic()
        """Moment at which the current sample began. The monitor may have waited for a processor since."""
        self._began: float | None = None
        """Time of the first sample."""
        self._resets = ForeignResets(self._proc, self._descriptors, records, context)
        self._opened = False
        """`rests` has read the machine's counts for this sample."""
        self._whole = True
        """Argument `whole` of this sample's `update`."""
        self.sleep = Sleep()
        self._walk_pace = context.pace(WALK_SECONDS)
        self._walked_in = -1
        """`Sleep.runs` at the last listing of all children."""
        self._group_round = 0
        """Index of the member of a large tree with the cgroup to read next."""

    def update(self, now: float, *, whole: bool) -> TickDelta:
        """Begin a sample: find all changes since the previous one. Raises `OSError` without /proc.

        `whole`: read all files of all members. Otherwise a member with an unchanged stat has not changed.
        """
        changes = TickDelta()
        self._reading_since = monotonic()
        self._whole = whole
        self.sleep.begin()
        if whole or self.exits:
            self.find_resets(now)
        self.pids.open()
        self.faults.open()
        opened, self._opened = self._opened, False
        if self.bounds is not None and not opened:
            opened = self.bounds.open(now, at_once=whole or bool(self.exits))
        self._read_exits(changes)
        self._read_members(changes, now)
        self._find_members(changes, now)
        if self.bounds is not None and changes.figures and not opened:
            # The machine's counts must precede the readings of the members.
            self.bounds.open(now, at_once=True)
            self.sleep.wake()
            self._read_members(changes, now)
        if self._began is None:
            self._began = now
        self.sleep.end(changed=changes.figures, whole=whole)
        return changes

    def rests(self, now: float) -> bool:
        """Return whether nothing can have changed since the last sample, which found no change.

        The kernel assigned no pid, the supervisor reported no exit, and no member has run, or its stat is the same.
        """
        if self.exits or (now >= self._walk_pace.next and self._walk_is_due(now)) or not self.pids.rest():
            return False
        self._opened = self.bounds is None or self.bounds.open(now, at_once=False)
        if self.sleep.lasts():
            return True
        members = self.members.values()
        if not all(member.is_unchanged() for member in members):
            return False
        self.sleep.note(members)
        return True

    @property
    def rests_until(self) -> float:
        """Return the monotonic seconds of the next listing of all children, if no member runs until then."""
        return self._walk_pace.next if self._walk_is_due(math.inf) else math.inf

    def files_at_rest(self) -> tuple[WatchedFile, ...] | None:
        """Return files that stay as they are while `rests` returns `True` and no member runs; `None`: none show it.

        The first is that of the machine's counts, if there are bounds of memory needed.
        """
        last_pid = None if self.exits else self.pids.file_at_rest()
        of_bounds = () if self.bounds is None else self.bounds.files_at_rest()
        of_members = self.sleep.watched()
        if last_pid is None or of_bounds is None or not of_members:
            return None
        return *of_bounds, last_pid, *of_members

    def note_repeated(self, contents: Sequence[bytes | None]) -> None:
        """Note samples at which these files were as they are at rest: their last contents."""
        if self.bounds is not None and contents[0] is not None:
            self.bounds.note_repeated(contents[0])

    def find_resets(self, now: float) -> None:
        """Record members with a watermark that another program has reset."""
        self._resets.find(self.members, now)

    def finish(self, now: float) -> None:
        """Record the last figures of every process. The totals are final then."""
        changes = TickDelta()
        self.find_resets(now)
        self._read_exits(changes)
        if self._hidden:
            living = self.discovery.walk(self.members, lambda _pid: False)
            for pid in self._hidden.keys() - set(living):
                self._records.hidden_ended(pid, self._hidden[pid], now)
        for member in list(self.members.values()):
            try:
                whole = member.last_look()
            except GONE:
                self._vanish(member, changes, now)
            else:
                self._records.last(member, now, whole=whole)
        self._resets.find(self.members, now, over=True)
        self._settle(now, math.inf)

    def totals(self) -> Totals:
        """Return the current totals of the tree, including reaped children. None ever falls."""
        counted = self._counted_by_parent
        return self._account.sum(member for pid, member in self.members.items() if pid not in counted)

    def close(self) -> None:
        """Close all files."""
        for member in self.members.values():
            member.close()
        self._resets.close()
        self.forks.close()
        self.discovery.close()

    # -- first step: processes that the supervisor has waited for

    def _read_exits(self, changes: TickDelta) -> None:
        self.ended_in = {}
        while self.exits:
            changes.figures = True
            ends = []
            for _ in range(len(self.exits)):
                end = self.exits.popleft()
                self.faults.reported(end.pid, end.minor_faults)
                if end.pid not in self._context.exclude:
                    if end.cgroup is not None:
                        self.ended_in[end.pid] = end.cgroup
                    reaped = read_exit(end)
                    if reaped.stat is None or reaped.stat.start >= self._since:
                        ends.append((reaped, self._only_thread(end)))
            # All before the first record: if the last one had vanished before, its end is recorded already.
            for reaped, only_thread in ends:
                self._placements.ended(reaped.exit, lone=only_thread is not None)
            for reaped, only_thread in ends:
                self._read_exit(reaped, only_thread, changes)
        if self.faults.awaits or not self.pids.settled:
            self.faults.compare_with_own()

    def _read_exit(self, reaped: ReapedProcess, only_thread: FirstThread | None, changes: TickDelta) -> None:
        pid, stat = reaped.exit.pid, reaped.stat
        sees_resets = self._resets.sees_all(pid)
        presumed = self._presumed.pop(pid, None)
        if presumed is not None and (stat is None or presumed.start == stat.start):
            self.faults.was_left_to_us(presumed)
        member = self.members.get(pid)
        if member is not None and stat is not None and member.stat.start != stat.start:
            member = None  # the kernel has reassigned the pid since
        if member is not None:
            self._resets.confirm(member, reaped.exit.time)
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
            self.pids.joined(pid)
            changes.reported_unseen = True
        self.faults.ended(
            stat,
            0 if member is None else member.stat.child_minor_faults,
            0 if member is None else member.stat.child_major_faults,
            ignored_sigchld=reaped.ignored_sigchld,
        )
        self._account.reaped(reaped, None if member is None else member.io)
        lone = None
        if self.bounds is not None:
            childless = stat is not None and not stat.child_minor_faults
            lone = self.bounds.ended(
                pid,
                None if stat is None else own_faults(stat),
                reaped.exit.max_rss if childless else None,
                only_thread,
            )
        own = self._context.own_cgroup
        if own is not None and own.held(reaped.exit.cgroup) is False:
            self._records.reaped_elsewhere(reaped, member)
        if member is not None:
            self._resets.compare_at_end(member, reaped.exit)
        lone = lone if sees_resets else None
        self._records.reaped(reaped, member, hidden, lone, self._placements.most())

    @staticmethod
    def _only_thread(end: ChildExit) -> FirstThread | None:
        """Return the first thread of a process that never had another one; `None`: it may have."""
        first = parse_first_thread(end.sched)
        ran_alone = first is not None and ran_all(end.cpu_user + end.cpu_system, first.seconds)
        return first if ran_alone else None

    # -- second step: current figures of the members

    def _read_members(self, changes: TickDelta, now: float) -> None:
        """Read all members. Then read the parents of vanished members again: they have inherited the members' totals."""
        known, again = set(changes.removed), set[int]()
        members = list(self.members.values())
        if self.sleep.asleep and self.sleep.keeps_sizes(members):
            for member in members:
                member.status_read = False
        else:
            for member in members:
                self._read_member(member, changes, now)
        while parents := {changes.removed[pid].stat.ppid for pid in changes.removed.keys() - known}:
            known.update(changes.removed)
            for parent in parents & self.members.keys():
                self._read_member(self.members[parent], changes, now)
                again.add(parent)
        self._counted_by_parent = self._ended_since(again)
        if self._account.pending:
            changes.figures = True
            self._settle(now, now)

    def _ended_since(self, parents: set[int]) -> set[int]:
        """Return the members that have ended since their reading: these `parents`, read later, may have their totals too."""
        ended: set[int] = set()
        for member in self.members.values() if parents else ():
            if member.stat.ppid in parents or member.stat.ppid in ended:
                try:
                    member.stat_file.read()
                except GONE:
                    ended.add(member.pid)
        return ended

    def _read_member(self, member: Member, changes: TickDelta, now: float) -> None:
        before = member.stat
        try:
            changed = member.refresh(whole=self._whole)
            if member.shares_memory and not self._shares(member):
                member.leaves_parent()
                changed = member.refresh() or changed
        except GONE:
            self.sleep.wake()
            # Its stat may be read already. Its end is compared with this stat, so what it shows counts now.
            self._count_changes(before, member.stat)
            self._vanish(member, changes, now)
            return
        if changed:
            changes.figures = True
            self.sleep.wake()
        if member.stat is before:
            return
        self._count_changes(before, member.stat)
        self._records.executed(member, now)

    def _count_changes(self, before: Stat, now: Stat) -> None:
        """Count threads that began and page faults inherited between two readings of a member."""
        if now.threads > before.threads:
            self.pids.threads_began(now.threads - before.threads)
        if now.child_minor_faults != before.child_minor_faults:
            self.faults.inherited_by_member(before, now)

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
        self.find_resets(now)
        self._resets.confirm(member, now)
        self._remove(member, changes)
        changes.figures = True
        stat = member.stat
        if stat.ppid == self._adopter:
            self.faults.left_to_us(member.pid)
            self._account.vanished(member, now, ReapedBy.MONITOR)
            return
        if self.bounds is not None:
            self.bounds.vanished(member.pid, own_faults(stat))
        living = self.members.get(stat.ppid)
        parent = living or changes.removed.get(stat.ppid)
        heeds = parent is not None and not parent.ignores_sigchld
        if living is not None and heeds:
            self.faults.left_to_member(stat)
            self._records.gone(member, now + monotonic() - self._reading_since)
            return
        if heeds and self._adopter is not None:
            # The process that waits for the parent inherits these totals too. We would have to wait for an orphan.
            self.faults.left_to_ancestor(stat)
            changes.presumed[member.pid] = stat
        else:
            self.faults.left_to_nobody_known()
            changes.lost = True
        self._account.vanished(member, now, ReapedBy.PARENT if heeds else ReapedBy.UNKNOWN)

    def _remove(self, member: Member, changes: TickDelta) -> None:
        del self.members[member.pid]
        self._resets.forget(member.pid)
        member.close()
        member.freed = kept_until(member.pid)
        changes.removed[member.pid] = member

    def _settle(self, now: float, until: float) -> None:
        """Stop waiting for exact figures that were due before `until`."""
        late = now + monotonic() - self._reading_since
        for gone in self._account.overdue(until):
            self._records.gone(gone.member, late, unreaped=gone.reaped_by is ReapedBy.UNKNOWN)

    # -- third step: new processes

    def _find_members(self, changes: TickDelta, now: float) -> None:
        """Search for processes that began before this sample, if the kernel has assigned pids since the last search."""
        given, pids = self.pids.not_looked_for()
        walk = self._walk_is_due(now)
        if walk:
            self._walk_pace.due(now)
            self._walked_in = self.sleep.runs
        if walk or given or not self.pids.seen or (self._hides and changes.removed):

            def add(pid: int) -> bool:
                return self._add(pid, changes, now)

            if not self.pids.seen:
                add(self._context.root)
            cheap = given and self.discovery.cheaper_to_probe(given, self.members)
            if cheap and not walk:
                self.pids.are_strangers(self.discovery.probe(pids, self.members, add))
            if walk or self._hides or (given and not cheap):
                self._find_hidden(self.discovery.walk(self.members, add), changes, now)
        # A parent may wait for a child after its reading and before the discovery searches for the child. The next
        # sample would find the child's faults with the parent, and assume that the child began after this sample.
        # So if pids are unexplained and a parent has waited since, read all members again now.
        if self.pids.unexplained() and any(member.has_waited() for member in self.members.values()):
            self.sleep.wake()
            self._read_members(changes, now)

    def _walk_is_due(self, now: float) -> bool:
        """Return whether to list all children: about once a second, unless no member has run, so none has a new child.

        Hidden processes may have children too, and programs outside may move a process into a group.
        """
        may_have_run = self._hides or self._context.target_group is not None
        return now >= self._walk_pace.next and (may_have_run or self._walked_in != self.sleep.runs)

    def _find_hidden(self, unread: Sequence[int], changes: TickDelta, now: float) -> None:
        """Record living but unreadable children, if /proc hides processes."""
        for pid in unread:
            if self._hides and pid not in self._hidden:
                self._hidden[pid] = now
                if pid not in changes.removed:
                    self.pids.joined(pid)
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
        self.members[pid] = member
        changes.born = True
        self._resets.watch(pid, by_thread=pid == self._context.root)
        # The kernel rounds the start down to a clock tick: a process of this tick may be younger than the run.
        if (
            self._began is not None
            and not self._context.adopt
            and member.start + 1 / CLOCK_TICKS <= self._began
        ):
            self._account.joined(member)
        changes.figures = True
        self.pids.joined(pid, member.stat.threads)
        self.faults.joined(member.stat)
        self._records.seen(member, now)
        self._look_at_group(member, now)
        return True

    def _shares(self, member: Member) -> bool:
        """Return whether it runs in its parent's memory, between vfork (posix_spawn, subprocess) and exec.

        Such a process has the same address space as its parent, to the byte, while its parent waits. A forked process
        differs: fork omits most file pages.
        """
        parent = self.members.get(member.stat.ppid)
        if (
            parent is None
            or parent.stat.virtual != member.stat.virtual
            or parent.stat.stack != member.stat.stack
        ):
            return False
        return parent.stat.state == "D" or (parent.stat.threads > 1 and parent.rss == member.rss > 0)

    # -- members outside the run's cgroup

    def look_at_groups(self, now: float) -> None:
        """Check whether members are still in the run's cgroup or below it; of many that may not be, some in turn."""
        own = self._context.own_cgroup
        if own is None:
            return
        members = [member for member in self.members.values() if not (member.left_cgroup or member.zombie)]
        if len(members) > FEW_GROUPS:
            inside = own.first_threads()
            members = [member for member in members if member.pid not in inside]
        if len(members) > EVERY_GROUP:
            self._group_round %= len(members)
            begin, self._group_round = self._group_round, self._group_round + EVERY_GROUP
            members = (members + members)[begin : begin + EVERY_GROUP]
        for member in members:
            self._look_at_group(member, now)

    def _look_at_group(self, member: Member, now: float) -> None:
        own = self._context.own_cgroup
        if own is not None and own.holds(member.pid, self._context.proc) is False:
            member.left_cgroup = True
            self._records.left_cgroup(member, now)

    # -- fifth step: unseen processes

    def close_ledgers(self, changes: TickDelta) -> None:
        """End a sample in the ledgers of pids and page faults."""
        self._removed, self._presumed = changes.removed, changes.presumed
        signs = bool(changes.removed) or self.pids.moved or self.faults.signs
        if self.pids.close_if_none_given(signs=signs):
            self.faults.close_if_none_given(self._allocated)
            return
        self.faults.close(
            self._allocated,
            ignores_sigchld=any(
                member.ignores_sigchld for member in (*self.members.values(), *changes.removed.values())
            ),
        )
        self.pids.close(suspicious=self.faults.suspicious)

    def _allocated(self) -> int | None:
        """Return the pages that the machine has allocated since the previous sample began; `None`: unknown."""
        return None if self.bounds is None else self.bounds.allocated()


def _start_of_target(context: Context) -> int:
    """Return the start of the target in clock ticks."""
    try:
        return parse_stat(read_once(f"{context.proc}/{context.root}/stat")).start
    except OSError:
        if not context.adopt:
            raise TargetEnded(f"There is no process {context.root}.") from None
    # It has already ended, and the supervisor has waited for it and will report it.
    return parse_stat(read_once(f"{context.proc}/{os.getpid()}/stat")).start
