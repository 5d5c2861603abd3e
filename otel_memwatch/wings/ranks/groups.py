"""Groups found among recorded runs: members, runs that count, and missing ranks.

* Runs with the same group name are one group. If a tree holds several groups, a name selects one.
* Runs inside another run's span on the same machine join its group if both have one. Their memory is added up once.
  Example: a run around `torchrun` in a Slurm step and the runs of its ranks, although the launchers differ in names.
* If a rank has several runs, the last attempt counts and the others are listed. Attempts are ordered by the launcher's
  count, then by start.
* If all ranks start together, an attempt includes all of them. A run that ended before the last attempt began belongs to
  an earlier one, even if its rank is not in the last attempt.
* A rank without a run is missing. Ranks are numbered by the launcher's size, by the limits of a Slurm array, or up to the
  largest recorded number.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

from otel_memwatch.errors import RunError, UsageError
from otel_memwatch.record.format import RUN_FILE
from otel_memwatch.record.identity import STARTED_ONE_BY_ONE
from otel_memwatch.run.recorded_run import load
from otel_memwatch.runtime.masking import mask_url
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.wings.index.index import index
from otel_memwatch.wings.index.remote import here, is_remote
from otel_memwatch.wings.ranks.rank_group import Rank, RankGroup, rank_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_memwatch.record.run_info_schema import GroupFields
    from otel_memwatch.run.recorded_run import RecordedRun
    from otel_memwatch.wings.index.indexed_run import IndexedRun

_MOST_RANKS = 1_000_000
"""Most ranks that a launcher can plausibly report; a larger number is damage."""


class FoundGroup(NamedTuple):
    """Runs of a group, before they are read."""

    names: tuple[str, ...]
    """Names of the group; the name that the ranks use comes first."""
    rows: Sequence[IndexedRun]


def find_group(given: str | None) -> RankGroup | None:
    """Return the group with this name, or the only group in a tree of directories; `None` if it is not a group.

    Raises `UsageError` if a tree holds several groups and no name selects one.
    """
    named, given = given, None if given is None else here(given)
    if given is None or os.path.isfile(os.path.join(given, RUN_FILE)) or os.path.isfile(given):
        return None
    if os.path.isdir(given):
        found = groups_of(index([given]))
        if len(found) > 1:
            names = ", ".join(group.names[0] for group in found[:8]) + (" ..." if len(found) > 8 else "")
            if is_remote(named):
                newest = os.path.relpath(found[-1].rows[-1].path, given)
                where = mask_url(str(named)).rstrip("/")
                hint = f"name a run, as in {where}/{newest}; upload each group to a URL of its own"
                raise UsageError(f"{where} holds {len(found)} groups: {names}.", hint)
            raise UsageError(
                f"{given} holds {len(found)} groups: {names}.",
                f"name one, as in {given}:{found[-1].names[0]}",
            )
        return opened(found[0]) if found else None
    rows: Sequence[IndexedRun] | None = None
    name = given
    # Both directory and name may contain colons.
    ends = [at for at, letter in enumerate(given) if letter == ":" and os.path.isdir(given[:at])]
    if ends:
        rows, name = index([given[: ends[-1]]]), given[ends[-1] + 1 :]
    found = [group for group in groups_of(rows if rows is not None else index()) if name in group.names]
    return opened(found[0]) if found else None


def groups_and_runs(given: str) -> tuple[list[RankGroup], list[str]]:
    """Return the groups and the paths of single runs that a command's argument names. A group counts as one run.

    A tree may hold many of both. In a tree, tasks of an array (started one by one) and groups of one rank are single
    runs. A group that is named is always a group.
    """
    given = here(given)
    if not os.path.isdir(given) or os.path.isfile(os.path.join(given, RUN_FILE)):
        group = find_group(given)
        return ([], [given]) if group is None else ([group], [])
    rows = index([given])
    groups, in_groups = [], set()
    for found in groups_of(rows):
        if len({row.rank for row in found.rows}) < 2:
            continue
        group = opened(found)
        if group.launcher not in STARTED_ONE_BY_ONE:
            groups.append(group)
            in_groups |= {row.path for row in found.rows}
    if not groups:
        return [], [given]
    return groups, [row.path for row in rows if row.path not in in_groups]


def groups_of(rows: Iterable[IndexedRun]) -> list[FoundGroup]:
    """Return the groups among these runs, the oldest first. Runs without a group are omitted."""
    listed = [row for row in rows if row.state != "broken"]
    of_span = {row.span: row for row in listed if row.span is not None}
    # A run and its enclosing run are in one group; walk up to find its name.
    joined: dict[str, str] = {}

    def root(name: str) -> str:
        while joined.get(name, name) != name:
            name = joined[name]
        return name

    for row in listed:
        outer = of_span.get(row.parent) if row.parent is not None else None
        if row.group is None or outer is None or outer.group is None or outer.host != row.host:
            continue
        if root(outer.group) != root(row.group):
            joined[root(outer.group)] = root(row.group)
    members: dict[str, dict[str, IndexedRun]] = {}
    names: dict[str, dict[str, None]] = {}
    for row in listed:
        if row.group is not None:
            members.setdefault(root(row.group), {})[row.path] = row
            names.setdefault(root(row.group), {root(row.group): None})[row.group] = None
    found = [FoundGroup(tuple(names[name]), list(runs.values())) for name, runs in members.items()]
    return sorted(found, key=lambda group: min(row.started for row in group.rows))


def opened(group: FoundGroup) -> RankGroup:
    """Read the runs of a group for reports. Raises `RunError` if no run can be read."""
    runs: list[RecordedRun] = []
    for row in group.rows:
        try:
            runs.append(load(Path(row.path)))
        except RunError:
            continue  # broken since the index was made; the rank is missing
    if not runs:
        raise RunError(f"No run of the group {group.names[0]} can be read.")
    # The enclosing run of each run that another run on the same machine started.
    outer: dict[RecordedRun, RecordedRun] = {}
    of_span = {run.trace.get("span_id"): run for run in runs if run.trace.get("span_id")}
    for run in runs:
        parent = of_span.get(run.trace.get("parent_span_id"))
        if parent is not None and parent is not run and _machine(parent) == _machine(run):
            outer[run] = parent
    # A run around others is not a rank, even if its launcher numbered it; it stands for its whole host.
    outermost = set(outer.values())
    ranked = [run for run in runs if run not in outermost]
    last, earlier = _attempts(ranked)
    # A run that only encloses ranks of an earlier attempt belongs to that attempt.
    kept = dict.fromkeys(outer[run] for run in last if run in outer)
    ranks = [rank_of(run, inside=outer.get(run) in kept) for run in last]
    hosts = [rank_of(run, inside=outer.get(run) in kept)._replace(rank=None, around=True) for run in kept]
    places = [run.fields.group for run in last]
    size = max((place.size or 0 for place in places), default=0)
    return RankGroup(
        group.names[0],
        sorted([*ranks, *hosts], key=_order),
        earlier=sorted((rank_of(run, inside=False) for run in earlier), key=_order),
        size=size or None,
        missing=_missing(places, size),
        more=group.names[1:],
        launcher=next((place.launcher for place in places if place.launcher), ""),
    )


def _order(rank: Rank) -> tuple[float, str, float]:
    return (math.inf if rank.rank is None else rank.rank, rank.host, rank.run.started_wall)


def _machine(run: RecordedRun) -> object:
    return run.fields.clock.boot_id or run.host.get("name")


def _attempts(runs: Sequence[RecordedRun]) -> tuple[list[RecordedRun], list[RecordedRun]]:
    """Return the runs of the last attempt, and the runs of earlier ones."""
    of_rank: dict[object, list[RecordedRun]] = {}
    for run in runs:
        rank = run.fields.group.rank
        # Attempts are matched by rank, so a run without a rank is its only attempt.
        of_rank.setdefault(id(run) if rank is None else ("rank", rank), []).append(run)
    last = [max(same, key=_attempt) for same in of_rank.values()]
    earlier = [run for run in runs if run not in last]
    together = [run for run in last if run.fields.group.launcher not in STARTED_ONE_BY_ONE]
    if not together:
        return last, earlier
    newest = max(_attempt(run)[0] for run in together)
    # If ranks have several runs without a count, their last runs began the last attempt.
    began = [max(same, key=_attempt).started_wall for same in of_rank.values() if len(same) > 1]
    begin = min(began, default=-math.inf)
    for run in together:
        ended = run.started_wall + run.seconds
        if _attempt(run)[0] < newest or (ended < begin and run.state != "running"):
            last.remove(run)
            earlier.append(run)
    return last, earlier


def _attempt(run: RecordedRun) -> tuple[int, float]:
    return run.fields.group.attempt or 0, run.started_wall


def _missing(places: Sequence[GroupFields], size: int) -> list[int]:
    """Return the numbers of ranks without a run."""
    there = {place.rank for place in places if place.rank is not None}
    if not there:
        return []
    first = min(place.first or 0 for place in places)
    step = max(1, *(place.step or 1 for place in places))
    count = size or (max(there) - first) // step + 1
    if count > _MOST_RANKS:
        return []
    return [rank for rank in range(first, first + count * step, step) if rank not in there]
