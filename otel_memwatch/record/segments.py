"""The largest value since any earlier moment, for any number of overlapping stretches at once."""

from __future__ import annotations

from bisect import bisect_right

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_ABOVE_ALL = 1 << 63


class Segments:
    """Maxima of the segments between boundaries.

    Operations overlap in any way (threads, tasks), so that a value cannot simply be passed on to an enclosing
    one. A segment matters only until a later one is at least as large: what is kept is a strictly decreasing
    sequence, in which the largest value after a boundary is the first entry behind it. Adding costs O(1)
    amortised, asking O(log n), however many operations are open. Not thread-safe.
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[
            tuple[int, int]
        ] = []  # of pairs: an interrupt between two steps leaves them in order

    def push(self, number: int, value: int) -> None:
        """The segment that ended at boundary `number` (numbers increase) reached `value`."""
        entries = self._entries
        while entries and entries[-1][1] <= value:
            entries.pop()
        entries.append((number, value))

    def push_all(self, first: int, values: Sequence[int]) -> None:
        """As `push` of each, numbered from `first` on. Costs one look at most of them: few are larger than all behind them."""
        kept: list[tuple[int, int]] = []
        largest, number = -1, first + len(values)
        for value in reversed(values):
            number -= 1
            if value > largest:
                largest = value
                kept.append((number, value))
        entries = self._entries
        while entries and entries[-1][1] <= largest:
            entries.pop()
        kept.reverse()
        entries.extend(kept)

    def since(self, number: int) -> int | None:
        """Largest value of the segments that ended after boundary `number`; `None`: there was none."""
        entries = self._entries
        position = bisect_right(entries, (number, _ABOVE_ALL))
        return entries[position][1] if position < len(entries) else None

    def clear(self) -> None:
        """Forget all: nothing that began before now will be asked for."""
        self._entries.clear()
