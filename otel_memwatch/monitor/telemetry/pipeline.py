"""OpenTelemetry's SDK for one run: readers, exporters, instruments, spans. Imported only if telemetry is requested."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from otel_memwatch import catalog
from otel_memwatch._version import __version__
from otel_memwatch.errors import Unavailable, describe
from otel_memwatch.monitor.telemetry.delivery import EndpointHealth, ExporterDelivery
from otel_memwatch.monitor.telemetry.export_log import EXPORT_LOG
from otel_memwatch.monitor.telemetry.frame import Frame, create_instruments, join_columns
from otel_memwatch.monitor.telemetry.settings import wanted_metrics
from otel_memwatch.runtime.masking import mask_url
from otel_memwatch.runtime.threads import Thread
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import ReadableSpan

    from otel_memwatch.model import Column, RecordedOperation
    from otel_memwatch.monitor.telemetry import RunEnd, TelemetryInputs
    from otel_memwatch.monitor.telemetry.events import RunEvents
    from otel_memwatch.monitor.telemetry.exporters import Exporter
    from otel_memwatch.monitor.telemetry.otlp_receiver.server import Receiver
    from otel_memwatch.monitor.telemetry.otlp_receiver.store import ReceivedSpans
    from otel_memwatch.monitor.telemetry.scrape import PrometheusEndpoint, Textfile
    from otel_memwatch.monitor.telemetry.settings import Endpoint, TelemetryConfig
    from otel_memwatch.monitor.telemetry.spans import Spans, SpanSender

_LAST_SPANS_SECONDS = 0.2
"""Part of the delivery time, in seconds, reserved for the spans that end with the run."""


class Pipeline:
    """Telemetry of one run, opened and ended by `Telemetry`."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        wanted: TelemetryConfig,
        parts: TelemetryInputs,
        report: Callable[[str], None],
    ) -> None:
        self.url: str | None = None
        self._settings = settings
        self._wanted = wanted
        self._parts = parts
        self._report_problem = report
        self._deliveries: list[ExporterDelivery] = []
        self._failures_to_open: list[str] = []
        self._healths: dict[str, EndpointHealth] = {}
        self._readers: list[Any] = []
        self._events: list[RunEvents] = []
        self._senders: list[SpanSender] = []
        self._plain_readers: list[Any] = []
        """Readers of plug-ins, which export by themselves."""
        self._textfile: Textfile | None = None
        self._last_spans: Sequence[ReadableSpan] = ()
        """Spans that end with the run."""
        self._endpoint: PrometheusEndpoint | None = None
        self._receiver: Receiver | None = None
        self._received: ReceivedSpans | None = None
        self._spans: Spans | None = None
        self._provider: MeterProvider | None = None
        self._meter: Meter | None = None
        self._histograms: Mapping[str, Any] = {}
        self._frame = Frame(
            parts.columns,
            parts.latest,
            health=parts.health,
            ticks=parts.ticks,
            peaks=parts.peaks,
            stalls=parts.stalls,
            findings=parts.findings,
            failures=self._failures,
        )

    def open(self) -> None:
        """Open all configured parts; report and omit those that fail, without effect on the others."""
        EXPORT_LOG.catch()
        if self._parts.listening is not None:
            self._attempt("the receiver of spans", self._open_receiver)
        wanted = self._wanted
        if wanted.prometheus:
            self._attempt("the endpoint for Prometheus", self._open_prometheus)
        if wanted.textfile:
            self._attempt("the textfile", self._open_textfile)
        signals = (("metrics", wanted.metrics), ("traces", wanted.spans), ("logs", wanted.logs))
        for signal, endpoint in signals:
            if endpoint is not None:
                self._attempt(f"the OTLP exporter of {signal}", partial(self._open_otlp, signal, endpoint))
        for signal, name in wanted.plugins:
            self._attempt(f"the exporter {name!r}", partial(self._open_plugin, signal, name))
        if self._readers or self._deliveries:
            self._open_provider()
        if self._textfile is not None:
            self._textfile.start(wanted.interval, self._report_problem)
        if self._endpoint is not None:
            self.url = self._endpoint.url

    def _attempt(self, what: str, open_it: Callable[[], None]) -> None:
        try:
            open_it()
        except Unavailable as error:
            sentence = str(error)
        except Exception as error:  # noqa: BLE001 - for example from a library of an incompatible version
            sentence = f"{what} could not be started: {describe(error)}"
        else:
            return
        if sentence not in self._failures_to_open:
            self._failures_to_open.append(sentence)
            self._report_problem(sentence)

    def _open_receiver(self) -> None:
        from otel_memwatch.monitor.telemetry.otlp_receiver.server import Receiver
        from otel_memwatch.monitor.telemetry.otlp_receiver.store import ReceivedSpans

        parts = self._parts
        assert parts.listening is not None
        assert parts.directory is not None
        started = parts.run["started"]
        record = ReceivedSpans(
            parts.directory,
            int(parts.run["target"]["pid"]),
            float(started["wall"]) - float(started["monotonic"]),
        )
        self._received = record
        try:
            self._receiver = Receiver(parts.listening, record, self._report_problem)
        except BaseException:
            # The target would wait for answers from a port without a server.
            parts.listening.socket.close()
            raise

    def _open_prometheus(self) -> None:
        from otel_memwatch.monitor.telemetry.scrape import PrometheusEndpoint

        assert self._wanted.prometheus is not None
        named = (self._settings.get(f"prometheus_{what}") for what in ("cert", "key", "client_ca"))
        self._endpoint = PrometheusEndpoint(self._wanted.prometheus, *named)
        self._readers.append(self._endpoint.reader)

    def _open_textfile(self) -> None:
        from otel_memwatch.monitor.telemetry.scrape import Textfile

        assert self._wanted.textfile is not None
        self._textfile = Textfile(os.path.abspath(self._wanted.textfile))
        self._readers.append(self._textfile.reader)

    def _open_otlp(self, signal: str, endpoint: Endpoint) -> None:
        from otel_memwatch.monitor.telemetry.exporters import open_exporter

        opening = partial(open_exporter, signal, endpoint)
        base = endpoint.url.removesuffix(f"/v1/{signal}")
        url = base if mask_url(base) == base else "URL"
        protocol = " --otlp-protocol grpc" if endpoint.protocol == "grpc" else ""
        where = f"the OTLP endpoint {mask_url(base)}"
        self._add(signal, opening(), opening, self._health(where, f"{url}{protocol}"))

    def _open_plugin(self, signal: str, name: str) -> None:
        from otel_memwatch.monitor.telemetry.exporters import open_plugin

        self._add(signal, open_plugin(signal, name), None, self._health(f"the exporter {name}", "URL"))

    def _add(
        self,
        signal: str,
        opened: Exporter,
        reopen: Callable[[], Exporter] | None,
        health: EndpointHealth,
    ) -> None:
        from opentelemetry.sdk.metrics.export import MetricReader

        from otel_memwatch.monitor.telemetry.exporters import PeriodicReader

        if isinstance(opened.exporter, MetricReader):
            # It exports on a schedule, and once more at its end.
            self._readers.append(opened.exporter)
            self._plain_readers.append(opened.exporter)
            return
        delivery = ExporterDelivery(signal, opened, reopen, health)
        self._deliveries.append(delivery)
        if signal != "metrics":
            return
        reader = PeriodicReader(opened.exporter, self._wanted.interval * 1000)
        delivery.shut_down = lambda seconds: reader.shutdown(timeout_millis=seconds * 1000)
        self._readers.append(reader)

    def _health(self, where: str, replay_to: str) -> EndpointHealth:
        """Return the health of an endpoint: one object for all signals that it receives."""
        hint = ""
        if self._parts.directory is not None:
            hint = (
                f"; the record is kept, for: otel-memwatch replay {self._parts.directory} --otlp {replay_to}"
            )
        return self._healths.setdefault(
            where,
            EndpointHealth(
                where, hint, self._report_problem, lambda text: self._parts.say(f"otel-memwatch: {text}")
            ),
        )

    def _open_provider(self) -> None:
        from opentelemetry.sdk.metrics import MeterProvider

        from otel_memwatch.monitor.telemetry.spans import Spans, SpanSender
        from otel_memwatch.run.spans import SCHEMA_URL, SCOPE

        # The variable disables the target's SDK; the user requested ours explicitly.
        os.environ.pop("OTEL_SDK_DISABLED", None)
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.version import __version__ as sdk_version

        sdk = {
            "telemetry.sdk.language": "python",
            "telemetry.sdk.name": "opentelemetry",
            "telemetry.sdk.version": sdk_version,
            "telemetry.distro.version": __version__,
        }
        resource = Resource({**sdk, **(self._parts.run.get("resource") or {})})
        self._spans = Spans(self._parts.run, resource)
        for delivery in self._deliveries:
            if delivery.signal == "traces" and self._spans.sampled:
                sender = SpanSender(delivery, self._parts.follower(), self._span_of, self._parts.environment)
                self._senders.append(sender)
                sender.start()
            elif delivery.signal == "logs":
                from otel_memwatch.monitor.telemetry.events import RunEvents

                self._events.append(
                    RunEvents(delivery, self._parts.run, resource, self._spans.context_of_run())
                )
        self._provider = MeterProvider(self._readers, resource, shutdown_on_exit=False)
        self._meter = self._provider.get_meter(SCOPE, __version__, SCHEMA_URL)
        self._histograms = create_instruments(self._meter, self._frame, wanted_metrics(self._settings))

    def join(self, columns: Sequence[Column]) -> None:
        """Export these columns from now on: those so far, and others of devices behind them."""
        if self._meter is not None:
            join_columns(self._meter, self._frame, wanted_metrics(self._settings), columns)

    # -- while it runs

    @property
    def measures(self) -> bool:
        """Return whether metrics have a reader."""
        return bool(self._readers)

    def look_for_events(self) -> None:
        """Report the events since the last call."""
        for events in self._events:
            events.look(self._frame, time.time_ns())

    def operations_open(self, names: Sequence[str]) -> None:
        """Set the open operations."""
        self._frame.set_open(names)

    def operation_closed(self, operation: RecordedOperation) -> None:
        """Count a closed operation and record its duration and peak."""
        self._frame.add_closed(operation)
        if not self._histograms or self._spans is None:
            return
        name = {"memwatch.operation.name": self._frame.names.bounded(operation.name)}
        context = self._spans.context_of(operation)
        if operation.end is not None:
            seconds = max(0.0, operation.end - operation.start)
            status = {**name, "memwatch.operation.status": operation.status}
            self._histograms[catalog.MEMWATCH_OPERATION_DURATION].record(seconds, status, context)
        if operation.peak is not None:
            self._histograms[catalog.MEMWATCH_OPERATION_MEMORY_PEAK].record(
                operation.peak.bytes, name, context
            )

    def _span_of(self, operation: RecordedOperation) -> ReadableSpan | None:
        assert self._spans is not None
        return None if operation.exported else self._spans.of_operation(operation)

    def _failures(self) -> dict[str, int]:
        failures = {delivery.signal: delivery.failures for delivery in self._deliveries}
        if self._textfile is not None:
            failures["textfile"] = self._textfile.failures
        return failures

    # -- the end

    def pause(self) -> None:
        """Use no CPU until `end`: the command has ended, and the monitor completes its record."""
        for sender in self._senders:
            sender.pause()

    def resume(self) -> None:
        """Send the spans of the remaining operations, while the metrics are completed."""
        for sender in self._senders:
            sender.resume()

    def end(self, ended: RunEnd) -> None:
        """Set the final values and make the spans that end with the run."""
        ending, peaks = ended.ending, ended.peaks
        code = None
        if ending is not None:
            code = ending.shell_code
        main = getattr(peaks, "main", None)
        started = self._parts.run["started"]
        wall = float(started["wall"]) - float(started["monotonic"]) + ended.at
        for events in self._events:
            begun = int(float(started["wall"]) * 1e9)
            events.end(self._frame, ending, peaks, begun, int(wall * 1e9))
        self._frame.end(code, peaks, main.bytes if main is not None else None, ended.stalls, wall)
        if self._endpoint is not None:
            self._endpoint.forget_scrapes()
        if self._spans is None or not self._senders:
            return
        open_spans = [self._span_of(operation._replace(end=ended.at)) for operation in ended.open_operations]
        roots = self._received.roots if self._received is not None else ()
        self._last_spans = [*filter(None, open_spans), self._spans.of_run(ended.at, ending, peaks, roots)]

    def deliver(self, until: float, operations: int) -> None:
        """Wait for the last delivery of all exporters; report the data that have not arrived by then.

        Args:
            until: monotonic seconds.
            operations: number of operations to export.

        """
        for sender in self._senders:
            sender.finish(self._last_spans, until - _LAST_SPANS_SECONDS)
        for delivery in self._deliveries:
            delivery.begin_end(until)
        closing = [Thread(reader.shutdown, "otel-memwatch-reader") for reader in self._plain_readers]
        for thread in closing:
            thread.start()
        if self._textfile is not None:
            self._textfile.finish(until)
        for delivery in self._deliveries:
            delivery.end(until)
        for thread in closing:
            thread.join(max(0.0, until - time.monotonic()))
        for sender in self._senders:
            missing = operations + len(self._last_spans) - sender.arrived
            if sender.arrived:  # otherwise the reason why the endpoint accepts nothing is already reported
                sender.delivery.health.lost(missing)

    def wait_for_scrape(self, seconds: float) -> bool:
        """Return whether Prometheus scrapes within `seconds`."""
        return self._endpoint is not None and self._endpoint.wait_for_scrape(seconds)

    def close(self) -> None:
        """Close all ports."""
        for server in (self._receiver, self._endpoint):
            if server is not None:
                server.close()
