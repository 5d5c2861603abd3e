"""Trackio: figures as the metrics of a run in the project, the page as its artifact."""

from __future__ import annotations

from pathlib import Path

from otel_memwatch.wings.trackers.figures import TrackedFigures


def send(figures: TrackedFigures, page: Path, into: str) -> str:
    """Send the figures to PROJECT/NAME. NAME defaults to the name of the recorded run."""
    import trackio

    project, _, given = into.partition("/")
    name = given or figures.name
    # Trackio would sample this process rather than the recorded one.
    run = trackio.init(
        project, name=name, resume="allow", embed=False, auto_log_gpu=False, auto_log_cpu=False
    )
    run.log({**figures.scalars, **figures.words})
    if hasattr(run, "log_artifact"):
        run.log_artifact(str(page), name="memwatch-report", type="memwatch")
    trackio.finish()
    return f"{project}/{name}"
