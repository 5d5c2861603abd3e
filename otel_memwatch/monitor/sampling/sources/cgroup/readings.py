"""Files of a cgroup, either version, read as the same values."""

from __future__ import annotations

import os
import time

from otel_memwatch.runtime.kernel import processors
from otel_memwatch.runtime.light import suppress
from otel_memwatch.runtime.procfs.control_group import parse_key, parse_keyed, parse_limit
from otel_memwatch.runtime.procfs.system import parse_pressure
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.truth.cgroup_windows import missed_seconds, slab_in_use

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_memwatch.monitor.sampling.repeated import WatchedFile
    from otel_memwatch.monitor.sampling.sources.cgroup.location import Groups


class CgroupSample(NamedTuple):
    """Readings of every sample in bytes, seconds and counts; `None`: the kernel lacks it.

    A cgroup that was made for the run has all but `outside`; one that is the target has neither `window` nor `gap`. Any other
    cgroup has only the fields up to `outside`.
    """

    usage: int
    peak: int | None
    oom_kills: int | None
    outside: int | None = None
    """Processes of the tree seen outside the cgroup."""
    window: int | None = None
    gap: float | None = None
    """Both from `window` of the readings."""
    file: int | None = None
    """Page cache without shared memory; on version 2 with reclaimable slab."""
    faults: int | None = None
    """Page faults so far."""
    unevictable: int | None = None
    """Memory that cannot be reclaimed; on version 2 with slab of `file` that files in use may need."""
    anon: int | None = None
    """Private memory: the charged memory that only page faults add."""
    refaults: int | None = None
    """Pages of files that were reclaimed and read again, so far."""
    unwritten: int | None = None
    """Page cache that waits to be written to storage."""
    mapped: int | None = None
    """Page cache that processes map, without shared memory."""


class Details(NamedTuple):
    """Readings of about once a second, in bytes and seconds."""

    working_set: int | None
    anon: int | None
    file: int | None
    shmem: int | None
    kernel: int | None
    swap: int | None
    limit: int | None
    """`None`: no limit."""
    high: int | None
    throttled: float | None
    events: Mapping[str, int]
    """Memory events since the cgroup was made."""
    stalls: Mapping[tuple[str, str], float]
    """Seconds of stall by resource and type; empty if the kernel does not measure them."""
    refaults: int | None
    """Pages of files that were reclaimed and read again, so far; `None` before Linux 5.9."""
    cores: float | None
    """CPU limit in processors; `None`: no limit."""


LONGEST_GAP = 100e-6
"""Seconds from reading a watermark to its reset that count as no gap.

At 2 GB/s per core (the speed of page faults), less memory is added meanwhile than the kernel charges ahead of use.
"""


_LIMITS = 10
"""Readings of details after which limits that seldom change are read again: those of cgroups above, and of CPU."""

_NOTICED, _NOTICED_SHARE = 1 << 20, 0.05
"""Bytes, and share of the usage, that are no noticeable change."""
_MOST_BYTES = 16384
"""Most bytes of one file."""


