"""Upper bounds of unseen processes, from two ledgers: one of pids, one of page faults. `Placements` counts stays on processors.

No sample reads a process that started and ended between two samples, but the process left two traces:

* It used a pid.
* The process that waited for it inherited its page faults. Every process has some.

So each sample has an upper bound of such processes:

* 0, if the kernel assigned no pid since the previous sample, and that sample left no pid unclaimed (see below).
* 0, if the ledger of page faults shows no sign of unseen processes.
* Otherwise the number of pids assigned, less pids of processes seen for the first time, less pids of members' new
  threads, but at least 0. It includes pids of other programs, except probed ones. On a busy machine the bound is
  generous, never too small.

The ledger of page faults can show a sign for each way to wait for an unseen process:

============================================  ==============================================  ==========================
reaped by                                     the sign                                        entered by
============================================  ==============================================  ==========================
a member                                      its reaped children had more faults than the    `inherited_by_member`,
                                              last readings of the vanished members           `left_to_member`
the monitor itself                            the monitor inherited more faults than the      `compare_with_own`
                                              supervisor reported by the next sample
a process that the monitor waited for         it had inherited more than at its reading       `ended`
a process new in this sample                  it has inherited some already                   `joined`
a process that vanished with its parent       it vanished                                     `left_to_ancestor`
a process that vanished, heir of its faults   it vanished                                     `left_to_nobody_known`
unknown
no process, since its parent ignores SIGCHLD  a process has ignored SIGCHLD since the start   `close`
============================================  ==============================================  ==========================

The ledger also bounds the memory of unseen processes. Private memory costs a process at least one page fault, and the
inherited faults include theirs, unless a process ignores SIGCHLD.

A sample takes time, which has two effects:

* The kernel assigns pids that the discovery at the sample's beginning did not search for. Their processes may have been
  seen already, and the next sample counts them. So pids assigned during a sample explain no other pid in the next.
* A process may use its pid in one sample and be reaped in the next. So a sample with a sign of unseen processes also
  claims the unexplained pids of the previous sample.

Two kinds of processes remain undetected:

* Children of a process that sets SA_NOCLDWAIT without ignoring SIGCHLD. This is invisible from outside.
* Children of an unseen process that ignores SIGCHLD and was reaped by another process, unless an earlier process of the
  tree is known to have ignored it.
"""

from __future__ import annotations

import resource

from otel_memwatch.runtime.exactness import EXACT_BYTES
from otel_memwatch.runtime.kernel import packets, processors
from otel_memwatch.runtime.procfs.process import parse_first_thread
from otel_memwatch.runtime.threads import recent_pids
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.truth.cgroup_windows import charge_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from otel_memwatch.model import ChildExit
    from otel_memwatch.monitor.sampling.repeated import WatchedFile
    from otel_memwatch.monitor.sampling.sources import Context
    from otel_memwatch.monitor.sampling.sources.process_tree.discovery import ForkCounter
    from otel_memwatch.runtime.procfs.process import Stat


