"""The catalogue's metrics of an OpenTelemetry program, made in the program itself, for its own meter provider.

For services that run without a monitor: the process watches itself and its descendants. A thread reads the sources
once a second and the callbacks look at what it read; peaks are the kernel's watermarks, so nothing is missed between
two reads. A busy interpreter delays the thread, and its memory is counted: `otel-memwatch wrap` has neither flaw.
"""

from __future__ import annotations

import os
import threading
import time

from opentelemetry import metrics

from otel_memwatch import catalog
from otel_memwatch._version import __version__
from otel_memwatch.analysis.spans import SCHEMA_URL, SCOPE
from otel_memwatch.model import Snapshot
from otel_memwatch.monitor.telemetry.frame import Frame
from otel_memwatch.monitor.telemetry.instruments import create_instruments
from otel_memwatch.runtime.threads import Thread
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from otel_memwatch.model import Source, Value

PERIOD = 1.0
"""Seconds between two reads."""

_NOT_OURS = frozenset(
    {
        catalog.MEMWATCH_RUN_ACTIVE,
        catalog.MEMWATCH_RUN_EXIT_CODE,
        catalog.MEMWATCH_OPERATION_ACTIVE,
        catalog.MEMWATCH_EXPORT_FAILURES,
        catalog.MEMWATCH_MONITOR_CPU_TIME,
        catalog.MEMWATCH_MONITOR_MEMORY_USAGE,
    }
)
"""What only a monitor has."""


class InProcessMetrics:
    """Reads the sources in a daemon thread and gives `meter_provider` the instruments.

    Args:
        meter_provider: the program's; `None`: the global one.
        sources: names of the sources to use; `None`: all that work here.
        period: seconds between two reads.

    A forked child reports nothing: its parent's figures contain it.
    """

    def __init__(
        self,
        meter_provider: metrics.MeterProvider | None = None,
        sources: Collection[str] | None = None,
        period: float = PERIOD,
    ) -> None:
        from otel_memwatch.monitor.sources import Context, open_sources

        self._pid = os.getpid()
        self._period = period
        self._snapshot: Snapshot | None = None
        self._ticks = 0
        self._stop = threading.Event()
        self._sources: Sequence[Source]
        self._sources, self.absent = open_sources(Context(self._pid, period), sources)
        columns = tuple(column for source in self._sources for column in source.columns)
        self._last: list[Value] = [None] * len(columns)
        self._read()
        frame = Frame(
            columns, self._latest, health=dict, ticks=self._counts, peaks=lambda: None, failures=dict
        )
        meter = metrics.get_meter(SCOPE, __version__, meter_provider, SCHEMA_URL)
        create_instruments(meter, frame, without=_NOT_OURS)
        self._thread = Thread(self._run, "otel-memwatch")
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; the instruments show nothing from now on."""
        if os.getpid() != self._pid:  # the thread is not in a forked child; it may have held the event's lock
            return
        self._stop.set()
        self._thread.join(self._period + 1.0)
        self._snapshot = None

    def _latest(self) -> Snapshot | None:
        return self._snapshot if os.getpid() == self._pid else None

    def _counts(self) -> tuple[int, int]:
        if os.getpid() != self._pid:
            raise LookupError("a forked child has none")
        return self._ticks, 0

    def _run(self) -> None:
        while not self._stop.wait(self._period):
            self._read()

    def _read(self) -> None:
        now = time.monotonic()
        place = 0
        for source in self._sources:
            width = len(source.columns)
            try:
                values: Sequence[Any] = source.read(now)
            except Exception:  # noqa: BLE001 - a source that fails publishes nothing
                self._last[place : place + width] = [None] * width
            else:
                for offset, (column, value) in enumerate(zip(source.columns, values, strict=True)):
                    # A slow column has a value now and then, which stands until the next.
                    if value is not None or not column.period:
                        self._last[place + offset] = value
            place += width
        self._ticks += 1
        self._snapshot = Snapshot(now, time.time(), tuple(self._last))
