"""Which runs are one group, which of them count, and which ranks are missing.

===========================  ======================================================================================
runs                         what becomes of them
===========================  ======================================================================================
of the same group            one group; several groups in a tree have to be told apart by name
inside another run's span    on the same machine: where both have a group, one with it, added up once. So a run around `torchrun`
                             in a Slurm step and those of its ranks are one, whatever their launchers call it
of one rank twice            the last attempt counts, the others are listed: by the launcher's count, then by their start.
                             Where all ranks start together, an attempt is one of all: what had ended before the last one
                             began is of an earlier one, also of ranks that are not in the last
a number that no run has     missing: of the launcher's size, of a Slurm array's limits, or below the largest that is there
===========================  ======================================================================================
"""

from __future__ import annotations

import math
import os
from pathlib import Path

from otel_memwatch.errors import RunError, UsageError
from otel_memwatch.record.fields import mapping, text, whole
from otel_memwatch.record.format import RUN_FILE
from otel_memwatch.record.identity import STARTED_ONE_BY_ONE
from otel_memwatch.run.recorded_run import load
from otel_memwatch.runtime.masking import mask_url
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.wings.index.index import index
from otel_memwatch.wings.index.remote import here, is_remote
from otel_memwatch.wings.ranks.rank_group import Rank, RankGroup, rank_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_memwatch.run.recorded_run import RecordedRun
    from otel_memwatch.wings.index.indexed_run import IndexedRun

_MOST_RANKS = 1_000_000
"""Ranks that a launcher may tell of; more is damage."""


class FoundGroup(NamedTuple):
    """The runs of a group, before they are read."""

    names: tuple[str, ...]
    """Its names, the one that its ranks have first."""
    rows: Sequence[IndexedRun]


def find_group(given: str | None) -> RankGroup | None:
    """The group that is meant by a name, or by a tree of directories that holds one; `None`: it is not one.

    Raises `UsageError` where a tree holds several, and the name does not say which.
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
    directory, colon, of = given.rpartition(":")
    if colon and os.path.isdir(directory):
        rows, name = index([directory]), of
    found = [group for group in groups_of(rows if rows is not None else index()) if name in group.names]
    return opened(found[0]) if found else None


def groups_and_runs(given: str) -> tuple[list[RankGroup], list[str]]:
    """What a command about many runs is given, as groups that count as one run each, and as paths of single runs.

    A tree may hold many of both. Tasks of an array, that are started one by one, and a group of one rank are single runs
    there; by its name any group is one.
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
    """The groups among some runs, the oldest first; runs that belong to none are left out."""
    listed = [row for row in rows if row.state != "broken"]
    of_span = {row.span: row for row in listed if row.span is not None}
    # A run and the one around it are of one group: found by walking up.
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
    """The group as reports take it. Raises `RunError` where no run of it can be read."""
    runs: list[RecordedRun] = []
    for row in group.rows:
        try:
            runs.append(load(Path(row.path)))
        except RunError:
            continue  # it is broken by now: its rank is missing
    if not runs:
        raise RunError(f"No run of the group {group.names[0]} can be read.")
    outer = _around(runs)
    # One around others is no rank itself, although its launcher gave it a number: it is all of its host.
    outermost = set(outer.values())
    ranked = [run for run in runs if run not in outermost]
    last, earlier = _attempts(ranked)
    # A run around ranks of an attempt before, and around none of the last one, is of that attempt.
    kept = dict.fromkeys(outer[run] for run in last if run in outer)
    ranks = [rank_of(run, inside=outer.get(run) in kept) for run in last]
    hosts = [rank_of(run, inside=outer.get(run) in kept)._replace(rank=None) for run in kept]
    told = [mapping(run.info.get("group")) for run in last]
    size = max((whole(one.get("size")) or 0 for one in told), default=0)
    return RankGroup(
        group.names[0],
        sorted([*ranks, *hosts], key=_order),
        earlier=sorted((rank_of(run, inside=False) for run in earlier), key=_order),
        size=size or None,
        missing=_missing(told, size),
        more=group.names[1:],
        launcher=next((name for one in told if (name := text(one.get("launcher")))), ""),
    )


def _order(rank: Rank) -> tuple[float, str, float]:
    return (math.inf if rank.rank is None else rank.rank, rank.host, rank.run.started_wall)


def _around(runs: Sequence[RecordedRun]) -> dict[RecordedRun, RecordedRun]:
    """For each run that was started inside another one on the same machine, that one."""
    of_span = {run.trace.get("span_id"): run for run in runs if run.trace.get("span_id")}
    found = {}
    for run in runs:
        outer = of_span.get(run.trace.get("parent_span_id"))
        if outer is not None and outer is not run and _machine(outer) == _machine(run):
            found[run] = outer
    return found


def _machine(run: RecordedRun) -> object:
    return mapping(run.info.get("clock")).get("boot_id") or run.host.get("name")


def _attempts(runs: Sequence[RecordedRun]) -> tuple[list[RecordedRun], list[RecordedRun]]:
    """The runs of the last attempt, and those of earlier ones."""
    of_rank: dict[object, list[RecordedRun]] = {}
    for run in runs:
        rank = whole(mapping(run.info.get("group")).get("rank"))
        # Without a number nobody can be another attempt of it.
        of_rank.setdefault(id(run) if rank is None else ("rank", rank), []).append(run)
    last = [max(same, key=_attempt) for same in of_rank.values()]
    earlier = [run for run in runs if run not in last]
    together = [
        run for run in last if mapping(run.info.get("group")).get("launcher") not in STARTED_ONE_BY_ONE
    ]
    if not together:
        return last, earlier
    newest = max(_attempt(run)[0] for run in together)
    # Of ranks that were there twice without a count the last ones began the last attempt.
    began = [max(same, key=_attempt).started_wall for same in of_rank.values() if len(same) > 1]
    begin = min(began, default=-math.inf)
    for run in together:
        ended = run.started_wall + run.seconds
        if _attempt(run)[0] < newest or (ended < begin and run.state != "running"):
            last.remove(run)
            earlier.append(run)
    return last, earlier


def _attempt(run: RecordedRun) -> tuple[int, float]:
    return whole(mapping(run.info.get("group")).get("attempt")) or 0, run.started_wall


def _missing(told: Sequence[Mapping[str, object]], size: int) -> list[int]:
    """Numbers of ranks of which there is no run."""
    there = {rank for one in told if (rank := whole(one.get("rank"))) is not None}
    if not there:
        return []
    first = min((whole(one.get("first")) or 0 for one in told), default=0)
    step = max(1, max((whole(one.get("step")) or 1 for one in told), default=1))
    count = size or (max(there) - first) // step + 1
    if count > _MOST_RANKS:
        return []
    return [rank for rank in range(first, first + count * step, step) if rank not in there]
