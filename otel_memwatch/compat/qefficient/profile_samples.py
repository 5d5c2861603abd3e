"""Configuration and samples of the older profiler, made from the monitor's samples; "MB" are 2**20 bytes."""

from __future__ import annotations

import os
import time
from collections import deque
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from otel_memwatch.compat.current_memory import tree_now
from otel_memwatch.compat.qefficient.phases import CPU_SECONDS, MB
from otel_memwatch.compat.shared_recording import tick_now

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from otel_memwatch.compat.shared_recording import ProgramTick


@dataclass
class ProfilerConfig:
    """Settings of a profiler."""

    sampling_interval: float = 0.2
    """Seconds between samples."""
    output_file: str | None = None
    verbose: bool = False
    enable_cpu_monitoring: bool = True
    enable_disk_monitoring: bool = True
    track_child_processes: bool = True
    child_scan_interval: float = 1.0
    """Accepted and ignored: every sample includes the children."""


@dataclass
class ProfileSample:
    """Values at one time. `disk_*` count bytes passed to read and write calls, including pipes and cached files."""

    timestamp: datetime
    rss_mb: float
    vms_mb: float
    cpu_percent: float = 0.0
    """Percent of all processors that the program may use."""
    disk_read_mb: float = 0.0
    disk_write_mb: float = 0.0
    disk_read_rate: float = 0.0
    """MB per second since the previous sample."""
    disk_write_rate: float = 0.0
    storage_read_mb: float = 0.0
    """MB read from storage, without cached files and pipes."""
    storage_write_mb: float = 0.0


def local_time(moment: float) -> datetime:
    """Convert monotonic to wall-clock time by the current difference of the two clocks."""
    return datetime.fromtimestamp(time.time() - (time.monotonic() - moment))  # noqa: DTZ006 - local, as people expect


def samples(ticks: Iterable[ProgramTick], config: ProfilerConfig) -> Iterator[ProfileSample]:
    """Yield a profile sample for each recorded one with known memory, without keeping any."""
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    offset = time.time() - time.monotonic()
    before: deque[ProgramTick] = deque()
    vms = last_time = last_read = last_written = 0.0
    for tick in ticks:
        if tick.rss is None:
            continue
        memory = tick.rss if config.track_child_processes or tick.own is None else tick.own
        vms = vms if tick.vms is None else tick.vms
        sample = ProfileSample(datetime.fromtimestamp(offset + tick.time), memory / MB, vms / MB)  # noqa: DTZ006
        if config.enable_cpu_monitoring and tick.cpu is not None:
            sample.cpu_percent = _percent(before, tick, len(usable))
        if config.enable_disk_monitoring and tick.read is not None and tick.written is not None:
            read, written = tick.read / MB, tick.written / MB
            sample.disk_read_mb, sample.disk_write_mb = read, written
            if last_time and tick.time > last_time:
                sample.disk_read_rate = max(0.0, read - last_read) / (tick.time - last_time)
                sample.disk_write_rate = max(0.0, written - last_written) / (tick.time - last_time)
            last_time, last_read, last_written = tick.time, read, written
            sample.storage_read_mb = (tick.stored_read or 0.0) / MB
            sample.storage_write_mb = (tick.stored_written or 0.0) / MB
        yield sample


def _percent(before: deque[ProgramTick], tick: ProgramTick, processors: int) -> float:
    """Return the CPU time of the last `CPU_SECONDS` in percent of the processors; `before` has the samples of that time."""
    while len(before) > 1 and before[1].time <= tick.time - CPU_SECONDS:
        before.popleft()
    before.append(tick)
    first = before[0]
    span = tick.time - first.time
    if span <= 0 or tick.cpu is None or first.cpu is None:
        return 0.0
    return min(100.0, max(0.0, 100 * (tick.cpu - first.cpu) / span / processors))


class MetricsCollector:
    """Current figures of this program and its descendants. The profiler itself does not use this class."""

    def __init__(self, config: ProfilerConfig) -> None:
        self.config = config
        self._before: deque[ProgramTick] = deque(maxlen=2)

    def initialize_cpu_monitoring(self) -> None:
        """Begin to count CPU use."""
        self._before.clear()
        self._look()

    def get_memory_usage(self) -> tuple[float, float]:
        """Return RSS and VMS in MB."""
        size = tree_now()
        return size.rss / MB, size.vms / MB

    def get_cpu_usage(self) -> float:
        """Return CPU use in percent of the processors that the program may use, since just before the last call."""
        return self._look().cpu_percent

    def get_disk_io_stats(self) -> tuple[float, float, float, float]:
        """Return MB read and written so far, and MB per second since the last call."""
        sample = self._look()
        return sample.disk_read_mb, sample.disk_write_mb, sample.disk_read_rate, sample.disk_write_rate

    def collect_sample(self) -> ProfileSample:
        """Return a sample of the current moment."""
        return self._look()

    def _look(self) -> ProfileSample:
        self._before.append(tick_now(counters=True))
        return list(samples(self._before, self.config))[-1]
