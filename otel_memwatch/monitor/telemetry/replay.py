"""Sender of OTLP JSON requests to an endpoint, through the SDK's exporters.

The exporters require the SDK's values, so each request is converted to these. It contains the output of
`reports.otlp`: gauges, sums and histograms, spans without links, log records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    TraceFlags,
    TraceState,
    set_span_in_context,
)
from opentelemetry.trace.status import Status, StatusCode

from otel_memwatch.errors import Unanswered, Unavailable, describe
from otel_memwatch.monitor.telemetry.export_log import EXPORT_LOG, Attempts
from otel_memwatch.monitor.telemetry.exporters import open_exporter
from otel_memwatch.runtime.masking import mask_url
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otel_memwatch.monitor.telemetry.settings import Endpoint

Json = Mapping[str, Any]


class Sender:
    """Sender of one signal. The environment sets headers, compression (default gzip) and certificates.

    Raises `Unavailable` if a certificate cannot be used or the protocol is not installed.
    """

    def __init__(self, signal: str, endpoint: Endpoint) -> None:
        EXPORT_LOG.catch()
        self._read = _READERS[signal]
        self._may_be_unknown = signal == "logs"
        self._where = mask_url(endpoint.url)
        self._opened = open_exporter(signal, endpoint, compression="gzip")
        self._attempts = Attempts(self._opened.answer)
        self.rejected = 0
        """Points or spans that the endpoint reports as rejected."""
        self.unknown = False
        """True if the endpoint does not accept log records, like many."""
        self.words = ""
        """Last message of the endpoint about an accepted request."""

    def send(self, request: Json) -> None:
        """Send one request; raise `Unavailable`, with one sentence, if the endpoint does not accept it."""
        data = self._read(request)
        try:
            _, answer = self._attempts.make(lambda: self._opened.exporter.export(data))
        except Exception as error:
            raise Unavailable(f"{self._where} could not be sent to: {describe(error)}") from error
        if answer.problem is not None and self._may_be_unknown and answer.knows_no_signal:
            self.unknown = True
        elif answer.problem is not None:
            wrong = answer.status == 404 or "text/html" in answer.problem
            hint = "is it an OTLP endpoint?" if wrong and (answer.status or 0) >= 300 else None
            kind = Unanswered if answer.transient and answer.status is None else Unavailable
            raise kind(f"{self._where} {answer.problem}.", hint)
        self.rejected += answer.rejected
        self.words = answer.words or self.words

    def close(self) -> None:
        """Close the connection."""
        self._opened.exporter.shutdown()


def metrics_data(request: Json) -> MetricsData:
    """Return the SDK's values for a request of metrics."""
    return MetricsData(
        [
            ResourceMetrics(
                _resource(group),
                [
                    ScopeMetrics(_scope(scope), [_metric(one) for one in scope["metrics"]], scope.get("schemaUrl", ""))
                    for scope in group["scopeMetrics"]
                ],
                group.get("schemaUrl", ""),
            )
            for group in request["resourceMetrics"]
        ]
    )  # fmt: skip


def _metric(metric: Json) -> Metric:
    data: Gauge | Sum | Histogram
    if "gauge" in metric:
        data = Gauge([_number_point(point) for point in metric["gauge"]["dataPoints"]])
    elif "sum" in metric:
        data = Sum(
            [_number_point(point) for point in metric["sum"]["dataPoints"]],
            AggregationTemporality(metric["sum"]["aggregationTemporality"]),
            bool(metric["sum"].get("isMonotonic")),
        )
    else:
        data = Histogram(
            [
                HistogramDataPoint(
                    _attributes(point),
                    *_times(point),
                    count=int(point["count"]),
                    sum=point.get("sum", 0.0),
                    bucket_counts=[int(count) for count in point.get("bucketCounts", ())],
                    explicit_bounds=point.get("explicitBounds", ()),
                    min=point.get("min", 0.0),
                    max=point.get("max", 0.0),
                )
                for point in metric["histogram"]["dataPoints"]
            ],
            AggregationTemporality(metric["histogram"]["aggregationTemporality"]),
        )
    return Metric(metric["name"], metric.get("description"), metric.get("unit"), data)


