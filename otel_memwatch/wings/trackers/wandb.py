"""W&B: figures in the run's summary, the page as an artifact. The run is resumed, and ends with the command's exit code."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from otel_memwatch.wings.trackers.figures import TrackedFigures

_SETTINGS = {
    "WANDB_CONSOLE": "off",
    "WANDB_SILENT": "true",
    "WANDB_DISABLE_CODE": "true",
    "WANDB_DISABLE_GIT": "true",
    "WANDB_X_DISABLE_STATS": "true",
    "WANDB_X_DISABLE_META": "true",
    "WANDB_X_SAVE_REQUIREMENTS": "false",
}
"""Settings that keep data about this process out of the recorded command's run."""


def send(figures: TrackedFigures, page: Path, into: str) -> str:
    """Send the figures to the run ID, PROJECT/ID or ENTITY/PROJECT/ID."""
    os.environ.update(_SETTINGS)
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
