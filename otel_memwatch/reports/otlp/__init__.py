"""A run as OTLP: JSON lines as OpenTelemetry's file exporter writes them, one signal in a file.

Every line is a whole request: it can be posted to `/v1/metrics` or `/v1/traces` as it is. Points carry the times
of the run, not of the export.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from otel_memwatch.errors import UsageError
from otel_memwatch.reports.otlp.metrics import metric_requests
from otel_memwatch.reports.otlp.traces import trace_requests
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from otel_memwatch.analysis import RecordedRun
    from otel_memwatch.reports import Options

SIGNALS = {"metrics": metric_requests, "traces": trace_requests}
"""What makes each signal's requests."""


def requests(run: RecordedRun, signal: str) -> Iterator[Mapping[str, Any]]:
    """The requests of one signal, in the form of OTLP JSON, each below a mebibyte."""
    if signal not in SIGNALS:
        raise UsageError(f"There is no signal {signal!r}.", "there are " + ", ".join(SIGNALS))
    return SIGNALS[signal](run)


def render(run: RecordedRun, out: BinaryIO, options: Options) -> None:
    """Writes the lines of the signal that `options` names, of metrics without one."""
    for request in requests(run, options.get("signal") or "metrics"):
        text = json.dumps(request, separators=(",", ":"), ensure_ascii=True)
        out.write(text.encode() + b"\n")
