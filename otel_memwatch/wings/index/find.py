"""Selection of runs by the arguments of a command.

A command about one run selects one; a command about many runs selects all that match.

=================  ==================================================================================================
argument           one run                                            many runs
=================  ==================================================================================================
nothing, "latest"  the newest run in the default directory            likewise; `find_runs` without arguments: all
"latest:NAME"      the newest run in this directory, or of this name  likewise
a path             the run directory, or the parent of its run.json   all runs in the tree
a URL              as a path, in a store; the runs are fetched        likewise
a name             the newest run of this name, in a directory of     all runs of this name, in directories of
                   this name, or of this job as in `advise`           this name, or of this job
GROUP/RANK         the newest run of this rank of a group             all runs of this rank; GROUP alone: the group
a PID              the run of this process (`find_running` only); if there is none, a name
=================  ==================================================================================================

A path that contains no run gives way to a name: the program `train` may lie beside the runs of this name.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from otel_memwatch.errors import RunError, UsageError
from otel_memwatch.record.format import RUN_DIRECTORY_VARIABLE, RUN_FILE, RUNNING
from otel_memwatch.record.open import no_run, read_info, read_recipe
from otel_memwatch.record.run_info_schema import RunInfo
from otel_memwatch.runtime.masking import mask_url
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.wings.index.index import index, runs_home
from otel_memwatch.wings.index.remote import here, is_remote
from otel_memwatch.wings.index.run_search import run_directories

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.wings.index.indexed_run import IndexedRun

LATEST = "latest"
_LATEST_OF = f"{LATEST}:"


def find_run(given: str | None) -> Path:
    """Return the directory of the selected run. If nothing matches, return the argument as a path.

    Raises `UsageError` if there is no newest run.
    """
    if given in (None, LATEST):
        if given == LATEST and os.path.isfile(f"{LATEST}/{RUN_FILE}"):
            return Path(LATEST)
        return _newest(index(), f"below {runs_home()}")
    assert given is not None
    if is_remote(given):
        rows = index([here(given)])
        if len(rows) == 1:  # also below the URL, because `wrap --upload URL` creates a directory there
            return Path(rows[0].path)
        where = mask_url(given).rstrip("/")
        if not rows:
            raise RunError(f"There are no runs in {where}.")
        newest = os.path.relpath(rows[-1].path, here(given))
        raise UsageError(f"{where} holds {len(rows)} runs.", f"name one, as in {where}/{newest}")
    if os.path.lexists(given):
        named, path = _named_beside(given), Path(given)
        if named:
            return Path(named[-1].path)
        return path.parent if path.name == RUN_FILE and os.path.isfile(path) else path
    if given.startswith(_LATEST_OF):
        of = given.removeprefix(_LATEST_OF)
        if os.path.isdir(of):
            return _newest(index([of]), f"in {of}")
        return _newest(_named(of), f"of the name {of}")
    found = _named(given) or _rank(given)
    return Path(found[-1].path) if found else Path(given)


def find_running(given: str | None) -> Path:
    """Return the run of a recorded process or monitor given by PID; for other arguments the same as `find_run`.

    Raises `UsageError` if no run belongs to the process, and `RunError` if there is no such run.
    """
    if given is None or not (given.isascii() and given.isdecimal()) or os.path.isdir(given):
        found = find_run(given)
        if not os.path.lexists(found):
            raise no_run(found)
        return found
    pid = int(given)
    # `wrap` names the run directory in the environment of its command.
    wanted = f"{RUN_DIRECTORY_VARIABLE}=".encode()
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        variables = []
    named = next((variable for variable in variables if variable.startswith(wanted)), None)
    if named is not None:
        path = Path(os.fsdecode(named.removeprefix(wanted)))
        if os.path.isfile(path / RUN_FILE):
            return path
    # Search the default directory for a run with this process as target or monitor.
    with contextlib.suppress(RunError):
        for path in map(Path, run_directories(runs_home())):
            with contextlib.suppress(RunError):
                info = RunInfo.of(read_info(path / RUN_FILE))
                if info.state == RUNNING and pid in (info.target.pid, info.monitor.pid):
                    return path
    if rows := _named(given):  # as that of a Slurm job
        return Path(rows[-1].path)
    raise UsageError(
        f"Process {pid} belongs to no run that can be found from here.",
        f"name its run directory, or record it with: otel-memwatch attach {pid}",
    )


def find_runs(given: Sequence[str]) -> list[IndexedRun]:
    """Return the selected runs, oldest first, without duplicates. Without arguments, return all in the default directory.

    Raises `UsageError` for an argument that is neither a path nor the name of a run, and `RunError` for an unreadable path.
    """
    rows: dict[str, IndexedRun] = {}
    for one in map(here, given):
        if os.path.lexists(one) or read_recipe(one) is not None:
            path = Path(one)
            directory = path.parent if path.name == RUN_FILE and os.path.isfile(path) else path
            matching = _named_beside(one) or index([directory])
        elif one == LATEST or one.startswith(_LATEST_OF):
            matching = index([find_run(one)])
        else:
            matching = _named(one) or _rank(one) or [row for row in index() if row.group == one]
            if not matching:
                raise UsageError(
                    f"There is no run {one}: neither a path nor the name of a run below {runs_home()}.",
                    "`otel-memwatch runs` lists them",
                )
        for row in matching:
            rows.setdefault(os.path.realpath(row.path), row)
    found = rows.values() if given else index()
    return sorted(found, key=lambda row: (row.started, row.path))


def paths_of(given: str) -> list[str]:
    """Return the argument, or the paths of all runs of this name if it is no directory and contains no run that can be read.

    Raises `RunError` if it is neither a path nor a name.
    """
    if os.path.isdir(given) or read_recipe(given) is not None:
        return [given]
    exists = os.path.lexists(given)
    rows = _named_beside(given) if exists else _named(given)
    if not rows and not exists:
        raise RunError(f"There is no directory {given}, and no run of this name.")
    return [row.path for row in rows] or [given]


def find_paths(given: str | None) -> list[Path]:
    """Return all runs in a tree or of a name, oldest first; for other arguments the same as `find_run`."""
    if given is None or given == LATEST or given.startswith(_LATEST_OF):
        return [find_run(given)]
    given = here(given)
    exists = os.path.lexists(given)
    rows = _named_beside(given) if exists else _named(given)
    if not rows and os.path.isdir(given) and not os.path.lexists(f"{given}/{RUN_FILE}"):
        rows = index([given])
    return [Path(row.path) for row in rows] or [find_run(given) if exists else Path(given)]


def runs_below(given: str | None) -> list[IndexedRun]:
    """Return the runs in a directory that is not a run itself, oldest first; empty for anything else."""
    directory = None if given is None else here(given)
    if directory is None or not os.path.isdir(directory) or os.path.lexists(f"{directory}/{RUN_FILE}"):
        return []
    # The directory may be a damaged run without a description.
    return [row for row in index([directory]) if not os.path.samefile(row.path, directory)]


def _named(name: str) -> list[IndexedRun]:
    """Return the runs of this name, oldest first; if there are none, those in directories of this name, or of this job."""
    if not name or "/" in name:
        return []
    rows = index()
    return (
        [row for row in rows if row.name == name]
        or [row for row in rows if os.path.basename(row.path) == name]
        or [row for row in rows if name == (row.tags.get("rule") or row.name or row.key)]
    )


def _named_beside(path: str) -> list[IndexedRun]:
    """Return the runs with the name of an existing path, if the path itself contains no run that can be read."""
    if os.path.isfile(f"{path}/{RUN_FILE}"):
        return []
    named = _named(path)
    return named if named and all(row.state == "broken" for row in index([path])) else []


def _rank(given: str) -> list[IndexedRun]:
    """Return the runs of one rank of a group, given as GROUP/RANK, oldest first."""
    group, slash, rank = given.rpartition("/")
    if not slash or not (rank.isascii() and rank.isdecimal()):
        return []
    return [row for row in index() if row.group == group and row.rank == int(rank)]


def _newest(rows: Sequence[IndexedRun], where: str) -> Path:
    """Return the newest run. Broken ones count only if there are no others; loading them reports the cause."""
    if not rows:
        raise UsageError(f"There is no run {where}.", "name a run directory")
    whole = [row for row in rows if row.state != "broken"]
    return Path((whole or rows)[-1].path)
