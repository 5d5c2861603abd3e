"""Where a run is recorded, what it is called, and how its directory is made. Imports little: the command waits for it."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from otel_memwatch.errors import UsageError
from otel_memwatch.record.command_key import command_label
from otel_memwatch.record.format import DIRECTORY_MODE, RUNS_DIRECTORY
from otel_memwatch.runtime.typed import Any

_NAME_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._+-")


_TRIES = 100
"""Names that are tried where runs begin within the same second, on machines that share a directory."""


def run_name(argv: Sequence[str], name: str | None = None) -> str:
    """A name that no other run of this machine has: UTC time to the second, the run's name or its command's, our pid."""
    kept = "".join(c if c in _NAME_CHARACTERS else " " for c in name or command_label(argv))
    base = "_".join(kept.split()).strip("._") or "run"
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{base[:60]}-{os.getpid()}"


def make_run_directory(settings: Mapping[str, Any], argv: Sequence[str], say: Callable[[str], None]) -> Path:
    """Creates the run directory and gives its absolute path.

    `settings` name it ("out"), or where it is made ("runs") and what it is called there ("name").

    A directory that was asked for has to be possible: `UsageError` where it is not. The default one gives way to
    one in the temporary directory, and `say` gets a line about it, where the working directory cannot be written:
    that must not keep the command from running. `UsageError` where there is none to be had either.
    """
    out, runs = settings["out"], settings["runs"]
    if out is not None:
        path = absolute(out)
        create_directory(path)
        return path
    name = run_name(argv, settings["name"])
    try:
        return _create_below(absolute(runs or RUNS_DIRECTORY), name)
    except UsageError as refused:
        if runs is not None:
            raise
        path = _create_below(temporary_runs(), name)
        say(f"otel-memwatch: {refused.message} Recording in {path}.")
    return path


def _create_below(runs: Path, name: str) -> Path:
    """Makes a run directory of that name, or with a number behind it where another machine has made one within the second."""
    path = runs / name
    for number in range(2, _TRIES):
        if not os.path.lexists(path):
            break
        path = runs / f"{name}-{number}"
    create_directory(path)
    return path


def create_directory(path: Path) -> None:
    """Makes the run directory, parents included. Raises `UsageError` when it exists or cannot be made."""
    try:
        os.makedirs(path.parent, exist_ok=True)
        os.mkdir(path, DIRECTORY_MODE)
    except OSError as error:
        if os.path.lexists(path):
            raise UsageError(
                f"{path} exists already.", "a run is never overwritten: name another directory"
            ) from None
        raise UsageError(f"The run directory {path} cannot be made: {error.strerror}.") from None


def absolute(path: str) -> Path:
    """The absolute path; raises `UsageError` where the working directory that it starts from is gone."""
    try:
        return Path(os.path.abspath(path))
    except OSError as error:
        raise UsageError(
            f"The run directory {path} cannot be made: the working directory is gone ({error.strerror})."
        ) from None


def temporary_runs() -> Path:
    """A directory of the user's own for runs, in the temporary directory; raises `UsageError` where there is none.

    Others may write there too: what bears our name and is not ours, or is open to others, is left alone for a
    directory with a name that nobody could know.
    """
    import tempfile

    try:
        path = Path(tempfile.gettempdir()) / f"{RUNS_DIRECTORY}-{os.geteuid()}"
        if not _is_our_own(path):
            path = Path(tempfile.mkdtemp(prefix=f"{RUNS_DIRECTORY}-"))
    except OSError as error:
        raise UsageError(
            f"There is no place for a run directory: {error.strerror}.", "name one with --out"
        ) from None
    return path


def _is_our_own(path: Path) -> bool:
    """Makes the directory where it is not there; whether it is one that nobody else can write to."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(DIRECTORY_MODE)
    found = os.lstat(path)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
