"""Proportional and unique set size and swap of the tree, within a budget of time.

The kernel walks all page tables of a process to answer (11 ms for each GiB) and holds up its mmap calls meanwhile. So
reading takes at most `SHARE` of wall time, or `WIDE_SHARE` while it can narrow the range of memory needed. Long readings
go on beside the sampler.
"""

from __future__ import annotations

import contextlib
import time

from otel_memwatch import catalog
from otel_memwatch.errors import Unavailable
from otel_memwatch.monitor.sampling.sources import columns_of
from otel_memwatch.runtime.kernel import PAGE_SIZE, sum_known
from otel_memwatch.runtime.procfs.address_spaces import AddressSpaces
from otel_memwatch.runtime.procfs.process import Rollup, parse_rollup, parse_stat
from otel_memwatch.runtime.procfs.statm import parse_resident
from otel_memwatch.runtime.threads import Thread
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.truth.faults import certainly_there_of_shares, gained

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.model import Column, Value
    from otel_memwatch.monitor.sampling.sources import Context, Row

SHARE = 0.001
"""Share of wall time that reading may take."""
WIDE_SHARE = 0.01
"""The same while the bounds of memory needed are further apart than `WIDE`: a sum of shares can raise the lower one."""
WIDE = 1.2
"""Upper bound by lower bound."""
ADVANCE = 0.01
"""Seconds of reading that may be used at once, and are saved up afterwards."""
FIRST_AFTER = 0.5
"""Seconds after which the first reading is taken, if it is cheap enough."""
PER_PROCESS, PER_BYTE = 20e-6, 11e-3 / (1 << 30)
"""Seconds that reading takes, before it has been measured."""
LONG = 0.005
"""Seconds from which on a reading goes on beside the sampler."""
STEADY_SHARE, STEADY_BYTES = 0.02, 4 << 20
"""By how much the tree's resident memory may change during a reading, for its sum to count as of one moment."""


_ROWS: tuple[Row[Rollup], ...] = (
    (catalog.MEMWATCH_TREE_MEMORY_PSS, (), lambda sums: sums.pss),
    (catalog.MEMWATCH_TREE_MEMORY_USS, (), lambda sums: sums.uss),
    (catalog.MEMWATCH_TREE_MEMORY_SWAP, (), lambda sums: sums.swap),
)
_NEEDED: Row[Rollup] = (catalog.MEMWATCH_TREE_MEMORY_PSS_NEEDED, (), lambda sums: sums.needed)
"""A column only without a cgroup of the run's."""


class _Round(NamedTuple):
    """One reading of the whole tree."""

    sums: Rollup | None
    """`None`: denied, or the tree changed too much meanwhile for a sum to mean anything."""
    seconds: float
    expected: float


