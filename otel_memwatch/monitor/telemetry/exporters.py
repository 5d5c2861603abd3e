"""SDK exporters for an endpoint: OTLP over HTTP or gRPC, and installed plug-ins.

The OTEL_* variables set headers, TLS, compression, timeouts and temporality. The exporters read the variables
themselves, except for those that they read differently from the specification.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from urllib.parse import urlsplit

from opentelemetry.sdk.metrics import Histogram
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation

from otel_memwatch.errors import Unavailable
from otel_memwatch.monitor.telemetry.export_log import EXPORT_LOG
from otel_memwatch.monitor.telemetry.settings import tls_context, variable
from otel_memwatch.runtime.masking import mask_url
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple
from otel_memwatch.runtime.user_files import read_file

if TYPE_CHECKING:
    from otel_memwatch.monitor.telemetry.export_log import Answer
    from otel_memwatch.monitor.telemetry.settings import Endpoint

_GROUPS = {
    "metrics": "opentelemetry_metrics_exporter",
    "traces": "opentelemetry_traces_exporter",
    "logs": "opentelemetry_logs_exporter",
}
_MODULES = {
    "http/protobuf": "opentelemetry.exporter.otlp.proto.http",
    "grpc": "opentelemetry.exporter.otlp.proto.grpc",
}
_CLASSES = {
    "metrics": ("metric_exporter", "OTLPMetricExporter"),
    "traces": ("trace_exporter", "OTLPSpanExporter"),
    "logs": ("_log_exporter", "OTLPLogExporter"),
}


_AGGREGATION = "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION"
"""Unless it is set, histograms are exponential: buckets of 4 % instead of powers of two, and native in Prometheus."""


class Exporter(NamedTuple):
    """An exporter of one signal."""

    exporter: Any
    answer: Callable[[], Answer] | None = None
    """Returns the last answer of the endpoint; `None`: only the exporter's log contains it."""


class PeriodicReader(PeriodicExportingMetricReader):
    """The SDK's reader, without the thread that it starts again in every forked child.

    The process that writes the page is such a child. Its thread would export to an exporter that is shut down.
    """

    def _at_fork_reinit(self) -> None:
        """Start nothing."""


def open_exporter(signal: str, endpoint: Endpoint, compression: str | None = None) -> Exporter:
    """Open the exporter of `signal` for `endpoint`.

    Args:
        signal: "metrics", "traces" or "logs".
        endpoint: destination.
        compression: "gzip", "deflate" or "none", unless a variable sets it.

    Raises `Unavailable`, with one sentence, if it cannot work: an unreadable certificate, a missing extra.
    """
    if endpoint.protocol not in _MODULES:
        raise Unavailable(
            f"otel-memwatch does not speak the OTLP protocol {endpoint.protocol!r}.",
            "set OTEL_EXPORTER_OTLP_PROTOCOL, or --otlp-protocol, to http/protobuf or grpc",
        )
    secure = _is_secure(signal, endpoint)
    chosen = (variable(signal, "COMPRESSION", os.environ)[1] or compression or "none").strip().lower()
    arguments: dict[str, Any] = {"endpoint": endpoint.url, "timeout": endpoint.timeout}
    if signal == "metrics" and not os.environ.get(_AGGREGATION):
        arguments["preferred_aggregation"] = {Histogram: ExponentialBucketHistogramAggregation()}
    try:
        module, name = _CLASSES[signal]
        exporter = getattr(importlib.import_module(f"{_MODULES[endpoint.protocol]}.{module}"), name)
        arguments |= (_grpc if endpoint.protocol == "grpc" else _http)(signal, chosen, secure=secure)
    except ImportError as error:
        if endpoint.protocol == "grpc" and (error.name or "").startswith(("grpc", _MODULES["grpc"])):
            raise Unavailable(
                "OTLP over gRPC is not installed.", "pip install 'otel-memwatch[grpc]', or use http/protobuf"
            ) from None
        raise
    session = arguments.get("session")
    return Exporter(exporter(**arguments), None if session is None else lambda: session.answer)


def _is_secure(signal: str, endpoint: Endpoint) -> bool:
    """Return whether the endpoint uses TLS; raise `Unavailable` if its address is not a URL."""
    try:
        parts = urlsplit(endpoint.url if "://" in endpoint.url else f"//{endpoint.url}")
        parts.port  # noqa: B018 - raises for an invalid port
    except ValueError:
        raise Unavailable(
            f"The OTLP endpoint {mask_url(endpoint.url)} is not a URL.", "as in http://host:4318"
        ) from None
    if not parts.scheme:
        return (variable(signal, "INSECURE", os.environ)[1] or "").strip().lower() == "false"
    return parts.scheme.lower() == "https"


def _http(signal: str, compression: str, *, secure: bool) -> dict[str, Any]:
    from opentelemetry.exporter.otlp.proto.http import Compression

    from otel_memwatch.monitor.telemetry.http_session import OtlpSession

    known = {kind.value: kind for kind in Compression}
    return {
        "session": OtlpSession(signal, secure=secure),
        "compression": known.get(compression, Compression.NoCompression),
    }


def _grpc(signal: str, compression: str, *, secure: bool) -> dict[str, Any]:
    """Return compression and certificates as the specification defines them.

    The exporter itself rejects "none" and "deflate". It reads a client certificate only with an authority's certificate.
    """
    import grpc

    EXPORT_LOG.hear_all(f"{_MODULES['grpc']}.exporter")
    known = {"gzip": grpc.Compression.Gzip, "deflate": grpc.Compression.Deflate}
    arguments: dict[str, Any] = {
        "insecure": not secure,
        "compression": known.get(compression, grpc.Compression.NoCompression),
    }
    paths = [
        variable(signal, what, os.environ)[1] for what in ("CERTIFICATE", "CLIENT_KEY", "CLIENT_CERTIFICATE")
    ]
    if secure and any(paths):
        tls_context(signal, os.environ)
        arguments["credentials"] = grpc.ssl_channel_credentials(
            *(None if path is None else read_file(path) for path in paths)
        )
    return arguments


def open_plugin(signal: str, name: str) -> Exporter:
    """Open the installed exporter that OTEL_METRICS_EXPORTER or OTEL_TRACES_EXPORTER names, or raise `Unavailable`."""
    from importlib.metadata import entry_points

    found = list(entry_points(group=_GROUPS[signal], name=name))
    where = f"OTEL_{signal.upper()}_EXPORTER"
    if not found:
        raise Unavailable(
            f"{where} names the exporter {name!r}, which is not installed beside otel-memwatch."
        )
    try:
        return Exporter(found[0].load()())
    except Exception as error:
        raise Unavailable(f"The exporter {name!r} of {where} cannot be used: {error}.") from error
