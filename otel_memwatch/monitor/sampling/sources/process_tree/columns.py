"""Columns of the source process_tree and their values."""

from __future__ import annotations

import os

from otel_memwatch import catalog
from otel_memwatch.model import Column
from otel_memwatch.runtime.kernel import sum_known
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from otel_memwatch.model import Value
    from otel_memwatch.monitor.sampling.sources.process_tree.member import Member, Totals

_PAIRS = {
    "cpu": ("cpu.mode", "user", "system"),
    "io": ("disk.io.direction", "read", "write"),
    "faults": ("system.paging.fault.type", "minor", "major"),
    "switches": ("process.context_switch.type", "voluntary", "involuntary"),
}


_NEEDED = (
    catalog.MEMWATCH_TREE_MEMORY_NEEDED_LOW,
    catalog.MEMWATCH_TREE_MEMORY_NEEDED_HIGH,
    catalog.MEMWATCH_TREE_MEMORY_NEEDED,
    catalog.MEMWATCH_TREE_MEMORY_NEEDED_LEFT,
)
"""In the order of the fields of `NeededNow`."""


IO = slice(6, 10)
"""Bytes of I/O of the tree in `fast_values`."""
UPTIME = 12
"""Index in `slow_values`."""


def _pair(metric: str, kind: str, period: float = 0.0) -> tuple[Column, Column]:
    attribute, first, second = _PAIRS[kind]
    return Column(metric, ((attribute, first),), period), Column(metric, ((attribute, second),), period)


def columns(period: float, *, needed: bool, in_group: bool = False) -> tuple[Column, ...]:
    """Return all columns: first those read at every sample, then those read once in `period` seconds.

    `in_group`: the bounds of memory needed come from the group's readings. `recording.needed_bounds` fills them in later.
    """
    needed_columns = _NEEDED if needed else _NEEDED[:2] if in_group else ()
    return (
        Column(catalog.PROCESS_MEMORY_USAGE),
        Column(catalog.MEMWATCH_TREE_MEMORY_USAGE),
        *_pair(catalog.PROCESS_CPU_TIME, "cpu"),
        *_pair(catalog.MEMWATCH_TREE_CPU_TIME, "cpu"),
        *_pair(catalog.MEMWATCH_TREE_DISK_IO, "io"),
        *_pair(catalog.MEMWATCH_TREE_SYSCALL_IO, "io"),
        Column(catalog.MEMWATCH_TREE_PROCESS_COUNT),
        Column(catalog.MEMWATCH_TREE_THREAD_COUNT),
        Column(catalog.MEMWATCH_TREE_MEMORY_HUGETLB),
        Column(catalog.MEMWATCH_TREE_MEMORY_SHMEM),
        Column(catalog.MEMWATCH_TREE_MEMORY_VIRTUAL),
        *_pair(catalog.MEMWATCH_TREE_PAGING_FAULTS, "faults"),
        Column(catalog.MEMWATCH_TREE_UNOBSERVED),
        Column(catalog.MEMWATCH_TREE_UNOBSERVED_FAULTS),
        *(Column(metric) for metric in needed_columns),
        Column(catalog.PROCESS_MEMORY_VIRTUAL, (), period),
        *_pair(catalog.PROCESS_DISK_IO, "io", period),
        *_pair(catalog.PROCESS_PAGING_FAULTS, "faults", period),
        Column(catalog.PROCESS_THREAD_COUNT, (), period),
        *_pair(catalog.PROCESS_CONTEXT_SWITCHES, "switches", period),
        Column(catalog.MEMWATCH_PROCESS_MEMORY_LINUX_ANON, (), period),
        Column(catalog.MEMWATCH_PROCESS_MEMORY_LINUX_FILE, (), period),
        Column(catalog.MEMWATCH_PROCESS_MEMORY_LINUX_SHMEM, (), period),
        Column(catalog.MEMWATCH_PROCESS_MEMORY_PEAK, (), period),
        Column(catalog.PROCESS_UPTIME, (), period),
        Column(catalog.PROCESS_UNIX_FILE_DESCRIPTOR_COUNT, (), period),
        *_pair(catalog.MEMWATCH_TREE_CONTEXT_SWITCHES, "switches", period),
        Column(catalog.MEMWATCH_TREE_FILE_DESCRIPTOR_COUNT, (), period),
    )


def fast_values(main: Member | None, members: Collection[Member], total: Totals) -> list[Value]:
    """Return values of the columns read at every sample, up to `MEMWATCH_TREE_UNOBSERVED`."""
    rss = threads = processes = hugetlb = shmem = virtual = 0
    for member in members:
        if not member.zombie:
            rss += member.rss
            hugetlb += member.hugetlb
            shmem += member.shmem
            virtual += member.stat.virtual
            threads += member.stat.threads
            processes += 1
    living = main is not None and not main.zombie
    io = total.io
    return [
        main.rss if main is not None and living else None,
        rss,
        None if main is None else main.stat.cpu_user,
        None if main is None else main.stat.cpu_system,
        round(total.cpu_user, 3),
        round(total.cpu_system, 3),
        None if io is None else io.read_bytes,
        None if io is None else io.write_bytes,
        None if io is None else io.read_chars,
        None if io is None else io.write_chars,
        processes,
        threads,
        hugetlb,
        shmem,
        virtual,
        total.minor_faults,
        total.major_faults,
    ]


def slow_values(
    now: float, main: Member | None, members: Collection[Member], descriptors: Mapping[int, int | None]
) -> list[Value]:
    """Return values of the columns read once a period. `descriptors`: as `descriptor_counts` returns them."""
    living = [member for member in members if not member.zombie]
    switches = [status for member in living if (status := member.status()) is not None]
    return [
        *_main_values(now, main),
        None if main is None else descriptors.get(main.pid),
        sum(status.voluntary for status in switches),
        sum(status.involuntary for status in switches),
        sum_known(descriptors.values()),
    ]


def _main_values(now: float, main: Member | None) -> Sequence[Value]:
    """Return the target's values up to its uptime; all `None` after it has ended."""
    if main is None or main.zombie:
        return (None,) * 13
    stat, status, io = main.stat, main.status(), main.io
    return (
        stat.virtual,
        None if io is None else io.read_bytes,
        None if io is None else io.write_bytes,
        stat.minor_faults,
        stat.major_faults,
        stat.threads,
        None if status is None else status.voluntary,
        None if status is None else status.involuntary,
        None if status is None else status.anon,
        None if status is None else status.file,
        None if status is None else status.shmem,
        main.watermark.largest,
        uptime(now, main),
    )


def uptime(now: float, main: Member | None) -> float | None:
    """Return the seconds since the target's start; `None`: it has ended."""
    return None if main is None or main.zombie else round(now - main.start, 3)


def descriptor_counts(proc: str, members: Collection[Member]) -> dict[int, int | None]:
    """Return the number of open descriptors of each living process by pid."""
    return {member.pid: descriptor_count(proc, member.pid) for member in members if not member.zombie}


def descriptor_count(proc: str, pid: int) -> int | None:
    """Return the number of open descriptors; `None`: denied.

    Since Linux 6.2 it is the size of the directory (2 us); older kernels require counting its entries.
    """
    path = f"{proc}/{pid}/fd"
    try:
        return os.stat(path).st_size or len(os.listdir(path))
    except OSError:
        return None
