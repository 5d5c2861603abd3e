"""Configuration of telemetry, from the options and OpenTelemetry's standard variables, with the certificates that they name.

Imports nothing heavy.

The standard variables that set the *destination* count:

* the endpoint
* OTEL_METRICS_EXPORTER, OTEL_TRACES_EXPORTER and OTEL_LOGS_EXPORTER with `otlp`, `none` or an installed exporter

`prometheus` and `console` there apply to the target: a monitor on the target's port 9464, or its terminal, would
break it.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping

from otel_memwatch import catalog
from otel_memwatch.errors import Unavailable
from otel_memwatch.runtime.typed import Any, NamedTuple
from otel_memwatch.runtime.user_files import need_regular
from otel_memwatch.units import parse_number

DEFAULT_INTERVAL = 10.0
"""Seconds between two pushes."""

DEFAULT_TIMEOUT = 10.0
"""Seconds that one export may take, including retries."""

_OF_THE_TARGET = frozenset({"prometheus", "console", "memwatch", "none", ""})


class Endpoint(NamedTuple):
    """Destination of one signal."""

    url: str
    """Full URL with path; for gRPC the URL of the server."""
    protocol: str
    """"http/protobuf", "grpc", or another value from the environment."""
    timeout: float = DEFAULT_TIMEOUT
    """Seconds that one export may take, including retries."""


class TelemetryConfig(NamedTuple):
    """All telemetry of one run; empty: none."""

    prometheus: str | None
    textfile: str | None
    metrics: Endpoint | None
    spans: Endpoint | None
    logs: Endpoint | None
    plugins: tuple[tuple[str, str], ...]
    """("metrics" or "traces", name) of each installed exporter to use."""
    interval: float

    def __bool__(self) -> bool:
        return any((self.prometheus, self.textfile, self.metrics, self.spans, self.logs, self.plugins))


_OF_OPERATIONS = frozenset(
    {
        catalog.MEMWATCH_OPERATION_ACTIVE,
        catalog.MEMWATCH_OPERATION_COUNT,
        catalog.MEMWATCH_OPERATION_TIME,
        catalog.MEMWATCH_OPERATION_MEMORY_PEAK_MAX,
    }
)


def wanted_metrics(settings: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the metrics to send, from `--metrics` and `--operation-metrics`.

    | operation_metrics | for each name of an operation | series |
    | --- | --- | --- |
    | off | nothing | 0 |
    | gauges | number of open ones, number closed by status, total time, largest peak | 4 or 5 |
    | histograms | the same, and the distribution of durations and peaks | about 60 |
    """
    chosen = catalog.choose_metrics(str(settings.get("metrics") or "default"))
    histograms = frozenset(catalog.BOUNDS)
    of_operations = {"off": frozenset[str](), "histograms": _OF_OPERATIONS | histograms}.get(
        str(settings.get("operation_metrics")), _OF_OPERATIONS
    )
    return (chosen - _OF_OPERATIONS - histograms) | (of_operations if chosen else frozenset())


def wanted(settings: Mapping[str, Any], environ: Mapping[str, str]) -> TelemetryConfig:
    """Return the configuration from `settings` and the environment."""
    standard = environ.get("OTEL_SDK_DISABLED", "").strip().lower() != "true"
    plugins: list[tuple[str, str]] = []
    endpoints: dict[str, Endpoint | None] = {}
    for signal in ("metrics", "traces", "logs"):
        listed = environ.get(f"OTEL_{signal.upper()}_EXPORTER", "") if standard else ""
        names = tuple(name.strip() for name in listed.split(",") if name.strip())
        endpoints[signal] = _endpoint(signal, settings, environ if standard else {}, names)
        if signal == "logs":
            # Plug-ins export the program's own logs; our logs go to the OTLP endpoint.
            continue
        plugins += [(signal, name) for name in names if name not in _OF_THE_TARGET and name != "otlp"]
    milliseconds = _number(environ.get("OTEL_METRIC_EXPORT_INTERVAL"))
    return TelemetryConfig(
        settings.get("prometheus"),
        settings.get("textfile"),
        endpoints["metrics"],
        endpoints["traces"],
        endpoints["logs"],
        tuple(plugins),
        float(settings.get("metric_interval") or (milliseconds or 0.0) / 1000 or DEFAULT_INTERVAL),
    )


