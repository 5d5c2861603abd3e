"""The catalogue's metrics of an OpenTelemetry program, made in the program itself, for its own meter provider.

For services that run without a monitor: the process watches itself and its descendants. A thread reads the sources
once a second and the callbacks look at what it read; peaks are the kernel's watermarks, so nothing is missed between
two reads. A busy interpreter delays the thread, and its memory is counted: `otel-memwatch wrap` has neither flaw.
"""

from __future__ import annotations

import os
import threading

from opentelemetry import metrics

from otel_memwatch import catalog
from otel_memwatch._version import __version__
from otel_memwatch.monitor.sampling.sampler import Sampler
from otel_memwatch.monitor.telemetry.frame import Frame
from otel_memwatch.monitor.telemetry.instruments import create_instruments
from otel_memwatch.run.spans import SCHEMA_URL, SCOPE
from otel_memwatch.runtime.threads import Thread
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from otel_memwatch.model import Snapshot

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
    """Runs a sampler in a daemon thread and gives `meter_provider` the instruments.

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
        from otel_memwatch.monitor.sampling.sources import Context, open_sources

        self._pid = os.getpid()
        opened, self.absent = open_sources(Context(self._pid, period), sources)
        self._sampler = Sampler(opened, period)
        self._sampler.tick()
        self._stop = threading.Event()
        frame = Frame(
            self._sampler.columns,
            self._latest,
            health=dict,
            ticks=self._ticks,
            peaks=lambda: None,
            failures=dict,
        )
        meter = metrics.get_meter(SCOPE, __version__, meter_provider, SCHEMA_URL)
        create_instruments(meter, frame, catalog.METRICS.keys() - _NOT_OURS)
        self._thread = Thread(self._sampler.run, "otel-memwatch", (self._stop,))
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; the instruments show nothing from now on."""
        if os.getpid() != self._pid:  # the thread is not in a forked child; it may have held the event's lock
            return
        self._stop.set()
        self._thread.join(self._sampler.interval + 1.0)

    def _latest(self) -> Snapshot | None:
        if self._stop.is_set() or os.getpid() != self._pid:
            return None
        return self._sampler.latest()

    def _ticks(self) -> tuple[int, int]:
        """Ticks taken and deadlines missed; the first callback of each collection asks for them."""
        if os.getpid() != self._pid:
            raise LookupError("a forked child has none")
        return self._sampler.ticks, self._sampler.missed
