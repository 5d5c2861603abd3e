"""The largest value since any earlier moment, for any number of overlapping stretches at once."""

from __future__ import annotations

from bisect import bisect_right


class Segments:
    """Maxima of the segments between boundaries.

    Operations overlap in any way (threads, tasks), so that a value cannot simply be passed on to an enclosing
    one. A segment matters only until a later one is at least as large: what is kept is a strictly decreasing
    sequence, in which the largest value after a boundary is the first entry behind it. Adding costs O(1)
    amortised, asking O(log n), however many operations are open. Not thread-safe.
    """

    __slots__ = ("_numbers", "_values")

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._values: list[int] = []

    def push(self, number: int, value: int) -> None:
        """The segment that ended at boundary `number` (numbers increase) reached `value`."""
        values = self._values
        while values and values[-1] <= value:
            values.pop()
            self._numbers.pop()
        values.append(value)
        self._numbers.append(number)

    def since(self, number: int) -> int | None:
        """Largest value of the segments that ended after boundary `number`; `None`: there was none."""
        position = bisect_right(self._numbers, number)
        return self._values[position] if position < len(self._values) else None

    def clear(self) -> None:
        """Forget all: nothing that began before now will be asked for."""
        if self._values:
            self._values.clear()
            self._numbers.clear()
