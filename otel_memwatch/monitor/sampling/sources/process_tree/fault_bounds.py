"""Bounds of the memory that a tree needs, from page faults and resident private memory, for runs without a cgroup.

The upper bound is one sum for the tree (`truth.faults`: `gained`, `tree_kept`):

* The tree never had more than its memory at the previous scan plus the gains since.
* At a scan it has no more than its processes hold together (`held_memory`; `memory_scan` defines the moments), with what
  they are releasing.

`families` has the lower bound and the best estimate, `shared_memory` the memory that processes share, and the memory that
no page fault brought.

Discovery misses a child born during a sample. The child may hold pages that its parent has released since. So the pids
assigned during the sample are probed, until no pid is assigned during a probe: then all processes have been read. The
child's faults and memory count. If births never pause, memory held bounds nothing at that scan.
"""

from __future__ import annotations

import math
import time

from otel_memwatch.monitor.sampling.sources.process_tree.allocations import (
    UNKNOWN,
    Allocations,
    HugePages,
)
from otel_memwatch.monitor.sampling.sources.process_tree.families import Families, gained_before_end
from otel_memwatch.monitor.sampling.sources.process_tree.held_memory import HeldMemory
from otel_memwatch.monitor.sampling.sources.process_tree.lone_process import LoneEnd, LoneProcess
from otel_memwatch.monitor.sampling.sources.process_tree.member import own_faults
from otel_memwatch.monitor.sampling.sources.process_tree.memory_scan import MemoryScan
from otel_memwatch.monitor.sampling.sources.process_tree.shared_memory import OutsideMemory, SharedMemory
from otel_memwatch.runtime.kernel import PAGE_SIZE, read_once
from otel_memwatch.runtime.procfs.walks import walked
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.truth.faults import gained, tree_kept
from otel_memwatch.truth.kernel_memory import likely_of_tasks
from otel_memwatch.truth.tree_estimates import likely_left

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from otel_memwatch.model import ProcessNote
    from otel_memwatch.monitor.sampling.repeated import WatchedFile
    from otel_memwatch.monitor.sampling.sources.process_tree.member import Member
    from otel_memwatch.monitor.sampling.sources.process_tree.memory_scan import (
        BornInScan,
        LateBirths,
        MemberReading,
    )
    from otel_memwatch.runtime.procfs.process import FirstThread
    from otel_memwatch.runtime.procfs.system import AllocationCounters

_REST_SECONDS = 0.09
"""Longest time between two readings of the machine's counts while the tree does not change; one takes 25 us. Shared memory
that other programs release meanwhile, and the tree takes at once, would be missing."""

_LATE = 1e-3
"""Seconds after which counts of the machine no longer belong to the readings of the processes."""


class NeededNow(NamedTuple):
    """Bounds of one sample, in bytes; `None`: unknown."""

    low: int | None
    """Certainly resident at one moment of the sample."""
    high: int | None
    """Certainly not exceeded since the previous sample, except by gains of processes that no later sample saw."""
    estimate: int | None
    """Best estimate since the previous sample."""
    left: int = 0
    """The most that the tree can have in huge pages that no process maps, included in `high`."""


class TickFindings(NamedTuple):
    """Findings of the earlier steps of the same sample."""

    came_or_went: bool
    """A process was seen for the first time, or has ended."""
    unseen_faults: int | None
    """Page faults of unseen processes, and of known ones after their last reading; `None`: unknown."""
    reported_before: int
    """The `unseen_faults` of the last scan."""
    may_be_before: bool
    """Faults reported now may precede the end of that scan."""
    late: Callable[[], LateBirths]
    """Returns the processes born since the discovery."""
    written: int
    """Bytes of the tree's write calls so far, less the bytes that went to disk."""
    awaits: bool = False
    """The supervisor has yet to report faults of ended processes. A later scan's bound covers this window too."""
    unfreed: int = 0
    """Best estimate of the kernel memory that ended processes still occupy, in bytes."""
    unobserved: int = 0
    """The most processes since the last scan that no scan saw."""


