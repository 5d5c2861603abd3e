"""MLflow: metrics and tags of the run, the page among its artifacts under memwatch/."""

from __future__ import annotations

from pathlib import Path

from otel_memwatch.wings.trackers.figures import TrackedFigures


def send(figures: TrackedFigures, page: Path, into: str) -> str:
    """Send the figures to the run with this ID, on the server in MLflow's settings."""
    from mlflow.entities import Metric, RunTag
    from mlflow.tracking import MlflowClient

    client = MlflowClient()
    when = int(1000 * figures.ended)
    client.log_batch(
        into,
        metrics=[Metric(name, value, when, 0) for name, value in figures.scalars.items()],
        tags=[RunTag(name.replace("/", "."), text) for name, text in figures.words.items()],
    )
    client.log_artifact(into, str(page), "memwatch")
    return f"run {into}"
