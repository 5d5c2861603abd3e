"""The source process_tree: what happens at a tick, in which order."""

from __future__ import annotations

import math
import os
from collections import deque

from otel_memwatch.errors import Unavailable
from otel_memwatch.monitor.procfs.process import Io, parse_stat
from otel_memwatch.monitor.sources import ChildEnd, Context, Pace
from otel_memwatch.monitor.sources.process_tree.accounting import (
    Account,
    Fate,
    end_ignores_children,
    end_stat,
)
from otel_memwatch.monitor.sources.process_tree.columns import columns, fast_values, slow_values
from otel_memwatch.monitor.sources.process_tree.discovery import Discovery, ForkCounter
from otel_memwatch.monitor.sources.process_tree.files import Descriptors, read_once
from otel_memwatch.monitor.sources.process_tree.member import GONE, Member, Totals
from otel_memwatch.monitor.sources.process_tree.records import Records
from otel_memwatch.monitor.sources.process_tree.tick import Tick
from otel_memwatch.monitor.sources.process_tree.unobserved import Unobserved
from otel_memwatch.monitor.sources.process_tree.windows import Vanished, Windows, fault_bytes
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_memwatch.model import Value

EVERY_STATUS = 20
"""Members up to which every status is read at every tick; above, each one about once a second."""
ROUND_SECONDS = 1.0
WALK_SECONDS = 1.0
"""Time between two listings of all children, which find what the fork counter does not lead to."""


