"""Which runs a command is about.

=================  ==================================================================================================
what is given      what is meant
=================  ==================================================================================================
nothing, "latest"  the newest run where runs are kept
"latest:NAME"      the newest of the runs of that name; where NAME is a directory, the newest run in it
a path             the run directory, or that of its `run.json`; for a command about many runs all runs in that tree
a URL              as a path, of a store to which runs were uploaded: they are fetched
a name             for a command about one run the newest of that name, else all of that name; the name of a run directory
GROUP/RANK         the newest run of that rank of a group; GROUP alone, for a command about many runs: all of the group
=================  ==================================================================================================
"""

from __future__ import annotations

import os
from pathlib import Path

from otel_memwatch.errors import RunError, UsageError
from otel_memwatch.record.format import RUN_FILE
from otel_memwatch.runtime.masking import mask_url
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.wings.index.index import index, runs_home
from otel_memwatch.wings.index.remote import here, is_remote

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_memwatch.wings.index.indexed_run import IndexedRun

LATEST = "latest"
_LATEST_OF = f"{LATEST}:"


def find_run(given: str | None) -> Path:
    """The run directory that is meant; one that is neither a path nor the name of a run is given back as a path.

    Raises `UsageError` where there is no newest one.
    """
    if given in (None, LATEST):
        if given == LATEST and os.path.isfile(f"{LATEST}/{RUN_FILE}"):
            return Path(LATEST)
        return _newest(index(), f"below {runs_home()}")
    assert given is not None
    if is_remote(given):
        return _fetched_run(given)
    if os.path.lexists(given):
        path = Path(given)
        return path.parent if path.name == RUN_FILE and os.path.isfile(path) else path
    if given.startswith(_LATEST_OF):
        of = given.removeprefix(_LATEST_OF)
        if os.path.isdir(of):
            return _newest(index([of]), f"in {of}")
        return _newest(_named(of), f"of the name {of}")
    found = _named(given) or _rank(given)
    return Path(found[-1].path) if found else Path(given)


def _fetched_run(url: str) -> Path:
    """Return the run at a URL. `wrap --upload URL` makes a directory in it, so the only run below it is meant, too."""
    rows = index([here(url)])
    if len(rows) == 1:
        return Path(rows[0].path)
    where = mask_url(url).rstrip("/")
    if not rows:
        raise RunError(f"There are no runs in {where}.")
    newest = os.path.relpath(rows[-1].path, here(url))
    raise UsageError(f"{where} holds {len(rows)} runs.", f"name one, as in {where}/{newest}")


def find_runs(given: Sequence[str]) -> list[IndexedRun]:
    """The runs that are meant, the oldest first, each once; without any given, all where runs are kept.

    Raises `UsageError` for what is neither a path nor the name of a run, `RunError` for a path that cannot be read.
    """
    rows: dict[str, IndexedRun] = {}
    for one in map(here, given):
        for row in _meant(one):
            rows.setdefault(os.path.realpath(row.path), row)
    found = rows.values() if given else index()
    return sorted(found, key=lambda row: (row.started, row.path))


def find_paths(given: str | None) -> list[Path]:
    """As `find_run`, for a command about many runs: all in a tree, all of a name; the oldest first."""
    if given is None or given == LATEST or given.startswith(_LATEST_OF):
        return [find_run(given)]
    given = here(given)
    if os.path.isdir(given) and not os.path.lexists(f"{given}/{RUN_FILE}"):
        return [Path(row.path) for row in index([given])] or [Path(given)]
    return (
        [find_run(given)]
        if os.path.lexists(given)
        else [Path(row.path) for row in _named(given)] or [Path(given)]
    )


def _meant(given: str) -> Iterable[IndexedRun]:
    if os.path.lexists(given):
        path = Path(given)
        return index([path.parent if path.name == RUN_FILE and os.path.isfile(path) else path])
    if given == LATEST or given.startswith(_LATEST_OF):
        return index([find_run(given)])
    found = _named(given) or _rank(given) or [row for row in index() if row.group == given]
    if not found:
        raise UsageError(
            f"There is no run {given}: neither a path nor the name of a run below {runs_home()}.",
            "`otel-memwatch runs` lists them",
        )
    return found


def _named(name: str) -> list[IndexedRun]:
    """The runs of that name, the oldest first; without any, those whose directory is called so."""
    if not name or "/" in name:
        return []
    rows = index()
    return [row for row in rows if row.name == name] or [
        row for row in rows if os.path.basename(row.path) == name
    ]


def _rank(given: str) -> list[IndexedRun]:
    """The runs of one rank of a group, named as GROUP/RANK, the oldest first."""
    group, slash, rank = given.rpartition("/")
    if not slash or not (rank.isascii() and rank.isdecimal()):
        return []
    return [row for row in index() if row.group == group and row.rank == int(rank)]


def _newest(rows: Sequence[IndexedRun], where: str) -> Path:
    """The newest one. What never became a run is not it, but where there is nothing else the reader says what that is."""
    if not rows:
        raise UsageError(f"There is no run {where}.", "name a run directory")
    whole = [row for row in rows if row.state != "broken"]
    return Path((whole or rows)[-1].path)
