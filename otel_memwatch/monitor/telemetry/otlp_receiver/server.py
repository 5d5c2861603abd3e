"""OTLP/HTTP receiver of `--receive-otlp`.

It follows the OTLP specification:

* protobuf and JSON, gzip, bodies of known length and chunked ones
* 413 for a body that is too long, also after decompression
* 400 for an invalid body
* the endpoint's own answer otherwise: `Forwarder` passes the spans on, unchanged
"""

from __future__ import annotations

import contextlib
import hmac
import http.client
import os
import zlib
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from otel_memwatch.errors import Unavailable
from otel_memwatch.monitor.telemetry.http_server import QuietHandler, QuietServer
from otel_memwatch.monitor.telemetry.otlp_receiver.socket import Upstream
from otel_memwatch.monitor.telemetry.settings import tls_context
from otel_memwatch.record.otlp_json import parse_json
from otel_memwatch.runtime.masking import mask_url
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from otel_memwatch.monitor.telemetry.otlp_receiver.socket import ListeningPort
    from otel_memwatch.monitor.telemetry.otlp_receiver.store import ReceivedSpans


MAX_BODY = 64 * 1024 * 1024
"""Size limit of a body in bytes, before and after decompression: the specification's default."""

_PROTOBUF, _JSON = "application/x-protobuf", "application/json"


class _RejectedRequest(Exception):  # noqa: N818 - an answer, no error of ours
    """Request answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Receiver:
    """Receiver, recorder and forwarder of spans, until `close`.

    Args:
        listening: the open port.
        record: writes the spans into the run.
        on_trouble: called once, with one sentence, if spans cannot be recorded.

    """

    def __init__(
        self, listening: ListeningPort, record: ReceivedSpans, on_trouble: Callable[[str], None]
    ) -> None:
        self.forwarder = Forwarder(listening.upstream)
        self.path = listening.path
        self._record = record
        self._on_trouble: Callable[[str], None] | None = on_trouble
        handler = type("_Handler", (_SpanHandler,), {"receiver": self})
        self._server = QuietServer(listening.socket, handler)

    def record(self, request: ExportTraceServiceRequest) -> None:
        """Write the spans into the run; spans that cannot be written are still forwarded."""
        try:
            self._record.record(request.resource_spans)
        except (OSError, ValueError) as error:
            if self._on_trouble is not None:
                self._on_trouble(f"spans that the command sent could not be recorded: {error}")
                self._on_trouble = None

    def close(self) -> None:
        """Stop receiving."""
        self._server.close()


class _SpanHandler(QuietHandler):
    receiver: Receiver

    def do_POST(self) -> None:  # noqa: N802 - the name that http.server calls
        try:
            self._receive()
        except _RejectedRequest as refused:
            self.close_connection = True
            self.answer(refused.status, "text/plain", refused.message.encode(), Connection="close")

    def _receive(self) -> None:
        # Compare in constant time: the duration of an answer must not reveal the token.
        asked = self.path.partition("?")[0].encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(asked, self.receiver.path.encode()):
            raise _RejectedRequest(404, "there is nothing here")
        body = self._body()
        kind = (self.headers.get("Content-Type") or "").partition(";")[0].strip().lower()
        data = _plain(body, self.headers.get("Content-Encoding"))
        request = ExportTraceServiceRequest()
        try:
            if kind == _PROTOBUF:
                request.ParseFromString(data)
            elif kind == _JSON:
                parse_json(data or b"{}", request)
            else:
                raise _RejectedRequest(415, f"{_PROTOBUF} or {_JSON}, please")
        except (DecodeError, ValueError) as error:
            raise _RejectedRequest(400, f"the body is not OTLP: {error}") from None
        self.receiver.record(request)
        answer = self.receiver.forwarder.send(body, dict(self.headers.items()), request.SerializeToString())
        if answer is None:
            success = ExportTraceServiceResponse().SerializeToString() if kind == _PROTOBUF else b"{}"
            self.answer(200, kind, success)
            return
        retry = {"Retry_After": answer.retry_after} if answer.retry_after else {}
        self.answer(answer.status, answer.content_type, answer.body, **retry)

    def _body(self) -> bytes:
        if "chunked" in (self.headers.get("Transfer-Encoding") or "").lower():
            return self._chunks()
        try:
            length = int(self.headers.get("Content-Length") or 0)
        except ValueError:
            raise _RejectedRequest(400, "the Content-Length is not a number") from None
        if not 0 <= length <= MAX_BODY:
            raise _RejectedRequest(413 if length > 0 else 400, "the body is too long")
        data = self.rfile.read(length)
        if len(data) < length:
            raise _RejectedRequest(400, "the body is cut off")
        return data

    def _chunks(self) -> bytes:
        body = bytearray()
        while True:
            line = self.rfile.readline(1024)
            try:
                size = int(line.partition(b";")[0], 16)
            except ValueError:
                raise _RejectedRequest(400, "the body is not in chunks") from None
            if size < 0 or len(body) + size > MAX_BODY:
                raise _RejectedRequest(413, "the body is too long")
            if size == 0:
                while self.rfile.readline(8192).strip():
                    pass
                return bytes(body)
            chunk = self.rfile.read(size)
            if len(chunk) < size:
                raise _RejectedRequest(400, "the body is cut off")
            body += chunk
            self.rfile.readline(8)


def _plain(body: bytes, encoding: str | None) -> bytes:
    """Return the decompressed body, never longer than `MAX_BODY`."""
    if encoding in {None, "", "identity"}:
        return body
    if encoding not in {"gzip", "deflate"}:
        raise _RejectedRequest(415, "gzip, please")
    if not body:
        return body
    decompressor = zlib.decompressobj(wbits=47)
    try:
        data = decompressor.decompress(body, MAX_BODY + 1)
    except zlib.error as error:
        raise _RejectedRequest(400, f"the body is not {encoding}: {error}") from None
    if len(data) > MAX_BODY:
        raise _RejectedRequest(413, "the body is too long")
    if not decompressor.eof:
        raise _RejectedRequest(400, "the body is cut off")
    return data


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
