"""What is recorded, read into the SDK's values and encoded by the SDK, is what was recorded."""

from __future__ import annotations

import json

import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_memwatch.monitor.telemetry.replay import metrics_data, spans
from otel_memwatch.record.otlp_json import parse_json

SCOPE = {"name": "otel_memwatch", "version": "1"}
RESOURCE = {"attributes": [{"key": "service.name", "value": {"stringValue": "train"}}]}
POINT = {
    "timeUnixNano": "1700000000000000001",
    "startTimeUnixNano": "1690000000000000000",
    "attributes": [
        {"key": "text", "value": {"stringValue": "x"}},
        {"key": "flag", "value": {"boolValue": True}},
        {"key": "many", "value": {"arrayValue": {"values": [{"intValue": "1"}, {"intValue": "2"}]}}},
    ],
}
METRICS = [
    {"name": "a", "unit": "By", "description": "A.", "gauge": {"dataPoints": [{"timeUnixNano": "17", "asInt": "9007199254740993"}]}},
    {"name": "b", "unit": "s", "description": "B.",
     "sum": {"dataPoints": [{**POINT, "asDouble": 0.5}], "aggregationTemporality": 2, "isMonotonic": True}},
    {"name": "c", "unit": "By", "description": "C.",
     "sum": {"dataPoints": [{**POINT, "asInt": "-1"}], "aggregationTemporality": 2}},
    {"name": "d", "unit": "s", "description": "D.",
     "histogram": {"aggregationTemporality": 2, "dataPoints": [
         {**POINT, "count": "3", "sum": 4.5, "min": 1.0, "max": 2.0, "bucketCounts": ["1", "2"], "explicitBounds": [1.5]}]}},
]  # fmt: skip
SPAN = {
    "traceId": "0af7651916cd43dd8448eb211c80319c",
    "spanId": "b7ad6b7169203331",
    "parentSpanId": "00f067aa0ba902b7",
    "name": "Load",
    "kind": 1,
    "startTimeUnixNano": "1700000000000000001",
    "endTimeUnixNano": "1700000000000000003",
    "attributes": [
        {"key": "batch", "value": {"intValue": "3"}},
        {"key": "share", "value": {"doubleValue": 0.5}},
    ],
    "events": [
        {
            "timeUnixNano": "1700000000000000002",
            "name": "exception",
            "attributes": [{"key": "exception.type", "value": {"stringValue": "ValueError"}}],
        }
    ],
    "status": {"code": 2, "message": "ValueError"},
}


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric["name"])
def test_metrics(metric):
    request = {
        "resourceMetrics": [
            {
                "resource": RESOURCE,
                "scopeMetrics": [{"scope": SCOPE, "metrics": [metric], "schemaUrl": "u"}],
                "schemaUrl": "u",
            }
        ]
    }
    sent = encode_metrics(metrics_data(request))
    assert sent == parse_json(json.dumps(request), ExportMetricsServiceRequest())


def test_spans():
    request = {
        "resourceSpans": [
            {
                "resource": RESOURCE,
                "scopeSpans": [{"scope": SCOPE, "spans": [SPAN], "schemaUrl": "u"}],
                "schemaUrl": "u",
            }
        ]
    }
    sent = encode_spans(spans(request))
    # The SDK also reports that the parent's context is local, which the recorded form leaves open.
    sent.resource_spans[0].scope_spans[0].spans[0].flags = 0
    assert sent == parse_json(json.dumps(request), ExportTraceServiceRequest())