class PidLedger:
    """Assigned pids and their known owners. A sample lasts from `open` to `close`.

    Args:
        forks: reads the last pid assigned.
        last: processes with later pids may belong to the tree, and may have ended already.
    """

    def __init__(self, forks: ForkCounter, last: int) -> None:
        self.seen = 0
        """Processes of the tree seen alive or reaped by us so far."""
        self.unobserved = 0
        """Upper bound of unseen processes so far."""
        self.settled = True
        """The kernel assigned no pid until this sample began, and none is unclaimed: no process can be unseen."""
        self.all_known = False
        """The owners of all pids assigned until this sample are known."""
        self.given_in_scan = 0
        """Pids assigned from the beginning of a sample to the end of its scan of memory needed, at the last scan."""
        self.moved = False
        """This sample found new processes or threads."""
        self._forks = forks
        self._given = 0
        """Pids assigned until `_last`."""
        self._first = self._last = last
        """Last pid that the previous samples have accounted for."""
        self._looked_for = last
        """Last pid that the discovery has searched for."""
        self.begun = self._ended = last
        """Last pid at the beginning and at the end of this sample."""
        self._late = 0
        """Pids assigned during the previous sample, which count in this one."""
        self._unclaimed = 0
        """Unexplained pids of the previous sample, which a sign of unseen processes would claim."""
        self._joined: list[tuple[int, int]] = []
        """Processes new in this sample: the pid, and the number of pids that its threads used."""
        self._strangers: Sequence[int] = ()
        """Recent pids of living processes outside the tree."""
        self._threads = 0
        """New threads of members since the previous sample."""

    def open(self) -> None:
        """Begin a sample. Raises `OSError` without /proc."""
        self.begun = self._forks.read()
        self.settled = self.begun == self._last and not self._unclaimed
        if self.moved:
            self.moved, self._threads = False, 0
            self._joined = []
        self._strangers = ()

    def rest(self) -> bool:
        """Return whether the kernel has assigned no pid since the last sample, and none is unclaimed."""
        return not self._unclaimed and self._forks.read() == self._last

    def file_at_rest(self) -> WatchedFile | None:
        """Return the file that stays as it is while `rest` returns `True`; `None`: a pid is unclaimed, or the file is not open."""
        return None if self._unclaimed else self._forks.file_with(self._last)

    def given_to_ended(self, most: int) -> int:
        """Return the number of pids assigned so far to threads that have ended, of any program but the monitor.

        If there are more than `most` pids, all count: to check one takes 5 us.
        """
        given = self._given + self._forks.between(self._last, self._forks.read())
        if given > most:
            return given
        pids, own = self._forks.given(self._first, self._first + given), set(recent_pids)
        return sum(pid not in own and not self._forks.lives(pid) for pid in pids)

    def joined(self, pid: int, threads: int = 1) -> None:
        """Add a process seen for the first time. Each of its threads has used a pid."""
        self.seen += 1
        self.moved = True
        self._joined.append((pid, threads))

    def threads_began(self, count: int) -> None:
        """Add new threads of a member."""
        self.moved = True
        self._threads += count

    def are_strangers(self, pids: Sequence[int]) -> None:
        """Set the recent pids of living processes outside the tree."""
        self._strangers = pids

    def not_looked_for(self) -> tuple[int, Iterable[int]]:
        """Return number and values of pids assigned before this sample and not searched for. Marks them as searched."""
        before, self._looked_for = self._looked_for, self.begun
        if before == self.begun:
            return 0, ()
        return self._forks.between(before, self.begun), self._forks.given(before, self.begun)

    def unexplained(self) -> bool:
        """Return whether pids assigned before this sample have unknown owners."""
        if self.begun == self._last:
            return False
        given = self._forks.between(self._last, self.begun)
        return given > self._explained(given)

    def _explained(self, given: int) -> int:
        """Return the number of known pids among those assigned since the previous sample."""
        known = [*self._joined, *((pid, 1) for pid in self._strangers)]
        # A process older than the previous sample has used none of these pids, even if it is seen only now.
        return self._threads + sum(
            pids for pid, pids in known if 0 < self._forks.between(self._last, pid) <= given
        )

    def close_if_none_given(self, *, signs: bool) -> bool:
        """End a sample without assigned or unclaimed pids. Return `False` if one exists.

        Pids assigned during a sample without `signs` count in the next one: their processes have left no sign.
        """
        self._ended = self._forks.read() if signs or not self.settled else self.begun
        if self._ended != self._last or self._unclaimed:
            return False
        self._late = 0
        self.all_known = True
        return True

    def close(self, *, suspicious: bool) -> None:
        """End a sample. `suspicious`: the ledger of page faults has a sign of unseen processes."""
        given = self._forks.between(self._last, self._ended)
        unexplained = max(0, given - max(0, self._explained(given) - self._late))
        self._late = self._forks.between(self.begun, self._ended)
        self._last, self._given = self._ended, self._given + given
        self.all_known = not (unexplained or self._unclaimed or self._late)
        if suspicious:
            self.unobserved += unexplained + self._unclaimed
            unexplained = 0
        self._unclaimed = unexplained


def _unknown() -> None:
    return None


