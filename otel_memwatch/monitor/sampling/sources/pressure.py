"""Stalls of the machine: time in which tasks waited for CPU, memory or storage (PSI)."""

from __future__ import annotations

import os

from otel_memwatch import catalog
from otel_memwatch.errors import Unavailable
from otel_memwatch.model import Column, Value
from otel_memwatch.monitor.sampling.sources import Context
from otel_memwatch.runtime.procfs.system import parse_pressure
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.monitor.sampling.repeated import Repetition

RESOURCES = ("cpu", "memory", "io")


class Pressure:
    """/proc/pressure (6 us per reading). A resource without its file is `None`."""

    name = "pressure"

    def __init__(self, context: Context) -> None:
        self._context = context
        period = context.slow_period(1.0)
        self.pace = context.pace(1.0)
        self.paces = (self.pace,)
        """Schedule that the run's last sample overrides: short runs have no other second reading."""
        self._files: list[tuple[int, tuple[str, ...]]] = []
        columns: list[Column] = []
        for resource in RESOURCES:
            try:
                fd = os.open(f"{context.proc}/pressure/{resource}", os.O_RDONLY | os.O_CLOEXEC)
                kinds = tuple(parse_pressure(os.pread(fd, 4096, 0)))
            except OSError:
                continue
            self._files.append((fd, kinds))
            for kind in kinds:
                attributes = (
                    ("memwatch.pressure.resource", resource),
                    ("memwatch.pressure.stall_type", kind),
                )
                columns.append(Column(catalog.MEMWATCH_SYSTEM_PRESSURE_TIME, attributes, period))
        if not columns:
            raise Unavailable(
                "The kernel does not measure pressure.", "it requires CONFIG_PSI and the boot option psi=1"
            )
        self.columns: Sequence[Column] = tuple(columns)
        self.idle: Sequence[Value] = (None,) * len(columns)
        """Values while nothing is due."""

    def read(self, now: float) -> Sequence[Value]:
        """Return the seconds of stall since boot."""
        if not self.pace.due(now):
            return self.idle
        values: list[Value] = []
        for fd, kinds in self._files:
            try:
                stalls = parse_pressure(os.pread(fd, 4096, 0))
            except OSError:
                stalls = {}
            values += [stalls.get(kind) for kind in kinds]
        return values

    def repeats(self) -> Repetition:
        """Return until when the next samples have no values, if the tree rests."""
        from otel_memwatch.monitor.sampling.repeated import Repetition

        return Repetition(self._context.at_rest(self.pace.next), self.idle)

    def close(self) -> None:
        """Close the files."""
        for fd, _ in self._files:
            os.close(fd)
        self._files.clear()


open_source = Pressure
"""Raises `Unavailable` if the kernel does not measure pressure."""
