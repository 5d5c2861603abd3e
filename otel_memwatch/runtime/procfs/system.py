"""Parsers of files about the whole machine, and the bytes that a page fault can map."""

from __future__ import annotations

import os

from otel_memwatch.runtime.kernel import PAGE_SIZE, parse_release, read_once
from otel_memwatch.runtime.typed import NamedTuple

_DIGITS = 20
"""Digits of the largest number that the kernel writes."""
_FAULT_AROUND = 16 * PAGE_SIZE
"""Bytes that one fault on a cached file maps at most (fault_around_bytes), unless it maps the whole folio."""
_WHOLE_FOLIOS = (6, 18)
"""Release since which one fault maps the whole folio in the page cache, up to a huge page, whatever the settings."""
_DEFAULT_HUGE_PAGE = 2 << 20
"""Bytes of a huge page if the kernel does not show its size, valid for x86 and most ARM machines."""


class Memory(NamedTuple):
    """/proc/meminfo, in bytes."""

    total: int
    free: int
    available: int
    """Memory available without swapping; before Linux 3.14 estimated as free + buffers + cached."""
    buffers: int
    cached: int
    """Page cache and reclaimable slab, as in free(1)."""
    swap_total: int
    swap_free: int


def parse_memory(data: bytes) -> Memory:
    """Parse /proc/meminfo."""

    def field(key: bytes) -> int | None:
        at = data.find(key)
        return None if at < 0 else int(data[at + len(key) : data.index(b"kB", at)]) * 1024

    total = field(b"MemTotal:")
    if total is None:
        raise ValueError("meminfo has no MemTotal")
    free = field(b"\nMemFree:") or 0
    buffers = field(b"\nBuffers:") or 0
    cached = (field(b"\nCached:") or 0) + (field(b"\nSReclaimable:") or 0)
    available = field(b"\nMemAvailable:")
    return Memory(
        total,
        free,
        free + buffers + cached if available is None else available,
        buffers,
        cached,
        field(b"\nSwapTotal:") or 0,
        field(b"\nSwapFree:") or 0,
    )


def swap_lines(data: bytes) -> bytes:
    """Return the lines of /proc/meminfo that show how much swap is in use."""
    begin = data.find(b"SwapTotal:")
    return data[begin : data.find(b"\n", data.find(b"SwapFree:", begin)) + 1] if begin >= 0 else b""


def parse_used(data: bytes) -> int | None:
    """Return total minus available memory in bytes, from /proc/meminfo; `None` if `parse_memory` has to estimate it."""
    start = data.find(b"MemTotal:")
    at = data.find(b"\nMemAvailable:")
    if start < 0 or at < 0:
        return None
    total = int(data[start + 9 : data.index(b"kB", start)])
    return (total - int(data[at + 14 : data.index(b"kB", at)])) * 1024


def parse_load(data: bytes) -> float:
    """Return the runnable and uninterruptible tasks, averaged over a minute, from /proc/loadavg."""
    return float(data[: data.index(b" ")])


def parse_last_pid(data: bytes) -> int:
    """Return the PID of the newest process or thread of this PID namespace, from /proc/loadavg."""
    return int(data[data.rindex(b" ") :])


class AllocationCounters(NamedTuple):
    """Counters of /proc/vmstat for memory without page faults. Counts are since boot."""

    huge: int
    """Huge pages allocated by a page fault."""
    collapsed: int
    """Huge pages made from small ones."""
    shared: int
    """Current base pages of shared memory, including files in memory (tmpfs, memfd)."""
    swapped: int = 0
    """Base pages written to swap, or compressed in memory instead."""
    partly_freed: int = 0
    """Huge pages of which a process has freed a part. The kernel splits them later, if memory is short."""
    pages: int = 0
    """Base pages handed out for any use, huge pages included."""


_SHMEM = b"\nnr_shmem "


def parse_allocated(data: bytes) -> AllocationCounters:
    """Parse /proc/vmstat; counters missing in this kernel are 0."""

    def field(key: bytes) -> int:
        at = data.find(key)
        return 0 if at < 0 else int(data[at + len(key) : data.index(b"\n", at + len(key))])

    return AllocationCounters(
        field(b"\nthp_fault_alloc ") + field(b"\nthp_file_alloc "),
        field(b"\nthp_collapse_alloc "),
        field(_SHMEM),
        field(b"\npswpout ") + field(b"\nzswpout "),
        field(b"\nthp_deferred_split_page "),
    )


def shared_line(data: bytes) -> bytes:
    """Return the line of shared memory in /proc/vmstat, with the newlines around it; empty: there is none."""
    at = data.find(_SHMEM)
    return b"" if at < 0 else data[at : data.index(b"\n", at + 1) + 1]


