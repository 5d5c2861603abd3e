"""Largest value since any earlier moment, for any number of overlapping periods at once."""

from __future__ import annotations

from bisect import bisect_right

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_ABOVE_ALL = 1 << 63


class Segments:
    """Maxima of the segments between boundaries.

    Operations overlap in any way (threads, tasks), so a value cannot simply be passed to an enclosing one. A segment
    matters only until a later one is at least as large. So the entries form a strictly decreasing sequence: the largest
    value after a boundary is the first entry after it. Adding costs O(1) amortised, a query O(log n), for any number of
    open operations. Not thread-safe.
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[
            tuple[int, int]
        ] = []  # of pairs: an interrupt between two steps leaves them in order

    def push(self, number: int, value: int) -> None:
        """Add the largest `value` of the segment that ended at boundary `number`; numbers increase."""
        entries = self._entries
        while entries and entries[-1][1] <= value:
            entries.pop()
        entries.append((number, value))

    def push_all(self, first: int, values: Sequence[int]) -> None:
        """Push each value, numbered from `first` on. Most cost one comparison: few exceed all later ones."""
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
        """Return the largest value of the segments that ended after boundary `number`; `None`: none did."""
        entries = self._entries
        position = bisect_right(entries, (number, _ABOVE_ALL))
        return entries[position][1] if position < len(entries) else None

    def clear(self) -> None:
        """Remove all segments: no later query concerns an earlier moment."""
        self._entries.clear()
