"""Whether a tick now is worth its cost, where no control group tells what the tree needs.

What is gained between two ticks may have been given back before the second: page faults count it, and nobody sees it any
more, so that it widens the upper bound of what is needed. The nearer the ticks, the less there is of it; near ticks all
the time would cost what a monitor must not. They matter where much was given back, and where the bound would be the
largest so far: of a tree that only grows each tick sees all. And they matter where there is clearly more than ever
was seen: if it is gone before the next tick, nobody has. All of it can be told from stat and statm alone, a tenth
of what a tick costs.
"""

from __future__ import annotations

import math

from otel_memwatch.monitor.sampling.sources.process_tree.member import own_faults
from otel_memwatch.runtime.kernel import PAGE_SIZE
from otel_memwatch.runtime.procfs.process import parse_stat
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from otel_memwatch.monitor.sampling.sources.process_tree.fault_bounds import NeededNow
    from otel_memwatch.monitor.sampling.sources.process_tree.member import Member

SHARE = 0.03
"""Part of the tree's largest memory so far that it may give back between two ticks."""
LEAST = 1 << 20
"""Bytes that it always may: the stated error of a figure that is called exact."""
GROWTH = 0.1
"""Part of the most that was certainly there which the tree has to have beyond it: from 10 MiB to 10 GiB in 73 steps."""
WITHIN = 0.01
"""Seconds to a glance, at the least."""
PATIENCE = 10
"""Glances that find nothing, after which these seconds double: a program that does nothing is left alone."""
LONGEST_INTERVAL = 0.1
"""Interval of ticks, in seconds, up to which some are called for: who asks for fewer ticks than usual gets no more."""


class Moved(NamedTuple):
    """What the tree has gained, and given back, since it was scanned. Bytes."""

    gained: int
    given_back: int


class BetweenTicks:
    """Told after each scan what it has found, and asked between them.

    Args:
        interval: seconds between ticks.
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._kept = 0
        """Bytes that the tree had at most at the end of the last scan."""
        self._most = 0
        """The largest bound of a window so far."""
        self._least = self._low = 0
        """The most that was certainly there so far, and what was at the last scan."""
        self._idle = 0
        """Glances, one after the other, that found nothing."""
        self.within = math.inf
        """Seconds after which a glance is worth its cost; infinite: none is."""

    @property
    def little(self) -> float:
        """Bytes that are not worth a tick."""
        return max(LEAST, SHARE * self._least)

    def scanned(self, told: NeededNow, unseen: int | None, kept: int) -> None:
        """Take in a scan.

        Args:
            told: what it has found.
            unseen: bytes that processes gained which nobody sees any more; `None`: not known.
            kept: bytes that there are at most at its end.
        """
        had, self._kept = self._kept, kept
        if told.high is None or unseen is None or self._interval > LONGEST_INTERVAL:
            self.within = math.inf
            return
        high = told.high + unseen
        self._low = told.low or 0
        self._most, self._least = max(self._most, high), max(self._least, self._low)
        if high - max(kept, had) > self.little or math.isinf(self.within):
            self._idle, self.within = 0, WITHIN

    def is_worth_it(self, moved: Moved) -> bool:
        """Whether a tick now keeps the bounds nearer, by what has moved since the last."""
        if moved.gained + moved.given_back <= self.little / 4:
            self._idle += 1
            self.within = min(WITHIN * 2 ** (self._idle // PATIENCE), self._interval)
            return False
        self._idle, self.within = 0, WITHIN
        if self._low + moved.gained - moved.given_back > self._least + max(LEAST, GROWTH * self._least):
            return True
        # As much as was gained, or given back, may come until the next glance, and be counted in the same window.
        most = self._kept + moved.gained + max(moved.gained, moved.given_back)
        return moved.given_back > self.little and most > self._most


def moved_since(members: Mapping[int, Member], scanned: Callable[[int], tuple[int, int]]) -> Moved:
    """What the members have gained and given back since they were scanned.

    Args:
        members: by their pids.
        scanned: gives the page faults and the bytes of private memory with which a process was scanned.
    """
    gained = given_back = 0
    left: dict[int, int] = {}
    for pid, member in members.items():
        base, held = scanned(pid)
        try:
            stat = parse_stat(member.stat_file.read())
            now = member.read_private()
        except OSError:
            # Its parent inherits its page faults, if it has waited for it.
            given_back += held
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
    ended_gained = PAGE_SIZE * sum(max(0, faults) for faults in left.values())
    return Moved(gained + ended_gained, given_back + ended_gained)
