"""Metrics of the catalogue, measured in an OpenTelemetry program for the program's meter provider.

For services without a monitor: the process watches itself and its descendants. A thread reads the sources once a
second, and the callbacks use its latest sample. No spike is missed between samples, because peaks are the kernel's
high-water marks.

A busy interpreter delays the thread, and the figures include the thread's memory. `otel-memwatch wrap` has neither flaw.
"""

from __future__ import annotations

import os
import threading

from opentelemetry import metrics

from otel_memwatch import catalog
from otel_memwatch._version import __version__
from otel_memwatch.monitor.sampling.sampler import Sampler
from otel_memwatch.monitor.telemetry.frame import Frame, create_instruments
from otel_memwatch.run.spans import SCHEMA_URL, SCOPE
from otel_memwatch.runtime.threads import Thread
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from otel_memwatch.model import Snapshot

PERIOD = 1.0
"""Seconds between two samples."""

_NOT_OURS = frozenset(
    {
        catalog.MEMWATCH_RUN_ACTIVE,
        catalog.MEMWATCH_RUN_EXIT_CODE,
        catalog.MEMWATCH_RUN_STALLED,
        catalog.MEMWATCH_RUN_LEAK,
        catalog.MEMWATCH_RUN_HANDLE_LEAK,
        catalog.MEMWATCH_RUN_KEPT,
        catalog.MEMWATCH_OPERATION_ACTIVE,
        catalog.MEMWATCH_EXPORT_FAILURES,
        catalog.MEMWATCH_MONITOR_CPU_TIME,
        catalog.MEMWATCH_MONITOR_MEMORY_USAGE,
    }
)
"""Metrics that only a monitor provides."""


class InProcessMetrics:
    """Sampler in a daemon thread, with its instruments in `meter_provider`.

    Args:
        meter_provider: the program's meter provider; `None` uses the global one.
        sources: names of the sources to use; `None` uses all that work on this machine.
        period: seconds between two samples.
        chosen: names of the metrics to provide.

    A forked child reports nothing, because its parent's figures include it.
    """

    def __init__(
        self,
        meter_provider: metrics.MeterProvider | None = None,
        sources: Collection[str] | None = None,
        period: float = PERIOD,
        chosen: Collection[str] = catalog.METRICS.keys(),
    ) -> None:
        from otel_memwatch.monitor.sampling.sources import Context, open_sources

        self._pid = os.getpid()
        opened, _ = open_sources(Context(self._pid, period), sources)
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
        create_instruments(meter, frame, frozenset(chosen) - _NOT_OURS)
        self._thread = Thread(self._sampler.run, "otel-memwatch", (self._stop,))
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread. The instruments have no values afterwards."""
        if os.getpid() != self._pid:  # a forked child lacks the thread, which may have held the event's lock
            return
        self._stop.set()
        self._thread.join(self._sampler.interval + 1.0)

    def _latest(self) -> Snapshot | None:
        if self._stop.is_set() or os.getpid() != self._pid:
            return None
        return self._sampler.latest()

    def _ticks(self) -> tuple[int, int]:
        """Return the number of samples and of missed ones. The first callback of each collection calls it."""
        if os.getpid() != self._pid:
            raise LookupError("a forked child has none")
        return self._sampler.ticks, self._sampler.missed
