"""The machine: memory, swap, processors, load."""

from __future__ import annotations

import os

from otel_memwatch import catalog
from otel_memwatch.errors import Unavailable
from otel_memwatch.model import Column
from otel_memwatch.monitor.sampling.sources import FAST_PERIOD, columns_of
from otel_memwatch.runtime.procfs.system import parse_load, parse_memory, parse_used, swap_lines
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.model import Attributes, Value
    from otel_memwatch.monitor.sampling.repeated import Repetition
    from otel_memwatch.monitor.sampling.sources import Context, Row
    from otel_memwatch.runtime.procfs.system import Memory


def _state(state: str) -> Attributes:
    return (("system.memory.state", state),)


def _paging(state: str) -> Attributes:
    return (("system.paging.state", state),)


class _Machine(NamedTuple):
    """The machine at one sample."""

    memory: Memory
    load: float | None


_SLOW: tuple[Row[_Machine], ...] = (
    (catalog.SYSTEM_MEMORY_USAGE, _state("free"), lambda machine: machine.memory.free),
    (catalog.SYSTEM_MEMORY_USAGE, _state("buffers"), lambda machine: machine.memory.buffers),
    (catalog.SYSTEM_MEMORY_USAGE, _state("cached"), lambda machine: machine.memory.cached),
    (catalog.SYSTEM_MEMORY_LINUX_AVAILABLE, (), lambda machine: machine.memory.available),
    (catalog.SYSTEM_MEMORY_LIMIT, (), lambda machine: machine.memory.total),
    (
        catalog.SYSTEM_PAGING_USAGE,
        _paging("used"),
        lambda machine: machine.memory.swap_total - machine.memory.swap_free,
    ),
    (catalog.SYSTEM_PAGING_USAGE, _paging("free"), lambda machine: machine.memory.swap_free),
    (catalog.SYSTEM_CPU_LOGICAL_COUNT, (), lambda _: len(os.sched_getaffinity(0))),
    (catalog.MEMWATCH_SYSTEM_LOAD, (), lambda machine: machine.load),
)
"""Columns that are read about once a second."""


class Host:
    """Used memory at every sample, at most ten times a second (5 us); the rest about once a second.

    While no process of the tree runs, all of it about once a second. In a container these are the figures of the machine.
    """

    name = "host"

    def __init__(self, context: Context) -> None:
        try:
            self._memory = os.open(f"{context.proc}/meminfo", os.O_RDONLY | os.O_CLOEXEC)
            self._load = os.open(f"{context.proc}/loadavg", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise Unavailable(f"{error.filename} cannot be read.", "is /proc mounted?") from None
        self.pace = context.pace(FAST_PERIOD)
        self._slow_pace = context.pace(1.0)
        self.columns: Sequence[Column] = (
            Column(catalog.SYSTEM_MEMORY_USAGE, _state("used"), context.slow_period(1.0)),
            *columns_of(_SLOW, context.slow_period(1.0)),
        )
        self._not_due = (None,) * len(_SLOW)
        self.idle: Sequence[Value] = (None, *self._not_due)
        """Values while nothing is due."""
        self._context = context
        self._swap: bytes | None = None
        """Lines of meminfo on swap at the last reading of all; `None`: the machine has none."""

    def read(self, now: float) -> Sequence[Value]:
        """Read used memory, and the rest if due. Raises `OSError` if /proc is unreadable."""
        self.pace.due(now)
        if now < self._slow_pace.next and self._context.rests():
            return self.idle
        data = os.pread(self._memory, 8192, 0)
        used = parse_used(data)
        if used is not None and not self._slow_pace.due(now):
            return (used, *self._not_due)
        memory = parse_memory(data)
        self._swap = swap_lines(data) if memory.swap_total else None
        machine = _Machine(memory, parse_load(os.pread(self._load, 256, 0)))
        return (memory.total - memory.available, *(get(machine) for _, _, get in _SLOW))

    def repeats(self) -> Repetition:
        """Return until when the next samples have no values, if the tree rests. Swap in use stays the same."""
        from otel_memwatch.monitor.sampling.repeated import Repetition, WatchedFile

        due, swap = self._slow_pace.next, self._swap
        until = self._context.at_rest(due)
        files = (WatchedFile(self._memory, (swap,), False, due, until - due),) if swap and until > due else ()
        return Repetition(until, self.idle, files)

    def close(self) -> None:
        """Close the files."""
        os.close(self._memory)
        os.close(self._load)


open_source = Host
"""Raises `Unavailable` without /proc."""
