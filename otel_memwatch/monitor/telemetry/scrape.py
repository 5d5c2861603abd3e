"""Endpoint that Prometheus scrapes, and file that node_exporter reads."""

from __future__ import annotations

import contextlib
import gzip
import ipaddress
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.exposition import choose_encoder

from otel_memwatch import catalog
from otel_memwatch.catalog import METRICS, prometheus_names
from otel_memwatch.errors import Unavailable
from otel_memwatch.monitor.telemetry.http_server import QuietHandler, QuietServer
from otel_memwatch.monitor.telemetry.settings import load_pem
from otel_memwatch.runtime.threads import Thread
from otel_memwatch.runtime.user_files import need_regular

_FILE_MODE = 0o644
"""node_exporter runs as another user."""


class PrometheusEndpoint:
    """HTTP server of the metrics, on a separate registry: the global one would add the monitor's process.

    Args:
        address: "HOST:PORT"; port 0 selects any free port.
        certificate: PEM file; `None`: plain HTTP.
        key: PEM file of its private key; `None`: it is in the certificate's file.
        client_ca: PEM file; only clients that it signed are served.

    Raises `Unavailable` if the address is in use or a certificate cannot be used.

    """

    def __init__(
        self,
        address: str,
        certificate: str | None = None,
        key: str | None = None,
        client_ca: str | None = None,
    ) -> None:
        self.reader, self._registry = _reader(lambda _: False)
        self._scraped = threading.Event()
        self._lock = threading.Lock()
        host, _, port = address.rpartition(":")
        tls = _tls_context(certificate, key, client_ca)
        handler = type("_Handler", (_ScrapeHandler,), {"endpoint": self})
        try:
            self._server = QuietServer((host.strip("[]"), int(port)), handler, tls)
        except OSError as error:
            raise Unavailable(f"Prometheus cannot be served at {address}: {error.strerror}.") from None
        self.host, self.port = host, self._server.port
        self.is_local = _is_loopback(host)
        self.url = f"{'https' if tls else 'http'}://{host}:{self.port}/metrics"

    def text(self, accept: str | None) -> tuple[bytes, str]:
        """Return the current metrics and their content type, in a format that the client accepts."""
        encoder, content_type = choose_encoder(accept or "")
        # The exporter passes its data through a queue: two simultaneous scrapes would mix their data.
        with self._lock:
            return encoder(self._registry), content_type

    def scrape_begins(self) -> threading.Event:
        """Return the event to set when the client has received everything."""
        return self._scraped

    def forget_scrapes(self) -> None:
        """Discard all scrapes that began before now, also unfinished ones: they may lack the final values."""
        self._scraped = threading.Event()

    def wait_for_scrape(self, seconds: float) -> bool:
        """Return whether a scrape takes place within `seconds`."""
        return self._scraped.wait(seconds)

    def close(self) -> None:
        """Stop the server."""
        self._server.close()


class _ScrapeHandler(QuietHandler):
    endpoint: PrometheusEndpoint

    def do_GET(self) -> None:  # noqa: N802 - the name that http.server calls
        if self.endpoint.is_local and not _is_of_this_machine(self.headers.get("Host")):
            self.answer(403, "text/plain", b"this endpoint is for this machine: ask for it by its address\n")
            return
        if self.path.partition("?")[0] not in {"/metrics", "/"}:
            self.answer(404, "text/plain", b"the metrics are at /metrics\n")
            return
        scraped = self.endpoint.scrape_begins()
        body, content_type = self.endpoint.text(self.headers.get("Accept"))
        encoding = {}
        if "gzip" in (self.headers.get("Accept-Encoding") or ""):
            body, encoding = gzip.compress(body, 1), {"Content_Encoding": "gzip"}
        self.answer(200, content_type, body, **encoding)
        if self.command == "GET":
            scraped.set()

    def do_HEAD(self) -> None:  # noqa: N802 - the name that http.server calls
        """Answer without the metrics: some health checks send HEAD."""
        self.do_GET()


def _is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    return host == "localhost"


def _is_of_this_machine(host: str | None) -> bool:
    """Return whether a Host header can come from a client that addresses this machine directly.

    A web page in a local browser could request the metrics under a host name that resolves to this machine (DNS
    rebinding). It could then read the answer. Such a name is public and has a dot; addresses and names without a
    dot belong to this machine.
    """
    if not host:
        return True
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    name = name.strip("[]").rstrip(".").lower()
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(name)
        return True
    return "." not in name or name.endswith(".localhost") or name == socket.gethostname().lower()