def _endpoint(
    signal: str, settings: Mapping[str, Any], environ: Mapping[str, str], names: tuple[str, ...]
) -> Endpoint | None:
    prefix = f"OTEL_EXPORTER_OTLP_{signal.upper()}_"
    protocol = (
        settings.get("otlp_protocol")
        or environ.get(prefix + "PROTOCOL")
        or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        or "http/protobuf"
    )
    timeout = _timeout(environ.get(prefix + "TIMEOUT") or environ.get("OTEL_EXPORTER_OTLP_TIMEOUT"))
    if signal == "metrics" and not (settings.get("otlp_metrics", True) and wanted_metrics(settings)):
        return None
    if signal == "logs" and "none" in names:
        return None
    if settings.get("otlp"):
        return Endpoint(_of_base(settings["otlp"], signal, protocol), protocol, timeout)
    own, base = environ.get(prefix + "ENDPOINT"), environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    if (names and "otlp" not in names) or not (own or base or "otlp" in names):
        return None
    if own:
        return Endpoint(own, protocol, timeout)
    url = base or f"http://localhost:{4317 if protocol == 'grpc' else 4318}"
    return Endpoint(_of_base(url, signal, protocol), protocol, timeout)


def _of_base(base: str, signal: str, protocol: str) -> str:
    return base if protocol == "grpc" else f"{base.rstrip('/')}/v1/{signal}"


def _timeout(text: str | None) -> float:
    """Return OTEL_EXPORTER_OTLP_TIMEOUT in seconds.

    The specification defines milliseconds, Python's SDK reads seconds, and the target uses the variable too. So both
    units occur. Values from 100 on are milliseconds: timeouts of 99 ms or 100 s are not in use.
    """
    value = _number(text)
    if not value:
        return DEFAULT_TIMEOUT
    return value / 1000 if value >= 100 else value


def _number(text: str | None) -> float | None:
    try:
        value = parse_number(text or "")
    except ValueError:
        return None
    return value if 0 < value < 1e9 else None


def variable(signal: str, what: str, environ: Mapping[str, str]) -> tuple[str, str | None]:
    """Return name and value of the OTLP exporters' variable that ends with `what`; the signal's own has priority."""
    names = (f"OTEL_EXPORTER_OTLP_{signal.upper()}_{what}", f"OTEL_EXPORTER_OTLP_{what}")
    return next(((name, environ[name]) for name in names if environ.get(name)), (names[1], None))


def tls_context(signal: str, environ: Mapping[str, str]) -> ssl.SSLContext:
    """Return the machine's trusted authorities plus the authorities and identity that the environment names.

    Raises `Unavailable` for a file that cannot be used.
    """
    context = ssl.create_default_context()
    name, path = variable(signal, "CERTIFICATE", environ)
    if path is not None:
        load_pem(name, path, context.load_verify_locations)
    name, path = variable(signal, "CLIENT_CERTIFICATE", environ)
    if path is not None:
        key_name, key = variable(signal, "CLIENT_KEY", environ)
        if key is not None:
            load_pem(key_name, key, need_regular)
        load_pem(name, path, lambda certificate: context.load_cert_chain(certificate, key))
    return context


def load_pem(name: str, path: str, load: Callable[[str], object]) -> None:
    """Load a file of certificates or keys. Raises `Unavailable`, with the `name` of its option or variable."""
    try:
        need_regular(path)
        load(path)
    except ssl.SSLError:
        raise Unavailable(f"{name}: {path} cannot be used: it is not usable PEM.") from None
    except OSError as error:
        raise Unavailable(f"{name}: {path} cannot be used: {error.strerror}.") from None
