"""Load of the machine's processors between two moments, measured without a thread."""

from __future__ import annotations

import os
import time
from typing import NamedTuple

_SHORTEST = 0.05
"""Seconds below which the kernel's counters are too coarse: they advance by clock ticks of 10 ms."""


class CpuLoad(NamedTuple):
    """Load in percent between two readings."""

    mean: float
    """Mean over all processors."""
    busiest: float
    """Load of the busiest processor."""


class Processors:
    """Kernel counters at one moment.

    If the period is too short for them, the CPU time of this process replaces them.
    """

    def __init__(self) -> None:
        self._clock = time.perf_counter()
        self._own = time.process_time()
        self._counters = _counters()

    def load(self) -> CpuLoad:
        """Return the load since the reading."""
        seconds = max(time.perf_counter() - self._clock, 1e-9)
        own = 100 * (time.process_time() - self._own) / seconds
        now = _counters()
        shares = []
        for before, after in zip(self._counters, now, strict=False):
            total = after[1] - before[1]
            if total > 0:
                shares.append(100 * min(1.0, max(0.0, (after[0] - before[0]) / total)))
        if not shares or seconds < _SHORTEST or len(shares) < len(now):
            return CpuLoad(min(100.0, own / (os.cpu_count() or 1)), min(100.0, own))
        return CpuLoad(sum(shares) / len(shares), max(shares))


def _counters() -> list[tuple[float, float]]:
    """Return busy and total time of each processor."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            lines = [line.split() for line in file if line.startswith("cpu") and line[3:4].isdigit()]
    except OSError:
        import psutil

        return [(sum(times) - times.idle, sum(times)) for times in psutil.cpu_times(percpu=True)]
    result = []
    for _, *texts in lines:
        # user, nice, system, idle, iowait, irq, softirq, steal; guest time is part of user time
        times = [float(text) for text in texts[:8]]
        result.append((sum(times) - times[3] - times[4], sum(times)))
    return result