class _Files:
    """Open descriptors of one cgroup's files.

    Attributes:
        highest: largest watermark as of the last `window`, in bytes, if `usage` leaves the peak to it; else `None`.
        usage_file: file with the charged bytes.
        peak_file: file with the watermark.
        never_reset: file with a watermark of the cgroup's whole life, at least that of its memory.
        updating: files whose reading updates memory.stat, beside the cgroup's.

    """

    never_reset: str
    usage_file: str
    peak_file: str
    updating: tuple[str, ...] = ("../memory.stat",)

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._descriptors: dict[str, int] = {}
        self._resettable: int | None = None
        """Descriptor of the watermark for resets; `None`: not opened yet; -1: the kernel cannot reset it."""
        self.highest: int | None = None
        self._usage: bytes | None = None
        """Last content of the usage file."""
        self._usage_descriptor = -1
        """Its descriptor, once a watermark was reset."""
        self._stat = b""
        """Last content of memory.stat."""
        self._details = 0
        """Number of calls of `details`."""
        self._memory_read: Mapping[str, bytes | None] | None = None
        """Contents of the files of memory, or parts of them, that bounds rest on; `None` before the first `details`."""
        self._above: dict[str, list[int | None]] = {}
        """Limits of the cgroups above by file."""
        self._known_cores: tuple[float | None] | None = None
        """Result of `_cores`; `None`: to be read."""
        self._peak: bytes | None = None
        """Last content of the watermark's file, if `peak` read it."""
        self._last: dict[str, bytes] = {}
        """Contents of files by path after the end of the last process (`keep_last`)."""

    def keep_last(self, contents: Mapping[str, bytes]) -> None:
        """Keep contents of files by name, in case that the cgroup is removed before the next sample."""
        self._last = {f"{self._groups.memory}/{name}": data for name, data in contents.items()}

    def kept_peak(self) -> int | None:
        """Return the watermark among the kept contents; `None`: there is none."""
        kept = self._last.get(f"{self._groups.memory}/{self.peak_file}")
        return None if kept is None else int(kept)

    def settle(self) -> None:
        """Make the kernel update memory.stat, which otherwise may lack up to 128 changes for each processor.

        Reading the file updates a cgroup and all below it if enough changes are pending. The parent has more of them. Until
        Linux 6.15, reading cpu.stat of version 2 updates all files of the cgroup, however few changes are pending: with 64
        processors, memory.stat lacked up to 580 page faults before, and none after it.
        """
        for name in self.updating:
            with suppress(OSError):
                self._optional(f"{self._groups.memory}/{name}")

    def peak(self) -> int | None:
        """Return the watermark without a reset; `None`: the kernel has none."""
        self._peak = self._optional(f"{self._groups.memory}/{self.peak_file}")
        return None if self._peak is None else int(self._peak)

    def _window(self, name: str) -> tuple[int | None, float | None]:
        """Read and reset the watermark in the file `name`.

        Returns:
            Bytes of the watermark since its previous reset, and the seconds from reading to reset in which growth can be
            missed (`missed_seconds`). These are 0 up to `LONGEST_GAP`. Both are `None` if the kernel cannot reset it.

        """
        if self._resettable is None:
            try:
                self._resettable = os.open(f"{self._groups.memory}/{name}", os.O_RDWR | os.O_CLOEXEC)
            except OSError:
                self._resettable = -1
        if self._resettable < 0:
            return None, None
        began = time.monotonic()
        value = int(os.pread(self._resettable, 64, 0))
        try:
            os.pwrite(self._resettable, b"0", 0)
        except OSError:
            os.close(self._resettable)
            self._resettable = -1
            return None, None
        gap = time.monotonic() - began
        if gap > LONGEST_GAP:
            gap = missed_seconds(gap, value, self._number(self.never_reset), processors())
        return value, round(gap, 6) if gap > LONGEST_GAP else 0

    def is_unchanged(self) -> bool:
        """Return whether usage and watermark are both what the usage was before the last reset.

        Then no memory was charged since, and the watermark needs no reset. Without resets: whether both are as before.
        """
        if self._groups.target:
            return (
                self._usage is not None
                and self._needed(self.usage_file) == self._usage
                and self._optional(f"{self._groups.memory}/{self.peak_file}") == self._peak
            )
        usage = self._usage
        if usage is None or self._resettable is None or self._resettable < 0:
            return False
        if self._usage_descriptor < 0:
            self._usage_descriptor = self._descriptors[f"{self._groups.memory}/{self.usage_file}"]
        return os.pread(self._usage_descriptor, 64, 0) == usage and os.pread(self._resettable, 64, 0) == usage

    def details_unchanged(self, due: float, every: float) -> tuple[WatchedFile, ...] | None:
        """Return files, to be read from `due` on, that have memory as `details` found it; `None`: not read yet.

        Those of `settle` precede them, whatever they contain.
        """
        from otel_memwatch.monitor.sampling.repeated import WatchedFile

        if self._memory_read is None:
            return None
        settling = dict.fromkeys(self.updating if self._groups.own else (), b"\n")
        parts = [
            (self._descriptors.get(f"{self._groups.memory}/{name}", -1), part)
            for name, part in (*settling.items(), *self._memory_read.items())
        ]
        return tuple(WatchedFile(fd, (part,), False, due, every) for fd, part in parts if fd >= 0 and part)

    def files_unchanged(self) -> tuple[WatchedFile, ...] | None:
        """Return files that stay as they are while `is_unchanged` returns `True`; `None`: it does not, or files are missing."""
        from otel_memwatch.monitor.sampling.repeated import WatchedFile

        usage, memory = self._usage, self._groups.memory
        if self._groups.target:
            peak, mark = self._peak, self._descriptors.get(f"{memory}/{self.peak_file}", -1)
        else:
            peak, mark = usage, -1 if self._resettable is None else self._resettable
        descriptor = self._descriptors.get(f"{memory}/{self.usage_file}", -1)
        if usage is None or peak is None or descriptor < 0 or mark < 0:
            return None
        return WatchedFile(descriptor, (usage,)), WatchedFile(mark, (peak,))

    def has_moved(self) -> bool:
        """Return whether the usage, or a watermark that is only read, differs noticeably from the last sample."""
        if self._usage is None:
            return False
        usage, before = int(self._needed(self.usage_file)), int(self._usage)
        noticed = max(_NOTICED, int(_NOTICED_SHARE * before))
        if abs(usage - before) > noticed:
            return True
        if self._groups.own:
            peak = (
                None
                if not self._resettable or self._resettable < 0
                else int(os.pread(self._resettable, 64, 0))
            )
            return peak is not None and peak - before > noticed
        return (
            self._peak is not None and self._optional(f"{self._groups.memory}/{self.peak_file}") != self._peak
        )

    def _optional(self, path: str) -> bytes | None:
        fd = self._descriptors.get(path)
        if fd is None:
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                fd = -1
            self._descriptors[path] = fd
        try:
            return None if fd < 0 else os.pread(fd, _MOST_BYTES, 0)
        except OSError:
            if path not in self._last:
                raise
            return self._last[path]

    def _needed(self, name: str) -> bytes:
        data = self._optional(f"{self._groups.memory}/{name}")
        if data is None:
            raise FileNotFoundError(f"{self._groups.memory}/{name} cannot be read")
        return data

    def _begin_details(self) -> bytes:
        """Return memory.stat of this sample; forget the limits of the cgroups above now and then."""
        self._details += 1
        if self._details % _LIMITS == 0:
            self._above.clear()
            self._known_cores = None
        stat, self._stat = self._stat, b""
        return stat or self._needed("memory.stat")

    def _number(self, name: str) -> int | None:
        data = self._optional(f"{self._groups.memory}/{name}")
        return None if data is None else int(data)

    def _keyed(self, group: str | None, name: str) -> dict[str, int]:
        data = None if group is None else self._optional(f"{group}/{name}")
        return {} if data is None else parse_keyed(data)

    def _smallest(self, name: str) -> int | None:
        """Return the smallest limit of this name in the cgroup and those above it. Those above are read now and then."""
        below, *above = self._groups.above
        limits = [self._limit(f"{below}/{name}")]
        if name not in self._above:
            self._above[name] = [self._limit(f"{group}/{name}") for group in above]
        limits += self._above[name]
        return min((limit for limit in limits if limit is not None), default=None)

    def _limit(self, path: str) -> int | None:
        data = self._optional(path)
        return None if data is None else parse_limit(data)

    def _stalls(self) -> Mapping[tuple[str, str], float]:
        stalls: dict[tuple[str, str], float] = {}
        for resource in ("cpu", "memory", "io") if self._groups.pressure is not None else ():
            # On a kernel booted without PSI, a pressure file can be opened but not read.
            with suppress(OSError):
                data = self._optional(f"{self._groups.pressure}/{resource}.pressure")
                stalls.update(
                    {(resource, kind): value for kind, value in parse_pressure(data or b"").items()}
                )
        return stalls

    def _cores(self) -> float | None:
        """Return the smallest CPU limit of the cgroup and those above it, in processors. They are read now and then."""
        if self._known_cores is not None:
            return self._known_cores[0]
        found, group = [], self._groups.cpu
        while group is not None and os.path.exists(f"{group}/cgroup.procs"):
            maximum = self._optional(
                f"{group}/cpu.max"
            )  # version 2; the files of version 1 have -1 for no limit
            quota, period = (maximum or b"-1 1").split()
            if maximum is None:
                quota = self._optional(f"{group}/cpu.cfs_quota_us") or b"-1"
                period = self._optional(f"{group}/cpu.cfs_period_us") or b"1"
            if quota != b"max" and int(quota) > 0:
                found.append(int(quota) / int(period))
            group = os.path.dirname(group)
        self._known_cores = (min(found, default=None),)
        return self._known_cores[0]

    def close(self) -> None:
        """Close all files."""
        for fd in self._descriptors.values():
            if fd >= 0:
                os.close(fd)
        self._descriptors.clear()
        if self._resettable is not None and self._resettable >= 0:
            os.close(self._resettable)
            self._resettable = -1


