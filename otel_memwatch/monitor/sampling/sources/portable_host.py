"""The machine by psutil, on systems without /proc."""

from __future__ import annotations

import psutil

from otel_memwatch import catalog
from otel_memwatch.model import Column
from otel_memwatch.monitor.sampling.sources import columns_of
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.model import Value
    from otel_memwatch.monitor.sampling.sources import Context, Row


class _PortableMachine(NamedTuple):
    """The machine at one sample."""

    memory: Any
    swap: Any


_USAGE, _PAGING = catalog.SYSTEM_MEMORY_USAGE, catalog.SYSTEM_PAGING_USAGE
_SLOW: tuple[Row[_PortableMachine], ...] = (
    (_USAGE, (("system.memory.state", "free"),), lambda machine: machine.memory.free),
    (catalog.SYSTEM_MEMORY_LINUX_AVAILABLE, (), lambda machine: machine.memory.available),
    (catalog.SYSTEM_MEMORY_LIMIT, (), lambda machine: machine.memory.total),
    (_PAGING, (("system.paging.state", "used"),), lambda machine: machine.swap.used),
    (_PAGING, (("system.paging.state", "free"),), lambda machine: machine.swap.free),
    (catalog.SYSTEM_CPU_LOGICAL_COUNT, (), lambda _: psutil.cpu_count()),
    (catalog.MEMWATCH_SYSTEM_LOAD, (), lambda _: psutil.getloadavg()[0]),
)
"""Columns that are read about once a second."""


class PortableHost:
    """Memory and swap of the machine (60 us on Linux)."""

    name = "host"

    def __init__(self, context: Context) -> None:
        self._pace = context.pace(1.0)
        self.columns: Sequence[Column] = (
            Column(_USAGE, (("system.memory.state", "used"),)),
            *columns_of(_SLOW, context.slow_period(1.0)),
        )

    def read(self, now: float) -> Sequence[Value]:
        """Read memory, and the rest if due. Raises `OSError` if the system does not answer."""
        memory = psutil.virtual_memory()
        used = memory.total - memory.available
        if not self._pace.due(now):
            return (used, *(None,) * len(_SLOW))
        machine = _PortableMachine(memory, psutil.swap_memory())
        return (used, *(get(machine) for _, _, get in _SLOW))


open_source = PortableHost
