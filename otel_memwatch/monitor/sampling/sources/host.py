"""The machine: memory, swap, processors, load."""

from __future__ import annotations

import os

from otel_memwatch import catalog
from otel_memwatch.errors import Unavailable
from otel_memwatch.model import Column, Value
from otel_memwatch.monitor.sampling.sources import Context
from otel_memwatch.runtime.procfs.system import parse_load, parse_memory, parse_used
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def _state(state: str) -> tuple[tuple[str, str], ...]:
    return (("system.memory.state", state),)


class Host:
    """/proc/meminfo at every tick (5 us); the rest is derived from it about once a second.

    In a container these are the figures of the machine it runs on.
    """

    name = "host"

    def __init__(self, context: Context) -> None:
        try:
            self._memory = os.open(context.proc / "meminfo", os.O_RDONLY | os.O_CLOEXEC)
            self._load = os.open(context.proc / "loadavg", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise Unavailable(f"{error.filename} cannot be read.", "is /proc mounted?") from None
        period = context.slow_period(1.0)
        self._pace = context.pace(1.0)
        self.columns: Sequence[Column] = (
            Column(catalog.SYSTEM_MEMORY_USAGE, _state("used")),
            Column(catalog.SYSTEM_MEMORY_USAGE, _state("free"), period),
            Column(catalog.SYSTEM_MEMORY_USAGE, _state("buffers"), period),
            Column(catalog.SYSTEM_MEMORY_USAGE, _state("cached"), period),
            Column(catalog.SYSTEM_MEMORY_LINUX_AVAILABLE, (), period),
            Column(catalog.SYSTEM_MEMORY_LIMIT, (), period),
            Column(catalog.SYSTEM_PAGING_USAGE, (("system.paging.state", "used"),), period),
            Column(catalog.SYSTEM_PAGING_USAGE, (("system.paging.state", "free"),), period),
            Column(catalog.SYSTEM_CPU_LOGICAL_COUNT, (), period),
            Column(catalog.MEMWATCH_SYSTEM_LOAD, (), period),
        )

        self._not_due = (None,) * (len(self.columns) - 1)

    def read(self, now: float) -> Sequence[Value]:
        """Raises `OSError` when /proc cannot be read."""
        data = os.pread(self._memory, 8192, 0)
        used = parse_used(data)
        if used is not None and not self._pace.due(now):
            return (used, *self._not_due)
        memory = parse_memory(data)
        used = memory.total - memory.available
        return (
            used,
            memory.free,
            memory.buffers,
            memory.cached,
            memory.available,
            memory.total,
            memory.swap_total - memory.swap_free,
            memory.swap_free,
            len(os.sched_getaffinity(0)),
            parse_load(os.pread(self._load, 256, 0)).minute,
        )

    def close(self) -> None:
        """Close the files; reading is over."""
        os.close(self._memory)
        os.close(self._load)


def open_source(context: Context) -> Host:
    """Open the source; raises `Unavailable` without /proc."""
    return Host(context)
