"""Selection and removal of old runs, and of old recipes.

* `run.json` alone decides, and it is read again at the moment of removal.
* Only files that this package names (`record.format.is_run_file`) are removed.
* The directory stays open meanwhile. It is opened without following links at any depth below the named directory, so a
  path that is replaced in between cannot redirect the removal.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from pathlib import Path

from otel_memwatch.errors import RunError
from otel_memwatch.record.format import (
    FINISHED,
    RECIPES_STORE,
    RUN_FILE,
    RUNNING,
    SCHEMA,
    SEGMENTED_SCHEMA,
    is_run_file,
)
from otel_memwatch.record.open import read_info, read_recipe
from otel_memwatch.record.recipes import id_of
from otel_memwatch.record.run_info_schema import RunInfo
from otel_memwatch.run.ending import is_monitor_visible, state_of
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from otel_memwatch.wings.index.indexed_run import IndexedRun


_ABANDONED = 86400.0
"""Seconds without a write after which a running run of another machine counts as dead: its monitor is not visible here."""

_NAMED = 3
"""Number of foreign files in a run directory that a message names."""

_ROOT = 0
"""User ID of root, trusted to place links like the caller."""

DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Removal(NamedTuple):
    """Result of the removal of one run."""

    removed: bool
    """True if the run is gone; its directory may remain with other files."""
    size: int = 0
    """Disk space of the removed files, in bytes."""
    note: str = ""
    """Remaining files and the reason, in one line; empty if nothing remains."""


def resolve(named: str) -> str:
    """Resolve a directory from the command line. Raises `RunError` if it is a link of another user.

    Links of the caller and of root are followed. In a world-writable directory any user can create a link, perhaps under
    the name of the default directory.
    """
    bare = named.rstrip("/") or named
    try:
        found = os.lstat(bare)
    except OSError:
        return named
    if not stat.S_ISLNK(found.st_mode):
        return named
    if found.st_uid not in (_ROOT, os.geteuid()):
        raise RunError(f"{named} is a link of another user.", "name the directory that it points to")
    return os.path.realpath(bare)


def old_runs(
    rows: Sequence[IndexedRun], keep: int | None, older: float | None, now: float | None = None
) -> tuple[list[IndexedRun], list[IndexedRun]]:
    """Return the ended runs to remove, oldest first, and directories that look like runs but are none.

    Args:
        rows: all runs; broken and running ones are ignored.
        keep: number of the newest runs that stay.
        older: age in seconds up to which runs stay.
        now: Unix seconds; default: now.

    """
    ended = sorted(
        (row for row in rows if row.state in ("finished", "incomplete")), key=lambda row: row.started
    )
    runs: list[IndexedRun] = []
    foreign: list[IndexedRun] = []
    for row in ended:
        try:
            ours = _is_run(RunInfo.of(read_info(Path(row.path) / RUN_FILE)))
        except RunError:
            ours = is_recipe(row.path)
        (runs if ours else foreign).append(row)
    old = runs[: max(0, len(runs) - keep)] if keep is not None else runs
    since = (time.time() if now is None else now) - (older or 0.0)
    return [row for row in old if older is None or row.started < since], foreign


def is_recipe(path: str) -> bool:
    """Return whether a run is a recipe, which `remove_recipes` removes."""
    return not os.path.lexists(f"{path}/{RUN_FILE}") and read_recipe(path) is not None


def remove(row: IndexedRun, roots: Sequence[str], *, dry_run: bool = False) -> Removal:
    """Remove a finished run in one of the directories `roots`. With `dry_run`, only return the result of a removal."""
    root = next(root for root in roots if f"{row.path}/".startswith(f"{root.rstrip('/')}/"))
    try:
        with opened(row.path, root) as (parent, name, directory):
            ours, others, freed, written = [], [], 0, 0.0
            for one in sorted(os.listdir(directory)):
                try:
                    found = os.stat(one, dir_fd=directory, follow_symlinks=False)
                except FileNotFoundError:
                    continue
                # A link or a directory of such a name is not ours.
                if stat.S_ISREG(found.st_mode) and is_run_file(one):
                    ours.append(one)
                    freed += found.st_blocks * 512
                    written = max(written, found.st_mtime)
                else:
                    others.append(one)
            why = _why_not(row, directory, written)
            if why:
                return Removal(False, note=f"{row.path} stays: {why}")
            note = ""
            if others:
                note = f"{row.path} keeps {_named(others, directory)}: not part of this run"
            if not dry_run:
                # The description goes last: an interrupted removal leaves a run that can be removed.
                for one in sorted(ours, key=lambda one: one == RUN_FILE):
                    os.unlink(one, dir_fd=directory)
                if not others:
                    note = _remove_empty(row.path, parent, name, directory)
            return Removal(True, freed, note)
    except OSError as error:
        return Removal(False, note=f"{row.path} stays: {error.strerror}")


def _is_run(info: RunInfo) -> bool:
    """Return whether a `run.json` is ours: other programs have files of that name, with a schema too."""
    return (
        info.schema in (SCHEMA, SEGMENTED_SCHEMA)
        and bool(info.id)
        and info.state in (RUNNING, FINISHED)
        and info.started.wall is not None
        and info.started.monotonic is not None
    )


@contextlib.contextmanager
def opened(path: str, root: str) -> Iterator[tuple[int, str, int]]:
    """Yield descriptors of the parent of a run directory and of the directory itself, and its name in the parent.

    Every step below `root` is opened by its name in the step before, never through a link.
    """
    root = root.rstrip("/") or "/"  # with a slash behind it open(2) would follow a link
    names = [name for name in path[len(root) :].split("/") if name]
    if not names:  # the run itself was named
        above, name = os.path.split(root)
        root, name = (
            os.path.split(os.path.realpath(root)) if name in ("", ".", "..") else (above or ".", name)
        )
        root, names = os.path.realpath(root), [name]
    with contextlib.ExitStack() as stack:

        def step(name: str, parent: int | None) -> int:
            descriptor = os.open(name, DIRECTORY_FLAGS, dir_fd=parent)
            stack.callback(os.close, descriptor)
            return descriptor

        parent = step(root, None)
        for name in names[:-1]:
            parent = step(name, parent)
        yield parent, names[-1], step(names[-1], parent)


def _why_not(row: IndexedRun, directory: int, written: float) -> str | None:
    """Return why the run must stay; `None` if it may go. `written`: latest write to its files, in Unix seconds."""
    try:
        fields = RunInfo.of(read_info(Path(RUN_FILE), directory))
    except RunError:
        fields = RunInfo.of({})
    if not _is_run(fields):
        return f"its {RUN_FILE} does not describe a run of otel-memwatch"
    if fields.started.wall != row.started:
        return f"its {RUN_FILE} has changed meanwhile"
    if state_of(fields, Path(row.path)) == RUNNING:
        return "it is still running"
    silent = fields.state == RUNNING and not is_monitor_visible(fields)
    if silent and time.time() - written < _ABANDONED:
        return "it may still be running on another machine, which wrote to it within the last day"
    return None


def _named(others: Sequence[str], directory: int) -> str:
    """Return some names for a message; a directory that holds a run is marked."""
    shown = list(others[:_NAMED])
    for index, name in enumerate(shown):
        with contextlib.suppress(OSError):
            found = os.stat(f"{name}/{RUN_FILE}", dir_fd=directory, follow_symlinks=False)
            shown[index] += " (a run)" if stat.S_ISREG(found.st_mode) else ""
    more = len(others) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _remove_empty(path: str, parent: int, name: str, directory: int) -> str:
    """Remove the emptied directory; return why it stays, or nothing."""
    try:
        ours, named = os.fstat(directory), os.stat(name, dir_fd=parent, follow_symlinks=False)
        if (ours.st_dev, ours.st_ino) == (named.st_dev, named.st_ino):
            os.rmdir(name, dir_fd=parent)
    except OSError as error:
        return f"{path} is empty now, but stays: {error.strerror}"
    return ""


def remove_recipes(
    parent: str, ids: Sequence[str], roots: Sequence[str], *, dry_run: bool = False
) -> Removal:
    """Remove the recipes of these IDs in the directory `parent`, which is one of `roots` or below it.

    Recorders wait meanwhile: they append under the same lock. The file is rewritten in place, because a recorder that
    waits has it open. With `dry_run`, only return the result of a removal.
    """
    names = frozenset(ids)
    root = next(root for root in roots if f"{parent}/".startswith(f"{root.rstrip('/')}/"))
    try:
        with opened(parent, root) as (_, _, directory), contextlib.ExitStack() as stack:
            file = os.open(RECIPES_STORE, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
            stack.callback(os.close, file)
            if not stat.S_ISREG(os.fstat(file).st_mode):
                return Removal(False, note=f"{parent}/{RECIPES_STORE} stays: it is no file")
            fcntl.flock(file, fcntl.LOCK_EX)
            content = os.pread(file, os.fstat(file).st_size, 0)
            kept = b"".join(line for line in content.splitlines(keepends=True) if id_of(line) not in names)
            if not dry_run:
                os.pwrite(file, kept, 0)
                os.ftruncate(file, len(kept))
                for name in names:
                    with contextlib.suppress(OSError):  # most have no operations, so no directory
                        _remove_operations(name, directory)
            return Removal(True, len(content) - len(kept))
    except OSError as error:
        return Removal(False, note=f"{parent}/{RECIPES_STORE} stays: {error.strerror}")


def _remove_operations(name: str, parent: int) -> None:
    directory = os.open(name, DIRECTORY_FLAGS, dir_fd=parent)
    try:
        for one in os.listdir(directory):
            found = os.stat(one, dir_fd=directory, follow_symlinks=False)
            if stat.S_ISREG(found.st_mode) and is_run_file(one):
                os.unlink(one, dir_fd=directory)
    finally:
        os.close(directory)
    os.rmdir(name, dir_fd=parent)