def _reader(keep: Callable[[str], bool]) -> tuple[PrometheusMetricReader, CollectorRegistry]:
    """Return a reader without scope labels, which would be equal on every series.

    `keep` selects the resource attributes that every series carries.
    """
    registry = CollectorRegistry()
    return (
        PrometheusMetricReader(scope_info_enabled=False, resource_attribute_filter=keep, registry=registry),
        registry,
    )


def _tls_context(certificate: str | None, key: str | None, client_ca: str | None) -> ssl.SSLContext | None:
    if certificate is None:
        if key or client_ca:
            raise Unavailable("TLS for Prometheus needs a certificate.", "--prometheus-cert FILE")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if key:
        load_pem("--prometheus-key", key, need_regular)
    load_pem("--prometheus-cert, or its key", certificate, lambda path: context.load_cert_chain(path, key))
    if client_ca:
        load_pem("--prometheus-client-ca", client_ca, context.load_verify_locations)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


_FINAL = frozenset(
    prometheus_names(METRICS[name])[0].removesuffix("_total")
    for name in (
        catalog.MEMWATCH_TREE_MEMORY_PEAK,
        catalog.MEMWATCH_TREE_MEMORY_PEAK_HIGH,
        catalog.MEMWATCH_TREE_PROCESS_MEMORY_PEAK,
        catalog.MEMWATCH_PROCESS_MEMORY_PEAK,
        catalog.MEMWATCH_TREE_CPU_TIME,
        catalog.MEMWATCH_TREE_DISK_IO,
        catalog.MEMWATCH_CGROUP_MEMORY_LIMIT,
        catalog.MEMWATCH_CGROUP_MEMORY_EVENTS,
        catalog.MEMWATCH_OPERATION_COUNT,
        catalog.MEMWATCH_OPERATION_TIME,
        catalog.MEMWATCH_OPERATION_MEMORY_PEAK_MAX,
        catalog.MEMWATCH_RUN_ACTIVE,
        catalog.MEMWATCH_RUN_EXIT_CODE,
        catalog.MEMWATCH_RUN_END_TIME,
        catalog.MEMWATCH_RUN_STALLED,
        catalog.MEMWATCH_RUN_LEAK,
        catalog.MEMWATCH_RUN_HANDLE_LEAK,
        catalog.MEMWATCH_RUN_KEPT,
    )
) | {"target", "target_info"}
"""Families of metrics that remain valid after the end of the run."""


class _Final(CollectorRegistry):
    """Registry restricted to `_FINAL`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__()
        self._all = registry

    def collect(self) -> Iterator[Metric]:
        """Return the families."""
        return (family for family in self._all.collect() if family.name in _FINAL)


class Textfile:
    """File of the metrics, replaced atomically: a reader never sees half of it.

    Every series carries the service's name and instance: files of several jobs must not contain equal series.
    """

    def __init__(self, path: str) -> None:
        self.reader, self._registry = _reader(lambda key: key in {"service.name", "service.instance.id"})
        self.failures = 0
        self._path = Path(path)
        self._stop = threading.Event()
        self._thread: Thread | None = None

    def start(self, interval: float, report: Callable[[str], None]) -> None:
        """Write the file every `interval` seconds from now on; report each new problem in one sentence."""

        def run() -> None:
            last_problem = None
            while True:
                last = self._stop.wait(interval)
                problem = self.write()
                if problem is not None and problem != last_problem:
                    report(f"{self._path} {problem}")
                last_problem = problem
                if last:
                    return

        self._thread = Thread(run, "otel-memwatch-textfile")
        self._thread.start()

    def finish(self, until: float) -> None:
        """Write the file for the last time; wait for that until the given monotonic seconds.

        node_exporter serves the file until a user deletes it. Only values that do not suggest an active run remain:
        the result of the run, its end and its peaks.
        """
        self._stop.set()
        if self._thread is not None:
            self._thread.join(max(0.0, until - time.monotonic()))

    def write(self) -> str | None:
        """Replace the file; return a phrase with the problem if that fails."""
        temporary = self._path.with_name(f".{self._path.name}.{os.urandom(8).hex()}.tmp")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)
            with os.fdopen(descriptor, "wb") as file:
                file.write(generate_latest(_Final(self._registry) if self._stop.is_set() else self._registry))
            temporary.replace(self._path)
        except OSError as error:
            self.failures += 1
            with contextlib.suppress(OSError):
                temporary.unlink()
            return f"cannot be written: {error.strerror}"
        return None