def parse_pages(data: bytes) -> int:
    """Parse the base pages handed out since boot, of all zones, from /proc/vmstat."""
    at = data.find(b"\npgalloc_")
    lines = data[at + 1 : data.find(b"\nallocstall", at)].split(b"\n") if at >= 0 else []
    return sum(int(line[line.index(b" ") :]) for line in lines if line.startswith(b"pgalloc_"))


_LISTS = (
    b"\nnr_active_anon ", b"\nnr_inactive_anon ", b"\nnr_active_file ", b"\nnr_inactive_file ", b"\nnr_unevictable ",
    b"\nnr_isolated_anon ", b"\nnr_isolated_file ",
)  # fmt: skip
_USERS = (b"\nnr_anon_pages ", b"\nnr_file_pages ")


def parse_unfreed(data: bytes) -> int | None:
    """Return the base pages that no process maps and no file has, but that are not free yet, from /proc/vmstat.

    The kernel takes a page from its lists when it frees it, after it has removed it from processes and files. The figure
    is below 0 by pages that wait for their place in a list. `None`: a counter is missing in this kernel.
    """

    def total(keys: tuple[bytes, ...]) -> int:
        places = [data.index(key) + len(key) for key in keys]
        return sum(int(data[at : data.index(b"\n", at)]) for at in places)

    try:
        return total(_LISTS) - total(_USERS)
    except ValueError:
        return None


def read_allocated() -> AllocationCounters | None:
    """Return the machine's allocation counters; `None` without /proc. Cost: 15 us."""
    try:
        return allocated_in(read_once("/proc/vmstat"))
    except OSError:
        return None


def allocated_in(data: bytes) -> AllocationCounters:
    """Parse all allocation counters of /proc/vmstat."""
    return parse_allocated(data)._replace(pages=parse_pages(data))


def other_page_sizes(directory: str, huge_page: int) -> list[tuple[int, str]]:
    """Return bytes and directory of each size of large pages, other than `huge_page`, that page faults may bring.

    Args:
        directory: /sys/kernel/mm/transparent_hugepage.
        huge_page: bytes of the size that /proc/vmstat counts.

    """
    try:
        names = sorted(name for name in os.listdir(directory) if name.startswith("hugepages-"))
    except OSError:
        return []  # an older kernel without these sizes
    sizes = [
        (int(name.removeprefix("hugepages-").removesuffix("kB")) * 1024, f"{directory}/{name}")
        for name in names
    ]
    return [(size, path) for size, path in sizes if size != huge_page and _is_in_use(path)]


def _is_in_use(directory: str) -> bool:
    for name in ("enabled", "shmem_enabled"):
        try:
            if b"[never]" not in read_once(f"{directory}/{name}"):
                return True
        except OSError:
            continue
    return False


def parse_pressure(data: bytes) -> dict[str, float]:
    """Return seconds of stall by type ("some", "full") from a pressure file; missing types are absent."""
    stalls = {}
    for line in data.decode().splitlines():
        kind, _, rest = line.partition(" ")
        _, known, total = rest.partition("total=")
        if known:
            stalls[kind] = int(total.partition(" ")[0][:_DIGITS]) / 1e6
    return stalls


def fault_bytes(sys: str | os.PathLike[str], release: str) -> int:
    """Return the bytes by which one page fault can raise resident memory on this kernel.

    ====================================================  ========================================
    huge pages                                            bytes
    ====================================================  ========================================
    not compiled into the kernel                          `_FAULT_AROUND`
    switched off, and a release before `_WHOLE_FOLIOS`     `_FAULT_AROUND`
    of a size that the kernel shows                       that size, or `_FAULT_AROUND` if larger
    of an unknown size                                    `_DEFAULT_HUGE_PAGE`
    ====================================================  ========================================
    """
    pages = f"{sys}/kernel/mm/transparent_hugepage"
    try:
        if parse_release(release) < _WHOLE_FOLIOS and b"[never]" in read_once(f"{pages}/enabled"):
            return _FAULT_AROUND
        return max(_FAULT_AROUND, int(read_once(f"{pages}/hpage_pmd_size")))
    except FileNotFoundError:
        return _DEFAULT_HUGE_PAGE if os.path.exists(pages) else _FAULT_AROUND
    except (OSError, ValueError):
        return _DEFAULT_HUGE_PAGE


def parse_busy(data: bytes, ticks: int) -> float:
    """Return the CPU seconds since boot of all programs, of interrupts and of the hypervisor, from /proc/stat.

    Args:
        data: begins with the line of all processors.
        ticks: clock ticks in a second.
    """
    user, nice, system, _idle, _waiting, *rest = (
        int(field[:_DIGITS]) for field in data.split(b"\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + sum(rest)) / ticks


def parse_run_delay(data: bytes) -> float:
    """Return the seconds that a thread could run but waited for a processor, from /proc/PID/task/TID/schedstat."""
    return int(data.split()[1][:_DIGITS]) / 1e9