class Version1(_Files):
    """Version 1: memory and CPU in separate hierarchies."""

    event_names = ("oom_kill", "max")
    usage_file = "memory.usage_in_bytes"
    peak_file = "memory.max_usage_in_bytes"
    never_reset = "memory.memsw.max_usage_in_bytes"

    def usage(self) -> tuple[int, int | None, int | None]:
        """Return usage, peak and OOM kills. Raises `OSError` if the cgroup is gone.

        The peak is `None` if `window` maintains `highest`, and on version 2 before Linux 5.19.
        """
        control = self._optional(f"{self._groups.memory}/memory.oom_control")
        if self._resettable is None or self._resettable < 0:
            peak = self._number("memory.max_usage_in_bytes")
            peak = None if peak is None else max(peak, self.highest or 0)
        else:
            peak = None  # `window` reads it next
        self._usage = usage = self._needed(self.usage_file)
        return (
            int(usage),
            peak,
            None if control is None else parse_key(control, b"oom_kill"),
        )

    def statistics(self) -> tuple[int | None, ...]:
        """Return the fields of `CgroupSample` from `file` on, from memory.stat (one read, 7 us)."""
        self._stat = stat = self._needed("memory.stat")
        cache = parse_key(stat, b"total_cache")
        shmem = parse_key(stat, b"total_shmem") or parse_key(stat, b"total_mapped_shmem") or 0
        return (
            None if cache is None else cache - shmem,
            parse_key(stat, b"total_pgfault"),
            parse_key(stat, b"total_unevictable"),
            parse_key(stat, b"total_rss"),
            parse_key(stat, b"total_workingset_refault_file"),
            _unwritten(stat, b"total_dirty", b"total_writeback"),
            _mapped(stat, b"total_mapped_file", shmem),
        )

    def window(self) -> tuple[int | None, float | None]:
        """Return bytes of the watermark since the previous call, and the gap (`_window`).

        Only for a cgroup made for the run: every reader of its watermark sees the reset.
        """
        window = self._window("memory.max_usage_in_bytes")
        self.highest = max(self.highest or 0, window[0] or 0)
        return window

    def details(self) -> Details:
        """Read the slow values. Raises `OSError` if the cgroup is gone.

        The fields with `total_` include the cgroups below.
        """
        stat = self._begin_details()
        kernel = self._optional(f"{self._groups.memory}/memory.kmem.usage_in_bytes")
        alone = self._groups.own or self._groups.target
        self._memory_read = (
            {"memory.stat": stat, "memory.kmem.usage_in_bytes": kernel}
            if alone
            else {"memory.stat": _line(stat, b"total_swap ")}
        )
        usage = int(self._needed("memory.usage_in_bytes"))
        cache, shmem = parse_key(stat, b"total_cache"), parse_key(stat, b"total_shmem")
        if shmem is None:
            shmem = parse_key(stat, b"total_mapped_shmem")
        effective = parse_key(stat, b"hierarchical_memory_limit")
        limits = (
            self._smallest("memory.limit_in_bytes"),
            None if effective is None else parse_limit(b"%d" % effective),
        )
        return Details(
            max(0, usage - (parse_key(stat, b"total_inactive_file") or 0)),
            parse_key(stat, b"total_rss"),
            None if cache is None else cache - (shmem or 0),
            shmem,
            None if kernel is None else int(kernel),
            parse_key(stat, b"total_swap"),
            min((limit for limit in limits if limit is not None), default=None),
            None,
            _seconds(self._keyed(self._groups.cpu, "cpu.stat").get("throttled_time"), 1e9),
            self._events(),
            self._stalls(),
            parse_key(stat, b"total_workingset_refault_file"),
            self._cores(),
        )

    def _events(self) -> Mapping[str, int]:
        """Return OOM kills, and as `max` the times that the limit was hit.

        If memory and memory with swap have the same limit, the kernel counts only the latter (memory.memsw.failcnt).
        """
        events = self._keyed(self._groups.memory, "memory.oom_control")
        failures = self._number("memory.failcnt")
        if failures is None:
            return events
        return events | {"max": failures + (self._number("memory.memsw.failcnt") or 0)}


