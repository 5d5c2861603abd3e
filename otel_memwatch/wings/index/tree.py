"""Finds the run directories in a tree of directories."""

from __future__ import annotations

import os

from otel_memwatch.errors import RunError
from otel_memwatch.record.format import INDEX_FILE, METRICS_OTLP_FILE, RUN_FILE, RUNS_DIRECTORY, SAMPLES_FILE
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEEPEST = 8
"""Directories below the named one in which runs are looked for."""

_NO_DISK = frozenset({"/proc", "/sys", "/dev"})
"""Where no run can lie, and a great deal of else: looked into only where it is named itself."""

Signature = tuple[int, int, int]
"""Modification time in nanoseconds, size and inode of a `run.json`: another one has another signature."""


def run_directories(root: str) -> list[str]:
    """The run directories at or below `root`, broken ones too; in no order. Raises `RunError` where it cannot be read."""
    return [f"{parent}/{name}" if name else parent for parent, entries in run_tree(root) for name in entries]


def run_tree(root: str, *, follow_links: bool = True) -> Iterator[tuple[str, dict[str, Signature | None]]]:
    """Directories that hold runs, each with the names of these and their signatures; "" for a directory that is a run itself.

    A directory that is a run is not looked into. Links are followed in the named directory only, which excludes circles;
    without `follow_links` nowhere.
    Raises `RunError` where the root cannot be read; one that is not there holds none.
    """
    if os.path.lexists(f"{root}/{RUN_FILE}") or os.path.isfile(root):
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
            kind, signature = _looked_at(entry, follow=follow, ours=ours)
            if kind == "run":
                found[entry.name] = signature
            elif kind == "directory" and depth < _DEEPEST and not _is_passed_over(entry):
                deeper.append(entry.path)
    if found:
        yield parent, found
    for path in deeper:
        try:
            yield from _below(path, depth + 1, follow=False)
        except OSError:
            continue  # it was removed meanwhile, or is not ours to read


def _is_passed_over(entry: os.DirEntry[str]) -> bool:
    return entry.name.startswith(".") or entry.path in _NO_DISK


def _looked_at(entry: os.DirEntry[str], *, follow: bool, ours: bool) -> tuple[str, Signature | None]:
    """What an entry of a directory is: "run", "directory" or "other"; and the signature of a run that has a description."""
    try:
        if entry.name.startswith(INDEX_FILE) or not entry.is_dir(follow_symlinks=follow):
            return "other", None
        status = os.stat(f"{entry.path}/{RUN_FILE}")
    except FileNotFoundError:
        return _without_description(entry.path, ours=ours), None
    except OSError:
        # It may not be looked into, or is a link in a circle: a run, for all that can be told, where only runs are kept.
        return "run" if ours else "other", None
    return "run", (status.st_mtime_ns, status.st_size, status.st_ino)


def _without_description(path: str, *, ours: bool) -> str:
    """What a directory without a `run.json` is: "run", or what is left of one; "directory": there may be runs in it."""
    try:
        names = os.listdir(path)
    except OSError:
        return "run" if ours else "other"
    if SAMPLES_FILE in names or RUN_FILE in names:
        return "run"  # a run.json that is a link to nowhere was meant for one too
    if not names:
        return "run" if ours else "other"
    return "other" if METRICS_OTLP_FILE in names else "directory"
