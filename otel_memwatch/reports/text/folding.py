"""Operations that say the same of themselves as one row: 60 epochs of 300 batches each are two lines, not 18 060."""

from __future__ import annotations

from collections import defaultdict

from otel_memwatch.run.operation_names import series_name
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from otel_memwatch.run import OperationFigures

_SHOWN_UNFOLDED = 24
"""Operations up to which every one has its row."""
_FOLDED = 4
"""Operations of one name within those around them from which on they are one row."""
_SPECIAL = 4
"""Failed and unfinished operations that are shown beside the row that they are in."""


class Shown(NamedTuple):
    """A row of the timeline: one operation, or several of one name."""

    depth: int
    members: tuple[OperationFigures, ...]
    """More than one: they are folded."""
    inside: str = ""
    """Of one that stands beside its row for something special: the operation around it."""


def rows(listed: Sequence[OperationFigures]) -> list[Shown]:
    """The rows of all operations, which are sorted by their start, those within others below them.

    Folded are those of one name that stand within one operation, or within operations that are folded themselves; "epoch 1"
    and "epoch 2" count as one name. The one of the run's peak, and those that failed or were not closed, are shown besides.
    """
    if len(listed) <= _SHOWN_UNFOLDED:
        return [Shown(figures.depth, (figures,)) for figures in listed]
    inside: dict[int | None, list[int]] = defaultdict(list)
    for index, figures in enumerate(listed):
        inside[figures.parent].append(index)
    return list(_siblings(listed, inside, [None], 0))


def _siblings(
    listed: Sequence[OperationFigures],
    inside: dict[int | None, list[int]],
    parents: Iterable[int | None],
    depth: int,
) -> Iterator[Shown]:
    """The rows of what is within `parents`, depth first, without recursion: a program may nest a thousand."""
    waiting = [(group, depth) for group in _groups(listed, inside, parents)][::-1]
    while waiting:
        group, depth = waiting.pop()
        yield Shown(depth, tuple(listed[index] for index in group))
        if len(group) > 1:
            yield from _special(listed, group, depth)
        waiting += [(deeper, depth + 1) for deeper in _groups(listed, inside, group)][::-1]


def _groups(
    listed: Sequence[OperationFigures], inside: dict[int | None, list[int]], parents: Iterable[int | None]
) -> list[list[int]]:
    """What is within `parents`, those of one name together, in the order of their first."""
    named: dict[str, list[int]] = defaultdict(list)
    for parent in parents:
        for index in inside.get(parent, ()):
            named[series_name(listed[index].operation.name)].append(index)
    found = []
    for members in named.values():
        found += [members] if len(members) >= _FOLDED else [[index] for index in members]
    return sorted(found, key=lambda group: group[0])


def _special(listed: Sequence[OperationFigures], group: Sequence[int], depth: int) -> Iterator[Shown]:
    shown = 0
    for index in group:
        figures = listed[index]
        if figures.sets_run_peak or (figures.operation.status != "ok" and shown < _SPECIAL):
            shown += not figures.sets_run_peak
            around = "" if figures.parent is None else listed[figures.parent].operation.name
            yield Shown(depth, (figures,), around)
