"""An OTLP/HTTP endpoint made of the protocol's own protobuf classes, that checks and keeps what it is sent."""

from __future__ import annotations

import gzip
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

_KINDS = {
    "/v1/metrics": (ExportMetricsServiceRequest, ExportMetricsServiceResponse),
    "/v1/logs": (ExportLogsServiceRequest, ExportLogsServiceResponse),
    "/v1/traces": (ExportTraceServiceRequest, ExportTraceServiceResponse),
}


class OtlpSink:
    """Listens on a free loopback port.

    `answer(path)` may give (status, content type, body) instead of success, with further headers as a fourth, or "hang", "reset".
    """

    def __init__(self, answer=lambda _path: None, prefix=""):
        self.requests = []
        self.defects = []
        self.answer = answer
        sink = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                said = sink.answer(self.path)
                if said == "hang":
                    time.sleep(30)
                    return
                if said == "reset":
                    self.connection.shutdown(socket.SHUT_RDWR)
                    self.close_connection = True
                    return
                if said is None:
                    headers = {name.lower(): value for name, value in self.headers.items()}
                    said = sink.take(self.path.removeprefix(prefix), headers, body)
                status, kind, payload, *headers = said
                self.send_response(status)
                for name, value in (headers[0] if headers else {}).items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, *_):
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}{prefix}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def take(self, path, headers, body):
        if path not in _KINDS:
            self.defects.append(f"unexpected path {path}")
            return 404, "text/plain", b""
        request_class, response_class = _KINDS[path]
        if headers.get("content-type") != "application/x-protobuf":
            self.defects.append(f"content type {headers.get('Content-Type')}")
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        message = request_class()
        message.ParseFromString(body)
        self.defects += list(_defects(message))
        self.requests.append((path, headers, message))
        return 200, "application/x-protobuf", response_class().SerializeToString()

    def metrics(self):
        """Every point that came: (resource attributes, metric, point), in the order of arrival."""
        for _, _, message in list(self.requests):
            for group in getattr(message, "resource_metrics", ()):
                resource = attributes(group.resource)
                for scope in group.scope_metrics:
                    for metric in scope.metrics:
                        kind = metric.WhichOneof("data")
                        for point in getattr(metric, kind).data_points:
                            yield resource, metric, point

    def spans(self):
        """Every span that came, with the attributes of its resource."""
        for _, _, message in list(self.requests):
            for group in getattr(message, "resource_spans", ()):
                for scope in group.scope_spans:
                    for span in scope.spans:
                        yield attributes(group.resource), span

    def events(self):
        """Every log record that came, with the attributes of its resource."""
        for _, _, message in list(self.requests):
            for group in getattr(message, "resource_logs", ()):
                for scope in group.scope_logs:
                    for record in scope.log_records:
                        yield attributes(group.resource), record

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def attributes(carrier):
    """Attributes of a resource, point or span as a dict."""
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in carrier.attributes}


def _defects(message):
    for group in getattr(message, "resource_metrics", ()):
        if "service.name" not in attributes(group.resource):
            yield "a resource without service.name"
        for scope in group.scope_metrics:
            if not scope.schema_url.startswith("https://opentelemetry.io/schemas/"):
                yield "a scope without the conventions' schema"
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                points = getattr(metric, kind).data_points
                if not points:
                    yield f"{metric.name} without points"
                series = [(point.time_unix_nano, *sorted(attributes(point).items())) for point in points]
                if len(set(series)) < len(series):
                    yield f"{metric.name} has a series twice"
                if kind in {"sum", "histogram"} and getattr(metric, kind).aggregation_temporality != 2:
                    yield f"{metric.name} is not cumulative"
    for group in getattr(message, "resource_spans", ()):
        for scope in group.scope_spans:
            for span in scope.spans:
                if len(span.trace_id) != 16 or len(span.span_id) != 8 or not span.name:
                    yield f"span {span.name!r} lacks its ids"
                if span.end_time_unix_nano < span.start_time_unix_nano:
                    yield f"span {span.name!r} ends before it starts"