class Version2(_Files):
    """Version 2: all controllers in one hierarchy."""

    event_names = ("oom_kill", "low", "high", "max", "oom", "oom_group_kill")
    usage_file = "memory.current"
    peak_file = "memory.peak"
    never_reset = "memory.peak"
    updating = "../memory.stat", "cpu.stat"

    def usage(self) -> tuple[int, int | None, int | None]:
        """Return usage, peak and OOM kills, like version 1."""
        events = self._optional(f"{self._groups.memory}/memory.events")
        resettable = self._resettable is not None and self._resettable >= 0
        self._usage = usage = self._needed(self.usage_file)
        return (
            int(usage),
            None if resettable else self._number("memory.peak"),
            None if events is None else parse_key(events, b"oom_kill"),
        )

    def statistics(self) -> tuple[int | None, ...]:
        """Return the fields of `CgroupSample` from `file` on, like version 1.

        The kernel reclaims dentries and inodes (slab_reclaimable) like page cache.
        """
        self._stat = stat = self._needed("memory.stat")
        file = parse_key(stat, b"file")
        slab = parse_key(stat, b"slab_reclaimable") or 0
        shmem = parse_key(stat, b"shmem") or 0
        unevictable = parse_key(stat, b"unevictable")
        if unevictable is not None and slab:
            unevictable += slab_in_use(slab, parse_key(stat, b"slab_unreclaimable") or 0)
        return (
            None if file is None else file - shmem + slab,
            parse_key(stat, b"pgfault"),
            unevictable,
            parse_key(stat, b"anon"),
            parse_key(stat, b"workingset_refault_file"),
            _unwritten(stat, b"file_dirty", b"file_writeback"),
            _mapped(stat, b"file_mapped", shmem),
        )

    def window(self) -> tuple[int | None, float | None]:
        """Return bytes of the watermark since the previous call, and the gap (`_window`).

        Since Linux 6.12, a reset affects only the descriptor that requested it. A descriptor without resets reads the
        watermark of the cgroup's whole life. Two descriptors with resets disturb each other: after a reset of one, the
        kernel keeps for the other only the memory charged at that moment.
        """
        window = self._window("memory.peak")
        self.highest = self._number("memory.peak")
        return window

    def details(self) -> Details:
        """Read the slow values. Raises `OSError` if the cgroup is gone."""
        data = self._begin_details()
        swap = self._optional(f"{self._groups.memory}/memory.swap.current")
        alone = self._groups.own or self._groups.target
        self._memory_read = {"memory.stat": data if alone else None, "memory.swap.current": swap}
        stat = parse_keyed(data)
        usage = int(self._needed("memory.current"))
        file, shmem = stat.get("file"), stat.get("shmem")
        return Details(
            max(0, usage - stat.get("inactive_file", 0)),
            stat.get("anon"),
            None if file is None else file - (shmem or 0),
            shmem,
            _kernel(stat),
            None if swap is None else int(swap),
            self._smallest("memory.max"),
            self._smallest("memory.high"),
            _seconds(self._keyed(self._groups.cpu, "cpu.stat").get("throttled_usec"), 1e6),
            self._keyed(self._groups.memory, "memory.events"),
            self._stalls(),
            stat.get("workingset_refault_file"),
            self._cores(),
        )


