"""Exporters that deliver to an endpoint: OTLP over HTTP or gRPC, and those that are installed as plug-ins.

To add one, write a factory and a line in `EXPORTERS`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence

from opentelemetry.sdk.metrics import Counter, Histogram, ObservableCounter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    MetricExporter,
    MetricExportResult,
    MetricsData,
)
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from otel_memwatch.errors import Unavailable
from otel_memwatch.monitor.telemetry.post import Post, tls_context, variable
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

    from otel_memwatch.monitor.telemetry.settings import Endpoint

_GROUPS = {"metrics": "opentelemetry_metrics_exporter", "traces": "opentelemetry_traces_exporter"}


class Answer(Protocol):
    """What an endpoint last said."""

    @property
    def problem(self) -> str | None:
        """One phrase; `None`: nothing wrong."""


class Logged:
    """What an exporter last wrote into its log: its only way to tell."""

    def __init__(self) -> None:
        self.problem: str | None = None
        """The first line of it."""


class _LogCatcher(logging.Handler):
    """Takes the log of OpenTelemetry's libraries, which would otherwise reach the target's terminal."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.answers: list[Logged] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage().partition("\n")[0][:200]
        for answer in self.answers:
            answer.problem = f"failed: {text}"


_CATCHER = _LogCatcher()


def catch_logs() -> None:
    """From now on nothing of OpenTelemetry or its HTTP library writes to stderr by itself."""
    for name in ("opentelemetry", "urllib3", "requests", "grpc", "prometheus_client"):
        logger = logging.getLogger(name)
        if _CATCHER not in logger.handlers:
            logger.addHandler(_CATCHER)
        logger.propagate = False


def _logged() -> Logged:
    answer = Logged()
    _CATCHER.answers.append(answer)
    return answer


class Exporter(NamedTuple):
    """An exporter of one signal, with what its endpoint last said."""

    exporter: Any
    answer: Answer
    where: str


class HttpMetricExporter(MetricExporter):
    """Metrics over HTTP, as protobuf."""

    def __init__(self, post: Post, environ: Mapping[str, str]) -> None:
        super().__init__(
            preferred_temporality=_temporality(environ), preferred_aggregation=_aggregation(environ)
        )
        self._post = post

    def export(self, metrics_data: MetricsData, timeout_millis: float = 0, **_: Any) -> MetricExportResult:  # noqa: ARG002
        """Delivers; failures are told by `Post.problem`."""
        from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics

        reply = self._post.deliver(encode_metrics(metrics_data).SerializeToString())
        taken = reply is not None and reply.taken
        return MetricExportResult.SUCCESS if taken else MetricExportResult.FAILURE

    def force_flush(self, timeout_millis: float = 0) -> bool:  # noqa: ARG002
        """Nothing is held back."""
        return True

    def shutdown(self, timeout_millis: float = 0, **_: Any) -> None:  # noqa: ARG002
        """Closes the connection; ends a delivery that waits for its next attempt."""
        self._post.stop()


class HttpSpanExporter(SpanExporter):
    """Spans over HTTP, as protobuf."""

    def __init__(self, post: Post) -> None:
        self._post = post

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Delivers; failures are told by `Post.problem`."""
        from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

        reply = self._post.deliver(encode_spans(spans).SerializeToString())
        return SpanExportResult.SUCCESS if reply is not None and reply.taken else SpanExportResult.FAILURE

    def force_flush(self, timeout_millis: int = 0) -> bool:  # noqa: ARG002
        """Nothing is held back."""
        return True

    def shutdown(self) -> None:
        """Closes the connection; ends a delivery that waits for its next attempt."""
        self._post.stop()


def _temporality(environ: Mapping[str, str]) -> dict[type, AggregationTemporality]:
    """What OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE asks for; cumulative without it."""
    wanted = environ.get("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "").strip().lower()
    kinds = {"delta": (Counter, Histogram, ObservableCounter), "lowmemory": (Counter, Histogram)}.get(
        wanted, ()
    )
    return dict.fromkeys(kinds, AggregationTemporality.DELTA)


def _aggregation(environ: Mapping[str, str]) -> dict[type, Any]:
    """What OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION asks for; explicit buckets without it."""
    wanted = environ.get("OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION", "").strip().lower()
    return (
        {Histogram: ExponentialBucketHistogramAggregation()} if wanted.startswith("base2_exponential") else {}
    )


def open_exporter(signal: str, endpoint: Endpoint, timeout: float) -> Exporter:
    """The exporter of `signal` ("metrics" or "traces") for `endpoint`.

    Raises `Unavailable`, in one sentence, when it cannot work: a certificate that cannot be read, a missing extra.
    """
    exporter, answer = EXPORTERS[endpoint.protocol](signal, endpoint, timeout)
    return Exporter(exporter, answer, endpoint.url)


def _http(signal: str, endpoint: Endpoint, timeout: float) -> tuple[Any, Answer]:
    post = Post(signal, endpoint.url, timeout, os.environ)
    exporter = HttpMetricExporter(post, os.environ) if signal == "metrics" else HttpSpanExporter(post)
    return exporter, post


def _grpc(signal: str, endpoint: Endpoint, timeout: float) -> tuple[Any, Answer]:
    if (
        variable(signal, "CERTIFICATE", os.environ)[1]
        or variable(signal, "CLIENT_CERTIFICATE", os.environ)[1]
    ):
        tls_context(signal, os.environ)
    arguments: dict[str, Any] = {
        "endpoint": endpoint.url,
        "timeout": timeout,
        "insecure": not endpoint.url.lower().startswith("https:"),
    }
    try:
        if signal == "metrics":
            from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter

            return OTLPMetricExporter(**arguments), _logged()
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter(**arguments), _logged()
    except ImportError:
        raise Unavailable(
            "OTLP over gRPC is not installed.", "pip install 'otel-memwatch[grpc]', or use http/protobuf"
        ) from None


EXPORTERS: dict[str, Callable[[str, Endpoint, float], tuple[Any, Answer]]] = {
    "http/protobuf": _http,
    "grpc": _grpc,
}
"""Each protocol's factory: the exporter, and what tells of its endpoint."""


def open_plugin(signal: str, name: str) -> Exporter:
    """The installed exporter that OTEL_METRICS_EXPORTER or OTEL_TRACES_EXPORTER names; raises `Unavailable`."""
    from importlib.metadata import entry_points

    found = list(entry_points(group=_GROUPS[signal], name=name))
    where = f"OTEL_{signal.upper()}_EXPORTER"
    if not found:
        raise Unavailable(
            f"{where} names the exporter {name!r}, which is not installed beside otel-memwatch."
        )
    try:
        return Exporter(found[0].load()(), _logged(), name)
    except Exception as error:
        raise Unavailable(f"The exporter {name!r} of {where} cannot be used: {error}.") from error