class MemoryDetail:
    """smaps_rollup of every process of the tree in one go: published at the tick after, `None` in between.

    What several processes have as one address space counts once. The sum is one of a moment: a round in which the tree's resident memory changes much is thrown away. A process
    that denies reading (another user's) makes the sum unknown.
    """

    name = "memory_detail"

    def __init__(self, context: Context) -> None:
        if not (context.proc / "self/smaps_rollup").exists():
            raise Unavailable(
                "The kernel does not sum up mappings (smaps_rollup).", "Linux 4.14 and later do"
            )
        self._context = context
        self._proc = str(context.proc)
        period = context.slow_period(1.0)
        self._period = period
        self._last: float | None = None
        self._allowed = self._spent = 0.0
        """Seconds that reading was allowed so far, and took."""
        self._certain = 0
        """Largest certain sum of shares so far, in bytes."""
        self._slower = 1.0
        """Measured cost over expected cost."""
        self._next = 0.0
        self._thread: Thread | None = None
        self._done: _Round | None = None
        self._bounds_needed = context.own_cgroup is None
        self._rows = (*_ROWS, _NEEDED) if self._bounds_needed else _ROWS
        self.columns: Sequence[Column] = columns_of(self._rows, period)
        self.idle: Sequence[Value] = (None,) * len(self.columns)
        """Values while nothing is new."""

    def read(self, now: float) -> Sequence[Value]:
        """The sums, at the tick at which they are new."""
        if self._last is None:
            self._last, self._next = now, now + FIRST_AFTER
        self._allowed += (now - self._last) * self._share()
        self._last = now
        # not before what was spent has been saved up again
        if self._thread is None and now >= self._next and self._spent <= self._allowed:
            self._start(now)
        if self._thread is not None and not self._thread.is_alive():
            self._thread = None
        done, self._done = self._done, None
        if done is None:
            return self.idle
        self._spent += done.seconds
        self._slower = max(0.1, 0.5 * self._slower + 0.5 * done.seconds / done.expected)
        self._next = now + self._period
        if done.sums is None:
            return self.idle
        self._certain = max(self._certain, done.sums.needed or 0)
        return tuple(get(done.sums) for _, _, get in self._rows)

    def _share(self) -> float:
        """Return the share of wall time that reading may take now."""
        bounds = self._context.needed_range() if self._bounds_needed else None
        if bounds is None:
            return SHARE
        low, high = bounds
        return WIDE_SHARE if high > WIDE * max(low, self._certain) else SHARE

    def _start(self, now: float) -> None:
        """Begin a round if what it is expected to take is within the budget."""
        pids = self._context.pids()
        before = self._resident(pids)
        expected = len(pids) * PER_PROCESS + before * PER_BYTE
        seconds = expected * self._slower
        # what is saved up in the first seconds may be used at once
        budget = max(self._allowed, ADVANCE)
        if not pids or self._spent + seconds > budget:
            # asking for the tree's size is not free either
            self._next = now + self._period
            return
        if seconds < LONG:
            self._round(pids, before, expected)
            return
        self._thread = Thread(self._round, "otel-memwatch-pss", (pids, before, expected))
        self._thread.start()

    def _round(self, pids: Sequence[int], before: int, expected: float) -> None:
        begun = time.perf_counter()
        sums: Rollup | None = Rollup(0, 0, 0)
        needed: int | None = 0
        held = self._held(pids) if self._bounds_needed else {}
        spaces = AddressSpaces(self._proc)
        for pid in pids:
            try:
                with open(f"{self._proc}/{pid}/smaps_rollup", "rb") as file:
                    data = file.read()
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
        seconds = time.perf_counter() - begun
        if abs(self._resident(pids) - before) > max(STEADY_BYTES, STEADY_SHARE * before):
            sums = None
        if sums is not None and needed is not None and self._bounds_needed:
            sums = sums._replace(needed=_certain(needed, held, self._held(pids)))
        self._done = _Round(sums, seconds, expected)

    def _resident(self, pids: Sequence[int]) -> int:
        """Resident memory of these processes, summed; those that have gone have none."""
        total = 0
        for pid in pids:
            try:
                with open(f"{self._proc}/{pid}/statm", "rb") as file:
                    total += parse_resident(file.read())
            except OSError:
                continue
        return total

    def _held(self, pids: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Resident memory, and page faults so far, of these processes."""
        held = {}
        for pid in pids:
            folder = f"{self._proc}/{pid}"
            with (
                contextlib.suppress(OSError, ValueError),
                open(f"{folder}/stat", "rb") as file,
                open(f"{folder}/statm", "rb") as sizes,
            ):
                stat = parse_stat(file.read())
                held[pid] = parse_resident(sizes.read()), stat.minor_faults + stat.major_faults
        return held

    def close(self) -> None:
        """Wait for a reading that is going on; reading is over."""
        if self._thread is not None:
            self._thread.join()


def _certain(
    needed: int, before: dict[int, tuple[int, int]], after: dict[int, tuple[int, int]]
) -> int | None:
    """What of the sum of shares was there at once; `None`: a process has ended meanwhile."""
    if before.keys() != after.keys():
        return None
    lost = faults = 0
    for pid, (resident, count) in after.items():
        resident_before, count_before = before[pid]
        new = count - count_before
        faults += new
        lost += max(0, resident_before + PAGE_SIZE * new - resident)
    return certainly_there_of_shares(needed, gained(faults, page=PAGE_SIZE), lost)


def open_source(context: Context) -> MemoryDetail:
    """Open the source; raises `Unavailable` where the kernel does not sum up mappings."""
    return MemoryDetail(context)
