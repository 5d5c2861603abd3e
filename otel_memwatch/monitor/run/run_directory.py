"""Place, name and creation of a run directory. Imports little: the command waits for it."""

from __future__ import annotations

import os
import stat
import time

from otel_memwatch.errors import UsageError
from otel_memwatch.record.command_key import command_label
from otel_memwatch.record.format import DIRECTORY_MODE, RUNS_DIRECTORY
from otel_memwatch.runtime.light import suppress
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


_NAME_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._+-")


_TRIES = 100
"""Names to try if machines that share a directory start runs within the same second."""


def run_name(argv: Sequence[str], name: str | None = None) -> str:
    """Return a name unique on this machine: UTC time in seconds, the name of the run or command, our pid."""
    kept = "".join(c if c in _NAME_CHARACTERS else " " for c in name or command_label(argv))
    base = "_".join(kept.split()).strip("._") or "run"
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{base[:60]}-{os.getpid()}"


def make_run_directory(settings: Mapping[str, Any], argv: Sequence[str], say: Callable[[str], None]) -> str:
    """Create the run directory and return its absolute path.

    `settings` name the directory ("out"), or its parent ("runs") and a part of its name ("name").

    - Requested directory: raises `UsageError` if it cannot be created.
    - Default directory: if the working directory is not writable, use one in the temporary directory and `say` it, since
      the command must run. Raises `UsageError` if that fails too.
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


def _create_below(runs: str, name: str) -> str:
    """Create a run directory of that name, with a number appended if another machine took the name within the second."""
    path = f"{runs}/{name}"
    for number in range(2, _TRIES):
        if not os.path.lexists(path):
            break
        path = f"{runs}/{name}-{number}"
    create_directory(path)
    return path


def create_directory(path: str | os.PathLike[str]) -> None:
    """Create the run directory and its parents. Raises `UsageError` if it exists or cannot be created."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.mkdir(path, DIRECTORY_MODE)
    except OSError as error:
        if os.path.lexists(path):
            raise UsageError(
                f"{path} exists already.", "runs are never overwritten; name another directory"
            ) from None
        raise UsageError(f"The run directory {path} cannot be made: {error.strerror}.") from None


def absolute(path: str) -> str:
    """Return the absolute path. Raises `UsageError` if the working directory is gone."""
    try:
        return os.path.abspath(path)
    except OSError as error:
        raise UsageError(
            f"The run directory {path} cannot be made: the working directory is gone ({error.strerror})."
        ) from None


def temporary_runs() -> str:
    """Return the user's directory for runs in the temporary directory. Raises `UsageError` if none can be created.

    Others may write to the temporary directory. If our name belongs to another user or is writable for others, use a
    directory with an unpredictable name.
    """
    import tempfile

    try:
        path = os.path.join(tempfile.gettempdir(), f"{RUNS_DIRECTORY}-{os.geteuid()}")
        # Use the directory only if no other user can write to it.
        with suppress(FileExistsError):
            os.mkdir(path, DIRECTORY_MODE)
        found = os.lstat(path)
        is_our_own = (
            stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
        )
        if not is_our_own:
            path = tempfile.mkdtemp(prefix=f"{RUNS_DIRECTORY}-")
    except OSError as error:
        raise UsageError(f"Cannot create a run directory: {error.strerror}.", "name one with --out") from None
    return path