def _number_point(point: Json) -> NumberDataPoint:
    value = float(point["asDouble"]) if "asDouble" in point else int(point["asInt"])
    return NumberDataPoint(_attributes(point), *_times(point), value)


def spans(request: Json) -> Sequence[ReadableSpan]:
    """Return the SDK's values for a request of spans."""
    return [
        _span(span, _resource(group), _scope(scope))
        for group in request["resourceSpans"]
        for scope in group["scopeSpans"]
        for span in scope["spans"]
    ]


def _span(span: Json, resource: Resource, scope: InstrumentationScope) -> ReadableSpan:
    trace_id = int(span["traceId"], 16)
    parent = span.get("parentSpanId")
    status = span.get("status", {})
    return ReadableSpan(
        span["name"],
        context=_context(trace_id, span["spanId"], span.get("traceState", "")),
        parent=_context(trace_id, parent) if parent else None,
        resource=resource,
        attributes=_attributes(span),
        events=[
            Event(event["name"], _attributes(event), int(event["timeUnixNano"]))
            for event in span.get("events", ())
        ],
        kind=SpanKind(span["kind"] - 1),  # the protocol counts from "unspecified", the SDK from "internal"
        status=Status(StatusCode(status.get("code", 0)), status.get("message") or None),
        start_time=int(span["startTimeUnixNano"]),
        end_time=int(span["endTimeUnixNano"]),
        instrumentation_scope=scope,
    )


def log_records(request: Json) -> Sequence[ReadableLogRecord]:
    """Return the SDK's values for a request of log records."""
    return [
        ReadableLogRecord(_log_record(record), _resource(group), _scope(scope))
        for group in request["resourceLogs"]
        for scope in group["scopeLogs"]
        for record in scope["logRecords"]
    ]


def _log_record(record: Json) -> LogRecord:
    context = None
    if "traceId" in record:  # links the record with its span
        span = NonRecordingSpan(_context(int(record["traceId"], 16), record["spanId"]))
        context = set_span_in_context(span, Context())
    return LogRecord(
        timestamp=int(record["timeUnixNano"]),
        observed_timestamp=int(record["observedTimeUnixNano"]),
        context=context,
        severity_text=record["severityText"],
        severity_number=SeverityNumber(record["severityNumber"]),
        body=_value(record["body"]),
        attributes=_attributes(record),
        event_name=record["eventName"],
    )


def _context(trace_id: int, span_id: str, state: str = "") -> SpanContext:
    return SpanContext(
        trace_id,
        int(span_id, 16),
        is_remote=False,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
        trace_state=TraceState.from_header([state]),
    )


def _times(point: Json) -> tuple[int, int]:
    return int(point.get("startTimeUnixNano", 0)), int(point["timeUnixNano"])


def _resource(group: Json) -> Resource:
    return Resource(_attributes(group["resource"]), group.get("schemaUrl"))


def _scope(group: Json) -> InstrumentationScope:
    scope = group["scope"]
    return InstrumentationScope(scope["name"], scope.get("version"), group.get("schemaUrl"))


def _attributes(carrier: Json) -> dict[str, Any]:
    return {item["key"]: _value(item["value"]) for item in carrier.get("attributes", ())}


def _value(value: Json) -> Any:
    ((kind, content),) = value.items()
    if kind == "intValue":
        return int(content)
    if kind == "arrayValue":
        items: Iterable[Json] = content["values"]
        return [_value(item) for item in items]
    return content


_READERS: Mapping[str, Callable[[Json], Any]] = {
    "metrics": metrics_data,
    "traces": spans,
    "logs": log_records,
}
