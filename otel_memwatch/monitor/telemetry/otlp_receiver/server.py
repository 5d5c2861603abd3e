"""OTLP/HTTP receiver of `--receive-otlp`.

It follows the OTLP specification:

* protobuf and JSON, gzip, bodies of known length and chunked ones
* 413 for a body that is too long, also after decompression
* 400 for an invalid body
* the endpoint's own answer otherwise
"""

from __future__ import annotations

import hmac
import zlib
from collections.abc import Callable

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from otel_memwatch.monitor.telemetry.http_server import QuietHandler, QuietServer
from otel_memwatch.monitor.telemetry.otlp_receiver.proxy import Forwarder
from otel_memwatch.record.otlp_json import parse_json
from otel_memwatch.runtime.typed import TYPE_CHECKING

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
        request = self._understood(_plain(body, self.headers.get("Content-Encoding")), kind)
        self.receiver.record(request)
        answer = self.receiver.forwarder.send(body, dict(self.headers.items()), request.SerializeToString())
        if answer is None:
            success = ExportTraceServiceResponse().SerializeToString() if kind == _PROTOBUF else b"{}"
            self.answer(200, kind, success)
            return
        retry = {"Retry_After": answer.retry_after} if answer.retry_after else {}
        self.answer(answer.status, answer.content_type, answer.body, **retry)

    def _understood(self, data: bytes, kind: str) -> ExportTraceServiceRequest:
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
        return request

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
