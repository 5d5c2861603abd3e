"""Counters of the whole machine that the fault ledger needs: huge pages, and shared memory."""

from __future__ import annotations

import os

from otel_memwatch.runtime.kernel import PAGE_SIZE, processors, read_once, vmstat_error
from otel_memwatch.runtime.procfs.system import (
    other_page_sizes,
    parse_allocated,
    parse_pages,
    parse_unfreed,
    shared_line,
)
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.truth.faults import left_of_huge_pages

if TYPE_CHECKING:
    from otel_memwatch.monitor.sampling.repeated import WatchedFile
    from otel_memwatch.runtime.procfs.system import AllocationCounters

UNKNOWN = 1 << 62
"""Placeholder for an unknown number of bytes, larger than any real value."""

_READ = 16384
_STATS = ("anon_fault_alloc", "shmem_alloc", "swpin")
"""Events that allocate pages of one size, since Linux 6.10, 6.12 and 6.14."""
_COUNTS = 9
"""Counts that `parse_unfreed` adds up."""
_BATCH = 31
"""Pages of each processor that wait for their place in a list of the kernel."""


class Allocations:
    """Allocations of the whole machine between two samples.

    A reading takes 8 us, and 1 us for each further size of huge pages in use. Raises `OSError` without /proc.

    Args:
        proc, sys: mount points of these file systems.
        allocated_before: allocations before the tree started; `None`: unknown.
    """

    def __init__(
        self, proc: str, sys: str | os.PathLike[str], allocated_before: AllocationCounters | None = None
    ) -> None:
        self._vmstat = os.open(f"{proc}/vmstat", os.O_RDONLY | os.O_CLOEXEC)
        pages = f"{sys}/kernel/mm/transparent_hugepage"
        try:
            self.huge_page = int(read_once(f"{pages}/hpage_pmd_size"))
        except (OSError, ValueError):
            self.huge_page = 2 << 20
        cpus = processors()
        self._unfreed_error = _COUNTS * vmstat_error(os.sysconf("SC_PHYS_PAGES"), cpus) + _BATCH * cpus
        self.uncounted = False
        """This kernel does not count huge pages of a size in use."""
        self._sizes: list[tuple[int, int]] = []
        """Bytes and the descriptor of each counter, for each size in use except the largest."""
        self._other_stats: list[tuple[int, str]] = []
        for size, directory in other_page_sizes(pages, self.huge_page):
            counters = [f"{directory}/stats/{event}" for event in _STATS]
            counters = [counter for counter in counters if os.path.exists(counter)]
            self.uncounted = self.uncounted or not counters
            self._other_stats.append((size, f"{directory}/stats"))
            self._sizes += [(size, os.open(counter, os.O_RDONLY | os.O_CLOEXEC)) for counter in counters]
        self.since_unknown = bool(self._sizes) or allocated_before is None
        """Huge pages from page faults between the tree's start and the first reading are unknown."""
        self._stats = f"{pages}/hugepages-{self.huge_page >> 10}kB/stats"
        now = self._read()
        self._least_unfreed = min(0, parse_unfreed(self._data) or 0)
        self._huge, self._collapsed, shared, swapped, self._freed_before = now
        if allocated_before is not None and not self._sizes:
            self._huge = allocated_before.huge * self.huge_page
            self._collapsed = allocated_before.collapsed * self.huge_page
        if allocated_before is not None:
            shared = min(shared, allocated_before.shared)
            self._freed_before = allocated_before.partly_freed
        self._freed = now[4]
        self._swapped_before = swapped if allocated_before is None else allocated_before.swapped
        self.collapses = False
        """The kernel collapsed small pages into a huge one between the start and the last reading."""
        self.swaps = False
        """The machine swapped between the start and the last reading."""
        self.shared = now[2] * PAGE_SIZE
        """Bytes of shared memory, as of the last reading."""
        self._least_shared = shared * PAGE_SIZE
        self._most_shared = self.shared
        self._window: bytes | int = self._data if allocated_before is None else allocated_before.pages
        self._window_next = self._window
        self.faulted = 0
        """Bytes of huge pages from page faults between the last two readings."""
        self.collapsed = 0
        """Bytes of huge pages collapsed from small pages between the last two readings."""

    def _read(self) -> tuple[int, int, int, int, int]:
        self._data = os.pread(self._vmstat, _READ, 0)
        found = parse_allocated(self._data)
        huge = found.huge * self.huge_page
        for size, counter in self._sizes:
            huge += size * int(os.pread(counter, 32, 0))
        return huge, found.collapsed * self.huge_page, found.shared, found.swapped, found.partly_freed

    def begin_window(self) -> None:
        """Begin a window for `pages_of_window`: at the reading of the last call of this, or when the tree started."""
        self._window, self._window_next = self._window_next, self._data

    def pages_of_window(self) -> int | None:
        """Return the base pages of any use that the machine has allocated in the window; `None`: unknown."""
        before = self._window if isinstance(self._window, int) else parse_pages(self._window)
        now = parse_pages(os.pread(self._vmstat, _READ, 0))
        return now - before if before else None

    def read(self) -> None:
        """Read again. Raises `OSError` without /proc."""
        huge, collapsed, shared, swapped, self._freed = self._read()
        self.swaps = self.swaps or swapped != self._swapped_before
        self.faulted, self._huge = max(0, huge - self._huge), huge
        self.collapsed, self._collapsed = max(0, collapsed - self._collapsed), collapsed
        self.collapses = self.collapses or self.collapsed > 0
        self.shared = shared * PAGE_SIZE
        self._least_shared = min(self._least_shared, self.shared)
        self._most_shared = max(self._most_shared, self.shared)

    def watched(self, next_reading: float, every: float) -> WatchedFile | None:
        """Return the file of the counts as it is while shared memory stays the same; `None`: other counts have separate files.

        The others only grow, so the next reading finds all that was added meanwhile.

        Args:
            next_reading: monotonic seconds from which on it is read.
            every: least seconds between two readings.
        """
        from otel_memwatch.monitor.sampling.repeated import WatchedFile

        line = shared_line(self._data)
        return (
            None
            if self._sizes or not line
            else WatchedFile(self._vmstat, (line,), False, next_reading, every)
        )

    def note_repeated(self, content: bytes) -> None:
        """Begin windows as `begin_window` does, up to a reading of the file with the same shared memory."""
        self._window_next = content

    def since_read(self) -> tuple[int, int, int]:
        """Read by how many bytes the machine's shared memory exceeds its maximum so far, and the huge pages since the last `read`.

        The huge pages are bytes from page faults, and collapsed ones. The next `read` is unaffected.
        """
        huge, collapsed, shared, _, _ = self._read()
        return shared * PAGE_SIZE - self._most_shared, huge - self._huge, collapsed - self._collapsed

    @property
    def shared_rise(self) -> int:
        """Bytes of shared memory of the machine above their minimum so far."""
        return self.shared - self._least_shared

    def unfreed(self) -> int | None:
        """Return the most bytes that processes had released at the last reading and the kernel had not freed.

        The least figure so far, if below 0, stands for pages that are never in a list. `None`: the kernel does not count them.
        """
        pages = parse_unfreed(self._data)
        if pages is None:
            return None
        self._least_unfreed = min(self._least_unfreed, pages)
        return (pages - self._least_unfreed + self._unfreed_error) * PAGE_SIZE

    def left_of_huge_pages(self) -> int:
        """Return the most bytes of huge pages that the tree may hold and that no process maps."""
        freed = self._freed - self._freed_before
        left = left_of_huge_pages(freed, _gauge(self._stats), self.huge_page) if freed else 0
        for size, stats in self._other_stats:
            left += left_of_huge_pages(_gauge(stats) or 0, None, size)
        return left

    def partly_freed(self) -> int | None:
        """Return the bytes of huge pages of which a part was freed since the tree started; `None`: not all are counted."""
        return None if self._other_stats else (self._freed - self._freed_before) * self.huge_page

    def close(self) -> None:
        """Close the files."""
        for descriptor in (self._vmstat, *(counter for _, counter in self._sizes)):
            os.close(descriptor)


