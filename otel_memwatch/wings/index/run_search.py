"""Search for run directories in a directory tree."""

from __future__ import annotations

import os

from otel_memwatch.errors import RunError
from otel_memwatch.record.format import (
    INDEX_FILE,
    METRICS_OTLP_FILE,
    RECIPES_STORE,
    RUN_FILE,
    RUNS_DIRECTORY,
    SAMPLES_FILE,
)
from otel_memwatch.record.open import read_recipe
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEEPEST = 8
"""Depth of the search below the named directory."""

_NO_DISK = frozenset({"/proc", "/sys", "/dev"})
"""Large directories without runs: searched only if named directly."""

Signature = tuple[int, int, int]
"""Modification time in nanoseconds, size and inode of a `run.json`; a replaced file has another signature."""


def run_directories(root: str) -> list[str]:
    """Return the run directories at or below `root`, also broken ones, unordered. Raises `RunError` if it is unreadable."""
    return [f"{parent}/{name}" if name else parent for parent, entries in run_tree(root) for name in entries]


def run_tree(root: str, *, follow_links: bool = True) -> Iterator[tuple[str, dict[str, Signature | None]]]:
    """Yield directories that contain runs, each with the runs' names and signatures. A root that is a run has the name "".

    Run directories are not searched. Links are followed only directly in the root, which excludes cycles, and nowhere
    without `follow_links`. Raises `RunError` if the root cannot be read; a missing root contains no runs.

    Recipes are among the runs, although they have no directories.
    """
    if os.path.lexists(f"{root}/{RUN_FILE}") or os.path.isfile(root) or read_recipe(root) is not None:
        yield root, {"": None}
        return
    try:
        yield from _below(root, 0, follow=follow_links)
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunError(f"{root} cannot be read: {error.strerror}.") from None


def _below(parent: str, depth: int, *, follow: bool) -> Iterator[tuple[str, dict[str, Signature | None]]]:
    ours = os.path.basename(os.path.abspath(parent)) == RUNS_DIRECTORY
    found: dict[str, Signature | None] = {}
    deeper = []
    with os.scandir(parent) as entries:
        for entry in entries:
            if entry.name == RECIPES_STORE:
                from otel_memwatch.record.recipes import recipe_lines

                found.update(recipe_lines(parent))
                continue
            kind, signature = _looked_at(entry, follow=follow, ours=ours)
            if kind == "run":
                found[entry.name] = signature
            elif (
                kind == "directory"
                and depth < _DEEPEST
                and not entry.name.startswith(".")
                and entry.path not in _NO_DISK
            ):
                deeper.append(entry.path)
    if found:
        yield parent, found
    for path in deeper:
        try:
            yield from _below(path, depth + 1, follow=False)
        except OSError:
            continue  # it was removed meanwhile, or is unreadable


def _looked_at(entry: os.DirEntry[str], *, follow: bool, ours: bool) -> tuple[str, Signature | None]:
    """Classify a directory entry; return also the signature of a run's `run.json`.

    It is a "run", perhaps only its remains, a "directory", which may contain runs, or "other".
    """
    try:
        if entry.name.startswith(INDEX_FILE) or not entry.is_dir(follow_symlinks=follow):
            return "other", None
        status = os.stat(f"{entry.path}/{RUN_FILE}")
    except FileNotFoundError:
        pass
    except OSError:
        # An unreadable directory or a cyclic link counts as a run if the parent contains only runs.
        return "run" if ours else "other", None
    else:
        return "run", (status.st_mtime_ns, status.st_size, status.st_ino)
    try:
        names = os.listdir(entry.path)
    except OSError:
        names = []
    if not names:
        return "run" if ours else "other", None
    if SAMPLES_FILE in names or RUN_FILE in names:
        return "run", None  # the remains of a run; a run.json that is a dangling link counts too
    return "other" if METRICS_OTLP_FILE in names else "directory", None
