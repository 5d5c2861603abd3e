"""Instrumentor for one line of code, or for `opentelemetry-instrument` on request.

`opentelemetry-instrument` loads the entry point `memwatch` of `opentelemetry_instrumentor` in every program that shares
the environment. It sends metrics only if OTEL_MEMWATCH_METRICS selects some, because installing this package must not
change the telemetry of other programs.

The classes have the methods that loaders call, but no base class. The base class is in
`opentelemetry-instrumentation`, which pins the API to one exact version. Users must not get that pin through this
package.
"""

from __future__ import annotations

import logging
import os

from otel_memwatch.catalog import choose_metrics
from otel_memwatch.monitor.telemetry.settings import wanted
from otel_memwatch.record.format import RUN_DIRECTORY_VARIABLE
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection

    from otel_memwatch.plugins.opentelemetry.in_process import InProcessMetrics

_logger = logging.getLogger(__name__)

_METRICS_VARIABLE = "OTEL_MEMWATCH_METRICS"


class MemwatchInstrumentor:
    """Instrumentor that adds metrics of the program and its descendants to the program's meter provider.

    Under `otel-memwatch wrap` with an OTLP endpoint it does nothing, because the monitor pushes the same metrics.
    Errors are logged and never reach the program.
    """

    _active: InProcessMetrics | None = None

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return no dependencies, because it works for every program."""
        return []

    @property
    def is_instrumented_by_opentelemetry(self) -> bool:
        """Return whether it is active."""
        return MemwatchInstrumentor._active is not None

    def instrument(self, **options: Any) -> None:
        """Start the metrics.

        Args:
            **options:

                * `meter_provider`: default the global one.
                * `sources`: names of the sources; default all that work.
                * `period`: seconds between two samples; default 1.0.
                * `metrics`: a value of `wrap --metrics`; default OTEL_MEMWATCH_METRICS, otherwise "default".
        """
        monitored = os.environ.get(RUN_DIRECTORY_VARIABLE) and wanted({}, os.environ).metrics is not None
        if MemwatchInstrumentor._active is not None or monitored:
            return
        try:
            from otel_memwatch.plugins.opentelemetry.in_process import PERIOD, InProcessMetrics

            chosen = choose_metrics(
                options.get("metrics") or os.environ.get(_METRICS_VARIABLE, "").strip() or "default"
            )
            if chosen:
                MemwatchInstrumentor._active = InProcessMetrics(
                    options.get("meter_provider"),
                    options.get("sources"),
                    float(options.get("period") or PERIOD),
                    chosen,
                )
        except Exception as error:  # noqa: BLE001 - an exception would make the loader stop all instrumentation
            _logger.warning("otel-memwatch records no metrics in this program: %s", error)

    def uninstrument(self, **_: Any) -> None:
        """Stop the metrics. The instruments have no values afterwards."""
        active, MemwatchInstrumentor._active = MemwatchInstrumentor._active, None
        if active is not None:
            active.stop()


class RequestedInstrumentor(MemwatchInstrumentor):
    """Instrumentor that `opentelemetry-instrument` loads: without OTEL_MEMWATCH_METRICS it does nothing."""

    def instrument(self, **options: Any) -> None:
        """Start the metrics if they are requested."""
        if os.environ.get(_METRICS_VARIABLE, "").strip():
            super().instrument(**options)
