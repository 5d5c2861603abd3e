"""Time of a run that no operation covers, with the change of memory in it."""

from __future__ import annotations

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.run.results import OperationFigures

_LEAST_SECONDS, _LEAST_SHARE, _LEAST_BYTES = 0.05, 0.02, 16 << 20
"""A gap counts from these seconds and this share of the run, or if memory grew by these bytes in it."""
_MOST_INSIDE = 0.8
"""Share of an operation's change above which the operations inside it explain it."""


class Gap(NamedTuple):
    """A stretch of the run outside all operations."""

    place: str
    """Either "before the first operation", "between A and B" or "after the last operation"."""
    start: float
    """Seconds since the start of the run."""
    end: float
    change: int | None
    """Growth of the resident size of the process that marks the operations, in bytes; `None`: unknown."""


def uncovered(operations: Sequence[OperationFigures], seconds: float, main: int | None) -> list[Gap]:
    """Return the gaps by time.

    Args:
        operations: operations by start.
        seconds: duration of the run.
        main: the target's PID. Its memory before the first operation is all from this run.

    """
    if not operations:
        return []
    first = operations[0]
    gaps: list[Gap] = []
    before = first.operation.start_bytes if first.operation.pid == main else None
    gaps.append(Gap("before the first operation", 0.0, first.start, before))
    last = first
    for figures in operations[1:]:
        if figures.start > last.end:
            change = None
            same = figures.operation.pid == last.operation.pid
            begin, end = figures.operation.start_bytes, last.operation.end_bytes
            if same and begin is not None and end is not None:
                change = begin - end
            place = f"between {last.operation.name} and {figures.operation.name}"
            gaps.append(Gap(place, last.end, figures.start, change))
        if figures.end > last.end:
            last = figures
    if last.operation.status != "open":
        gaps.append(Gap("after the last operation", last.end, seconds, None))
    least = max(_LEAST_SECONDS, _LEAST_SHARE * seconds)
    return [gap for gap in gaps if gap.end - gap.start >= least or (gap.change or 0) >= _LEAST_BYTES]


def kept(operations: Sequence[OperationFigures], least: int) -> list[tuple[str, int]]:
    """Return names of operations that kept at least so many bytes when they ended, and the most that one kept.

    An operation is left out if one inside it accounts for most of the change.
    """
    inside: dict[int, int] = {}
    for figures in operations:
        if figures.parent is not None and (figures.delta_bytes or 0) > 0:
            inside[figures.parent] = inside.get(figures.parent, 0) + (figures.delta_bytes or 0)
    most: dict[str, int] = {}
    for index, figures in enumerate(operations):
        change = figures.delta_bytes or 0
        if change >= least and inside.get(index, 0) < _MOST_INSIDE * change:
            name = figures.operation.name
            most[name] = max(change, most.get(name, 0))
    return sorted(most.items(), key=lambda item: -item[1])
