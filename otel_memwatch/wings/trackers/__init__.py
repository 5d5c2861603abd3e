"""Experiment trackers: a run's final figures and its page in the run of the tracker that the environment names.

===========  ======================================================  =====================================
tracker      the run that is meant                                   said by `--into`
===========  ======================================================  =====================================
mlflow       `MLFLOW_RUN_ID`                                         the run's id
wandb        `WANDB_RUN_ID`, `WANDB_PROJECT`, `WANDB_ENTITY`         ID, PROJECT/ID or ENTITY/PROJECT/ID
tensorboard  `AIP_TENSORBOARD_LOG_DIR`, `TENSORBOARD_LOG_DIR`        the directory of its event files
trackio      `TRACKIO_PROJECT`, and the name of our run              PROJECT or PROJECT/NAME
===========  ======================================================  =====================================

Each tracker is a module of its name here, with `send(figures, page, into)`, which talks through the tracker's own client and
gives in words where the figures are now. Servers and tokens are the client's own settings. A run that was recorded under one of these
variables remembers it in its tags.
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
            "Figures and page into a run of MLflow.",
            "mlflow",
            "mlflow",
            ("MLFLOW_RUN_ID",),
            "mlflow.run",
        ),
        Tracker("wandb", "The same into a run of W&B.", "wandb", "wandb", ("WANDB_RUN_ID",), "wandb.run"),
        Tracker(
            "tensorboard",
            "The same beside the event files of TensorBoard.",
            "tensorboard",
            "tensorboard",
            ("AIP_TENSORBOARD_LOG_DIR", "TENSORBOARD_LOG_DIR"),
        ),
        Tracker("trackio", "The same into a project of Trackio.", "trackio", "trackio", ("TRACKIO_PROJECT",)),
    )
}
"""Every tracker by its name."""


def named(environ: Mapping[str, str]) -> list[str]:
    """The trackers of which the environment names a run."""
    return [
        tracker.name
        for tracker in TRACKERS.values()
        if any(environ.get(variable) for variable in tracker.variables)
    ]


def send(name: str, run: RecordedRun, into: str | None = None) -> str:
    """Sends the figures and the page of a run, and gives in words where they are.

    `into`: see above; `None`: what the run remembers, else the environment. Raises `UsageError` where nobody names a run or the
    client is not installed, `RunError` where the client refuses.
    """
    from otel_memwatch.wings.trackers.figures import tracked_figures

    tracker = TRACKERS[name]
    if importlib.util.find_spec(tracker.module) is None:
        raise UsageError(f"{tracker.module} is not installed.", f"pip install {tracker.package}")
    target = into or run.tags.get(tracker.tag) or _variable(tracker)
    if not target:
        raise UsageError(
            f"Nobody says which run of {name} is meant.", f"--into, or {' or '.join(tracker.variables)}"
        )
    figures = tracked_figures(run)
    module = import_module(f".{name}", __name__)
    with tempfile.TemporaryDirectory(prefix="memwatch-") as folder:
        try:
            told: str = module.send(figures, _page(run, Path(folder)), target)
        except Exception as error:
            raise RunError(f"{name} has not taken the figures: {describe(error)}.") from error
    return told


def _variable(tracker: Tracker) -> str | None:
    return next((os.environ[name] for name in tracker.variables if os.environ.get(name)), None)


def _page(run: RecordedRun, folder: Path) -> Path:
    """The page of the run; made now, where there is none."""
    page = Path(run.path) / PAGE_FILE
    if page.is_file():
        return page
    from otel_memwatch.reports import write

    return write("html", run, folder / PAGE_FILE)
