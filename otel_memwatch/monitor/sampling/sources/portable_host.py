"""The machine by psutil, where there is no /proc."""

from __future__ import annotations

import psutil

from otel_memwatch import catalog
from otel_memwatch.model import Column, Value
from otel_memwatch.monitor.sampling.sources import Context
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class PortableHost:
    """Memory and swap of the machine (60 us on Linux)."""

    name = "host"

    def __init__(self, context: Context) -> None:
        period = context.slow_period(1.0)
        self._pace = context.pace(1.0)
        self.columns: Sequence[Column] = (
            Column(catalog.SYSTEM_MEMORY_USAGE, (("system.memory.state", "used"),)),
            Column(catalog.SYSTEM_MEMORY_USAGE, (("system.memory.state", "free"),), period),
            Column(catalog.SYSTEM_MEMORY_LINUX_AVAILABLE, (), period),
            Column(catalog.SYSTEM_MEMORY_LIMIT, (), period),
            Column(catalog.SYSTEM_PAGING_USAGE, (("system.paging.state", "used"),), period),
            Column(catalog.SYSTEM_PAGING_USAGE, (("system.paging.state", "free"),), period),
            Column(catalog.SYSTEM_CPU_LOGICAL_COUNT, (), period),
            Column(catalog.MEMWATCH_SYSTEM_LOAD, (), period),
        )

    def read(self, now: float) -> Sequence[Value]:
        """Raises `OSError` when the system does not answer."""
        memory = psutil.virtual_memory()
        used = memory.total - memory.available
        if not self._pace.due(now):
            return (used, *(None,) * (len(self.columns) - 1))
        swap = psutil.swap_memory()
        return (
            used,
            memory.free,
            memory.available,
            memory.total,
            swap.used,
            swap.free,
            psutil.cpu_count(),
            psutil.getloadavg()[0],
        )


def open_source(context: Context) -> PortableHost:
    """Open the source."""
    return PortableHost(context)
