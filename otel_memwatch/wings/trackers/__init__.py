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

The tracker's client uses its configured servers and tokens (`tracker_clients`). A run stores these variables in its tags.

At the end of `wrap`, a worker process sends (`main`). If `wrap` ends meanwhile, sending continues for up to a minute.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import tempfile
from pathlib import Path

from otel_memwatch.errors import RunError, UsageError, describe
from otel_memwatch.record.format import PAGE_FILE
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from otel_memwatch.run import RecordedRun

_LONGEST = 60
"""Seconds after which a worker that still sends is ended."""


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
    from otel_memwatch.reports import write
    from otel_memwatch.wings.trackers.tracker_clients import CLIENTS, tracked_figures

    tracker = TRACKERS[name]
    if importlib.util.find_spec(tracker.module) is None:
        raise UsageError(f"{tracker.module} is not installed.", f"pip install {tracker.package}")
    variables = [os.environ[name] for name in tracker.variables if os.environ.get(name)]
    target = next(filter(None, (into, run.tags.get(tracker.tag), *variables)), None)
    if not target:
        raise UsageError(
            f"No run of {name} is selected.", f"pass --into, or set {' or '.join(tracker.variables)}"
        )
    figures = tracked_figures(run)
    page = Path(run.path) / PAGE_FILE
    with tempfile.TemporaryDirectory(prefix="memwatch-") as folder:
        try:
            if not page.is_file():
                page = write("html", run, Path(folder) / PAGE_FILE)
            return CLIENTS[name](figures, page, target)
        except Exception as error:
            raise RunError(f"{name} rejected the figures: {describe(error)}.") from error


def main(_arguments: list[str]) -> None:
    """Send a run to trackers, as a worker process.

    The job contains `directory`, the run, and `trackers`, their names. Each tracker gets one answer: `failed` is `None`, or a
    sentence.
    """
    from otel_memwatch.run import load
    from otel_memwatch.runtime.worker import serve

    def work(job: Mapping[str, Any], say: Callable[..., None]) -> None:
        for name in job["trackers"]:
            try:
                send(name, load(job["directory"]))
            except Exception as error:  # noqa: BLE001 - a client may raise anything
                say(tracker=name, failed=describe(error))
            else:
                say(tracker=name, failed=None)

    signal.alarm(_LONGEST)
    serve(work)
