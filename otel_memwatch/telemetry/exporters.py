"""Exporters that deliver to an endpoint: OTLP over HTTP or gRPC, and those that are installed as plug-ins.

To add one, write a factory and a line in `EXPORTERS`.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from otel_memwatch.errors import Unavailable
from otel_memwatch.telemetry.settings import Endpoint

_EXPECTED_TYPES = ("application/x-protobuf", "application/json", "application/protobuf")
_GROUPS = {"metrics": "opentelemetry_metrics_exporter", "traces": "opentelemetry_traces_exporter"}


class Answer:
    """What an endpoint last said, for a person: exporters only log it."""

    def __init__(self) -> None:
        self.problem: str | None = None
        """One phrase; `None`: nothing wrong."""
        self._refused = False

    def refused(self) -> bool:
        """Whether the last answer was none of OTLP, whatever the SDK takes it for."""
        return self._refused

    def on_response(self, response: Any, *_: Any, **__: Any) -> None:
        """Hook of the HTTP session: what the SDK takes for success may be a web page, or a redirect."""
        kind = str(response.headers.get("Content-Type", "")).partition(";")[0].strip().lower()
        status = int(response.status_code)
        if status >= 300:
            self.problem = f"answers {status} {response.reason}" + (f" with {kind}" if "html" in kind else "")
        elif kind and kind not in _EXPECTED_TYPES and len(response.content):
            self.problem = f"answers {status} with {kind}: it is no OTLP endpoint"
        else:
            self.problem = None
        self._refused = self.problem is not None

    def on_log(self, record: logging.LogRecord) -> None:
        """The reason that an exporter logged, in its shortest form."""
        text = record.getMessage().partition("\n")[0]
        for phrase, meaning in (
            ("Connection refused", "refuses connections"),
            ("NameResolutionError", "has a host name that cannot be resolved"),
            ("Name or service not known", "has a host name that cannot be resolved"),
            ("CERTIFICATE_VERIFY_FAILED", "has a certificate that is not trusted"),
            ("Connection reset", "resets the connection"),
            ("RemoteDisconnected", "closes the connection without an answer"),
            ("Read timed out", "does not answer in time"),
            ("timed out", "does not answer in time"),
            ("SSLError", "does not speak TLS as expected"),
        ):
            if phrase in text:
                self.problem = meaning
                return
        if self.problem is None:
            self.problem = f"failed: {text[:200]}"


class _LogCatcher(logging.Handler):
    """Takes the log of OpenTelemetry's exporters, which would otherwise reach the target's terminal."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.answers: dict[str, Answer] = {}

    def emit(self, record: logging.LogRecord) -> None:
        for part, answer in self.answers.items():
            if part in record.name:
                answer.on_log(record)


_CATCHER = _LogCatcher()


def catch_logs() -> None:
    """From now on nothing of OpenTelemetry or its HTTP library writes to stderr by itself."""
    for name in ("opentelemetry", "urllib3", "requests", "grpc", "prometheus_client"):
        logger = logging.getLogger(name)
        if _CATCHER not in logger.handlers:
            logger.addHandler(_CATCHER)
        logger.propagate = False


class Exporter(NamedTuple):
    """An exporter of one signal, with what its endpoint last said."""

    exporter: Any
    answer: Answer
    where: str


def open_exporter(signal: str, endpoint: Endpoint, timeout: float) -> Exporter:
    """The exporter of `signal` ("metrics" or "traces") for `endpoint`.

    Raises `Unavailable`, in one sentence, when it cannot work: a certificate that cannot be read, a missing extra.
    """
    check_certificates(signal, os.environ)
    answer = Answer()
    _CATCHER.answers["metric_exporter" if signal == "metrics" else "trace_exporter"] = answer
    return Exporter(EXPORTERS[endpoint.protocol](signal, endpoint, timeout, answer), answer, endpoint.url)


def _http(signal: str, endpoint: Endpoint, timeout: float, answer: Answer) -> Any:
    from otel_memwatch.telemetry.http_session import Session  # noqa: PLC0415 - loaded with its exporter only

    session = Session()
    session.hooks["response"].append(answer.on_response)
    arguments: dict[str, Any] = {"endpoint": endpoint.url, "timeout": timeout, "session": session}
    if signal == "metrics":
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415

        return OTLPMetricExporter(**arguments)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

    return OTLPSpanExporter(**arguments)


def _grpc(signal: str, endpoint: Endpoint, timeout: float, _answer: Answer) -> Any:
    arguments: dict[str, Any] = {
        "endpoint": endpoint.url,
        "timeout": timeout,
        "insecure": not endpoint.url.lower().startswith("https:"),
    }
    try:
        if signal == "metrics":
            from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter  # noqa: PLC0415

            return OTLPMetricExporter(**arguments)
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

        return OTLPSpanExporter(**arguments)
    except ImportError:
        raise Unavailable(
            "OTLP over gRPC is not installed.", "pip install 'otel-memwatch[grpc]', or use http/protobuf"
        ) from None


EXPORTERS: dict[str, Callable[[str, Endpoint, float, Answer], Any]] = {"http/protobuf": _http, "grpc": _grpc}
"""Each protocol's factory."""


def open_plugin(signal: str, name: str) -> Exporter:
    """The installed exporter that OTEL_METRICS_EXPORTER or OTEL_TRACES_EXPORTER names; raises `Unavailable`."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - 10 ms, only where one is named

    found = list(entry_points(group=_GROUPS[signal], name=name))
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    if not found:
        raise Unavailable(
            f"{variable} names the exporter {name!r}, which is not installed beside otel-memwatch."
        )
    try:
        return Exporter(found[0].load()(), Answer(), name)
    except Exception as error:
        raise Unavailable(f"The exporter {name!r} of {variable} cannot be used: {error}.") from error


def check_certificates(signal: str, environ: Mapping[str, str]) -> None:
    """Raises `Unavailable` when a certificate or key named by OTEL_EXPORTER_OTLP_* cannot be used."""
    named = {}
    for what in ("CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"):
        for variable in (f"OTEL_EXPORTER_OTLP_{signal.upper()}_{what}", f"OTEL_EXPORTER_OTLP_{what}"):
            if environ.get(variable):
                named[what] = variable, environ[variable]
                break
    if not named:
        return
    context = ssl.create_default_context()
    if "CERTIFICATE" in named:
        _load(named["CERTIFICATE"], context.load_verify_locations)
    if "CLIENT_CERTIFICATE" in named:
        key = named.get("CLIENT_KEY", (None, None))[1]
        _load(named["CLIENT_CERTIFICATE"], lambda path: context.load_cert_chain(path, key))


def _load(named: tuple[str, str], load: Callable[[str], Any]) -> None:
    variable, path = named
    try:
        load(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not a certificate in PEM form"
        reason = "it is not usable PEM" if isinstance(error, ssl.SSLError) else reason
        raise Unavailable(f"{variable}: {path} cannot be used: {reason}.") from None