class ProcessTree:
    """The tree of `context.root`.

    Cost of a tick: 25 us and about 15 us for each process; under `exact` 40 us more for each. Members are kept in the
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
        self._members: dict[int, Member] = {}
        self._ends: deque[ChildEnd] = deque()
        self._noted_faults = 0
        self._ended: dict[int, Member] = {}
        """Members that vanished at the tick before."""
        self._seen = 0
        self._began: float | None = None
        """Time of the first tick."""
        self._account = Account()
        self._unobserved = Unobserved()
        self._records = Records(
            self._proc,
            fault_bytes(context.sys, os.uname().release),
            context.on_process,
            context.marks_operations,
        )
        self._windows = (
            Windows(self._proc, context.sys, self._descriptors, context.marks_operations)
            if context.exact
            else None
        )
        period = context.slow_period()
        self._slow_pace = Pace(period, context.interval)
        self._walk_pace = Pace(context.slow_period(WALK_SECONDS), context.interval)
        # whatever began after our child did may have been its child, and gone by now
        self._last_pid = context.root if context.adopt else self._forks.last
        self._looked_at = self._last_pid
        """Last pid that has been looked for."""
        self._round = 0
        self._sum = Totals()
        self.columns = columns(period, exact=context.exact)
        self._fast: list[Value] = []
        self._not_due: list[Value] = [None] * sum(column.period > 0 for column in self.columns)

    def _oldest(self) -> int:
        """Start of the target in clock ticks: what is older is not of its tree."""
        try:
            return parse_stat(read_once(f"{self._proc}/{self._context.root}/stat")).start
        except OSError:
            if not self._context.adopt:
                raise Unavailable(f"There is no process {self._context.root}.") from None
        # it has ended and been waited for already: the supervisor will tell
        return parse_stat(read_once(f"{self._proc}/{os.getpid()}/stat")).start

    # -- for others

    def pids(self) -> Sequence[int]:
        """Living processes with memory of their own as of the last reading, the target first."""
        return tuple(
            pid for pid, member in self._members.items() if not member.zombie and not member.shares_memory
        )

    def note_exit(self, end: ChildEnd) -> None:
        """Take in what the kernel said of a child that was waited for. May be called from another thread."""
        self._ends.append(end)

    def totals(self) -> Mapping[str, float | int | None]:
        """Totals of the tree so far, reaped children included; `None`: not known."""
        io = self._sum.io
        return {
            "cpu_user": self._sum.cpu_user,
            "cpu_system": self._sum.cpu_system,
            "minor_faults": self._sum.minor_faults,
            "major_faults": self._sum.major_faults,
            **(dict.fromkeys(Io._fields) if io is None else io._asdict()),
            "processes": self._seen,
            "unobserved": self._unobserved.total,
        }

    def finish(self, now: float) -> None:
        """Tell the last of every process, and close all files. Not while `read` is running."""
        tick = Tick(now)
        self._take_ends(tick)
        for member in list(self._members.values()):
            try:
                whole = member.last_look()
            except GONE:
                self._vanish(member, tick)
            else:
                self._records.last(member, now, whole=whole)
        self._settle(now, math.inf)
        self._sum = self._account.sum(self._members.values())
        for member in self._members.values():
            member.close()
        self._forks.close()
        self._discovery.close()
        if self._windows is not None:
            self._windows.close()

    # -- a tick

    def read(self, now: float) -> Sequence[Value]:
        """One value for each column. Raises `OSError` only where /proc itself cannot be read.

        Where nothing has happened since the tick before, what is derived from the figures is not derived again.
        """
        tick = Tick(now)
        slow = self._slow_pace.due(now)
        begun_at = self._forks.read()
        if self._ends:
            self._take_ends(tick)
        # where no pid was given there is nothing that could be claimed
        if begun_at != self._last_pid or self._unobserved.unclaimed:
            missed = self._unobserved.missed_by_supervisor(self._noted_faults)
            tick.suspicious |= missed != 0
            tick.unseen_faults += max(0, missed)
        self._refresh_all(tick)
        if self._account.pending:
            tick.moved = True
            self._settle(now, now)
        self._discover(tick, begun_at)
        self._look_again(tick, begun_at)
        self._refresh_statuses(all_of_them=slow)
        self._ended = tick.removed
        self._count_unobserved(tick, begun_at)
        bound = (
            None
            if self._windows is None
            else self._windows.scan(self._members, tick.vanished, tick.child_faults)
        )
        if self._began is None:
            self._began = now
        main = self._members.get(self._context.root)
        if tick.moved or slow or not self._fast:
            self._sum = self._account.sum(self._members.values())
            self._records.figures(self._members.values(), now)
            self._fast = fast_values(main, self._members.values(), self._sum)
        fast = self._fast + self._unobserved.values()
        if self._windows is not None:
            fast.append(bound if tick.certain else None)
        if not slow:
            return fast + self._not_due
        for member in self._members.values():
            member.retry_io()
        return fast + slow_values(self._proc, now, main, self._members.values(), self._sum)

    def _take_ends(self, tick: Tick) -> None:
        """Take in the exits that the supervisor told of."""
        while self._ends:
            tick.moved = True
            end = self._ends.popleft()
            self._noted_faults += end.minor_faults
            stat = end_stat(end)
            if end.pid in self._context.exclude or (stat is not None and stat.start < self._since):
                continue
            member = self._members.get(end.pid)
            if member is not None and stat is not None and member.stat.start != stat.start:
                member = None
            if member is not None:
                self._remove(member)
                tick.removed[member.pid] = member
            else:
                member = self._account.awaited(end.pid)
            ended = self._ended.get(end.pid)
            if member is None and ended is not None and stat is not None and ended.stat.start == stat.start:
                # its parent lived at the last tick, but did not wait for it: its exit has been told
                self._account.reaped(end, ended.io)
                continue
            if member is None:
                tick.new.append((end.pid, 1))
                self._seen += 1
            known = 0 if member is None else member.stat.child_minor_faults
            tick.suspicious |= stat is None or stat.child_minor_faults != known
            tick.blind |= stat is None
            tick.heedless |= end_ignores_children(end)
            tick.unseen_faults += 0 if stat is None else max(0, stat.child_minor_faults - known)
            self._account.reaped(end, None if member is None else member.io)
            self._records.reaped(end, member)
            rss = 0 if member is None else member.rss
            tick.vanished.append(Vanished(end.pid, rss, 0, end.max_rss))

    def _refresh_all(self, tick: Tick) -> None:
        for member in list(self._members.values()):
            old = member.stat
            try:
                changed = member.refresh()
                if member.shares_memory and not self._shares(member):
                    member.leaves_parent()
                    changed = member.refresh() or changed
            except GONE:
                self._vanish(member, tick)
                continue
            tick.moved |= changed
            stat = member.stat
            if stat is old:
                continue
            if stat.threads > old.threads:
                tick.threads += stat.threads - old.threads
            if stat.child_minor_faults != old.child_minor_faults:
                tick.child_minor_faults += stat.child_minor_faults - old.child_minor_faults
                tick.child_faults += stat.child_minor_faults - old.child_minor_faults
                tick.child_faults += stat.child_major_faults - old.child_major_faults
            self._records.executed(member, tick.now)

    def _vanish(self, member: Member, tick: Tick) -> None:
        """A member is gone: find out who waited for it, and so where its totals are."""
        self._remove(member)
        tick.moved = True
        tick.removed[member.pid] = member
        ppid = member.stat.ppid
        parent = self._members.get(ppid) or tick.removed.get(ppid)
        if ppid == self._adopter:
            # its reaped children's page faults are told with its own, at the next tick
            tick.blind, tick.certain = True, False
            self._account.vanished(member, tick.now, Fate.OURS)
            return
        faults = member.stat.minor_faults + member.stat.major_faults
        tick.vanished.append(Vanished(member.pid, member.rss, faults, None))
        if ppid in self._members and not self._members[ppid].ignores_children:
            tick.known_minor_faults += member.stat.minor_faults + member.stat.child_minor_faults
            self._records.gone(member, tick.now)
            return
        tick.suspicious, tick.blind, tick.certain = True, True, False
        heeded = parent is not None and not parent.ignores_children
        self._account.vanished(member, tick.now, Fate.PARENTS if heeded else Fate.NOBODYS)

    def _settle(self, now: float, until: float) -> None:
        """Give up waiting for exact figures of members for which they were due before `until`."""
        for gone in self._account.overdue(until):
            self._records.gone(gone.member, now, unreaped=gone.fate is Fate.NOBODYS)

    def _remove(self, member: Member) -> None:
        del self._members[member.pid]
        member.close()

    def _discover(self, tick: Tick, last: int) -> None:
        """Look for processes that began before the tick; pids given since, until `last`, tell whether there are any."""
        earlier, self._looked_at = self._looked_at, last
        moved = self._forks.between(earlier, last)
        if not self._members and self._seen == 0:
            self._add(self._context.root, tick)
        if self._walk_pace.due(tick.now) or (
            moved and not self._discovery.cheaper_to_probe(moved, self._members)
        ):
            self._discovery.walk(self._members, lambda pid: self._add(pid, tick))
        elif moved:
            pids = self._forks.given(earlier, last)
            tick.strangers = self._discovery.probe(pids, self._members, lambda pid: self._add(pid, tick))

    def _look_again(self, tick: Tick, last: int) -> None:
        """Reads the members again where one has waited, since it was read, for what the discovery came too late for.

        The next tick would have told, and that child would have been taken for one that began after this tick.
        """
        given = self._forks.between(self._last_pid, last)
        if (
            not tick.suspicious
            and given > self._explained(tick, given)
            and any(member.has_waited() for member in self._members.values())
        ):
            self._refresh_all(tick)

    def _explained(self, tick: Tick, given: int) -> int:
        """How many of the pids given since the tick before are known."""
        # what was there before, and is seen only now, has used none of these pids
        known = [*tick.new, *((pid, 1) for pid in tick.strangers)]
        return tick.threads + sum(
            pids for pid, pids in known if 0 < self._forks.between(self._last_pid, pid) <= given
        )

    def _add(self, pid: int, tick: Tick) -> bool:
        """Take a process into the tree; `False` when it has gone already."""
        try:
            member = Member(self._proc, pid, self._descriptors)
        except (OSError, ValueError):
            return False
        if self._shares(member):
            member.shares_memory = True
            member.rss = 0
        try:
            member.refresh_status()
        except (OSError, ValueError):
            member.close()
            return False
        self._members[pid] = member
        if self._began is not None and not self._context.adopt and member.start < self._began:
            self._account.joined(member)
        tick.moved = True
        self._seen += 1
        tick.new.append((pid, member.stat.threads))
        tick.suspicious |= member.stat.child_minor_faults > 0
        tick.unseen_faults += member.stat.child_minor_faults
        self._records.seen(member, tick.now)
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

    def _refresh_statuses(self, *, all_of_them: bool) -> None:
        """Read watermarks: of those members of a small tree of which something has changed, of a large one's in turn.

        A process that had no page fault has no more memory than before; what another process brought into it is
        found when `all_of_them` are read: the watermark stays until then.
        """
        if self._windows is not None:
            return
        members = list(self._members.values())
        if len(members) > EVERY_STATUS:
            count = max(1, int(len(members) * self._context.interval / ROUND_SECONDS) + 1)
            self._round %= len(members)
            members = (members + members)[self._round : self._round + min(count, len(members))]
            self._round += count
        elif not all_of_them:
            members = [member for member in members if member.stirred]
        for member in members:
            try:
                member.refresh_status()
            except GONE:
                continue

    def _count_unobserved(self, tick: Tick, begun_at: int) -> None:
        if begun_at == self._last_pid and not self._unobserved.unclaimed and not tick.tells_of_children:
            # Whatever is given a pid meanwhile has not been seen and left no sign: the next tick counts it.
            self._unobserved.quiet()
            return
        ended_at = self._forks.read()
        if ended_at == self._last_pid and not self._unobserved.unclaimed:
            self._unobserved.quiet()
            return
        given = self._forks.between(self._last_pid, ended_at)
        late = self._forks.between(begun_at, ended_at)
        explained = self._explained(tick, given)
        self._last_pid = ended_at
        heedless = tick.heedless or any(
            m.ignores_children for m in (*self._members.values(), *tick.removed.values())
        )
        tick.suspicious |= heedless or tick.child_minor_faults != tick.known_minor_faults
        faults = tick.unseen_faults + tick.child_faults - tick.known_minor_faults
        self._unobserved.tick(
            given,
            late,
            explained,
            suspicious=tick.suspicious,
            faults=None if heedless or tick.blind else faults,
        )
