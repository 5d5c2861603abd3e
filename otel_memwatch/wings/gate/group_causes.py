"""The two sides of a comparison, and the causes of their difference in memory, for groups as for runs.

Causes of groups are those of each pair of equal ranks, alike ones added up.

The figure is the memory of all ranks together. Causes are those of each rank's peak, which may be at another time, and ranks may
share pages. What that adds or leaves out is part of the rest.
"""

from __future__ import annotations

import statistics

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.text import count, size
from otel_memwatch.wings.gate.causes import (
    Cause,
    Explanation,
    explain,
    known_memory,
    median_run,
    smallest_cause,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.run import RecordedRun
    from otel_memwatch.wings.ranks.rank_group import RankGroup

_NAMED = frozenset({"operation", "process", "processes", "function"})
"""Kinds that name a thing, and so may occur several times in a pair of ranks."""


class Side(NamedTuple):
    """Runs and groups of one side of a comparison."""

    runs: Sequence[RecordedRun]
    groups: Sequence[RankGroup] = ()

    @property
    def group(self) -> RankGroup | None:
        """The group with median memory, the smaller of two; `None`: there is no group."""
        ordered = sorted(self.groups, key=lambda group: known_memory(group.together.peak))
        return ordered[(len(ordered) - 1) // 2] if ordered else None

    @property
    def run(self) -> RecordedRun | None:
        """The run with median memory; for a group its largest rank. `None`: no memory is known."""
        if (group := self.group) is not None:
            ranks = group.by_memory()
            return ranks[0][0].run if ranks else None
        return median_run(self.runs)


def explain_sides(base: Side, head: Side) -> Explanation | None:
    """Return the causes of a difference between groups, or between runs; `None` between a group and runs."""
    if base.group is not None and head.group is not None:
        return explain_groups(base.group, head.group)
    return explain(base.runs, head.runs) if base.group is head.group is None else None


def explain_groups(base: RankGroup, head: RankGroup) -> Explanation | None:
    """Return the causes of the difference between two groups; `None`: it is too small."""
    was, now = (known_memory(group.together.peak) for group in (base, head))
    change, least = now - was, smallest_cause(was)
    if abs(change) < least:
        return None
    found = _ranks(base, head)
    # Runs of equal ranks; of groups without ranks, the runs by their size.
    sides = [
        {
            place if rank.rank is None else rank.rank: rank.run
            for place, (rank, _) in enumerate(group.by_memory())
        }
        for group in (base, head)
    ]
    pairs = [(sides[0][rank], sides[1][rank]) for rank in sorted(sides[0]) if rank in sides[1]]
    alike: dict[tuple[str, str], list[Cause]] = {}
    for one, other in pairs:
        explained = explain([one], [other])
        for cause in explained.causes if explained is not None else ():
            thing = cause.text.partition(",")[0].partition(":")[0] if cause.kind in _NAMED else ""
            alike.setdefault((cause.kind, thing), []).append(cause)
    for causes in alike.values():
        largest = max(causes, key=lambda cause: abs(cause.bytes))
        where = f"in {len(causes)} of {count(len(pairs), 'rank')}" if len(pairs) > 1 else ""
        words = ", ".join(filter(None, (largest.text, where)))
        found.append(Cause(largest.kind, sum(cause.bytes for cause in causes), words))
    found = sorted(
        (cause for cause in found if abs(cause.bytes) >= least), key=lambda cause: -abs(cause.bytes)
    )
    if abs(change - sum(cause.bytes for cause in found)) > abs(change):
        found = []  # they contradict the difference
    rest = change - sum(cause.bytes for cause in found)
    return Explanation(base.name, head.name, change, found, rest, ())


def _ranks(base: RankGroup, head: RankGroup) -> list[Cause]:
    """Return the memory of the ranks that only one group has."""
    sides = [[value for _, value in group.by_memory()] for group in (base, head)]
    more = len(sides[1]) - len(sides[0])
    if not more or not all(sides):
        return []
    each = int(statistics.median(sides[more > 0]))
    return [
        Cause(
            "ranks",
            more * each,
            f"for {count(abs(more), 'rank')} {'more' if more > 0 else 'fewer'}, {size(each)} each",
        )
    ]
