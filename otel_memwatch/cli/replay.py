"""`replay`: send a recorded run to an OTLP endpoint."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

import click

from otel_memwatch.config import parse_metrics, parse_url, parsed
from otel_memwatch.errors import MemwatchError, Unanswered, UsageError
from otel_memwatch.monitor.telemetry.settings import Endpoint, wanted, wanted_metrics
from otel_memwatch.reports.otlp import SIGNALS, requests
from otel_memwatch.run import RecordedRun, load
from otel_memwatch.runtime.masking import mask_url
from otel_memwatch.runtime.terminal import say

_PARTS = {"metrics": "points", "traces": "spans", "logs": "log records"}
_HINT_OF_OLD = "Prometheus takes samples older than an hour only with storage.tsdb.out_of_order_time_window"


@click.command()
@click.argument("run")
@click.option("--otlp", metavar="URL", help="Endpoint. Default: OTEL_EXPORTER_OTLP_ENDPOINT.")
@click.option(
    "--otlp-protocol",
    type=click.Choice(["http/protobuf", "grpc"]),
    help="Protocol. Default: OTEL_EXPORTER_OTLP_PROTOCOL, else http/protobuf.",
)
@click.option(
    "--signal",
    type=click.Choice(["all", *SIGNALS]),
    default="all",
    show_default=True,
    help="Signals to send.",
)
@click.option(
    "--metrics",
    metavar="minimal|default|all|NAMES",
    help="Metrics to send. Default: those selected for the run.",
)
@click.option(
    "--operation-metrics",
    type=click.Choice(["off", "gauges", "histograms"]),
    help="Metrics of operations. Default: those selected for the run.",
)
def command(
    run: str,
    *,
    otlp: str | None,
    otlp_protocol: str | None,
    signal: str,
    metrics: str | None,
    operation_metrics: str | None,
) -> None:
    """Send the recorded run RUN to an OTLP endpoint, with the same data as during the run.

    Metrics keep their timestamps, spans their IDs. The only log record is the event of the run's end. Headers, compression and
    certificates come from the OTEL_EXPORTER_OTLP_* variables. Replaying is idempotent: points are identical each time.
    """
    recorded = load(run)
    url = parsed(parse_url, otlp, "--otlp")
    where = wanted({"otlp": url, "otlp_protocol": otlp_protocol}, os.environ)
    endpoints = {"metrics": where.metrics, "traces": where.spans, "logs": where.logs}
    if not any(endpoints.values()):
        raise UsageError("There is no endpoint to send to.", "--otlp URL, or OTEL_EXPORTER_OTLP_ENDPOINT")
    names = metrics or str(recorded.settings.get("metrics") or "default")
    chosen = wanted_metrics(
        {
            "metrics": parsed(parse_metrics, names, "--metrics"),
            "operation_metrics": operation_metrics or recorded.settings.get("operation_metrics"),
        }
    )
    failures: list[MemwatchError] = []
    silent: set[str] = set()
    for name in SIGNALS if signal == "all" else (signal,):
        endpoint = endpoints[name]
        if endpoint is None or urlsplit(endpoint.url).netloc in silent:
            continue
        # A rejected signal does not stop the others. A server that does not answer does.
        try:
            _send(recorded, name, endpoint, chosen)
        except MemwatchError as error:
            failures.append(error)
            if isinstance(error, Unanswered):
                silent.add(urlsplit(endpoint.url).netloc)
    for failure in failures[:-1]:
        say(f"otel-memwatch: {failure}")
    if failures:
        raise failures[-1]


def _send(recorded: RecordedRun, name: str, endpoint: Endpoint, metrics: frozenset[str]) -> None:
    """Send all requests of one signal. Raises `MemwatchError` with one sentence if data is rejected."""
    from otel_memwatch.monitor.telemetry.replay import Sender  # it loads OpenTelemetry's SDK

    sender = Sender(name, endpoint)
    sent = 0
    try:
        for request in requests(recorded, name, metrics):
            sender.send(request)
            sent += 1
    finally:
        sender.close()
    where = mask_url(endpoint.url)
    if sender.unknown:
        return
    say(f"otel-memwatch: {name}: {sent} requests sent to {where}")
    if sender.rejected:
        what = _PARTS[name]
        said = f": {sender.words}" if sender.words else "."
        raise MemwatchError(f"{where} rejected {sender.rejected} {what} of them{said}", _HINT_OF_OLD)
