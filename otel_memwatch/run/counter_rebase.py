"""Counters from the beginning of the run, if the watched processes existed before it.

A sample holds the use of the processes since their own start. A command that `wrap` started has its whole life in the
run. For a process that was attached to, the first known value is the use before the run.
"""

from __future__ import annotations

from otel_memwatch import catalog
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from otel_memwatch.model import Column, Value

_COUNTERS = frozenset(
    {
        catalog.MEMWATCH_TREE_CPU_TIME,
        catalog.MEMWATCH_TREE_DISK_IO,
        catalog.MEMWATCH_TREE_SYSCALL_IO,
        catalog.MEMWATCH_TREE_PAGING_FAULTS,
    }
)
"""Counters of the processes since their start, summed over the tree."""


def counters_in(columns: Sequence[Column]) -> list[Column]:
    """Return the columns that count from the start of the processes."""
    return [column for column in columns if column.metric in _COUNTERS]


class CounterRebase:
    """Counts from the first values on.

    Args:
        counters: names of the counters; values of anything else stay as they are.
    """

    def __init__(self, counters: Iterable[Hashable]) -> None:
        self._before: dict[Hashable, Value] = dict.fromkeys(counters)

    def of(self, counter: Hashable, value: Value) -> Value:
        """Return a value without the use before the run. Pass values in the order of time."""
        if value is None or counter not in self._before:
            return value
        before = self._before[counter]
        if before is None:
            before = self._before[counter] = value
        return round(value - before, 6) if isinstance(value, float) else value - before
