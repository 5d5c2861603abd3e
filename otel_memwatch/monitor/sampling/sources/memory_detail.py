"""Proportional and unique set size and swap of the tree, within a budget of time.

The kernel walks all page tables of a process to answer (11 ms per GiB) and blocks its mmap calls meanwhile. Reading
therefore takes at most `SHARE` of one core, or `WIDE_SHARE` while it can narrow the range of memory needed. Long
readings run beside the sampler.
"""

from __future__ import annotations

import os
import time

from otel_memwatch import catalog
from otel_memwatch.errors import Unavailable
from otel_memwatch.model import Column
from otel_memwatch.monitor.sampling.sources import FAST_PERIOD, columns_of
from otel_memwatch.runtime.kernel import KERNEL_STACK, PAGE_SIZE, read_once, sum_known
from otel_memwatch.runtime.light import suppress
from otel_memwatch.runtime.procfs.process import (
    Rollup,
    parse_page_tables,
    parse_rollup,
    parse_stat,
    parse_threads,
)
from otel_memwatch.runtime.procfs.statm import parse_resident
from otel_memwatch.runtime.procfs.walks import PER_BYTE, outlives_walk, read_walking
from otel_memwatch.runtime.threads import Thread
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.truth.faults import certainly_there_of_shares, gained

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.model import Value
    from otel_memwatch.monitor.sampling.repeated import Repetition
    from otel_memwatch.monitor.sampling.sources import Context, Row

SHARE = 0.001
"""Share of one core that reading may take."""
WIDE_SHARE = 0.01
"""Share while the bounds of memory needed are further apart than `WIDE`: a sum of shares can raise the lower one."""
OLD, OLD_SHARE = 3600.0, 0.0001
"""Seconds of recording after which a smaller share holds, also for a wide range: all of the monitor may take 0.0005."""
WIDE = 1.2
"""Upper bound divided by lower bound."""
GROWN, LEVEL, REST = 1.1, 1.05, 0.1
"""Growth of the upper bound or of the estimate that requires a new reading before the period is over, if the range is wide. A
reading during growth says little, so it must have been level for these seconds."""
ADVANCE = 0.02
"""CPU seconds of reading that may be used ahead of the budget."""
FIRST_AFTER = 0.5
"""Seconds until the first reading, if it is cheap enough."""
PER_PROCESS = 20e-6
"""Expected seconds of a reading beside the walk, before one has been measured."""
LONG = 0.005
"""Seconds from which a reading runs beside the sampler."""
REPEATED = 10.0
"""Seconds for which the sums of a tree that does not run are repeated: only other programs, which share its pages, change them."""
STEADY_SHARE, STEADY_BYTES = 0.02, 4 << 20
"""Largest change of the tree's resident memory during a reading; beyond it the sum is not of one moment."""


_ROWS: tuple[Row[Rollup], ...] = (
    (catalog.MEMWATCH_TREE_MEMORY_PSS, (), lambda sums: sums.pss),
    (catalog.MEMWATCH_TREE_MEMORY_USS, (), lambda sums: sums.uss),
    (catalog.MEMWATCH_TREE_MEMORY_SWAP, (), lambda sums: sums.swap),
)
_NEEDED: Row[Rollup] = (catalog.MEMWATCH_TREE_MEMORY_PSS_NEEDED, (), lambda sums: sums.needed)
"""A column only without a cgroup of the run's, like that of `_Round.factor`."""


class _Round(NamedTuple):
    """One reading of the whole tree."""

    sums: Rollup | None
    """`None`: denied, or the tree changed too much meanwhile for a meaningful sum."""
    factor: float | None
    """`truth.tree_estimates.correction`; `None`: unknown."""
    seconds: float
    expected: float


class _Level:
    """A size that changes, in bytes, and its value at the last reading of shares."""

    def __init__(self) -> None:
        self.size = self.as_read = 0
        self.since = 0.0
        """Monotonic time of its last change."""

    def note(self, size: int, now: float) -> None:
        """Note its value."""
        if not self.size / LEVEL <= size <= self.size * LEVEL:
            self.size, self.since = size, now