class _Gains(NamedTuple):
    """Bytes that the tree can have gained since the previous scan."""

    known: int
    """Gains of members, and of ended processes that we waited for, huge pages included."""
    unseen: int
    """Gains of processes that no scan saw, and of known ones after their last reading. Another process waited for them."""
    late: int
    """Gains of processes born during the sample. The next scan counts them again."""

    @property
    def all(self) -> int:
        """Return the sum."""
        return self.known + self.unseen + self.late


class FaultLedgerBounds:
    """Bounds of one tree.

    A sample costs 15 us and about 8 us for each process. A new process costs 5 us for each member of its family.

    Args:
        proc, sys: mount points of these file systems.
        root: pid of the target.
        joined: the tree existed before the run, so it has pages from earlier page faults.
        allocated_before: allocations of the machine before the tree started; `None`: unknown.
    """

    def __init__(
        self,
        proc: str,
        sys: str | os.PathLike[str],
        root: int,
        *,
        joined: bool,
        allocated_before: AllocationCounters | None = None,
    ) -> None:
        self._machine = Allocations(proc, sys, allocated_before)
        self._root = root
        self._joined = joined
        self._merges_pages = _merges_pages(sys)
        self._memory = MemoryScan(proc, joined=joined)
        self._families = Families()
        self._outside = OutsideMemory(uncounted=self._machine.uncounted)
        self._huge = HugePages(self._machine, joined=joined)
        self._members = HeldMemory(root, self._memory, self._families, self._outside, self._huge)
        self._ended_new = 0
        """Gains of ended processes since the previous scan."""
        self._faults_at_end = self._likely = 0
        """Page faults of ended processes after the last scan; best estimate of the memory at that scan, in bytes."""
        self._private = 0
        """Upper bound of the tree's private memory at the end of the last scan."""
        self._before = 0
        """Bound of the last scan's window."""
        self._cut_short = False
        """A process ended during that scan."""
        self.shared = SharedMemory(self._machine, joined=joined)
        self._kernel = self.tasks = 0
        """Page tables and kernel stacks as of the last scan, and the best estimate of the kernel's other memory for tasks."""
        self.left = 0
        """Best estimate of the huge pages' parts that no process maps, as of the last scan."""
        self._lone = LoneProcess(joined=joined)
        self._last: NeededNow | None = None
        self._resting = False
        """No process changed in the last sample."""
        self._opened_at = -math.inf
        """Time of the last reading of the machine's counts."""

    @property
    def broken(self) -> ProcessNote | None:
        """Return the reason why page faults no longer bound the memory; `None`: they do."""
        return self._outside.broken

    @property
    def kept(self) -> int:
        """Return the upper bound of the tree's bytes at the end of the last scan."""
        return self._private + self.shared.most + self._kernel

    # -- before a scan

    def ended(
        self, pid: int, faults: int | None, own_peak: int | None, thread: FirstThread | None = None
    ) -> LoneEnd | None:
        """Count the gains of a process that we waited for.

        Args:
            pid: its pid.
            faults: its page faults without children; `None`: unknown.
            own_peak: wait4's maximum in bytes, if it belongs to this process; `None`: it waited for children.
            thread: its only thread; `None`: perhaps there were others.
        """
        if faults is None:
            self._ended_new += UNKNOWN
            return None
        space = self._memory.known_or_departed(pid)
        self._ended_new += gained(max(0, faults - (space.base if space else 0)), page=PAGE_SIZE)
        if space is not None and self._memory.known(pid) is space:
            self._faults_at_end += max(0, faults - space.base)
        if own_peak is not None:
            if space is not None and self._memory.is_ours(space):
                space = None
            self._ended_new += self._outside.at_end(
                space, own_peak, faults, self._huge.so_far, self._members.error(threads=1)
            )
        if pid != self._root or own_peak is None or thread is None or self.broken:
            return None
        return self._lone.ended(self._machine, thread.migrations)

    def vanished(self, pid: int, faults: int) -> None:
        """Count the gains of a vanished process; a process of the tree has inherited its `faults`.

        Its faults since the last scan are in no other figure: the inherited faults are reported without those that were read.
        """
        space = self._memory.known(pid)
        self._ended_new += gained(max(0, faults - (space.base if space else 0)), page=PAGE_SIZE)
        if space:
            self._faults_at_end += max(0, faults - space.base)

    def open(self, now: float, *, at_once: bool) -> bool:
        """Begin a sample: read the counts of the machine. Raises `OSError` without /proc.

        While the tree does not change, they are read ten times a second. Return `False` if they are not read: then open again
        with `at_once` if the tree has changed, and read its members after that.
        """
        if not at_once and self._resting and now < self._opened_at + _REST_SECONDS:
            return False
        self._opened_at = now
        self._huge.count()
        self._machine.begin_window()
        return True

    def files_at_rest(self) -> tuple[WatchedFile, ...] | None:
        """Return the file of the machine's counts, which `open` reads while the tree rests; `None`: it reads more, or at once."""
        file = (
            None
            if not self._resting
            else self._machine.watched(self._opened_at + _REST_SECONDS, _REST_SECONDS)
        )
        return None if file is None else (file,)

    def note_repeated(self, content: bytes) -> None:
        """Note that the machine's shared memory has not changed since; `content`: the file of its counts at the last reading."""
        self._machine.note_repeated(content)

    def unchanged(self) -> NeededNow | None:
        """Return the bounds of a sample before which no process has changed; `None`: there was no scan yet.

        Nothing was gained since the last scan. So the tree had at most what it had at the end of that scan. The scan's own
        bound covers the time before too, with memory that was released before its end.
        """
        self._resting = True
        last = self._last
        if last is not None and last.high is not None and last.high > self.kept and not self._cut_short:
            self._last = last._replace(high=self.kept)
        return self._last

    def allocated(self) -> int | None:
        """Return the base pages that the machine has allocated since the previous sample began; `None`: unknown."""
        return None if self._machine.swaps else self._machine.pages_of_window()

    # -- a scan

    def scan(self, members: Mapping[int, Member], found: TickFindings) -> NeededNow:
        """Read all members and bound the memory that the tree needs. Raises `OSError` without /proc."""
        self._resting = False
        being_read = walked()
        readings, cut_short = self._memory.read(members)
        late = found.late()
        born = late.complete_at is None or late.processes != []
        came_or_went = found.came_or_went or born or cut_short or self._ended_new > 0
        quiet = not came_or_went and found.unseen_faults == 0 and not found.awaits
        huge_in_scan = self._huge.count()
        counted_late = late.complete_at is None or time.monotonic() - late.complete_at > _LATE
        gains = self._gains(readings, found.unseen_faults, late.processes, quiet=quiet)
        unfreed = None if counted_late else self._machine.unfreed
        held, beyond = self._members.scan(readings, late, huge_in_scan, self._private + gains.all, unfreed)
        before_end = self._before_end(members, readings, found)
        shared_before = max(self.shared.most, self._machine.shared_rise)
        burst = self._members.judge(
            readings, UNKNOWN if found.awaits else gains.all, self._private + beyond, shared_before
        )
        gains = gains._replace(known=gains.known + beyond)
        shared = self.shared.scan(members.values(), gains.all, found.written)
        # Nothing counts page tables between two scans: the larger of both holds.
        kernel_before = self._kernel
        self._kernel, kernel_low = self._families.kernel_memory(self._memory, readings)
        beside = shared.high + max(kernel_before, self._kernel)
        ours = [r for r in readings if not r.empty and not self._memory.is_ours(r.space)]
        self._lone.scanned(ours, beside)
        self.tasks = found.unfreed + likely_of_tasks(len(ours), sum(r.member.stat.threads for r in ours))
        high = self._private + gains.known + gains.late + beside
        kept_by_us = (being_read | walked()).difference(r.member.pid for r in readings if not r.empty)
        held = None if kept_by_us else held
        left = self._machine.left_of_huge_pages()
        self._private = self._kept(gains._replace(unseen=UNKNOWN) if found.awaits else gains, held, left)
        high = self._with_reports(high, found, known_now=self._memory.joining and held is not None)
        # Pages of the tree may have been in swap before we attached. A page that returns from swap may be shared.
        low = self._families.low(trusted=not self._joined and not self._machine.swaps)
        # The bound lacks the memory from before the run until that is known.
        estimate = min(self._families.estimate(), UNKNOWN if self._memory.joining else self._private)
        # Other programs' huge pages may be the ones of which a part was freed.
        self.left = likely_left(left, self._private - estimate) if self._members.have_huge else 0
        self._memory.close(members)
        self._cut_short = cut_short
        self._ended_new = self._faults_at_end = 0
        self._huge.end_scan()
        self._likely = (
            estimate + self.left + self.shared.in_objects + self.shared.files + self._kernel + self.tasks
        )
        unknown = self.broken or self._memory.joining or found.unseen_faults is None or high >= UNKNOWN
        self._last = NeededNow(
            None if self._merges_pages else low + shared.low + kernel_low,
            None if unknown else high,
            max(self._likely + burst, before_end),
            left,
        )
        return self._last

    def _with_reports(self, high: int, found: TickFindings, *, known_now: bool) -> int:
        """Return the upper bound of the window, with memory that is reported late. Note it for the next scan.

        Args:
            high: upper bound of the window from its known gains, in bytes.
            found: findings of the earlier steps.
            known_now: memory from before the run is known since this scan.
        """
        if known_now or found.awaits:
            # Memory from before the run, or from faults that are not reported yet, belongs to this window.
            self._memory.joining = self._memory.joining and not known_now
            high = max(high, self.kept)
        # Faults reported now may belong to the previous window. Its bound includes these and those reported then.
        before, self._before = self._before, high
        if self._cut_short or found.may_be_before:
            high = max(high, before + gained(found.reported_before, page=PAGE_SIZE) + self._ended_new)
            if found.awaits:
                self._before = high
        return high

    def _before_end(
        self, members: Mapping[int, Member], readings: list[MemberReading], found: TickFindings
    ) -> int:
        """Return the best estimate of the tree's memory before processes ended, in bytes; 0: none gained any since the last scan."""
        faults = found.unseen_faults
        grown = gained_before_end(
            readings,
            self._memory.gone(members),
            None if found.unobserved or faults is None else self._faults_at_end + faults,
            self._huge.by_faults if self._members.have_huge else 0,
        )
        return self._likely + grown if grown else 0

    def _gains(
        self, readings: list[MemberReading], unseen: int | None, late: list[BornInScan], *, quiet: bool
    ) -> _Gains:
        """Return the gains since the previous scan, without those of `OutsideMemory`.

        `quiet`: the tree has the same processes as at the previous scan.
        """
        faults = sum(reading.new_faults for reading in readings)
        huge = self._huge.gained(faults, quiet=quiet)
        return _Gains(
            gained(faults, huge, page=PAGE_SIZE) + self._ended_new,
            UNKNOWN if unseen is None else gained(unseen, page=PAGE_SIZE),
            gained(sum(own_faults(one.stat) for one in late), page=PAGE_SIZE),
        )

    def _kept(self, gains: _Gains, held: int | None, left: int) -> int:
        """Return the upper bound of private memory at the end of this scan.

        Args:
            gains: since the previous scan.
            held: the members' sum; `None`: unknown.
            left: bytes of huge pages that no process maps.
        """
        if held is not None and self._memory.joining:
            return held + left  # from page faults before the run
        return tree_kept(self._private, gains.known + gains.unseen, held, left)

    # -- between scans

    def new_elsewhere(self, faults: int) -> tuple[int, int]:
        """Return bytes of the machine that may be the tree's, after so many page faults of the tree since the last scan.

        The first are those of shared memory above its maximum at all scans: a file may go soon. The second are huge pages.
        """
        shared, faulted, collapsed = self._machine.since_read()
        return max(0, shared), self._huge.of(faults, faulted, collapsed)

    def scanned(self, pid: int) -> tuple[int, int]:
        """Return page faults and private bytes of a process at the last scan; zeros: not read."""
        space = self._memory.known(pid)
        return (0, 0) if space is None else (space.base, space.held or 0)

    def close(self) -> None:
        """Close the files."""
        self._machine.close()


def _merges_pages(sys: str | os.PathLike[str]) -> bool:
    """Return whether KSM merges equal pages. Then several families may share one page."""
    try:
        return read_once(f"{sys}/kernel/mm/ksm/run").strip() == b"1"
    except OSError:
        return False
