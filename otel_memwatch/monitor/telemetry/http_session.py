"""HTTP session of the SDK's OTLP exporters, which keeps the endpoint's answers.

The exporters themselves lose parts of an answer:

* They write the reason of a failure only into a log.
* They treat a web page or a redirect as success.
* They ignore an endpoint's message about rejected data.
"""

from __future__ import annotations

import http.client
import os
import socket
import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit

import requests
import requests.adapters
import requests.utils
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from otel_memwatch.monitor.telemetry.export_log import Answer
from otel_memwatch.monitor.telemetry.settings import tls_context
from otel_memwatch.runtime.masking import mask_url
from otel_memwatch.runtime.typed import Any

_RETRYABLE = frozenset({429, 502, 503, 504})
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_EXPECTED_TYPES = frozenset({"", "application/x-protobuf", "application/json", "application/protobuf"})
_RESPONSES: dict[str, tuple[Any, str]] = {
    "metrics": (ExportMetricsServiceResponse, "rejected_data_points"),
    "traces": (ExportTraceServiceResponse, "rejected_spans"),
    "logs": (ExportLogsServiceResponse, "rejected_log_records"),
}


class ExportRejected(Exception):  # noqa: N818 - an answer, no error of ours
    """An error answer that the SDK would treat as success."""


class OtlpSession(requests.Session):
    """HTTP session of one exporter, which keeps the last answer.

    Args:
        signal: "metrics", "traces" or "logs".
        secure: True if the endpoint uses TLS.

    Raises `Unavailable` if a certificate cannot be used.
    """

    def __init__(self, signal: str, *, secure: bool) -> None:
        super().__init__()
        self.answer = Answer()
        self._signal = signal
        if secure:
            self.mount("https://", _SystemTrust(tls_context(signal, os.environ)))

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Send a request as `requests` does.

        Raises its exceptions, and `ExportRejected` for a successful status without an OTLP answer.
        """
        url = request.url or ""
        if urlsplit(url).hostname in _LOOPBACK:
            # A proxy would connect to the endpoint on the proxy's machine.
            kwargs["proxies"] = {}
        if isinstance(self.verify, str):
            # `requests` would prefer REQUESTS_CA_BUNDLE to the variable for this endpoint.
            kwargs["verify"] = self.verify
        proxy = requests.utils.select_proxy(url, kwargs.get("proxies"))
        through = f" (through the proxy {_server(proxy)})" if proxy else ""
        try:
            response = super().send(request, **kwargs)
        except Exception as error:
            self.answer = Answer(_reason(error, proxy) or _unreachable(error) + through, transient=True)
            raise
        self.answer = _answer(response, self._signal, through)
        if self.answer.problem is not None and response.status_code < 400:
            raise ExportRejected(self.answer.problem)
        return response


class _SystemTrust(requests.adapters.HTTPAdapter):
    """Adapter with the machine's trusted authorities; `requests` alone would use only its bundled ones."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, ssl_context=self._context, **kwargs)

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        return super().proxy_manager_for(proxy, ssl_context=self._context, **kwargs)


def _answer(response: requests.Response, signal: str, through: str) -> Answer:
    status, body = response.status_code, response.content
    content_type = (response.headers.get("Content-Type") or "").partition(";")[0].strip().lower()
    if 200 <= status < 300:
        if body and content_type not in _EXPECTED_TYPES:
            return Answer(
                f"answers {status} with {content_type}: it is no OTLP endpoint{through}", status=status
            )
        rejected, words = _partial_success(body, signal) if "json" not in content_type else (0, "")
        return Answer(rejected=rejected, words=words, status=status)
    page = "html" in content_type
    detail = "" if page or "json" in content_type else _first_line(body)
    what = f" with {content_type}" if page else f": {detail}" if detail else ""
    problem = f"answers {status} {response.reason}".rstrip() + what + through
    retry_after = response.headers.get("Retry-After") or ""
    return Answer(
        problem,
        transient=status in _RETRYABLE,
        retry_after=float(retry_after) if retry_after.isdecimal() else 0.0,
        status=status,
    )


def _partial_success(body: bytes, signal: str) -> tuple[int, str]:
    response_class, field = _RESPONSES[signal]
    response = response_class()
    try:
        response.ParseFromString(body)
    except DecodeError:
        return 0, ""
    partial = response.partial_success
    return getattr(partial, field), _first_line(partial.error_message.encode())


def _first_line(body: bytes) -> str:
    text = body[:2000].decode("utf-8", "replace").strip().partition("\n")[0].strip()[:200]
    return text if text.isprintable() else ""


def _server(proxy: str) -> str:
    """Return scheme, host and port of a proxy, without a password."""
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    return mask_url(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}")


def _reason(error: Exception, proxy: str | None) -> str | None:
    """Return why there was no answer if the proxy or the address is the reason."""
    if isinstance(error, requests.exceptions.ProxyError) and proxy:
        tunnel = next((str(one) for one in _causes(error) if "Tunnel connection failed" in str(one)), "")
        phrase = f"answers {tunnel.rpartition('failed: ')[2][:100]}" if tunnel else _unreachable(error)
        return f"cannot be reached: the proxy {_server(proxy)} {phrase}"
    if isinstance(error, (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema)):
        return "is not a URL that can be used"
    return None


_REASONS: tuple[tuple[tuple[type[BaseException], ...], str], ...] = (
    ((ssl.SSLError,), "does not speak TLS as expected"),
    ((socket.gaierror,), "has a host name that cannot be resolved"),
    ((ConnectionRefusedError,), "refuses connections"),
    (
        (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError),
        "closes the connection without an answer",
    ),
    ((TimeoutError, requests.exceptions.Timeout), "does not answer in time"),
)
"""Phrase about a server for each kind of error; the first kind among the causes counts."""


def _unreachable(error: Exception) -> str:
    """Return why there was no answer, as a phrase about a server."""
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"has a certificate that is not trusted: {cause.verify_message}"
    for kinds, phrase in _REASONS:
        if any(isinstance(cause, kinds) for cause in causes):
            return phrase
    for cause in causes:
        if isinstance(cause, OSError) and cause.strerror and not isinstance(cause, requests.RequestException):
            return f"cannot be reached: {cause.strerror}"
    return f"does not answer as HTTP should: {type(causes[-1]).__name__}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield `error` and all of its causes: libraries wrap errors as causes, as arguments and as `reason`."""
    waiting, seen = [error], set()
    while waiting:
        one = waiting.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        inner = (one.__cause__, one.__context__, getattr(one, "reason", None), *one.args)
        waiting += [cause for cause in inner if isinstance(cause, BaseException)]