class FaultLedger:
    """Page faults inherited from reaped children, and their sources. A sample lasts from `open` to `close`.

    The balance of minor faults decides about unseen processes: every process has some.
    """

    def __init__(self) -> None:
        self._unseen_total = 0
        self._all_reported = True
        self._reported_by_supervisor = 0
        self._awaited: set[int] = set()
        """Vanished members that the supervisor waits for. Their last faults are not reported yet."""
        self._own_gap = _own_inherited_faults()
        """Page faults inherited by the monitor's process, less those reported by the supervisor, as far as counted."""
        self._own_new = 0
        """Faults beyond these at the previous comparison: the supervisor may be about to report them."""
        self._ignored_sigchld = False
        """A process of the tree has ignored SIGCHLD. Unseen ones may do the same from then on."""
        self.open()

    def open(self) -> None:
        """Begin a sample."""
        self.suspicious = False
        """Unseen processes are possible."""
        self.inherited = 0
        """Faults, minor and major, that living members have inherited since the previous sample."""
        self._inherited_minor = 0
        self._left = 0
        """Minor faults among them that come from vanished members."""
        self._unseen = 0
        """Faults of unknown children, without those in `inherited`."""
        self.own_moved = False
        """Our process has inherited page faults that the supervisor has not reported by the next sample."""
        self._unreported = False
        """The faults of a process that we waited for are unreadable."""
        self._lost = False
        """Processes with faults outside all our readings are possible."""

    @property
    def signs(self) -> bool:
        """Return whether this sample has entries about ended children."""
        return self.suspicious or self.awaits or self._lost or bool(self._unseen or self.inherited)

    @property
    def awaits(self) -> bool:
        """Return whether the supervisor has yet to report faults of processes that it has waited for."""
        return bool(self._awaited or self._own_new)

    @property
    def unseen(self) -> int | None:
        """Return faults of unseen processes so far, and of known ones after their last reading.

        `None`: in the last sample, processes with faults outside all our readings are possible.
        """
        return self._unseen_total if self._all_reported else None

    def reported(self, pid: int, minor_faults: int) -> None:
        """Add faults that the monitor inherited when the supervisor waited for a child of any kind."""
        self._awaited.discard(pid)
        self._reported_by_supervisor += minor_faults

    def compare_with_own(self) -> None:
        """Detect reaped children of our process that the supervisor did not report, even by the next sample."""
        gap = _own_inherited_faults() - self._reported_by_supervisor
        new = max(0, gap - self._own_gap)
        late = min(new, self._own_new)
        self._own_gap, self._own_new = min(gap, self._own_gap) + late, new - late
        self.own_moved = late > 0
        self.suspicious |= self.own_moved
        self._unseen += late

    def ended(
        self, stat: Stat | None, known_child_faults: int, known_child_major: int = 0, *, ignored_sigchld: bool
    ) -> None:
        """Add a process of the tree that we waited for.

        Args:
            stat: its last stat; `None`: unreadable.
            known_child_faults: minor faults inherited until its last sample.
            known_child_major: major faults inherited until its last sample.
            ignored_sigchld: it ignored SIGCHLD at its end.
        """
        self._ignored_sigchld |= ignored_sigchld
        if stat is None:
            self.suspicious = self._unreported = True
            return
        self.suspicious |= stat.child_minor_faults != known_child_faults
        self._unseen += max(0, stat.child_minor_faults - known_child_faults)
        self._unseen += max(0, stat.child_major_faults - known_child_major)

    def joined(self, stat: Stat) -> None:
        """Add a process seen for the first time. It inherited its faults so far from unseen processes."""
        self.suspicious |= stat.child_minor_faults > 0
        self._unseen += stat.child_minor_faults + stat.child_major_faults

    def inherited_by_member(self, before: Stat, now: Stat) -> None:
        """Add faults that a member inherited between two readings."""
        minor = now.child_minor_faults - before.child_minor_faults
        self._inherited_minor += minor
        self.inherited += minor + now.child_major_faults - before.child_major_faults

    def left_to_member(self, stat: Stat) -> None:
        """Add a vanished member reaped by a living member. These faults come from no unseen process."""
        self._left += stat.minor_faults + stat.child_minor_faults

    def left_to_ancestor(self, stat: Stat) -> None:
        """Add a member that vanished with its parent.

        Either an ancestor has inherited these faults, or we wait for the member (`was_left_to_us`).
        """
        self.suspicious = True
        self._left += stat.minor_faults + stat.child_minor_faults

    def was_left_to_us(self, stat: Stat) -> None:
        """Correct the previous sample, which assumed that an ancestor reaped this member.

        We waited for it, so no ancestor has inherited these faults.
        """
        self.suspicious = True
        self._unseen += stat.minor_faults + stat.child_minor_faults

    def left_to_us(self, pid: int) -> None:
        """Note a vanished member that the supervisor waits for. A later sample has the report of its faults."""
        self._awaited.add(pid)

    def left_to_nobody_known(self) -> None:
        """Note a vanished member with an unknown heir of its faults."""
        self.suspicious = self._lost = True

    def close_if_none_given(self, allocated: Callable[[], int | None] = _unknown) -> None:
        """End a sample without assigned pids.

        No process can be unseen, but known processes can have faults between their last reading and their end.
        `allocated`: as for `close`.
        """
        self._end(allocated)

    def close(self, allocated: Callable[[], int | None] = _unknown, *, ignores_sigchld: bool) -> None:
        """End a sample; then `suspicious` is final.

        Args:
            allocated: returns the pages that the machine has allocated since the previous sample began; `None`: unknown.
            ignores_sigchld: a living or vanished member ignores SIGCHLD.
        """
        self._ignored_sigchld |= ignores_sigchld
        self._lost |= self._ignored_sigchld
        self.suspicious |= self._lost or self._inherited_minor != self._left
        self._end(allocated)

    def _end(self, allocated: Callable[[], int | None]) -> None:
        lost = 0
        if self._lost and not self._unreported:
            # Each page that a lost fault brought was allocated.
            pages = allocated()
            self._unreported, lost = pages is None, pages or 0
        self._all_reported = not self._unreported
        self._unseen_total += lost + max(0, self._unseen + self.inherited - self._left)


