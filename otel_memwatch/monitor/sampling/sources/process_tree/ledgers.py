"""The processes that nobody saw, bounded by two ledgers: one of pids, one of page faults.

A process that began and ended between two ticks was read by nobody, but it left two traces: it used up a pid, and whoever
waited for it inherited its page faults, of which every process has some. So at each tick an upper bound of such
processes follows. It is

* 0, where no pid was given since the tick before, and that tick left no pid unclaimed (see below);
* 0, where the ledger of page faults shows no sign of them;
* else the pids given, less those of processes seen for the first time, less those of threads that members have more than
  before, not below 0. Pids of other programs are in it, but for those that were looked at: on a busy machine the
  bound is generous, never too small.

The ledger of page faults can show a sign for each way in which a process can have been waited for unseen:

============================================  ==============================================  ==========================
who waited for it                             the sign                                        entered by
============================================  ==============================================  ==========================
a member                                      its reaped children had more faults than the    `inherited_by_member`,
                                              members that vanished are known to have had     `left_to_member`
the monitor itself                            the monitor inherited more faults than the      `compare_with_own`
                                              supervisor reported
a process that the monitor waited for         it had inherited more than when it was read     `ended`
a process that a tick sees for the first      it has inherited some already                   `joined`
time
a process that vanished with its parent       that it vanished                                `left_to_ancestor`
a process that vanished, nobody knows where   that it vanished                                `left_to_nobody_known`
its faults have gone
nobody, since a member ignores SIGCHLD        that it ignores SIGCHLD                         `close`
============================================  ==============================================  ==========================

What unseen processes can have had is bounded besides: memory of its own costs a process a page fault at least, and their
faults are among those inherited, unless somebody ignores SIGCHLD.

Two things happen while a tick is taken, which takes time:

* Pids are given that the discovery at its beginning has not looked for. Their processes may have been seen already, and
  are counted in the next tick: so what was given during a tick explains nothing away in the next.
* A process may have used its pid in one tick and be waited for in the next. So a tick with a sign of unseen processes
  claims the unexplained pids of the tick before too.

Not found: children of a process that sets SA_NOCLDWAIT without ignoring SIGCHLD, which cannot be seen from outside; nor
those of a process that ignores SIGCHLD, where no tick saw that one either and another process waited for it.
"""

from __future__ import annotations

import resource

from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_memwatch.monitor.sampling.sources.process_tree.discovery import ForkCounter
    from otel_memwatch.runtime.procfs.process import Stat


