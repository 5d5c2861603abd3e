"""The files of a control group, of either version, as the same values."""

from __future__ import annotations

import contextlib
import os
import time

from otel_memwatch.runtime.procfs.control_group import parse_key, parse_keyed, parse_limit
from otel_memwatch.runtime.procfs.system import parse_pressure
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_memwatch.monitor.sampling.sources.cgroup.files import Groups


class Fast(NamedTuple):
    """What is read at every tick, in bytes and kills."""

    usage: int
    peak: int | None
    """`None` on version 2 before Linux 5.19, and where `window` is asked for `highest`."""
    oom_kills: int | None


class OfTick(NamedTuple):
    """What is read of a group of the run's own at every tick; `None`: this kernel does not tell."""

    file: int | None
    """Bytes of page cache, shared memory not included."""
    faults: int | None
    """Page faults so far."""
    unevictable: int | None
    """Bytes that cannot be reclaimed."""
    anon: int | None
    """Bytes of private memory: the part of what is charged that comes by page faults alone."""


class Slow(NamedTuple):
    """What is read about once a second, in bytes and seconds."""

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


LONGEST_GAP = 100e-6
"""Seconds between reading a watermark and resetting it up to which nothing of size can have come and gone: at 2 GB/s
and core (the speed of page faults) less than the kernel charges ahead of use."""


class Readings(Protocol):
    """What both versions answer."""

    @property
    def events(self) -> tuple[str, ...]:
        """Names of the memory events that this version counts."""

    @property
    def has_pressure(self) -> bool:
        """Whether there are pressure files."""

    @property
    def highest(self) -> int | None:
        """Largest watermark as of the last `window`, in bytes, where `fast` leaves it to that; else `None`."""

    def fast(self) -> Fast:
        """Raises `OSError` when the group has gone."""

    def slow(self) -> Slow:
        """Raises `OSError` when the group has gone."""

    def all_events(self) -> Mapping[str, int]:
        """Memory events since the group was made."""

    def of_tick(self) -> OfTick:
        """What memory.stat tells at every tick (one read, 7 us)."""

    def window(self) -> tuple[int | None, float | None]:
        """Bytes of the watermark since the call before, which is reset, and the seconds that nobody watched.

        These are 0 up to `LONGEST_GAP`. `None`: this kernel cannot reset. Only for a group of the run's own: everybody who reads its watermark sees the reset.
        """

    def pressure(self) -> Mapping[tuple[str, str], float]:
        """Seconds of stall by resource and type."""

    def close(self) -> None:
        """Close all files."""


