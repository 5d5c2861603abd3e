"""The machine by psutil, where there is no /proc."""

from __future__ import annotations

import psutil

from otel_memwatch.model import Column, Value
from otel_memwatch.monitor.sources import Context, Pace
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class PortableHost:
    """Memory and swap of the machine (60 us on Linux)."""

    name = "host"

    def __init__(self, context: Context) -> None:
        period = context.slow_period(1.0)
        self._pace = Pace(period, context.interval)
        self.columns: Sequence[Column] = (
            Column("system.memory.usage", (("system.memory.state", "used"),)),
            Column("system.memory.usage", (("system.memory.state", "free"),), period),
            Column("system.memory.linux.available", (), period),
            Column("system.memory.limit", (), period),
            Column("system.paging.usage", (("system.paging.state", "used"),), period),
            Column("system.paging.usage", (("system.paging.state", "free"),), period),
            Column("system.cpu.logical.count", (), period),
            Column("memwatch.system.load", (), period),
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
