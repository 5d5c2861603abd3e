"""Which run a command is about: a directory, or the newest one below `memwatch-runs`."""

from __future__ import annotations

import os
from pathlib import Path

from otel_memwatch.errors import RunError, UsageError
from otel_memwatch.record.fields import mapping, moment
from otel_memwatch.record.format import RUN_FILE, RUNS_DIRECTORY, SAMPLES_FILE
from otel_memwatch.record.open import read_info

LATEST = "latest"


def find_run(given: str | None) -> Path:
    """The run directory that was named; the newest one when nothing, or "latest", was given.

    A file inside a run directory names the run too. Raises `UsageError` when there is no newest one.
    """
    if given not in (None, LATEST):
        path = Path(str(given))
        return path.parent if path.name == RUN_FILE and os.path.isfile(path) else path
    if given == LATEST and os.path.isfile(f"{LATEST}/{RUN_FILE}"):
        return Path(LATEST)
    runs = runs_below(Path(RUNS_DIRECTORY))
    if not runs:
        raise UsageError(f"There is no run below {RUNS_DIRECTORY}.", "name a run directory")
    # What never became a run is not the newest one, but where there is nothing else the reader says what it is.
    whole = [run for run in runs if _recorded_start(run) is not None]
    return max(whole or runs, key=started)


def runs_below(directory: Path) -> list[Path]:
    """The directory itself when it is a run, else the runs in it, broken ones too; in no order.

    A directory that is not there holds none. Raises `RunError` when it cannot be read.
    """
    # Path.exists raises where a parent may not be searched; a link that leads nowhere was meant for a run too.
    if os.path.lexists(directory / RUN_FILE):
        return [directory]
    try:
        # Of a link in a circle an entry's own is_dir raises.
        entries = [Path(entry.path) for entry in os.scandir(directory) if os.path.isdir(entry.path)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunError(f"{directory} cannot be read: {error.strerror}.") from None
    ours = directory.name == RUNS_DIRECTORY
    return [path for path in entries if _is_run(path, ours=ours)]


def _is_run(path: Path, *, ours: bool) -> bool:
    """Whether it is a run, or what is left of one: an empty directory only where nothing but runs is kept."""
    try:
        names = set(os.listdir(path))
    except OSError:
        return ours
    return bool(names & {RUN_FILE, SAMPLES_FILE}) or (ours and not names)


def started(path: Path) -> float:
    """Unix seconds of a run's start; of a broken one, when its directory was changed last."""
    recorded = _recorded_start(path)
    if recorded is not None:
        return recorded
    try:
        return moment(path.stat().st_mtime) or 0.0
    except OSError:
        return 0.0


def _recorded_start(path: Path) -> float | None:
    try:
        return moment(mapping(read_info(path / RUN_FILE).get("started")).get("wall"))
    except RunError:
        return None
