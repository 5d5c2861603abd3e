"""From the monitor's ticks to samples, one by one: nothing is kept."""

from __future__ import annotations

import os
import time
from collections import deque
from datetime import datetime
from typing import TYPE_CHECKING

from otel_memwatch.compat.qefficient.samples import ProfilerConfig, ProfileSample

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from otel_memwatch.compat.recording import Tick

MB = 2**20

_SMOOTHED_SECONDS = 0.2
"""CPU time advances in steps of 10 ms: over a shorter time its rate would be noise."""


def local_time(moment: float) -> datetime:
    """Wall-clock time of a moment of the monotonic clock, by the present difference of the two."""
    return datetime.fromtimestamp(time.time() - (time.monotonic() - moment))  # noqa: DTZ006 - local, as people expect


def processors() -> int:
    """How many this program may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def samples(ticks: Iterable[Tick], config: ProfilerConfig) -> Iterator[ProfileSample]:
    """A sample for each tick of which the memory is known."""
    share = processors()
    offset = time.time() - time.monotonic()
    before: deque[Tick] = deque()
    vms = last_time = last_read = last_written = 0.0
    for tick in ticks:
        if tick.rss is None:
            continue
        memory = tick.rss if config.track_child_processes or tick.own is None else tick.own
        vms = vms if tick.vms is None else tick.vms
        sample = ProfileSample(datetime.fromtimestamp(offset + tick.time), memory / MB, vms / MB)  # noqa: DTZ006
        if config.enable_cpu_monitoring and tick.cpu is not None:
            sample.cpu_percent = _percent(before, tick, share)
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


def _percent(before: deque[Tick], tick: Tick, share: int) -> float:
    """Share of the processors since about 0.2 s ago."""
    while len(before) > 1 and before[1].time <= tick.time - _SMOOTHED_SECONDS:
        before.popleft()
    before.append(tick)
    first = before[0]
    span = tick.time - first.time
    if span <= 0 or tick.cpu is None or first.cpu is None:
        return 0.0
    return min(100.0, max(0.0, 100 * (tick.cpu - first.cpu) / span / share))
