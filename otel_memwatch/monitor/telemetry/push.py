"""Pushes one signal to one exporter: a thread of its own, so that an endpoint holds up nobody but itself."""

from __future__ import annotations

import contextlib
import math
import threading
from collections import deque
from collections.abc import Callable, Sequence

from opentelemetry.sdk.metrics.export import MetricExportResult, MetricReader, MetricsData
from opentelemetry.sdk.trace.export import SpanExportResult

from otel_memwatch.runtime.threads import Thread
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

MAX_QUEUED_SPANS = 10_000
"""Spans kept while an endpoint does not take them; the oldest of more are dropped. Each is about 1 KiB."""

_BATCH = 512


class OnDemandReader(MetricReader):
    """A metric reader that collects when it is asked to, and hands the result back."""

    def __init__(self, exporter: MetricExporter) -> None:
        super().__init__(
            preferred_temporality=exporter._preferred_temporality,  # noqa: SLF001 - as the SDK's own reader does
            preferred_aggregation=exporter._preferred_aggregation,  # noqa: SLF001
        )
        self._data: MetricsData | None = None

    def taken(self) -> MetricsData | None:
        """All metrics of this moment; `None` when there are none."""
        self._data = None
        self.collect()
        return self._data

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 0, **_: Any) -> None:  # noqa: ARG002
        self._data = metrics_data

    def shutdown(self, timeout_millis: float = 0, **_: Any) -> None:
        """Nothing is held."""


class Pusher:
    """Calls `push` every `interval` seconds, and once more at the end.

    Args:
        name: what is pushed where, for a person.
        push: delivers what there is now; `False` when it could not.
        stop_exporter: ends the exporter, and a push that is waiting for its endpoint.
        interval: seconds between two pushes; infinite: only at the end.

    """

    def __init__(
        self,
        name: str,
        push: Callable[[], bool],
        stop_exporter: Callable[[], None],
        interval: float = math.inf,
    ) -> None:
        self.name = name
        self.failures = 0
        self.delivered = False
        """Whether the last push arrived."""
        self.on_first_failure: Callable[[], object] = lambda: None
        """Called, in the pushing thread, when a push has failed for the first time."""
        self._push = push
        self._stop_exporter = stop_exporter
        self._interval = interval
        self._stop = threading.Event()
        self._thread = Thread(self._run, f"otel-memwatch-{name}")

    def start(self) -> None:
        """Starts pushing."""
        self._thread.start()

    def begin_end(self) -> None:
        """Asks for the last push."""
        self._stop.set()

    def end(self, seconds: float) -> bool:
        """Waits for the last push; whether it arrived within `seconds`. A push that hangs is left behind."""
        self._thread.join(seconds)
        finished = not self._thread.is_alive()
        if not finished:
            # Wakes an exporter that sleeps between two attempts; one that hangs in a read is left to its timeout.
            Thread(self._stop_exporter, "otel-memwatch-closing").start()
            self._thread.join(0.05)
        return finished and self.delivered

    def _run(self) -> None:
        while not self._stop.wait(None if math.isinf(self._interval) else self._interval):
            self._once()
        self._once()
        with contextlib.suppress(Exception):
            self._stop_exporter()

    def _once(self) -> None:
        try:
            self.delivered = self._push()
        except Exception:  # noqa: BLE001 - an exporter's defect must not end the thread
            self.delivered = False
        if not self.delivered:
            self.failures += 1
            if self.failures == 1:
                self.on_first_failure()


def metric_push(reader: OnDemandReader, exporter: MetricExporter, timeout: float) -> Callable[[], bool]:
    """A push of all metrics of the moment."""

    def push() -> bool:
        data = reader.taken()
        if data is None:
            return True
        return exporter.export(data, timeout_millis=timeout * 1000) is MetricExportResult.SUCCESS

    return push


class SpanQueue:
    """Spans that wait for their push; those that could not be delivered wait for the next one."""

    def __init__(self, exporter: SpanExporter) -> None:
        self.dropped = 0
        self._exporter = exporter
        self._waiting: deque[ReadableSpan] = deque()
        self._lock = threading.Lock()

    def add(self, spans: Sequence[ReadableSpan]) -> None:
        """Takes spans in; never waits."""
        with self._lock:
            self._waiting.extend(spans)
            while len(self._waiting) > MAX_QUEUED_SPANS:
                self._waiting.popleft()
                self.dropped += 1

    def push(self) -> bool:
        """Delivers all that wait, in batches."""
        while True:
            with self._lock:
                batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
            if not batch:
                return True
            if self._exporter.export(batch) is not SpanExportResult.SUCCESS:
                with self._lock:
                    self._waiting.extendleft(reversed(batch))
                return False
