"""Sends requests in the form of OTLP JSON to an endpoint, as protobuf."""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import requests
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from otel_memwatch.errors import Unavailable
from otel_memwatch.telemetry.exporters import check_certificates
from otel_memwatch.telemetry.http_session import Session
from otel_memwatch.telemetry.otlp_json import parse_json
from otel_memwatch.telemetry.settings import Endpoint

_MESSAGES: dict[str, tuple[Any, Any, str]] = {
    "metrics": (ExportMetricsServiceRequest, ExportMetricsServiceResponse, "rejected_data_points"),
    "traces": (ExportTraceServiceRequest, ExportTraceServiceResponse, "rejected_spans"),
}
_RETRIED = frozenset({429, 502, 503, 504})
_ATTEMPTS = 5


class Sender:
    """Posts requests of one signal. Headers, compression and certificates are those of OTEL_EXPORTER_OTLP_*.

    Raises `Unavailable` when a certificate cannot be used.
    """

    def __init__(
        self, signal: str, endpoint: Endpoint, timeout: float, environ: Mapping[str, str] = os.environ
    ) -> None:
        check_certificates(signal, environ)
        self._signal = signal
        self._endpoint = endpoint
        self._timeout = timeout
        self.rejected = 0
        """Points or spans that the endpoint did not take, by its own word."""

        def named(what: str) -> str | None:
            own = environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_{what}")
            return own or environ.get(f"OTEL_EXPORTER_OTLP_{what}")

        self._gzip = (named("COMPRESSION") or "gzip").strip().lower() == "gzip"
        self._session = Session()
        self._session.headers["Content-Type"] = "application/x-protobuf"
        for part in (named("HEADERS") or "").split(","):
            name, equals, value = part.partition("=")
            if equals:
                self._session.headers[name.strip()] = unquote(value.strip())
        self._session.verify = named("CERTIFICATE") or True
        certificate, key = named("CLIENT_CERTIFICATE"), named("CLIENT_KEY")
        if certificate:
            self._session.cert = (certificate, key) if key else certificate

    def send(self, request: Mapping[str, Any]) -> None:
        """Posts one request; raises `Unavailable`, in one sentence, when the endpoint does not take it."""
        message_class, response_class, rejected = _MESSAGES[self._signal]
        body: bytes = parse_json(json.dumps(request), message_class()).SerializeToString()
        headers = {}
        if self._gzip:
            body, headers = gzip.compress(body, 6), {"Content-Encoding": "gzip"}
        response = self._posted(body, headers)
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if response.status_code != 200 or kind not in {"application/x-protobuf", "application/json", ""}:
            detail = response.text.strip().partition("\n")[0][:200] if "html" not in kind else kind
            raise Unavailable(
                f"{self._endpoint.url} answers {response.status_code} {response.reason}"
                + (f": {detail}" if detail and kind != "application/x-protobuf" else "")
                + ".",
                "is it an OTLP endpoint?" if "html" in kind or response.status_code == 404 else None,
            )
        if response.content and kind == "application/x-protobuf":
            answer = response_class()
            answer.ParseFromString(response.content)
            self.rejected += getattr(answer.partial_success, rejected)

    def _posted(self, body: bytes, headers: Mapping[str, str]) -> requests.Response:
        for attempt in range(_ATTEMPTS):
            try:
                response = self._session.post(
                    self._endpoint.url,
                    data=body,
                    headers=headers,
                    timeout=self._timeout,
                    allow_redirects=False,
                )
            except requests.RequestException as error:
                raise Unavailable(f"{self._endpoint.url} cannot be reached: {_reason(error)}.") from None
            if response.status_code not in _RETRIED or attempt + 1 == _ATTEMPTS:
                return response
            time.sleep(_pause(response, attempt))
        raise AssertionError

    def close(self) -> None:
        """Closes the connection."""
        self._session.close()


def _pause(response: requests.Response, attempt: int) -> float:
    try:
        return min(30.0, max(0.0, float(response.headers["Retry-After"])))
    except (KeyError, ValueError):
        return min(10.0, 0.5 * float(2**attempt))


def _reason(error: requests.RequestException) -> str:
    """The innermost reason, without the layers of the HTTP library."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return str(cause.strerror)
        nested = cause.__cause__ or cause.__context__ or (cause.args[0] if cause.args else None)
        nested = getattr(nested, "reason", nested)
        cause = nested if isinstance(nested, BaseException) and nested is not cause else None
    return str(error).partition("\n")[0][:200]
