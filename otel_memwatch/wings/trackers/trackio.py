"""Trackio: figures as the metrics of a run in the project, the page as its artifact."""

from __future__ import annotations

from pathlib import Path

from otel_memwatch.wings.trackers.figures import TrackedFigures


def send(figures: TrackedFigures, page: Path, into: str) -> str:
    """Sends them into PROJECT/NAME; without a name into the run that is called as ours."""
    import trackio

    project, _, given = into.partition("/")
    name = given or figures.name
    # Its own sampling would be of this process, which is not the one that was watched.
    run = trackio.init(
        project, name=name, resume="allow", embed=False, auto_log_gpu=False, auto_log_cpu=False
    )
    run.log({**figures.scalars, **figures.words})
    if hasattr(run, "log_artifact"):
        run.log_artifact(str(page), name="memwatch-report", type="memwatch")
    trackio.finish()
    return f"{project}/{name}"
