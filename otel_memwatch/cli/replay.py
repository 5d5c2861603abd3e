"""`replay`: send a recorded run to an OTLP endpoint."""

from __future__ import annotations

import os

import click

from otel_memwatch.analysis import load
from otel_memwatch.cli import say
from otel_memwatch.config import parse_url
from otel_memwatch.errors import MemwatchError, UsageError
from otel_memwatch.monitor.telemetry.settings import wanted
from otel_memwatch.reports.otlp import SIGNALS, requests

_HINT_OF_OLD = "Prometheus takes samples older than an hour only with storage.tsdb.out_of_order_time_window"


@click.command()
@click.argument("run")
@click.option("--otlp", metavar="URL", help="Endpoint. Default: OTEL_EXPORTER_OTLP_ENDPOINT.")
@click.option(
    "--signal", type=click.Choice(["all", *SIGNALS]), default="all", show_default=True, help="What to send."
)
def command(run: str, otlp: str | None, signal: str) -> None:
    """Send the recorded run RUN to an OTLP endpoint, as it would have been sent while it ran.

    Metrics keep the times at which they were measured, spans their ids. Headers, compression and certificates come
    from the OTEL_EXPORTER_OTLP_* variables. Sending a run twice gives the same series twice the same points.
    """
    recorded = load(run)
    where = wanted({"otlp": _url(otlp), "otlp_protocol": "http/protobuf"}, os.environ)
    endpoints = {"metrics": where.metrics, "traces": where.spans}
    if not any(endpoints.values()):
        raise UsageError("There is no endpoint to send to.", "--otlp URL, or OTEL_EXPORTER_OTLP_ENDPOINT")
    from otel_memwatch.monitor.telemetry.replay import Sender

    for name in SIGNALS if signal == "all" else (signal,):
        endpoint = endpoints[name]
        if endpoint is None:
            continue
        sender = Sender(name, endpoint, where.timeout)
        sent = 0
        try:
            for request in requests(recorded, name):
                sender.send(request)
                sent += 1
        finally:
            sender.close()
        say(f"otel-memwatch: {name}: {sent} requests sent to {endpoint.url}")
        if sender.rejected:
            what = "points" if name == "metrics" else "spans"
            raise MemwatchError(f"{endpoint.url} rejected {sender.rejected} {what} of them.", _HINT_OF_OLD)


def _url(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        return parse_url(text)
    except ValueError as error:
        raise UsageError(f"--otlp: {error}.") from None
