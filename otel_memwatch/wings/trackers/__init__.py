"""Experiment trackers: send a run's final figures and its page to a tracker's run.

The environment, or `--into`, selects the tracker's run:

===========  ======================================================  =====================================
tracker      run                                                     value of `--into`
===========  ======================================================  =====================================
mlflow       `MLFLOW_RUN_ID`                                         the run's id
wandb        `WANDB_RUN_ID`, `WANDB_PROJECT`, `WANDB_ENTITY`         ID, PROJECT/ID or ENTITY/PROJECT/ID
tensorboard  `AIP_TENSORBOARD_LOG_DIR`, `TENSORBOARD_LOG_DIR`        the directory of its event files
trackio      `TRACKIO_PROJECT`, and the name of our run              PROJECT or PROJECT/NAME
===========  ======================================================  =====================================

Each tracker is a module of that name with `send(figures, page, into)`. It uses the tracker's client with its configured
servers and tokens, and returns the place of the figures in words. A run stores these variables in its tags.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from importlib import import_module
from pathlib import Path

from otel_memwatch.errors import RunError, UsageError, describe
from otel_memwatch.record.format import PAGE_FILE
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_memwatch.run import RecordedRun


class Tracker(NamedTuple):
    """One tracker."""

    name: str
    help: str
    module: str
    """Module of its client."""
    package: str
    """Package that installs the client."""
    variables: tuple[str, ...]
    """Environment variables for the run; the first one that is set counts."""
    tag: str = ""
    """Tag of a run that stores the variable."""


TRACKERS = {
    tracker.name: tracker
    for tracker in (
        Tracker(
            "mlflow",
            "Send figures and page to an MLflow run.",
            "mlflow",
            "mlflow",
            ("MLFLOW_RUN_ID",),
            "mlflow.run",
        ),
        Tracker(
            "wandb", "Send figures and page to a W&B run.", "wandb", "wandb", ("WANDB_RUN_ID",), "wandb.run"
        ),
        Tracker(
            "tensorboard",
            "Write figures and page beside the event files of TensorBoard.",
            "tensorboard",
            "tensorboard",
            ("AIP_TENSORBOARD_LOG_DIR", "TENSORBOARD_LOG_DIR"),
        ),
        Tracker(
            "trackio",
            "Send figures and page to a Trackio project.",
            "trackio",
            "trackio",
            ("TRACKIO_PROJECT",),
        ),
    )
}
"""Every tracker by its name."""


def named(environ: Mapping[str, str]) -> list[str]:
    """Return the trackers with a run in the environment."""
    return [
        tracker.name
        for tracker in TRACKERS.values()
        if any(environ.get(variable) for variable in tracker.variables)
    ]


def send(name: str, run: RecordedRun, into: str | None = None) -> str:
    """Send the figures and the page of a run, and return their place in words.

    `into` is as above; `None`: from the run's tags, else from the environment. Raises `UsageError` if no run is selected or
    the client is not installed, and `RunError` if the client fails.
    """
    from otel_memwatch.wings.trackers.figures import tracked_figures

    tracker = TRACKERS[name]
    if importlib.util.find_spec(tracker.module) is None:
        raise UsageError(f"{tracker.module} is not installed.", f"pip install {tracker.package}")
    target = into or run.tags.get(tracker.tag) or _variable(tracker)
    if not target:
        raise UsageError(
            f"No run of {name} is selected.", f"pass --into, or set {' or '.join(tracker.variables)}"
        )
    figures = tracked_figures(run)
    module = import_module(f".{name}", __name__)
    with tempfile.TemporaryDirectory(prefix="memwatch-") as folder:
        try:
            place: str = module.send(figures, _page(run, Path(folder)), target)
        except Exception as error:
            raise RunError(f"{name} rejected the figures: {describe(error)}.") from error
    return place


def _variable(tracker: Tracker) -> str | None:
    return next((os.environ[name] for name in tracker.variables if os.environ.get(name)), None)


def _page(run: RecordedRun, folder: Path) -> Path:
    """Return the page of the run; made now if it is missing."""
    page = Path(run.path) / PAGE_FILE
    if page.is_file():
        return page
    from otel_memwatch.reports import write

    return write("html", run, folder / PAGE_FILE)
