"""The recorded runs below some directories, with what can be read of each."""

from __future__ import annotations

import os
from pathlib import Path

from otel_memwatch.analysis import load
from otel_memwatch.errors import RunError
from otel_memwatch.record.format import RUNS_DIRECTORY
from otel_memwatch.runs.find import runs_below, started
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from otel_memwatch.analysis import RecordedRun


class ListedRun(NamedTuple):
    """A run directory; either `run` or `error` is there."""

    path: Path
    started: float
    """Unix seconds; of a broken one, when its directory was changed last."""
    run: RecordedRun | None
    error: str | None
    """Why it cannot be read, in a sentence."""


def list_runs(directories: Sequence[str]) -> list[ListedRun]:
    """The runs in each directory, the newest last; a directory may be a run itself. Without any: those in memwatch-runs.

    Raises `RunError` for a directory that is not there or cannot be read.
    """
    return sorted(_listed(directories), key=lambda listed: (listed.started, listed.path))


def _listed(directories: Sequence[str]) -> Iterator[ListedRun]:
    for directory in directories or (RUNS_DIRECTORY,):
        if directories and not os.path.exists(directory):
            raise RunError(f"There is no directory {directory}.")
        for path in runs_below(Path(directory)):
            try:
                run = load(path)
                # An unfinished run is folded for these: what is broken shows here, and costs no other run its line.
                run.peaks, run.seconds, run.ending  # noqa: B018
                yield ListedRun(path, run.started_wall or started(path), run, None)
            except RunError as error:
                yield ListedRun(path, started(path), None, error.message)
