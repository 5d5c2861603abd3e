"""Clients of the experiment trackers. Each function sends to one run of a tracker, and returns the place in words.

A function imports its client itself, because importing takes seconds. `CLIENTS` lists the functions by tracker.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from otel_memwatch.model import Certainty
from otel_memwatch.reports import render
from otel_memwatch.run.figures import GPU, MEMORY, NAMES, OPERATION, TIMES, Figure, figures_of
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_memwatch.run import RecordedRun


_EVENTS_PAGE = "memwatch-report.html"
"""Name of the page beside TensorBoard's event files."""

_WANDB_SETTINGS = {
    "WANDB_CONSOLE": "off",
    "WANDB_SILENT": "true",
    "WANDB_DISABLE_CODE": "true",
    "WANDB_DISABLE_GIT": "true",
    "WANDB_X_DISABLE_STATS": "true",
    "WANDB_X_DISABLE_META": "true",
    "WANDB_X_SAVE_REQUIREMENTS": "false",
}
"""Settings that keep data about this process out of the recorded command's run."""


def to_mlflow(figures: TrackedFigures, page: Path, into: str) -> str:
    """Send the figures to the MLflow run with this ID, on the server in MLflow's settings. The page is an artifact."""
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


def to_wandb(figures: TrackedFigures, page: Path, into: str) -> str:
    """Send the figures to the summary of the W&B run ID, PROJECT/ID or ENTITY/PROJECT/ID. The page is an artifact.

    The run is resumed, and ends with the command's exit code.
    """
    os.environ.update(_WANDB_SETTINGS)
    # In offline mode W&B's files stay beside the job's files; otherwise leave nothing in the working directory.
    if os.environ.get("WANDB_MODE") not in ("offline", "dryrun") and not os.environ.get("WANDB_DIR"):
        os.environ["WANDB_DIR"] = tempfile.gettempdir()
    import wandb

    *where, identity = into.split("/")[-3:]
    project = where[-1] if where else None
    run = wandb.init(
        id=identity, project=project, entity=where[0] if len(where) > 1 else None, resume="allow"
    )
    run.summary.update({**figures.scalars, **figures.words})
    artifact = wandb.Artifact(f"memwatch-{identity}", type="memwatch")
    artifact.add_file(str(page), name="report.html")
    run.log_artifact(artifact)
    run.finish(exit_code=figures.exit_code or 0)
    return f"run {into}"


def to_tensorboard(figures: TrackedFigures, page: Path, into: str) -> str:
    """Write another event file into this directory: figures as scalars, the summary as text. The page lies beside it."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.text import metadata
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.util.tensor_util import make_tensor_proto

    os.makedirs(into, exist_ok=True)
    writer = EventFileWriter(into, filename_suffix=".memwatch")
    values = [Summary.Value(tag=name, simple_value=value) for name, value in figures.scalars.items()]
    # Markdown keeps lines that begin with four blanks unchanged.
    text = "\n".join(f"    {line}" for line in figures.summary.splitlines())
    values.append(
        Summary.Value(
            tag="memwatch/summary",
            metadata=metadata.create_summary_metadata("memwatch/summary", ""),
            tensor=make_tensor_proto([text.encode()]),
        )
    )
    writer.add_event(Event(wall_time=figures.ended, step=0, summary=Summary(value=values)))
    writer.close()
    shutil.copyfile(page, os.path.join(into, _EVENTS_PAGE))
    return into


def to_trackio(figures: TrackedFigures, page: Path, into: str) -> str:
    """Send the figures to PROJECT/NAME as metrics. The page is an artifact. NAME defaults to the recorded run's name."""
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


CLIENTS: Mapping[str, Callable[[TrackedFigures, Path, str], str]] = {
    "mlflow": to_mlflow,
    "wandb": to_wandb,
    "tensorboard": to_tensorboard,
    "trackio": to_trackio,
}
"""Functions by the name of the tracker."""


MOST = 40
"""Largest number of scalars of one run."""

_PREFIX = "memwatch/"
_LONGEST = 200
"""Characters of a name: MLflow takes 250."""


class TrackedFigures(NamedTuple):
    """Content for the tracker."""

    scalars: dict[str, float]
    """Bytes and seconds by their names, such as "memwatch/memory_bytes"."""
    words: dict[str, str]
    """Certainty of the memory, end of the run, its directory."""
    summary: str
    """The summary that `wrap` prints."""
    name: str
    """Name of the run."""
    started: float
    """Unix seconds; `ended` too."""
    ended: float
    exit_code: int | None
    """Exit code as a shell reports it."""


def tracked_figures(run: RecordedRun) -> TrackedFigures:
    """Return all figures of a run, and those of the largest operations, up to `MOST`."""
    figures = figures_of(run, compared=False).figures
    scalars: dict[str, float] = {}
    for name in NAMES:
        if name in figures:
            scalars.update(_scalars(name, figures[name]))
    if run.ending.oom_kills is not None:
        scalars[f"{_PREFIX}oom_kills"] = float(run.ending.oom_kills)
    operations = [(name, figure) for name, figure in figures.items() if name.startswith(OPERATION)]
    for name, figure in sorted(operations, key=lambda one: -one[1].value):
        found = dict(_scalars(f"operation/{name.removeprefix(OPERATION)}", figure))
        if len(scalars) + len(found) <= MOST and not scalars.keys() & found.keys():
            scalars |= found
    memory = figures.get(MEMORY)
    words = {
        f"{_PREFIX}certainty": "unknown" if memory is None else memory.certainty.value,
        f"{_PREFIX}ended": run.ending.reason,
        f"{_PREFIX}run": os.path.abspath(run.path),
    }
    summary = io.BytesIO()
    render("summary", run, summary)
    return TrackedFigures(
        scalars,
        words,
        summary.getvalue().decode("utf-8", "replace"),
        run.name or run.path.name,
        run.started_wall,
        run.started_wall + run.seconds,
        run.ending.shell_code,
    )


def _scalars(name: str, figure: Figure) -> Iterator[tuple[str, float]]:
    """Yield the figure, and its bounds if it is not exact."""
    plain = _PREFIX + re.sub(r"[^A-Za-z0-9_./ -]", "_", name)[:_LONGEST]
    unit = "seconds" if name in TIMES else "bytes"
    full = plain if plain.endswith(unit) else f"{plain}_{unit}"
    yield full, float(figure.value)
    if figure.certainty is not Certainty.EXACT and name != GPU:
        for word, bound in (("low", figure.low), ("high", figure.high)):
            if bound is not None:
                yield f"{full}_{word}", float(bound)
