"""Posts OTLP requests over HTTP with the standard library.

The SDK's own exporter brings `requests`, which is 8 MiB of the monitor's memory, takes a web page or a redirect for
success, and tells why it failed to its log only. This one is asked to deliver and says what the endpoint answered.
Headers, certificates, compression and proxies are those of the environment, as for every OTLP exporter.
"""

from __future__ import annotations

import gzip
import http.client
import os
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

from otel_memwatch._version import __version__
from otel_memwatch.errors import Unavailable
from otel_memwatch.runtime.masking import mask_url
from otel_memwatch.runtime.typed import NamedTuple

_RETRIED = frozenset({429, 502, 503, 504})
_EXPECTED_TYPES = frozenset({"", "application/x-protobuf", "application/json", "application/protobuf"})
_LONGEST_ANSWER = 1 << 20
_TUNNEL_REFUSED = "Tunnel connection failed: "
"""What http.client says before a proxy's own words."""


class Reply(NamedTuple):
    """What an endpoint answered."""

    status: int
    reason: str
    content_type: str
    body: bytes
    retry_after: str | None = None

    @property
    def taken(self) -> bool:
        """Whether the request was taken: a status of success, and an answer that is OTLP's."""
        return 200 <= self.status < 300 and (self.content_type in _EXPECTED_TYPES or not self.body)

    @property
    def problem(self) -> str | None:
        """What is wrong with it, in one phrase; `None`: nothing."""
        if self.taken:
            return None
        if 200 <= self.status < 300:
            return f"answers {self.status} with {self.content_type}: it is no OTLP endpoint"
        page = "html" in self.content_type
        detail = "" if page or "json" in self.content_type else _first_line(self.body)
        what = f" with {self.content_type}" if page else f": {detail}" if detail else ""
        return f"answers {self.status} {self.reason}".rstrip() + what


class Post:
    """Posts to one URL over one connection, which is kept.

    Args:
        signal: "metrics" or "traces": chooses the variables.
        url: in full.
        timeout: seconds for one `deliver`, attempts included.
        environ: where OTEL_EXPORTER_OTLP_* and the proxy's variables stand.
        compression: "gzip", "deflate" or "none", where no variable says otherwise.

    Raises `Unavailable` when a certificate or the URL cannot be used.
    """

    def __init__(
        self,
        signal: str,
        url: str,
        timeout: float,
        environ: Mapping[str, str] = os.environ,
        compression: str = "none",
    ) -> None:
        self.problem: str | None = None
        """Why the last request was not taken; `None`: it was."""
        self._signal = signal
        self._environ = environ
        self._url = _split(url)
        self._timeout = timeout
        self._stop = threading.Event()
        self._at_work = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None
        self._tls = tls_context(signal, environ) if self._url.scheme == "https" else None
        self._compression = (self._named("COMPRESSION") or compression).strip().lower()
        self._headers = {
            "Content-Type": "application/x-protobuf",
            "User-Agent": f"otel-memwatch/{__version__}",
            **_parse_headers(self._named("HEADERS") or ""),
        }
        if self._compression in {"gzip", "deflate"}:
            self._headers["Content-Encoding"] = self._compression

    def _named(self, what: str) -> str | None:
        return variable(self._signal, what, self._environ)[1]

    def deliver(self, body: bytes) -> Reply | None:
        """Posts a protobuf message, again and again while the endpoint asks for patience; `None`: no answer came.

        Never raises; `problem` says what went wrong.
        """
        with self._at_work:
            try:
                return self._deliver(body)
            finally:
                if self._stop.is_set():
                    self.close()

    def _deliver(self, body: bytes) -> Reply | None:
        if self._compression == "gzip":
            body = gzip.compress(body, 6)
        elif self._compression == "deflate":
            body = zlib.compress(body)
        until = time.monotonic() + self._timeout
        pause = 0.5
        while True:
            reply = self._attempt(body, until)
            left = until - time.monotonic()
            if reply is not None and reply.status not in _RETRIED:
                return reply
            wait = _seconds(reply.retry_after if reply else None, pause)
            if wait >= left or self._stop.wait(wait):
                return reply
            pause *= 2

    def stop(self) -> None:
        """Closes the connection; a `deliver` at work makes no further attempt, and closes it at its end."""
        self._stop.set()
        if self._at_work.acquire(blocking=False):
            self.close()
            self._at_work.release()

    def close(self) -> None:
        """Closes the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _attempt(self, body: bytes, until: float) -> Reply | None:
        try:
            try:
                reply = self._exchange(body, until)
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                # A kept connection that the endpoint has closed meanwhile looks like this.
                self.close()
                reply = self._exchange(body, until)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            proxy = self._proxy()
            self.problem = _reason(error) if proxy is None else _reason_by_way_of(proxy, error)
            return None
        self.problem = reply.problem
        return reply

    def _exchange(self, body: bytes, until: float) -> Reply:
        left = max(0.1, until - time.monotonic())
        if self._connection is None:
            self._connection = self._connect(left)
        connection = self._connection
        if connection.sock is not None:
            connection.sock.settimeout(left)
        path = (self._url.path or "/") + (f"?{self._url.query}" if self._url.query else "")
        if self._proxied_plainly():
            path = f"http://{self._url.netloc}{path}"
        connection.request("POST", path, body, self._headers)
        response = connection.getresponse()
        data = response.read(_LONGEST_ANSWER)
        kind = (response.getheader("Content-Type") or "").partition(";")[0].strip().lower()
        if response.will_close or not response.isclosed():
            self.close()
        return Reply(response.status, response.reason, kind, data, response.getheader("Retry-After"))

    def _proxy(self) -> str | None:
        host = self._url.hostname or ""
        proxies = getproxies_environment()
        if proxy_bypass_environment(host, proxies) or host in {"localhost", "127.0.0.1", "::1"}:
            return None
        proxy = proxies.get(self._url.scheme)
        return proxy if proxy is None or "://" in proxy else f"http://{proxy}"

    def _proxied_plainly(self) -> bool:
        return self._tls is None and self._proxy() is not None

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        proxy = self._proxy()
        if proxy is not None:
            via = urlsplit(proxy)
            host, port = via.hostname or "", via.port or 80
        if self._tls is None:
            return http.client.HTTPConnection(host, port, timeout=timeout)
        connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=self._tls)
        if proxy is not None:
            connection.set_tunnel(self._url.hostname or "", self._url.port or 443)
        return connection


def variable(signal: str, what: str, environ: Mapping[str, str]) -> tuple[str, str | None]:
    """Name and value of the variable of OTLP exporters for `what`: the signal's own first."""
    names = (f"OTEL_EXPORTER_OTLP_{signal.upper()}_{what}", f"OTEL_EXPORTER_OTLP_{what}")
    return next(((name, environ[name]) for name in names if environ.get(name)), (names[1], None))