class HugePages:
    """Huge pages of the whole machine that the tree can have got, in bytes.

    Args:
        machine: the counts of the machine.
        joined: the tree existed before the run.

    Attributes:
        size: of one.
        so_far: all that the machine has allocated.
        by_faults: those from page faults since the last scan began.
    """

    def __init__(self, machine: Allocations, *, joined: bool) -> None:
        self._machine = machine
        self.size = machine.huge_page
        self._unknown = machine.since_unknown and not joined
        """Huge pages before the first reading are unknown."""
        self.so_far = self.by_faults = self._collapsed = 0
        self._if_late = 0
        """Bytes from page faults in the last window, if no process came or went, without those during its scan."""

    def count(self) -> int:
        """Count those allocated since the last reading of the machine. Return their number."""
        self._machine.read()
        self.by_faults += self._machine.faulted
        self._collapsed += self._machine.collapsed
        found = self._machine.faulted + self._machine.collapsed
        self.so_far += found
        return found

    @property
    def since_scan(self) -> int:
        """Return all since the last scan began."""
        return self.by_faults + self._collapsed

    def of(self, faults: int, faulted: int = 0, collapsed: int = 0) -> int:
        """Return the most that a process can have got by so many page faults since the last scan.

        Args:
            faults: page faults.
            faulted: bytes allocated since the last reading of the machine, from page faults.
            collapsed: bytes collapsed since then.
        """
        by_faults = min(self.by_faults + faulted, faults * self.size)
        return by_faults + self._collapsed + collapsed

    def gained(self, faults: int, *, quiet: bool) -> int:
        """Return the most that the tree can have got since the last scan; `quiet`: it has the same processes as then.

        A quiet tree has at most one from each of its page faults. If a process came and went, and its faults are reported
        at the next scan, all belong to that window too.
        """
        if quiet:
            self._if_late = self.by_faults - self._machine.faulted
            most = self.of(faults)
        else:
            most, self._if_late = self.by_faults + self._if_late + self._collapsed, 0
        if self._unknown:
            most, self._unknown = UNKNOWN, False
        return most

    def end_scan(self) -> None:
        """End a scan. A process may have got one after its reading: it is not in its memory, and belongs to the next window too."""
        self.by_faults, self._collapsed = self._machine.faulted, self._machine.collapsed


def _gauge(stats: str) -> int | None:
    """Return the pages of one size that are partly free at present; `None`: the kernel does not count them (before 6.12)."""
    try:
        return int(read_once(f"{stats}/nr_anon_partially_mapped"))
    except (OSError, ValueError):
        return None
