"""The bound of the processes that nobody saw."""

from __future__ import annotations

import resource


class Unobserved:
    """Upper bound of the processes that began and ended between two ticks.

    A process that nobody saw used up a pid, and somebody waited for it, whose figures of reaped children then rose by
    its page faults. So the bound of a tick is

    * 0, when no pid was given since the tick before (nor in the one before that, which see below);
    * 0, when the members' counts of reaped children's faults moved by what the members that vanished are known to have
      had, and no more; and every one of these was waited for by a member or by us; and what we waited for, and what was
      seen for the first time, brought no reaped children of its own; and no member ignores SIGCHLD;
    * else the pids given, less the processes that were seen for the first time, less the threads that members have
      more than before, not below 0. Other programs' processes and threads are in it: on a busy machine the bound is
      generous, never too small.

    What they can have had is bounded besides: memory of its own costs a process a page fault at least, and those of unseen
    children are in the counts of whoever waited for them (`faults`), unless somebody ignores SIGCHLD.

    Two things happen while a tick is taken. Pids that were given then may already have been seen and are counted in the
    next tick: what was given during a tick is not explained away in the next. A process may have used its pid in one
    tick and have been reaped in the next: a tick with signs of unseen children claims the unexplained pids of the
    tick before too.

    Not found: children of a process that sets SA_NOCLDWAIT without ignoring SIGCHLD, which cannot be seen from outside;
    nor those of a process that ignores SIGCHLD, where no tick saw that one either and another process waited for it.
    """

    def __init__(self) -> None:
        self.total = 0
        self.faults = 0
        """Page faults of unseen processes, those of known ones after they were last read included."""
        self.blind = False
        """In the last tick there may have been processes whose page faults nobody was told."""
        self._late = 0
        self.unclaimed = 0
        """Pids of the tick before that nothing explains, and that a sign of unseen children would claim."""
        self._fault_gap = _own_reaped_faults()

    def values(self) -> list[int | None]:
        """Values of the columns memwatch.tree.unobserved and memwatch.tree.unobserved.faults."""
        return [self.total, None if self.blind else self.faults]

    def missed_by_supervisor(self, noted_faults: int) -> int:
        """Page faults of children that our own process has waited for since the last call and that nobody told of.

        Args:
            noted_faults: minor faults of all the children that were told of.
        """
        gap = _own_reaped_faults() - noted_faults
        moved, self._fault_gap = gap - self._fault_gap, gap
        return moved

    def quiet(self) -> None:
        """Close a tick in which no pid was given, after one that left nothing unclaimed."""
        self._late = 0
        self.blind = False

    def tick(self, given: int, late: int, explained: int, *, suspicious: bool, faults: int | None) -> None:
        """Close a tick.

        Args:
            given: pids given since the tick before.
            late: those of them given during this tick.
            explained: those of them that are known.
            suspicious: there are signs of unseen children.
            faults: page faults that are not known processes'; `None`: there may be some that nobody was told of.
        """
        self.blind = faults is None
        self.faults += max(0, faults or 0)
        unexplained = max(0, given - max(0, explained - self._late))
        self._late = late
        if suspicious:
            self.total += unexplained + self.unclaimed
            unexplained = 0
        self.unclaimed = unexplained


def _own_reaped_faults() -> int:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
