"""The metrics as an instrumentation: for `opentelemetry-instrument`, declarative configuration, or by one line of code.

Entry point `memwatch` of `opentelemetry_instrumentor`. It has the methods that loaders call and derives from nothing:
`opentelemetry-instrumentation` pins the API to one exact version, which nobody should get through us.
"""

from __future__ import annotations

import logging
import os

from otel_memwatch.monitor.telemetry.settings import wanted
from otel_memwatch.record.format import RUN_DIRECTORY_VARIABLE
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection

    from otel_memwatch.plugins.opentelemetry.in_process import InProcessMetrics

_logger = logging.getLogger(__name__)


class MemwatchInstrumentor:
    """Gives the program's meter provider the catalogue's metrics of the program and its descendants.

    Under `otel-memwatch wrap` with an OTLP endpoint the monitor pushes the same metrics from outside: then nothing
    is done. Errors are logged; the program is never disturbed.
    """

    _active: InProcessMetrics | None = None

    def instrumentation_dependencies(self) -> Collection[str]:
        """None: it works for every program."""
        return []

    @property
    def is_instrumented_by_opentelemetry(self) -> bool:
        """Whether it is at work."""
        return MemwatchInstrumentor._active is not None

    def instrument(self, **options: Any) -> None:
        """Starts it.

        Args:
            **options: `meter_provider` (the global one without it), `sources` (names; all that work here without it),
                `period` (seconds between two reads, 1.0).
        """
        if MemwatchInstrumentor._active is not None or _monitored():
            return
        try:
            from otel_memwatch.plugins.opentelemetry.in_process import PERIOD, InProcessMetrics

            MemwatchInstrumentor._active = InProcessMetrics(
                options.get("meter_provider"), options.get("sources"), float(options.get("period") or PERIOD)
            )
        except Exception as error:  # noqa: BLE001 - a loader would end the instrumentation of everything
            _logger.warning("otel-memwatch measures nothing here: %s", error)

    def uninstrument(self, **_: Any) -> None:
        """Stops it; its instruments show nothing from now on."""
        active, MemwatchInstrumentor._active = MemwatchInstrumentor._active, None
        if active is not None:
            active.stop()


def _monitored() -> bool:
    return bool(os.environ.get(RUN_DIRECTORY_VARIABLE)) and wanted({}, os.environ).metrics is not None
