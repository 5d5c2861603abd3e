"""Experiment trackers: a run's final figures and its page in the run of the tracker that the environment names.

===========  ======================================================  =====================================
tracker      run                                                     value of `--into`
===========  ======================================================  =====================================
mlflow       `MLFLOW_RUN_ID`                                         the run's id
wandb        `WANDB_RUN_ID`, `WANDB_PROJECT`, `WANDB_ENTITY`         ID, PROJECT/ID or ENTITY/PROJECT/ID
tensorboard  `AIP_TENSORBOARD_LOG_DIR`, `TENSORBOARD_LOG_DIR`        the directory of its event files
trackio      `TRACKIO_PROJECT`, and the name of our run              PROJECT or PROJECT/NAME
===========  ======================================================  =====================================

Each tracker is a module of its name, with `send(figures, page, into)`. It uses the tracker's client, whose settings are the
servers and tokens, and returns in words where the figures are. A run stores these variables in its tags.
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
    """Its client."""
    package: str
    """What installs that."""
    variables: tuple[str, ...]
    """The first of these that is set names the run."""
    tag: str = ""
    """The tag of a run in which that variable is remembered."""


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
    """Return the trackers whose run the environment names."""
    return [
        tracker.name
        for tracker in TRACKERS.values()
        if any(environ.get(variable) for variable in tracker.variables)
    ]


def send(name: str, run: RecordedRun, into: str | None = None) -> str:
    """Send the figures and the page of a run, and return in words where they are.

    `into` is as above; `None`: from the run's tags, else from the environment. Raises `UsageError` if no run is selected or
    the client is not installed, `RunError` if the client fails.
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
            told: str = module.send(figures, _page(run, Path(folder)), target)
        except Exception as error:
            raise RunError(f"{name} rejected the figures: {describe(error)}.") from error
    return told


def _variable(tracker: Tracker) -> str | None:
    return next((os.environ[name] for name in tracker.variables if os.environ.get(name)), None)


def _page(run: RecordedRun, folder: Path) -> Path:
    """Return the page of the run; made now if it is missing."""
    page = Path(run.path) / PAGE_FILE
    if page.is_file():
        return page
    from otel_memwatch.reports import write

    return write("html", run, folder / PAGE_FILE)