class Placements:
    """Stays of threads of the run on processors: the evidence for `truth.cgroup_windows.low_on_few_processors`.

    They are counted if the run has a dedicated cgroup, and so many processors that its figures are inexact.
    """

    def __init__(self, context: Context, pids: PidLedger) -> None:
        self._pids = pids
        self._packets = None if context.own_cgroup is None else context.own_cgroup.packets
        inexact = context.own_cgroup is not None and charge_error(processors()) > EXACT_BYTES
        self._again: int | None = 0 if inexact and context.adopt else None
        """Times that threads of processes that we waited for ran again after a pause; `None`: not counted."""
        self._ended = 0
        """Number of these processes."""
        self._lone = False
        """The last of them had no other thread and no child."""

    def ended(self, end: ChildExit, *, lone: bool) -> None:
        """Add a process that we waited for, and the descendants that it waited for.

        Each context switch ends a stay on a processor. Of the target's first thread, the changes of processor are known.
        """
        self._ended += 1
        self._lone = lone
        if self._again is None or end.switches is None:
            self._again = None
            return
        self._again += end.switches
        first = parse_first_thread(end.sched)
        if first is not None:
            self._again -= max(0, min(end.switches, first.switches) - first.migrations)

    def most(self) -> int | None:
        """Return the most times so far; `None`: not counted. Each thread has a pid, and begins once.

        Once all processes of the run have ended, threads that live are of other programs, such as the monitor. A processor
        that has received a packet may have charged it to the run, as if it had run one of its threads.
        """
        if self._again is None:
            return None
        cpus, pids = processors(), 0
        if not (self._lone and self._ended == 1):
            pids = self._pids.given_to_ended(most=2 * cpus if self._again < cpus else 0)
        return 1 + self._again + pids + self._received(cpus)

    def _received(self, cpus: int) -> int:
        """Return the number of processors that have handled packets since the cgroup was made."""
        if self._packets is None:
            return 0
        now = packets()
        if not now or len(now) != len(self._packets):
            return cpus
        return sum(before != after for before, after in zip(self._packets, now, strict=True))


def _own_inherited_faults() -> int:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
