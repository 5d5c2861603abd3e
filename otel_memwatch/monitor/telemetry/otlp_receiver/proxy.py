"""Forwarder of received spans, unchanged, to the target's original endpoint."""

from __future__ import annotations

import contextlib
import http.client
import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from otel_memwatch.errors import Unavailable
from otel_memwatch.monitor.telemetry.otlp_receiver.socket import Upstream
from otel_memwatch.monitor.telemetry.tls import tls_context
from otel_memwatch.runtime.masking import mask_url
from otel_memwatch.runtime.typed import Any, NamedTuple

_NOT_FORWARDED = frozenset(
    {
        "host",
        "connection",
        "keep-alive",
        "transfer-encoding",
        "content-length",
        "te",
        "trailer",
        "upgrade",
        "expect",
    }
)
_SECONDS = 10.0
_SECONDS_UNASKED = 1.0
"""Timeout for the default endpoint, which is not configured."""

_GRPC_METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_GRPC_STATUS = {
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
    "RESOURCE_EXHAUSTED": 429,
    "INVALID_ARGUMENT": 400,
}


class ForwardedAnswer(NamedTuple):
    """Answer of the endpoint."""

    status: int
    content_type: str
    body: bytes
    retry_after: str | None = None


class Forwarder:
    """Forwarder of bodies to `upstream`, each over a separate connection: no state is kept between them."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._channel: Any = None
        self.problem: str | None = None
        """Reason why the last body was not delivered; `None`: it was."""

    def send(self, body: bytes, headers: Mapping[str, str], message: bytes) -> ForwardedAnswer | None:
        """Forward a body and return the endpoint's answer; `None`: the unconfigured default has no listener.

        Args:
            body: received body, compressed or not.
            headers: received headers.
            message: decoded body as a plain protobuf message, for gRPC.

        """
        try:
            answer = self._by_grpc(message, headers) if self._upstream.grpc else self._by_http(body, headers)
        except (OSError, http.client.HTTPException, ValueError, Unavailable) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            if not self._upstream.configured:
                return None
            self.problem = f"{mask_url(self._upstream.url)} cannot be reached: {reason}"
            return ForwardedAnswer(503, "text/plain", self.problem.encode())
        self.problem = (
            None if answer.status < 400 else f"{mask_url(self._upstream.url)} answers {answer.status}"
        )
        return answer

    def _by_http(self, body: bytes, headers: Mapping[str, str]) -> ForwardedAnswer:
        parts = urlsplit(self._upstream.url)
        seconds = _SECONDS if self._upstream.configured else _SECONDS_UNASKED
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            connection = http.client.HTTPSConnection(
                parts.hostname or "", parts.port, timeout=seconds, context=tls_context("traces", os.environ)
            )
        else:
            connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=seconds)
        passed = {name: value for name, value in headers.items() if name.lower() not in _NOT_FORWARDED}
        with contextlib.closing(connection):
            connection.request("POST", parts.path or "/", body, passed)
            response = connection.getresponse()
            return ForwardedAnswer(
                response.status,
                response.getheader("Content-Type") or "application/octet-stream",
                response.read(),
                response.getheader("Retry-After"),
            )

    def _by_grpc(self, message: bytes, headers: Mapping[str, str]) -> ForwardedAnswer:
        import grpc

        if self._channel is None:
            parts = urlsplit(self._upstream.url if "://" in self._upstream.url else f"//{self._upstream.url}")
            if parts.scheme == "https":
                self._channel = grpc.secure_channel(parts.netloc, grpc.ssl_channel_credentials())
            else:
                self._channel = grpc.insecure_channel(parts.netloc)
        call = self._channel.unary_unary(_GRPC_METHOD, lambda data: data, lambda data: data)
        metadata = [
            (name.lower(), value)
            for name, value in headers.items()
            if name.lower() not in _NOT_FORWARDED | {"content-type", "content-encoding", "accept", "accept-encoding",
                                                    "user-agent"}
        ]  # fmt: skip
        try:
            return ForwardedAnswer(
                200, "application/x-protobuf", call(message, timeout=_SECONDS, metadata=metadata)
            )
        except grpc.RpcError as error:
            code = error.code().name
            return ForwardedAnswer(
                _GRPC_STATUS.get(code, 400), "text/plain", f"{code}: {error.details()}".encode()
            )
