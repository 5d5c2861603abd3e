"""Run and operations as OTLP spans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from otel_memwatch.record.fields import is_span_id, is_trace_id
from otel_memwatch.reports.otlp.values import Json, Times, attributes, request
from otel_memwatch.run.spans import operation_attributes, run_attributes, run_failed, run_name
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otel_memwatch.run import OperationFigures, RecordedRun

_SPANS_PER_LINE = 500
_INTERNAL = 1
_ERROR = 2


def trace_requests(run: RecordedRun) -> Iterator[Mapping[str, Any]]:
    """Yield requests with the span of the run and spans of operations that the program did not export itself."""
    times = Times(run)
    spans = [_run_span(run, times)] if run.trace.get("trace_id") else []
    for figures in run.iterate_operations():
        operation = figures.operation
        if operation.exported or not (is_trace_id(operation.trace_id) and is_span_id(operation.span_id)):
            continue
        spans.append(_operation_span(run, figures, times))
        if len(spans) >= _SPANS_PER_LINE:
            yield request(run, "Spans", "spans", spans)
            spans = []
    if spans:
        yield request(run, "Spans", "spans", spans)


def _run_span(run: RecordedRun, times: Times) -> Json:
    ending, trace = run.ending, run.trace
    span: Json = {
        "traceId": trace["trace_id"],
        "spanId": trace["span_id"],
        "name": run_name(run.info),
        "kind": _INTERNAL,
        "startTimeUnixNano": times.start,
        "endTimeUnixNano": times.end,
        "attributes": attributes(run_attributes(run.info, ending, run.peaks)),
    }
    if trace.get("state"):
        span["traceState"] = str(trace["state"])
    if trace.get("parent_span_id"):
        span["parentSpanId"] = trace["parent_span_id"]
    if ending.oom_kills:
        span["events"] = [
            {
                "timeUnixNano": times.end,
                "name": "memwatch.oom_kill",
                "attributes": attributes({"memwatch.oom_kills": ending.oom_kills}),
            }
        ]
    if run_failed(ending):
        span["status"] = {"code": _ERROR, "message": ending.reason}
    return span


def _operation_span(run: RecordedRun, figures: OperationFigures, times: Times) -> Json:
    operation = figures.operation
    end = times.of(run.started + figures.end)
    span: Json = {
        "traceId": operation.trace_id,
        "spanId": operation.span_id,
        "name": operation.name,
        "kind": _INTERNAL,
        "startTimeUnixNano": times.of(operation.start),
        "endTimeUnixNano": end,
        "attributes": attributes(operation_attributes(operation)),
    }
    parent = operation.parent_span_id or run.trace.get("span_id")
    if is_span_id(parent):
        span["parentSpanId"] = parent
    if operation.status == "error":
        span["status"] = {"code": _ERROR, "message": operation.error or ""}
        if operation.error:
            span["events"] = [
                {
                    "timeUnixNano": end,
                    "name": "exception",
                    "attributes": attributes({"exception.type": operation.error}),
                }
            ]
    return span