class PidLedger:
    """The pids that the kernel has given, and which of them are known to be whose. A tick goes from `open` to `close`.

    Args:
        forks: shows the last pid that was given.
        last: whatever got a later pid than this may have been of the tree, and be gone by now.
    """

    def __init__(self, forks: ForkCounter, last: int) -> None:
        self.seen = 0
        """Processes of the tree so far that were seen alive, or that we waited for."""
        self.unobserved = 0
        """Upper bound of the others."""
        self.settled = True
        """No pid was given until this tick began, and none is left to be claimed: nobody can have been unseen."""
        self.all_known = False
        """Of all pids that were given until this tick it is known whose they are."""
        self.given_in_scan = 0
        """Pids that were given from the beginning of a tick to the end of its scan of what the tree needs, at the last of these."""
        self.moved = False
        """Processes or threads were found in this tick that are new."""
        self._forks = forks
        self._last = last
        """The last pid that the ticks before have accounted for."""
        self._looked_for = last
        """The last pid that the discovery has looked for."""
        self.begun = self._ended = last
        """The last pid as of the beginning and the end of this tick."""
        self._late = 0
        """Pids that were given during the tick before, and count in this one."""
        self._unclaimed = 0
        """Pids of the tick before that nothing explains, and that a sign of unseen processes would claim."""
        self._joined: list[tuple[int, int]] = []
        """Processes that this tick has seen for the first time: the pid, and how many its threads have used."""
        self._strangers: Sequence[int] = ()
        """Pids given lately to processes that live and are not of the tree."""
        self._threads = 0
        """Threads that members have more than at the tick before."""

    def open(self) -> None:
        """Begin a tick. Raises `OSError` without /proc."""
        self.begun = self._forks.read()
        self.settled = self.begun == self._last and not self._unclaimed
        if self.moved:
            self.moved, self._threads = False, 0
            self._joined = []
        self._strangers = ()

    def joined(self, pid: int, threads: int = 1) -> None:
        """A process is seen for the first time; each of its threads has used a pid."""
        self.seen += 1
        self.moved = True
        self._joined.append((pid, threads))

    def threads_began(self, count: int) -> None:
        """A member has this many more threads."""
        self.moved = True
        self._threads += count

    def are_strangers(self, pids: Sequence[int]) -> None:
        """These pids, given lately, are of processes that live and are not of the tree."""
        self._strangers = pids

    def not_looked_for(self) -> tuple[int, Iterable[int]]:
        """How many pids were given, until this tick began, that have not been looked for; and which. From now on they have."""
        before, self._looked_for = self._looked_for, self.begun
        if before == self.begun:
            return 0, ()
        return self._forks.between(before, self.begun), self._forks.given(before, self.begun)

    def unexplained(self) -> bool:
        """Whether pids were given until this tick began of which nobody knows whose they are."""
        if self.begun == self._last:
            return False
        given = self._forks.between(self._last, self.begun)
        return given > self._explained(given)

    def _explained(self, given: int) -> int:
        """How many of the pids given since the tick before are known."""
        known = [*self._joined, *((pid, 1) for pid in self._strangers)]
        # A process that is older than the tick before, and is only seen now, has used none of these pids.
        return self._threads + sum(
            pids for pid, pids in known if 0 < self._forks.between(self._last, pid) <= given
        )

    def close_if_none_given(self, *, signs: bool) -> bool:
        """End a tick in which no pid was given, after one that left none unclaimed; `False`: there was one.

        Pids that are given while a tick without `signs` is taken are left to the next: whoever got one has left no sign.
        """
        self._ended = self._forks.read() if signs or not self.settled else self.begun
        if self._ended != self._last or self._unclaimed:
            return False
        self._late = 0
        self.all_known = True
        return True

    def close(self, *, suspicious: bool) -> None:
        """End a tick. `suspicious`: the ledger of page faults has a sign of unseen processes."""
        given = self._forks.between(self._last, self._ended)
        unexplained = max(0, given - max(0, self._explained(given) - self._late))
        self._late = self._forks.between(self.begun, self._ended)
        self._last = self._ended
        self.all_known = not (unexplained or self._unclaimed or self._late)
        if suspicious:
            self.unobserved += unexplained + self._unclaimed
            unexplained = 0
        self._unclaimed = unexplained


