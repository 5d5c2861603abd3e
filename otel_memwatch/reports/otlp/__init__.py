"""Run as OTLP: JSON lines in the format of OpenTelemetry's file exporter, one signal per file.

Every line is a complete request for `/v1/metrics`, `/v1/traces`, `/v1/logs` or
`/v1development/profiles`. Points carry the times of the run, not of
the export.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from otel_memwatch.errors import UsageError
from otel_memwatch.reports.otlp.logs import log_requests
from otel_memwatch.reports.otlp.metrics import metric_requests
from otel_memwatch.reports.otlp.profiles import profile_requests
from otel_memwatch.reports.otlp.traces import trace_requests
from otel_memwatch.runtime import strict_json
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from otel_memwatch.reports import Options
    from otel_memwatch.run import RecordedRun

SIGNALS = ("metrics", "traces", "logs")
"""Signals that `replay` sends; "profiles" is exported only: few receivers accept it yet."""


def requests(
    run: RecordedRun, signal: str, metrics: Container[str] | None = None
) -> Iterator[Mapping[str, Any]]:
    """Return the requests of one signal as OTLP JSON, each below 1 MiB. `metrics` limits them to these metrics."""
    if signal == "metrics":
        return metric_requests(run, metrics)
    if signal == "traces":
        return trace_requests(run)
    if signal == "logs":
        return log_requests(run)
    if signal == "profiles":
        return profile_requests(run)
    raise UsageError(f"Unknown signal {signal!r}.", "available: " + ", ".join(SIGNALS))


def render(run: RecordedRun, out: BinaryIO, options: Options) -> None:
    """Write the lines of `options["signal"]`, by default of metrics."""
    for request in requests(run, options.get("signal") or "metrics"):
        text = strict_json.dumps(request, separators=(",", ":"), ensure_ascii=True)
        out.write(text.encode() + b"\n")
