"""`memory_monitor_context`: both kinds of memory over a block of code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_memwatch.compat.nncf.monitor import MemoryMonitor, MemoryType, MemoryUnit

if TYPE_CHECKING:
    import os

    from typing_extensions import Self

_FROM_ZERO = "_from-zero"


class memory_monitor_context:  # noqa: N801 - the name that people import
    """Measures RSS and SYSTEM over a block; afterwards `memory_data` has the figures from zero, by type.

    Args:
        interval: seconds between samples.
        memory_unit: unit of the values.
        return_max_value: whether `memory_data` has the largest value, else times and values.
        save_dir: where logs and plots are written, from zero and not; `None`: nowhere.

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
        self._monitors = {kind: MemoryMonitor(interval, kind, memory_unit) for kind in MemoryType}

    def __enter__(self) -> Self:
        for monitor in self._monitors.values():
            monitor.start()
        return self

    def __exit__(self, *_: object) -> None:
        for monitor in self._monitors.values():
            monitor.stop()
        for kind, monitor in self._monitors.items():
            times, memory = monitor.get_data(memory_from_zero=True)
            self.memory_data[kind] = max(memory) if self.return_max_value else (times, memory)
            if self.save_dir is not None:
                monitor.save_memory_logs(times, memory, self.save_dir, filename_suffix=_FROM_ZERO)
                monitor.save_memory_logs(*monitor.get_data(memory_from_zero=False), self.save_dir)