class _Files:
    """Kept descriptors of the files of one group that exist."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._descriptors: dict[str, int] = {}
        self.has_pressure = groups.pressure is not None
        self._resettable: int | None = None
        self.highest: int | None = None

    def _window(self, name: str) -> tuple[int | None, float | None]:
        """The watermark since its last reset, and the seconds until it was reset; `None`: it cannot be."""
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
        return value, round(gap, 6) if gap > LONGEST_GAP else 0

    def _optional(self, path: str) -> bytes | None:
        fd = self._descriptors.get(path)
        if fd is None:
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                fd = -1
            self._descriptors[path] = fd
        return None if fd < 0 else os.pread(fd, 16384, 0)

    def _needed(self, name: str) -> bytes:
        data = self._optional(f"{self._groups.memory}/{name}")
        if data is None:
            raise FileNotFoundError(f"{self._groups.memory}/{name} cannot be read")
        return data

    def _number(self, name: str) -> int | None:
        data = self._optional(f"{self._groups.memory}/{name}")
        return None if data is None else int(data)

    def _keyed(self, group: str | None, name: str) -> dict[str, int]:
        data = None if group is None else self._optional(f"{group}/{name}")
        return {} if data is None else parse_keyed(data)

    def _smallest(self, name: str) -> int | None:
        """The smallest limit of this name among the group and those above it."""
        limits = []
        for group in self._groups.above:
            data = self._optional(f"{group}/{name}")
            limits.append(None if data is None else parse_limit(data))
        return min((limit for limit in limits if limit is not None), default=None)

    def pressure(self) -> Mapping[tuple[str, str], float]:
        """Seconds of stall by resource and type; empty where the kernel does not say."""
        stalls: dict[tuple[str, str], float] = {}
        for resource in ("cpu", "memory", "io"):
            # a pressure file of a kernel booted without PSI can be opened and not read
            with contextlib.suppress(OSError):
                data = self._optional(f"{self._groups.pressure}/{resource}.pressure")
                stalls.update(
                    {(resource, kind): value for kind, value in parse_pressure(data or b"").items()}
                )
        return stalls

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
    """Version 1: memory and processor in hierarchies of their own."""

    events = ("oom_kill", "max")

    def fast(self) -> Fast:
        """Raises `OSError` when the group has gone."""
        control = self._optional(f"{self._groups.memory}/memory.oom_control")
        if self._resettable is None or self._resettable < 0:
            peak = self._number("memory.max_usage_in_bytes")
            peak = None if peak is None else max(peak, self.highest or 0)
        else:
            peak = None  # `window` reads it at once
        return Fast(
            int(self._needed("memory.usage_in_bytes")),
            peak,
            None if control is None else parse_key(control, b"oom_kill"),
        )

    def of_tick(self) -> OfTick:
        """What memory.stat tells at every tick."""
        stat = self._needed("memory.stat")
        cache = parse_key(stat, b"total_cache")
        shmem = parse_key(stat, b"total_shmem") or parse_key(stat, b"total_mapped_shmem") or 0
        return OfTick(
            None if cache is None else cache - shmem,
            parse_key(stat, b"total_pgfault"),
            parse_key(stat, b"total_unevictable"),
            parse_key(stat, b"total_rss"),
        )

    def window(self) -> tuple[int | None, float | None]:
        """Bytes of the watermark since the call before. The file is reset for everybody."""
        window = self._window("memory.max_usage_in_bytes")
        self.highest = max(self.highest or 0, window[0] or 0)
        return window

    def slow(self) -> Slow:
        """Raises `OSError` when the group has gone. Sums over the groups below are used: `total_`."""
        stat = parse_keyed(self._needed("memory.stat"))
        usage = int(self._needed("memory.usage_in_bytes"))
        cache, shmem = stat.get("total_cache"), stat.get("total_shmem", stat.get("total_mapped_shmem"))
        effective = stat.get("hierarchical_memory_limit")
        limits = (
            self._smallest("memory.limit_in_bytes"),
            None if effective is None else parse_limit(b"%d" % effective),
        )
        return Slow(
            max(0, usage - stat.get("total_inactive_file", 0)),
            stat.get("total_rss"),
            None if cache is None else cache - (shmem or 0),
            shmem,
            self._number("memory.kmem.usage_in_bytes"),
            stat.get("total_swap"),
            min((limit for limit in limits if limit is not None), default=None),
            None,
            _seconds(self._keyed(self._groups.cpu, "cpu.stat").get("throttled_time"), 1e9),
        )

    def all_events(self) -> Mapping[str, int]:
        """`max`: times that the limit was hit (memory.failcnt)."""
        events = self._keyed(self._groups.memory, "memory.oom_control")
        failures = self._number("memory.failcnt")
        return events if failures is None else events | {"max": failures}


class Version2(_Files):
    """Version 2: all controllers in one hierarchy."""

    events = ("oom_kill", "low", "high", "max", "oom", "oom_group_kill")

    def fast(self) -> Fast:
        """Raises `OSError` when the group has gone."""
        events = self._optional(f"{self._groups.memory}/memory.events")
        resettable = self._resettable is not None and self._resettable >= 0
        return Fast(
            int(self._needed("memory.current")),
            None if resettable else self._number("memory.peak"),
            None if events is None else parse_key(events, b"oom_kill"),
        )

    def of_tick(self) -> OfTick:
        """What memory.stat tells at every tick."""
        stat = self._needed("memory.stat")
        file = parse_key(stat, b"file")
        return OfTick(
            None if file is None else file - (parse_key(stat, b"shmem") or 0),
            parse_key(stat, b"pgfault"),
            parse_key(stat, b"unevictable"),
            parse_key(stat, b"anon"),
        )

    def window(self) -> tuple[int | None, float | None]:
        """Bytes of the watermark since the call before: from Linux 6.12 on it can be reset for those who reset it.

        One who never did reads that of the group's life, which misses nothing. Two who reset it take from each other what it
        was: the kernel keeps for the one only what is charged when the other resets.
        """
        window = self._window("memory.peak")
        self.highest = self._number("memory.peak")
        return window

    def slow(self) -> Slow:
        """Raises `OSError` when the group has gone."""
        stat = parse_keyed(self._needed("memory.stat"))
        usage = int(self._needed("memory.current"))
        file, shmem = stat.get("file"), stat.get("shmem")
        return Slow(
            max(0, usage - stat.get("inactive_file", 0)),
            stat.get("anon"),
            None if file is None else file - (shmem or 0),
            shmem,
            _kernel(stat),
            self._number("memory.swap.current"),
            self._smallest("memory.max"),
            self._smallest("memory.high"),
            _seconds(self._keyed(self._groups.cpu, "cpu.stat").get("throttled_usec"), 1e6),
        )

    def all_events(self) -> Mapping[str, int]:
        """memory.events, the groups below included."""
        return self._keyed(self._groups.memory, "memory.events")


def _kernel(stat: Mapping[str, int]) -> int | None:
    """Kernel memory; before Linux 5.18 the sum of the parts that the kernel gives."""
    if "kernel" in stat:
        return stat["kernel"]
    parts = [
        stat[name] for name in ("kernel_stack", "pagetables", "percpu", "slab", "vmalloc") if name in stat
    ]
    return sum(parts) if parts else None


def _seconds(count: int | None, per_second: float) -> float | None:
    return None if count is None else count / per_second


def readings(groups: Groups) -> Readings:
    """The readings of the version that has the memory controller."""
    return Version1(groups) if groups.version == 1 else Version2(groups)