class MemoryDetail:
    """Sum of smaps_rollup over the tree's processes; the next sample has it, all others have `None`.

    - An address space that several processes share counts once.
    - The sum is of one moment: a round is discarded if the tree's resident memory changes much meanwhile.
    - A process that denies reading (another user's) makes the sum unknown.
    """

    name = "memory_detail"

    def __init__(self, context: Context) -> None:
        if not os.path.exists(f"{context.proc}/self/smaps_rollup"):
            raise Unavailable("The kernel has no sums of mappings (smaps_rollup).", "they require Linux 4.14")
        self._context = context
        self._proc = str(context.proc)
        period = context.slow_period(1.0)
        self._period, self._early = period, context.interval / 2
        self.pace = context.pace(FAST_PERIOD)
        self._last: float | None = None
        self._begun = 0.0
        """Monotonic time of the first sample."""
        self._allowed = self._spent = 0.0
        """Seconds of reading allowed so far, and used."""
        self._certain = 0
        """Largest certain sum of shares so far, in bytes."""
        self._slower = 1.0
        """Measured cost over expected cost."""
        self._next = 0.0
        self._wide = False
        """A reading can narrow the range of memory needed."""
        self._levels = _Level(), _Level()
        """Upper bound and best estimate of the tree's memory."""
        self._read_at: tuple[float, tuple[int | None, tuple[int, int, int] | None]] = 0.0, (None, None)
        """Monotonic time of the last round, and `_state` at its beginning."""
        self._sums: Sequence[Value] | None = None
        """Values of that round; `None`: it has none."""
        self._thread: Thread | None = None
        self._done: _Round | None = None
        self._bounds_needed = not context.in_group
        self._rows = (*_ROWS, _NEEDED) if self._bounds_needed else _ROWS
        self.columns: Sequence[Column] = columns_of(self._rows, period)
        if self._bounds_needed:
            self.columns = (*self.columns, Column(catalog.MEMWATCH_TREE_MEMORY_NEEDED_FACTOR, (), period))
        self.idle: Sequence[Value] = (None,) * len(self.columns)
        """Values while nothing is new."""

    def read(self, now: float) -> Sequence[Value]:
        """Return the sums at the first sample after a round, at most ten times a second."""
        self.pace.due(now)
        if self._last is None:
            self._last = self._begun = now
            self._next = now + FIRST_AFTER
        share = self._share(now)
        if now - self._begun >= OLD:
            share, self._allowed = OLD_SHARE, min(self._allowed, self._spent + ADVANCE)
        self._allowed += (now - self._last) * share
        self._last = now
        # Not before the budget has caught up with the time spent.
        regular = now >= self._next and self._spent <= self._allowed
        grown = any(now - since >= REST for since in self._grown_since())
        if self._thread is None and (regular or grown):
            if not grown and self._sums is not None and self._are_as_read(now):
                self._next = self._following(now)
                return self._sums
            self._start(now)
        if self._thread is not None and not self._thread.is_alive():
            self._thread = None
        done, self._done = self._done, None
        if done is None:
            if not self._bounds_needed and self._thread is None:
                # Until then, and until the budget has caught up, only bounds can require a round.
                self.pace.next = max(self._next, now + (self._spent - self._allowed) / share)
            return self.idle
        self._spent += done.seconds
        self._slower = max(0.1, 0.5 * self._slower + 0.5 * done.seconds / done.expected)
        self._next = self._following(now)
        if done.sums is None:
            for level in self._levels:
                level.as_read = 0  # try again once the tree is level
            return self.idle
        self._certain = max(self._certain, done.sums.needed or 0)
        values = tuple(get(done.sums) for _, _, get in self._rows)
        self._sums = (*values, done.factor) if self._bounds_needed else values
        return self._sums

    def _following(self, now: float) -> float:
        """Return the monotonic seconds of the next regular round: at a sample that reads other sources of this period too."""
        periods = (now - self._begun) // self._period + 1
        if self._begun + periods * self._period - now < self._period / 4:
            periods += 1
        return self._begun + periods * self._period - self._early

    def repeats(self) -> Repetition:
        """Return until when the next samples have no values, if the tree rests: its bounds then stay the same."""
        from otel_memwatch.monitor.sampling.repeated import Repetition

        until = self.pace.next
        if self._thread is None and self._last is not None:
            behind = max(0.0, self._spent - self._allowed) / (WIDE_SHARE if self._wide else SHARE)
            regular = max(self._next, self._last + behind)
            if not self._bounds_needed:
                regular = max(regular, until)
            # It would only repeat the sums.
            if self._sums is not None and self._are_as_read(regular + self._early):
                regular = self._context.at_rest(regular)
            until = max(until, min([regular, *(since + REST for since in self._grown_since())]))
        return Repetition(until, self.idle)

    def _grown_since(self) -> list[float]:
        """Return the times since which sizes are level that have grown, and so require a new reading."""
        return [level.since for level in self._levels if self._wide and level.size > GROWN * level.as_read]

    def _are_as_read(self, now: float) -> bool:
        """Return whether no process has run, and no resident size or estimate has changed, since the last round began."""
        time_read, state = self._read_at
        return now < time_read + REPEATED and state[0] is not None and state == self._state()

    def _state(self) -> tuple[int | None, tuple[int, int, int] | None]:
        tree = self._context.tree
        return None if tree is None else tree.runs, self._context.needed_estimate()

    def _share(self, now: float) -> float:
        """Return the share of one core that reading may take now."""
        bounds = self._context.needed_range() if self._bounds_needed else None
        if bounds is None:
            self._wide = False
            return SHARE
        low, high = bounds
        self._wide = high > WIDE * max(low, self._certain)
        # Faults of memory that was freed since raise the estimate alone: only a reading shows that they are no copies.
        guess = (self._context.needed_estimate() or (0,))[0]
        for level, size in zip(self._levels, (high, guess), strict=True):
            level.note(size, now)
        return WIDE_SHARE if self._wide else SHARE

    def _start(self, now: float) -> None:
        """Begin a round if its expected time is within the budget."""
        pids = self._context.pids()
        sizes = self._sizes(pids)
        before = sum(sizes.values())
        expected = len(pids) * PER_PROCESS + before * PER_BYTE
        seconds = expected * self._slower
        # The budget of the first seconds may be used at once.
        budget = self._allowed + ADVANCE if self._wide else max(self._allowed, ADVANCE)
        # Without a cgroup, this is the best evidence of a short run.
        old = self._bounds_needed or all(
            pid == self._context.root or outlives_walk(self._proc, pid, resident)
            for pid, resident in sizes.items()
        )
        if not pids or not old or self._spent + seconds > budget:
            # The tree's size is not free to read either.
            self._next = now + (self._period if old else REST)
            for level in self._levels:
                level.since = now
            return
        for level in self._levels:
            level.as_read = level.size
        self._read_at, self._sums = (now, self._state()), None
        if seconds < LONG:
            self._round(pids, before, expected, self._context.needed_estimate())
            return
        arguments = (pids, before, expected, self._context.needed_estimate())
        self._thread = Thread(self._round, "otel-memwatch-pss", arguments)
        self._thread.start()

    def _round(
        self, pids: Sequence[int], before: int, expected: float, estimate: tuple[int, int, int] | None
    ) -> None:
        from otel_memwatch.runtime.procfs.address_spaces import AddressSpaces
        from otel_memwatch.truth.tree_estimates import correction

        begun = time.thread_time()
        sums: Rollup | None = Rollup(0, 0, 0)
        needed: int | None = 0
        shared = 0
        factor: float | None = None
        held = self._held(pids) if self._bounds_needed else {}
        kernel = self._kernel(pids) if self._bounds_needed else {}
        counted: list[int] = []
        spaces = AddressSpaces(self._proc)
        for pid in pids:
            try:
                data = read_walking(self._proc, pid, "smaps_rollup")
            except PermissionError:
                sums = None
                break
            except OSError:
                continue
            assert sums is not None
            if spaces.is_new(pid, data.split(b" ", 1)[0]):
                found = parse_rollup(data)
                sums = Rollup(*map(int.__add__, sums[:3], found[:3]))
                needed = sum_known((needed, found.needed))
                shared += found.shared
                counted.append(pid)
        seconds = time.thread_time() - begun
        if abs(sum(self._sizes(pids).values()) - before) > max(STEADY_BYTES, STEADY_SHARE * before):
            sums = None
        if sums is not None and needed is not None and self._bounds_needed:
            held_after = self._held(pids)
            certain = _certain(needed, held, held_after)
            after = self._kernel(counted)
            kept = sum(min(kernel.get(pid, 0), size) for pid, size in after.items())
            sums = sums._replace(needed=None if certain is None else certain + kept)
            # The estimate is of the sample before: a process that ended since, as on a busy machine, is in no share.
            same = all(pid in held and held[pid][0] for pid in pids) and not self._shares_with_others(pids)
            if estimate is not None and estimate[0] > 0 and same:
                # A page of shared memory that no page table maps any more is in no share.
                guess, files, in_objects = estimate
                beside = kept + files + max(0, in_objects - shared)
                ended = sum(size for pid, (size, _) in held.items() if not held_after.get(pid, (0, 0))[0])
                factor = round(correction((certain or 0) + beside, needed + ended + beside, guess), 4)
        self._done = _Round(sums, factor, seconds, expected)

    def _shares_with_others(self, pids: Sequence[int]) -> bool:
        """Return whether a process has a living child beyond these: it has a share of the pages that no figure here includes."""
        for pid in pids:
            with suppress(OSError):
                others = set(
                    map(int, read_once(f"{self._proc}/{pid}/task/{pid}/children").split())
                ).difference(pids)
                if others and any(self._sizes(tuple(others)).values()):
                    return True
        return False

    def _sizes(self, pids: Sequence[int]) -> dict[int, int]:
        """Return the resident memory of these processes by PID, without ended ones."""
        sizes = {}
        for pid in pids:
            with suppress(OSError):
                sizes[pid] = parse_resident(read_once(f"{self._proc}/{pid}/statm"))
        return sizes

    def _held(self, pids: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Return the resident memory of each process, and its page faults so far."""
        held = {}
        for pid in pids:
            folder = f"{self._proc}/{pid}"
            with suppress(OSError, ValueError):
                stat = parse_stat(read_once(f"{folder}/stat"))
                held[pid] = (
                    parse_resident(read_once(f"{folder}/statm")),
                    stat.minor_faults + stat.major_faults,
                )
        return held

    def _kernel(self, pids: Sequence[int]) -> dict[int, int]:
        """Return page tables and kernel stacks of each process: memory needed, but in no share."""
        kernel = {}
        for pid in pids:
            with suppress(OSError, ValueError):
                data = read_once(f"{self._proc}/{pid}/status")
                kernel[pid] = parse_page_tables(data) + parse_threads(data) * KERNEL_STACK
        return kernel

    def close(self) -> None:
        """Wait for a reading in progress."""
        if self._thread is not None:
            self._thread.join()


def _certain(
    needed: int, before: dict[int, tuple[int, int]], after: dict[int, tuple[int, int]]
) -> int | None:
    """Return the part of the sum of shares that existed at one moment; `None`: a process has ended meanwhile."""
    if before.keys() != after.keys():
        return None
    lost = faults = 0
    for pid, (resident, count) in after.items():
        resident_before, count_before = before[pid]
        new = count - count_before
        faults += new
        lost += max(0, resident_before + PAGE_SIZE * new - resident)
    return certainly_there_of_shares(needed, gained(faults, page=PAGE_SIZE), lost)


open_source = MemoryDetail
"""Raises `Unavailable` if the kernel does not sum up mappings."""
