"""The tree's counters from the beginning of the run, where what is watched was there before it.

A tick holds what the processes have used since their own start. A command that `wrap` started has its whole life in the run;
of what was attached to, the first value that is known is what had been used before.
"""

from __future__ import annotations

from otel_memwatch import catalog
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.model import Column, Value

_COUNTERS = frozenset(
    {
        catalog.MEMWATCH_TREE_CPU_TIME,
        catalog.MEMWATCH_TREE_DISK_IO,
        catalog.MEMWATCH_TREE_SYSCALL_IO,
        catalog.MEMWATCH_TREE_PAGING_FAULTS,
    }
)
"""What processes have counted since their start, summed over the tree."""


class SinceFirst:
    """Counts from the first values on.

    Args:
        columns: of the values.
        joined: whether the target was there before the run; else nothing is taken off.

    """

    def __init__(self, columns: Sequence[Column], *, joined: bool) -> None:
        self._before: dict[int, float | None] = {
            index: None for index, column in enumerate(columns) if joined and column.metric in _COUNTERS
        }

    def of(self, index: int, value: Value) -> Value:
        """The value of a column without what was used before. Values have to come in their order in time."""
        if value is None or index not in self._before:
            return value
        before = self._before[index]
        if before is None:
            before = self._before[index] = value
        return round(value - before, 6) if isinstance(value, float) else value - before
