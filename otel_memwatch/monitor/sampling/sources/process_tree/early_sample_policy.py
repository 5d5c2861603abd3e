"""Policy of early samples, for runs without a cgroup.

Page faults count memory that a process gains and releases between two samples, but no sample sees it. So it widens the
upper bound of memory needed. Frequent samples narrow it, but cost too much all the time. An early sample pays in two
cases:

* The tree released much memory, and its bound would be the largest so far. Every sample sees a growing tree.
* The tree has clearly more memory than any sample saw. The memory may be gone at the next sample.

Both need stat and statm alone, at a tenth of the cost of a sample.
"""

from __future__ import annotations

import math

from otel_memwatch.monitor.sampling.sources.process_tree.member import own_faults
from otel_memwatch.runtime.kernel import PAGE_SIZE
from otel_memwatch.runtime.procfs.process import parse_stat
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from otel_memwatch.monitor.sampling.auto_interval import AutoInterval
    from otel_memwatch.monitor.sampling.sources.process_tree.fault_bounds import NeededNow
    from otel_memwatch.monitor.sampling.sources.process_tree.member import Member

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


NO_CHANGE = PrivateMemoryChange(0, 0)


class EarlySamplePolicy:
    """Decision between samples whether an early one pays.

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
        self.within = math.inf
        """Seconds until the next probe; infinite: none."""

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
        had, self._kept = self._kept, kept
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
            return False
        self._idle, self.within = 0, WITHIN
        if self._low + moved.gained - moved.given_back > self._least + max(LEAST, GROWTH * self._least):
            return True
        # The same amount may be gained or released until the next probe and count in the same window.
        most = self._kept + moved.gained + max(moved.gained, moved.given_back)
        return moved.given_back > self.little and most > self._most


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
