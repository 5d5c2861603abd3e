"""Fold operations of one name into one row: 60 epochs of 300 batches each become 2 rows instead of 18 060."""

from __future__ import annotations

from otel_memwatch.run.operation_names import series_name
from otel_memwatch.runtime.light import defaultdict
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_memwatch.run import OperationFigures

_SHOWN_UNFOLDED = 24
"""Most operations of a run that are never folded."""
_FOLDED = 4
"""Fewest operations of one name that become one row."""
_SPECIAL = 4
"""Failed and unfinished operations that get a row besides the folded one."""


class Shown(NamedTuple):
    """Row of the timeline: one operation, or several of one name."""

    depth: int
    members: tuple[OperationFigures, ...]
    """More than one if they are folded."""
    inside: str = ""
    """Name of the enclosing operation, if the row repeats one of a folded row."""


def rows(listed: Sequence[OperationFigures]) -> list[Shown]:
    """Return the rows of all operations by start, each followed by the operations in it.

    Operations of one name are folded if one operation, or operations that are folded themselves, enclose them. The names
    "epoch 1" and "epoch 2" count as one. The operation of the run's peak gets a separate row, and so do operations that
    failed or were not closed.
    """
    if len(listed) <= _SHOWN_UNFOLDED:
        return [Shown(figures.depth, (figures,)) for figures in listed]
    inside: dict[int | None, list[int]] = defaultdict(list)
    for index, figures in enumerate(listed):
        inside[figures.parent].append(index)
    # Depth first without recursion, as nesting may be deep.
    found = []
    waiting = [(group, 0) for group in _groups(listed, inside, [None])][::-1]
    while waiting:
        group, depth = waiting.pop()
        found.append(Shown(depth, tuple(listed[index] for index in group)))
        if len(group) > 1:
            special = 0
            for index in group:
                figures = listed[index]
                unusual = figures.operation.status != "ok" and special < _SPECIAL
                if figures.sets_run_peak or unusual:
                    special += not figures.sets_run_peak
                    around = "" if figures.parent is None else listed[figures.parent].operation.name
                    found.append(Shown(depth, (figures,), around))
        waiting += [(deeper, depth + 1) for deeper in _groups(listed, inside, group)][::-1]
    return found


def _groups(
    listed: Sequence[OperationFigures], inside: dict[int | None, list[int]], parents: Iterable[int | None]
) -> list[list[int]]:
    """Return groups of one name within `parents`, in the order of their first operation."""
    named: dict[str, list[int]] = defaultdict(list)
    for parent in parents:
        for index in inside.get(parent, ()):
            named[series_name(listed[index].operation.name)].append(index)
    found = []
    for members in named.values():
        found += [members] if len(members) >= _FOLDED else [[index] for index in members]
    return sorted(found, key=lambda group: group[0])