def tls_context(signal: str, environ: Mapping[str, str]) -> ssl.SSLContext:
    """Trust and identity that the environment names; raises `Unavailable` for a file that cannot be used."""
    context = ssl.create_default_context()
    name, path = variable(signal, "CERTIFICATE", environ)
    if path is not None:
        _load(name, path, context.load_verify_locations)
    name, path = variable(signal, "CLIENT_CERTIFICATE", environ)
    if path is not None:
        key = variable(signal, "CLIENT_KEY", environ)[1]
        _load(name, path, lambda certificate: context.load_cert_chain(certificate, key))
    return context


def _load(name: str, path: str, load: Callable[[str], object]) -> None:
    try:
        load(path)
    except ssl.SSLError:
        raise Unavailable(f"{name}: {path} cannot be used: it is not usable PEM.") from None
    except OSError as error:
        raise Unavailable(f"{name}: {path} cannot be used: {error.strerror}.") from None


def _parse_headers(text: str) -> dict[str, str]:
    headers = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals and name.strip():
            headers[name.strip()] = unquote(value.strip())
    return headers


def _seconds(retry_after: str | None, otherwise: float) -> float:
    try:
        return max(0.0, float(retry_after)) if retry_after else otherwise
    except ValueError:
        return otherwise


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises for what is none
    except ValueError:
        raise Unavailable(
            f"The OTLP endpoint {mask_url(url)} is not a URL.", "as in http://host:4318"
        ) from None
    return parts


def _first_line(body: bytes) -> str:
    text = body[:2000].decode("utf-8", "replace").strip().partition("\n")[0][:200]
    return text if text.isprintable() else ""


def _reason_by_way_of(proxy: str, error: Exception) -> str:
    """As `_reason`, where a proxy stands between us and the endpoint: what has to do with connections is its doing."""
    reason = _reason(error)
    refused = str(error).partition(_TUNNEL_REFUSED)[2]
    if refused:
        reason = f"does not connect to it: {refused}"
    elif isinstance(error, (ssl.SSLError, http.client.HTTPException)):
        return reason
    return f"was not reached: the proxy {mask_url(proxy)} {reason}"


def _reason(error: Exception) -> str:
    """Why there was no answer, as a phrase about the endpoint."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"has a certificate that is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return "does not speak TLS as expected"
    if isinstance(error, socket.gaierror):
        return "has a host name that cannot be resolved"
    if isinstance(error, TimeoutError):
        return "does not answer in time"
    if isinstance(error, ConnectionRefusedError):
        return "refuses connections"
    if isinstance(error, (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)):
        return "closes the connection without an answer"
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be reached: {error.strerror}"
    return f"does not answer as HTTP should: {type(error).__name__}"
