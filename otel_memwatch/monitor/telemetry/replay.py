"""Sends requests in the form of OTLP JSON to an endpoint, as protobuf."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from otel_memwatch.errors import Unavailable
from otel_memwatch.monitor.telemetry.post import Post
from otel_memwatch.record.otlp_json import parse_json
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otel_memwatch.monitor.telemetry.settings import Endpoint

_MESSAGES: dict[str, tuple[Any, Any, str]] = {
    "metrics": (ExportMetricsServiceRequest, ExportMetricsServiceResponse, "rejected_data_points"),
    "traces": (ExportTraceServiceRequest, ExportTraceServiceResponse, "rejected_spans"),
}


class Sender:
    """Posts requests of one signal. Headers, compression (gzip without one) and certificates are the environment's.

    Raises `Unavailable` when a certificate cannot be used.
    """

    def __init__(
        self, signal: str, endpoint: Endpoint, timeout: float, environ: Mapping[str, str] = os.environ
    ) -> None:
        self._signal = signal
        self._where = endpoint.url
        self._post = Post(signal, endpoint.url, timeout, environ, compression="gzip")
        self.rejected = 0
        """Points or spans that the endpoint did not take, by its own word."""

    def send(self, request: Mapping[str, Any]) -> None:
        """Posts one request; raises `Unavailable`, in one sentence, when the endpoint does not take it."""
        message_class, response_class, rejected = _MESSAGES[self._signal]
        reply = self._post.deliver(parse_json(json.dumps(request), message_class()).SerializeToString())
        if reply is None or not reply.taken:
            wrong = reply is not None and (reply.status == 404 or "html" in reply.content_type)
            hint = "is it an OTLP endpoint?" if wrong and reply is not None and reply.status >= 300 else None
            raise Unavailable(f"{self._where} {self._post.problem}.", hint)
        if reply.body and "json" not in reply.content_type:
            answer = response_class()
            try:
                answer.ParseFromString(reply.body)
            except DecodeError:
                return
            self.rejected += getattr(answer.partial_success, rejected)

    def close(self) -> None:
        """Closes the connection."""
        self._post.close()
