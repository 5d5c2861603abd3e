"""Small HTTP server for a loopback port: one thread for each connection, so none delays another."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from otel_memwatch.runtime.threads import Thread
from otel_memwatch.runtime.typed import Any

CONNECTION_SECONDS = 15.0
"""Seconds that a client may take for a handshake, a request or an answer, or stay idle."""

MAX_CONNECTIONS = 64
"""Connections served at once; further ones are closed unanswered, to bound the monitor's memory."""


class QuietHandler(BaseHTTPRequestHandler):
    """Request handler that logs nothing and does not name the software."""

    timeout = CONNECTION_SECONDS
    protocol_version = "HTTP/1.1"
    default_request_version = "HTTP/1.0"
    """Version assumed for an invalid request: with 0.9 the answer would have no status line."""
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's signature
        """Log nothing: the terminal belongs to the target."""

    def version_string(self) -> str:
        """Return the value of the Server header."""
        return "otel-memwatch"

    def parse_request(self) -> bool:
        """Return whether the request is HTTP/1.x with a valid length; otherwise answer with an error."""
        if not super().parse_request():
            return False
        length = self.headers.get("Content-Length")
        versioned = len(self.requestline.split()) == 3
        if versioned and (length is None or (length.isascii() and length.isdigit())):
            return True
        self.close_connection = True
        self.answer(400 if versioned else 505, "text/plain", b"")
        return False

    def answer(self, status: int, content_type: str, body: bytes, **headers: str) -> None:
        """Send a whole response."""
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class QuietServer(ThreadingHTTPServer):
    """Server in daemon threads, until `close`.

    Raises `OSError` if the address is not available.

    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self,
        listening: tuple[str, int] | socket.socket,
        handler: type[QuietHandler],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._tls = tls
        self._free = threading.Semaphore(MAX_CONNECTIONS)
        if isinstance(listening, socket.socket):
            super().__init__(listening.getsockname()[:2], handler, bind_and_activate=False)
            self.socket.close()
            self.socket = listening
        else:
            family, _, _, _, address = socket.getaddrinfo(*listening, type=socket.SOCK_STREAM)[0]
            self.address_family = family
            super().__init__(address[:2], handler)  # type: ignore[arg-type]
        self.port: int = self.socket.getsockname()[1]
        self._thread = Thread(self.serve_forever, "otel-memwatch-http", (0.2,))
        self._thread.start()

    def server_bind(self) -> None:
        """Bind without a lookup of this machine's name, which can take seconds if DNS does not answer."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "localhost", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for the connection, unless the limit is reached."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Make the TLS handshake and serve: in the accepting thread, a silent client would block all others."""
        try:
            if self._tls is not None:
                request.settimeout(CONNECTION_SECONDS)
                request = self._tls.wrap_socket(request, server_side=True)
            super().process_request_thread(request, client_address)
        except OSError:
            self.shutdown_request(request)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that close the connection."""

    def close(self) -> None:
        """Stop serving; threads of open connections continue."""
        with contextlib.suppress(Exception):
            self.shutdown()
            self.server_close()