class FaultLedger:
    """The page faults that were inherited by waiting for children, and whose they were. A tick goes from `open` to `close`.

    The balance that decides about unseen processes is one of minor faults: every process has some.
    """

    def __init__(self) -> None:
        self._unseen_total = 0
        self._all_reported = True
        self._reported_by_supervisor = 0
        self._own_gap = _own_inherited_faults()
        """Page faults that the monitor's process has inherited, less those that the supervisor reported."""
        self.open()

    def open(self) -> None:
        """Begin a tick."""
        self.suspicious = False
        """There may have been processes that were never seen."""
        self.inherited = 0
        """Faults, minor and major, that living members have inherited since the tick before."""
        self._inherited_minor = 0
        self._left = 0
        """Minor faults of them that members which vanished are known to have had."""
        self._unseen = 0
        """Faults of children that are no known process's, beside those among `inherited`."""
        self.own_moved = False
        """Our own process has inherited page faults that the supervisor has not reported."""
        self._unreported = False
        """There may have been processes whose faults are in no figure that we read."""
        self._ignores_sigchld = False
        """A process has ended that ignored SIGCHLD."""

    @property
    def signs(self) -> bool:
        """Whether this tick has entered anything about children that came to an end."""
        return self.suspicious or self._unreported or bool(self._unseen or self.inherited)

    @property
    def unseen(self) -> int | None:
        """Faults of unseen processes so far, with those of known ones after they were last read.

        `None`: in the last tick there may have been processes whose faults are in no figure that we read.
        """
        return self._unseen_total if self._all_reported else None

    def reported(self, minor_faults: int) -> None:
        """The supervisor has waited for a child, whatever it was, and so the monitor has inherited these faults."""
        self._reported_by_supervisor += minor_faults

    def compare_with_own(self) -> None:
        """Look for children of our own process that were waited for, and that the supervisor did not report."""
        gap = _own_inherited_faults() - self._reported_by_supervisor
        moved, self._own_gap = gap - self._own_gap, gap
        self.own_moved = moved > 0
        self.suspicious |= moved != 0
        self._unseen += max(0, moved)

    def ended(
        self, stat: Stat | None, known_child_faults: int, known_child_major: int = 0, *, ignored_sigchld: bool
    ) -> None:
        """A process of the tree was waited for by us.

        Args:
            stat: its last stat; `None`: it could not be read.
            known_child_faults: minor faults that it had inherited when a tick read it last.
            known_child_major: major ones.
            ignored_sigchld: when it ended.
        """
        self._ignores_sigchld |= ignored_sigchld
        if stat is None:
            self.suspicious = self._unreported = True
            return
        self.suspicious |= stat.child_minor_faults != known_child_faults
        self._unseen += max(0, stat.child_minor_faults - known_child_faults)
        self._unseen += max(0, stat.child_major_faults - known_child_major)

    def joined(self, stat: Stat) -> None:
        """A process is seen for the first time: what it has inherited until now was of processes that nobody saw."""
        self.suspicious |= stat.child_minor_faults > 0
        self._unseen += stat.child_minor_faults + stat.child_major_faults

    def inherited_by_member(self, before: Stat, now: Stat) -> None:
        """A member has been read again."""
        minor = now.child_minor_faults - before.child_minor_faults
        self._inherited_minor += minor
        self.inherited += minor + now.child_major_faults - before.child_major_faults

    def left_to_member(self, stat: Stat) -> None:
        """A member has vanished, and a living member has waited for it: these faults were not an unseen process's."""
        self._left += stat.minor_faults + stat.child_minor_faults

    def left_to_ancestor(self, stat: Stat) -> None:
        """A member has vanished with its parent: an ancestor has inherited these faults, or it was left to us (`was_left_to_us`)."""
        self.suspicious = True
        self._left += stat.minor_faults + stat.child_minor_faults

    def was_left_to_us(self, stat: Stat) -> None:
        """A member that the tick before took for an ancestor's was ours to wait for: nobody has inherited these faults."""
        self.suspicious = True
        self._unseen += stat.minor_faults + stat.child_minor_faults

    def left_to_us(self) -> None:
        """A member has vanished that the supervisor is waiting for: its faults will be reported at the next tick."""
        self._unreported = True

    def left_to_nobody_known(self) -> None:
        """A member has vanished, and nobody knows who has inherited its faults."""
        self.suspicious = self._unreported = True

    def close_if_none_given(self) -> None:
        """End a tick in which no pid was given: nobody can have been unseen, but known ones may have gone on until they ended."""
        self._end(known=not self._unreported)

    def close(self, *, ignores_sigchld: bool) -> None:
        """End a tick; then `suspicious` is final. `ignores_sigchld`: a member does, or one that vanished did."""
        ignores_sigchld |= self._ignores_sigchld
        self.suspicious |= ignores_sigchld or self._inherited_minor != self._left
        self._end(known=not (ignores_sigchld or self._unreported))

    def _end(self, *, known: bool) -> None:
        self._all_reported = known
        if known:
            self._unseen_total += max(0, self._unseen + self.inherited - self._left)


def _own_inherited_faults() -> int:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
