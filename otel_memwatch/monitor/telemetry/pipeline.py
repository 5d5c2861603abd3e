"""Everything that OpenTelemetry's SDK does for a run, put together. Loaded only where telemetry was asked for."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from otel_memwatch._version import __version__
from otel_memwatch.errors import Unavailable
from otel_memwatch.monitor.telemetry.exporters import Exporter, catch_logs, open_exporter, open_plugin
from otel_memwatch.monitor.telemetry.frame import Frame
from otel_memwatch.runtime.masking import mask_url
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource

    from otel_memwatch.model import Operation
    from otel_memwatch.monitor.telemetry import Ended, Parts
    from otel_memwatch.monitor.telemetry.push import Pusher, SpanQueue
    from otel_memwatch.monitor.telemetry.receiver import Receiver
    from otel_memwatch.monitor.telemetry.scrape import PrometheusEndpoint
    from otel_memwatch.monitor.telemetry.settings import Endpoint, Wanted
    from otel_memwatch.monitor.telemetry.spans import Spans


class _Delivery:
    """One exporter at work."""

    def __init__(self, signal: str, where: str, pusher: Pusher, problem: Callable[[], str | None]) -> None:
        self.signal = signal
        self.where = where
        self.pusher = pusher
        self.problem = problem
        self.told = False


class Pipeline:
    """Telemetry of one run, opened and ended by `Telemetry`.

    Args:
        settings: options in force.
        wanted: what is to be opened.
        parts: what to look at.
        tell: called with a sentence for each thing that cannot be opened, and for an endpoint that does not take
            what it is sent.

    """

    def __init__(
        self, settings: Mapping[str, Any], wanted: Wanted, parts: Parts, tell: Callable[[str], None]
    ) -> None:
        self.url: str | None = None
        self._settings = settings
        self._wanted = wanted
        self._parts = parts
        self._tell = tell
        self._deliveries: list[_Delivery] = []
        self._readers: list[Any] = []
        self._queues: list[SpanQueue] = []
        self._endpoint: PrometheusEndpoint | None = None
        self._receiver: Receiver | None = None
        self._spans: Spans | None = None
        self._provider: MeterProvider | None = None
        self._histograms: tuple[Any, Any] | None = None
        self._frame = Frame(
            parts.columns,
            parts.latest,
            health=parts.health,
            ticks=parts.ticks,
            peaks=parts.peaks,
            failures=self._failures,
        )

    def open(self) -> None:
        """Opens what is wanted; what cannot be opened is told and left out."""
        catch_logs()
        if self._parts.listening is not None:
            self._attempt(self._open_receiver)
        wanted = self._wanted
        if wanted.prometheus:
            self._attempt(self._open_prometheus)
        if wanted.textfile:
            self._attempt(self._open_textfile)
        for signal, endpoint in (("metrics", wanted.metrics), ("traces", wanted.spans)):
            if endpoint is not None:
                self._attempt(partial(self._open_push, signal, endpoint))
        for signal, name in wanted.plugins:
            self._attempt(partial(self._open_plugin, signal, name))
        if self._readers or self._queues:
            self._open_provider()
        for delivery in self._deliveries:
            delivery.pusher.start()
        if self._endpoint is not None:
            self.url = self._endpoint.url

    def _attempt(self, open_it: Callable[[], None]) -> None:
        try:
            open_it()
        except Unavailable as error:
            self._tell(str(error))

    def _open_receiver(self) -> None:
        from otel_memwatch.monitor.telemetry.received import ReceivedSpans
        from otel_memwatch.monitor.telemetry.receiver import Receiver

        parts = self._parts
        assert parts.listening is not None
        assert parts.directory is not None
        started = parts.run["started"]
        record = ReceivedSpans(
            parts.directory,
            int(parts.run["target"]["pid"]),
            float(started["wall"]) - float(started["monotonic"]),
        )
        self._receiver = Receiver(parts.listening, record, self._tell)

    def _open_prometheus(self) -> None:
        from otel_memwatch.monitor.telemetry.scrape import PrometheusEndpoint

        assert self._wanted.prometheus is not None
        named = (self._settings.get(f"prometheus_{what}") for what in ("cert", "key", "client_ca"))
        self._endpoint = PrometheusEndpoint(self._wanted.prometheus, *named)
        self._readers.append(self._endpoint.reader)

    def _open_textfile(self) -> None:
        from otel_memwatch.monitor.telemetry.push import Pusher
        from otel_memwatch.monitor.telemetry.scrape import Textfile

        assert self._wanted.textfile is not None
        path = os.path.abspath(self._wanted.textfile)
        textfile = Textfile(path)
        self._readers.append(textfile.reader)
        pusher = Pusher("textfile", textfile.write, lambda: None, self._wanted.interval)
        self._add("textfile", path, pusher, lambda: textfile.problem)

    def _open_push(self, signal: str, endpoint: Endpoint) -> None:
        self._deliver_to(signal, open_exporter(signal, endpoint, self._wanted.timeout))

    def _open_plugin(self, signal: str, name: str) -> None:
        self._deliver_to(signal, open_plugin(signal, name))

    def _deliver_to(self, signal: str, opened: Exporter) -> None:
        from opentelemetry.sdk.metrics.export import MetricReader

        from otel_memwatch.monitor.telemetry.push import OnDemandReader, Pusher, SpanQueue, metric_push

        exporter = opened.exporter
        if isinstance(exporter, MetricReader):
            # It exports when it sees fit; we can only collect from it once more at the end.
            self._readers.append(exporter)
            pusher = Pusher(f"{signal}-{opened.where}", exporter.force_flush, exporter.shutdown)
        elif signal == "metrics":
            reader = OnDemandReader(exporter)
            self._readers.append(reader)
            push = metric_push(reader, exporter, self._wanted.timeout)
            pusher = Pusher("metrics", push, exporter.shutdown, self._wanted.interval)
        else:
            queue = SpanQueue(exporter)
            self._queues.append(queue)
            pusher = Pusher("spans", queue.push, exporter.shutdown, self._wanted.interval)
        self._add(signal, opened.where, pusher, lambda: opened.answer.problem)

    def _add(self, signal: str, where: str, pusher: Pusher, problem: Callable[[], str | None]) -> None:
        delivery = _Delivery(signal, where, pusher, problem)
        pusher.on_first_failure = lambda: self._tell_failure(delivery)
        self._deliveries.append(delivery)

    def _open_provider(self) -> None:
        from opentelemetry.sdk.metrics import MeterProvider

        from otel_memwatch.analysis.spans import SCHEMA_URL, SCOPE
        from otel_memwatch.monitor.telemetry.instruments import create_instruments
        from otel_memwatch.monitor.telemetry.spans import Spans

        # Meant for the target's SDK; ours was asked for by name.
        os.environ.pop("OTEL_SDK_DISABLED", None)
        resource = self._resource()
        self._spans = Spans(self._parts.run, resource)
        self._provider = MeterProvider(self._readers, resource, shutdown_on_exit=False)
        meter = self._provider.get_meter(SCOPE, __version__, SCHEMA_URL)
        self._histograms = create_instruments(meter, self._frame)

    def _resource(self) -> Resource:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.version import __version__ as sdk_version

        sdk = {
            "telemetry.sdk.language": "python",
            "telemetry.sdk.name": "opentelemetry",
            "telemetry.sdk.version": sdk_version,
            "telemetry.distro.version": __version__,
        }
        return Resource({**sdk, **(self._parts.run.get("resource") or {})})

    # -- while it runs

    def operations_open(self, names: Sequence[str]) -> None:
        """Takes in which operations are open."""
        self._frame.set_open(names)

    def operation_closed(self, operation: Operation) -> None:
        """Measures an operation that was closed, and hands its span to the exporters."""
        if self._histograms is None or self._spans is None:
            return
        duration, peak = self._histograms
        name = {"memwatch.operation.name": self._frame.names.bounded(operation.name)}
        context = self._spans.context_of(operation)
        if operation.end is not None:
            status = {**name, "memwatch.operation.status": operation.status}
            duration.record(max(0.0, operation.end - operation.start), status, context)
        if operation.peak is not None:
            peak.record(operation.peak.bytes, name, context)
        self._export_span(operation)

    def _export_span(self, operation: Operation) -> None:
        assert self._spans is not None
        if self._queues and self._spans.sampled and not operation.exported:
            span = self._spans.of_operation(operation)
            for queue in self._queues:
                queue.add([span])

    def _failures(self) -> dict[str, int]:
        return {delivery.signal: delivery.pusher.failures for delivery in self._deliveries}

    def _tell_failure(self, delivery: _Delivery) -> None:
        if delivery.told:
            return
        delivery.told = True
        if delivery.signal == "textfile":
            self._tell(f"{delivery.where} {delivery.problem() or 'cannot be written'}")
            return
        base = delivery.where.removesuffix(f"/v1/{delivery.signal}")
        for other in self._deliveries:
            # One endpoint for metrics and spans is one problem.
            if other.where.removesuffix(f"/v1/{other.signal}") == base:
                other.told = True
        where = f"the OTLP endpoint {mask_url(base)}" if "://" in base else f"the exporter {base}"
        later = ""
        if self._parts.directory is not None:
            url = base if "://" in base and mask_url(base) == base else "URL"
            later = f"; the record is kept, for: otel-memwatch replay {self._parts.directory} --otlp {url}"
        self._tell(f"{where} {delivery.problem() or 'did not take everything in time'}{later}")

    # -- the end

    def end(self, ended: Ended) -> None:
        """Takes in how the run ended: final values, the run's span, and spans of operations that are still open."""
        ending, peaks = ended.ending, ended.peaks
        code = None
        if ending is not None:
            code = ending.shell_code
        main = getattr(peaks, "main", None)
        self._frame.end(code, peaks, main.bytes if main is not None else None)
        if self._endpoint is not None:
            self._endpoint.forget_scrapes()
        if self._spans is not None and self._spans.sampled:
            for operation in ended.open_operations:
                self._export_span(operation._replace(end=ended.at))
            span = self._spans.of_run(ended.at, ending, peaks)
            for queue in self._queues:
                queue.add([span])

    def deliver(self, seconds: float) -> list[str]:
        """Waits for the last delivery of all exporters together; tells what did not arrive."""
        until = time.monotonic() + seconds
        for delivery in self._deliveries:
            delivery.pusher.begin_end()
        for delivery in self._deliveries:
            if not delivery.pusher.end(max(0.0, until - time.monotonic())):
                self._tell_failure(delivery)
        dropped = sum(queue.dropped for queue in self._queues)
        return [f"{dropped} spans were dropped while the endpoint did not take them"] if dropped else []

    def wait_for_scrape(self, seconds: float) -> bool:
        """Whether Prometheus scrapes within `seconds`."""
        return self._endpoint is not None and self._endpoint.wait_for_scrape(seconds)

    def close(self) -> None:
        """Closes all ports."""
        for server in (self._receiver, self._endpoint):
            if server is not None:
                server.close()
