"""Bounds of memory needed, in each sample of a run with a dedicated cgroup.

They follow from readings of two sources, the cgroup and the tree's I/O. The bounds of the window that ends at a sample
are known at the next sample, and its row holds them:

    sample 1 ------------ sample 2 ------------ sample 3
             |<- window ->|                     its bounds stand in this row
"""

from __future__ import annotations

from otel_memwatch import catalog
from otel_memwatch.record.schema import columns_of, sample_maker, whole_of
from otel_memwatch.run.cgroup_bounds import CgroupBounds
from otel_memwatch.run.conditions import RunConditions
from otel_memwatch.runtime.light import itemgetter
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.truth.cgroup_windows import low_with_processes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_memwatch.model import Column, Value
    from otel_memwatch.run.cgroup_bounds import CgroupWindow

_READ = ("usage", "anon", "file", "window", "watermark", "gap", "locked", "moved")
"""Fields of a sample that `CgroupBounds` reads, besides the bounds themselves."""
_SAME = 3
"""Number of equal samples before one from which on its window is that of the sample before."""


class NeededBounds:
    """Filler of the two columns, by the rule in `run.cgroup_bounds` that also reads old records (10 us a changed sample)."""

    def __init__(self, info: Mapping[str, Any]) -> None:
        self._bounds = CgroupBounds(RunConditions.of(info))
        self._there: Value = None
        """Bytes that the processes needed at the last sample; `None`: not read, as few processors suffice without."""
        self._readings: tuple[Value, ...] = ()
        """Readings of the last sample on which bounds depend."""
        self._alike = 0
        """Number of samples before it with the same."""
        self._window: CgroupWindow | None = None
        """Bounds of the last window."""

    def declare(self, columns: Sequence[Column]) -> None:
        """Set the columns of the following samples.

        Without the two columns nothing is filled in: a source that only waits for processes lacks them.
        """
        place = {column.metric: number for number, column in enumerate(columns)}
        self._places = (
            place.get(catalog.MEMWATCH_TREE_MEMORY_NEEDED_LOW),
            place.get(catalog.MEMWATCH_TREE_MEMORY_NEEDED_HIGH),
        )
        self._make = sample_maker(columns)
        fields = (field for name in _READ for field in columns_of(name, columns))
        # With the first value, so it is never empty.
        self._pick = itemgetter(0, *sorted(columns.index(column) for column in fields))
        self._alike = 0

    def fill(self, time: float, values: list[Value]) -> None:
        """Put the bounds of the window that ended at the previous sample into the values of this one."""
        low, high = self._places
        if low is None or high is None:
            return
        there, self._there = self._there, values[low]
        values[low] = None
        readings = self._pick(values)
        self._alike = self._alike + 1 if readings == self._readings else 0
        self._readings = readings
        # Windows between equal samples have equal bounds. The rule needs a sample on either side of its window.
        if self._alike < _SAME:
            self._window = self._bounds.add(self._make((time, *values)))
        self._put(low, high, there, values)

    def fill_repeated(self, values: list[Value]) -> bool:
        """Do the same for samples that repeat the last one; return `False` if their bounds may differ from those of its window."""
        low, high = self._places
        if low is None or high is None:
            return True
        there, values[low] = values[low], None
        if self._alike < _SAME or there != self._there or self._pick(values) != self._readings:
            return False
        self._put(low, high, there, values)
        return True

    def _put(self, low: int, high: int, there: Value, values: list[Value]) -> None:
        window = self._window
        if window is not None:
            values[low] = (
                window.low if there is None else low_with_processes(window.low, whole_of(there), window.high)
            )
            values[high] = window.high