def _kernel(stat: Mapping[str, int]) -> int | None:
    """Return kernel memory; before Linux 5.18, the sum of the listed parts."""
    if "kernel" in stat:
        return stat["kernel"]
    parts = [
        stat[name] for name in ("kernel_stack", "pagetables", "percpu", "slab", "vmalloc") if name in stat
    ]
    return sum(parts) if parts else None


def _line(stat: bytes, key: bytes) -> bytes:
    begin = stat.find(key)
    return stat[begin : stat.find(b"\n", begin) + 1] if begin >= 0 else b""


def _unwritten(stat: bytes, dirty: bytes, writeback: bytes) -> int | None:
    waiting = parse_key(stat, dirty)
    return None if waiting is None else waiting + (parse_key(stat, writeback) or 0)


def _mapped(stat: bytes, name: bytes, shmem: int) -> int | None:
    """Return mapped page cache: the kernel's figure includes the shared memory that is mapped."""
    mapped = parse_key(stat, name)
    return None if mapped is None else max(0, mapped - shmem)


def _seconds(count: int | None, per_second: float) -> float | None:
    return None if count is None else count / per_second


def readings(groups: Groups) -> Version1 | Version2:
    """Return the readings of the version that has the memory controller."""
    return Version1(groups) if groups.version == 1 else Version2(groups)
