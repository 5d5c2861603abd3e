"""`MemoryMonitor` and `memory_monitor_context`: memory of this program over time, from a separate monitor process."""

from __future__ import annotations

import atexit
import logging
from contextlib import nullcontext
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from otel_memwatch.compat.shared_recording import (
    MeasuredPeriod,
    ProgramTick,
    ToolRecording,
    acquire,
    release,
    run_in_own_process,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from typing_extensions import Self

logger = logging.getLogger("memory_monitor")

_MONITOR_LOG = "otel_memwatch.compat.nncf.monitor_log"
"""Module of the worker process that draws a log."""


class MemoryType(Enum):
    """Kind of memory to measure."""

    RSS = "rss"
    """Resident memory of this program and, by default, its descendants."""
    SYSTEM = "system"
    """Unavailable memory of the machine, including that of other programs."""


class MemoryUnit(Enum):
    """Unit of the values."""

    B = "B"
    KiB = "KiB"
    MiB = "MiB"
    GiB = "GiB"
    KB = "KB"
    MB = "MB"
    GB = "GB"


@lru_cache
def _warn_about_system() -> None:
    logger.warning(
        "Please note that MemoryType.SYSTEM in general is affected by other processes that change RAM availability."
    )


class MemoryMonitor:
    """Memory of this program between `start` and `stop`.

    Args:
        interval: seconds between samples. Simultaneous monitors use the interval of the first one.
        memory_type: kind of memory to measure.
        memory_unit: unit of the values.
        include_child_processes: include descendants in RSS; `None` means yes.

    """

    def __init__(
        self,
        interval: float | None = 0.1,
        memory_type: MemoryType = MemoryType.RSS,
        memory_unit: MemoryUnit = MemoryUnit.MiB,
        include_child_processes: bool | None = None,
    ) -> None:
        if not isinstance(memory_type, MemoryType):
            raise ValueError("Unknown memory type to log")  # noqa: TRY004 - callers expect ValueError
        if memory_type is MemoryType.SYSTEM:
            _warn_about_system()
        elif include_child_processes is None:
            include_child_processes = True
        self.interval = 0.1 if interval is None else interval
        self.memory_type = memory_type
        self.memory_unit = memory_unit
        self.include_child_processes = include_child_processes
        self._recording: ToolRecording | None = None
        self._period: MeasuredPeriod | None = None
        self._at_exit: Callable[[], Any] | None = None

    def start(self, at_exit_fn: Callable[[], Any] | None = None) -> Self:
        """Begin a measurement and discard an earlier one; `at_exit_fn` is called at the end of the program."""
        if self._recording is not None:
            raise Exception("Monitoring already in progress")  # noqa: TRY002 - callers expect this type
        self._recording = acquire(self.interval)
        self._period = MeasuredPeriod(self._recording, f"MemoryMonitor {self.memory_type.value}")
        if at_exit_fn is not None:
            self._at_exit = atexit.register(at_exit_fn)
        return self

    def stop(self) -> None:
        """End the measurement and keep its values."""
        if self._recording is None or self._period is None:
            return
        self._period.close()
        release(self._recording)
        self._recording = None
        if self._at_exit is not None:
            atexit.unregister(self._at_exit)
            self._at_exit = None

    def get_data(self, memory_from_zero: bool = False) -> tuple[list[float], list[float]]:
        """Return seconds since the first sample, and memory; with `memory_from_zero` relative to the first sample.

        The largest value is the true peak of this program. A peak between two samples is an additional sample next to
        the largest of the others.
        """
        if self._period is None:
            return [], []
        from otel_memwatch.compat.nncf.monitor_log import MemoryCurve, values

        period = self._period
        if self.memory_type is MemoryType.SYSTEM:
            points = [(tick.time, tick.system) for tick in period.ticks("system") if tick.system is not None]
        else:
            own_peak, ticks = float(period.own_peak()), period.ticks()
            if self.include_child_processes:
                points = [(tick.time, tick.rss) for tick in ticks if tick.rss is not None]
                own_peak += min(map(_children, ticks), default=0)
            else:
                ticks = ticks if period.recording.is_ours else [ticks[0], ticks[-1]]
                points = [(tick.time, tick.own) for tick in ticks if tick.own is not None]
            points = _with_peak(points, own_peak)
        curve = MemoryCurve([time for time, _ in points], [memory for _, memory in points])
        return values(curve, self.memory_unit.value, from_zero=bool(memory_from_zero))

    def save_memory_logs(
        self,
        time_values: Sequence[float],
        memory_values: Sequence[float],
        save_dir: str | os.PathLike[str],
        plot_title: str = "",
        filename_suffix: str = "",
    ) -> None:
        """Write the values and their plot into a directory, which is created if necessary."""
        from otel_memwatch.compat.nncf.monitor_log import log_name, write_text

        path = Path(save_dir) / log_name(self.memory_type.value, filename_suffix)
        write_text(path, time_values, memory_values, self.memory_unit.value)
        if time_values:
            self.save_memory_plot(path, plot_title)

    def save_memory_plot(
        self, log_filepath: str | os.PathLike[str], plot_title: str = "", filename_suffix: str = ""
    ) -> None:
        """Draw a saved log next to it, in a separate process. Raises `MemwatchError` for a log without samples."""
        log = Path(log_filepath)
        image = log.with_name(f"{log.stem}{filename_suffix}.png")
        job = {"log": str(log), "image": str(image), "title": plot_title}
        with nullcontext() if self._period is None else self._period.recording.unwanted():
            run_in_own_process(_MONITOR_LOG, job)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class memory_monitor_context:  # noqa: N801 - the name that users import
    """Measurement of RSS and SYSTEM over a block; afterwards `memory_data` has the figures from zero, by type.

    Args:
        interval: seconds between samples.
        memory_unit: unit of the values.
        return_max_value: store the largest value in `memory_data`; if false, times and values.
        save_dir: directory for logs and plots, both from zero and absolute; `None` writes nothing.

    Attributes:
        memory_monitors: the two monitors, by type.

    """

    def __init__(
        self,
        interval: float = 0.1,
        memory_unit: MemoryUnit = MemoryUnit.MiB,
        return_max_value: bool = True,
        save_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self.return_max_value = return_max_value
        self.save_dir = save_dir
        self.memory_data: dict[MemoryType, float | tuple[list[float], list[float]]] = {}
        self.memory_monitors = {kind: MemoryMonitor(interval, kind, memory_unit) for kind in MemoryType}

    def __enter__(self) -> Self:
        for monitor in self.memory_monitors.values():
            monitor.start()
        return self

    def __exit__(self, *_: object) -> None:
        from otel_memwatch.compat.nncf.monitor_log import FROM_ZERO

        # Stop all monitors before writing, so drawing is not measured.
        for monitor in self.memory_monitors.values():
            monitor.stop()
        for kind, monitor in self.memory_monitors.items():
            times, memory = monitor.get_data(memory_from_zero=True)
            self.memory_data[kind] = max(memory) if self.return_max_value else (times, memory)
            if self.save_dir is not None:
                monitor.save_memory_logs(times, memory, self.save_dir, filename_suffix=FROM_ZERO)
                monitor.save_memory_logs(*monitor.get_data(memory_from_zero=False), self.save_dir)


def _children(tick: ProgramTick) -> float:
    """Return the memory of the descendants, in bytes."""
    return 0.0 if tick.rss is None or tick.own is None else max(0.0, tick.rss - tick.own)


def _with_peak(points: list[tuple[float, float]], peak: float) -> list[tuple[float, float]]:
    """Return the points, and the peak as an additional point if it exceeds all of them.

    The time of the peak is unknown. It is placed halfway between the largest point and the next one.
    """
    largest = max(range(len(points)), key=lambda i: points[i][1])
    if peak <= points[largest][1]:
        return points
    before = largest if largest + 1 < len(points) else largest - 1
    moment = (points[before][0] + points[before + 1][0]) / 2
    return [*points[: before + 1], (moment, peak), *points[before + 1 :]]
