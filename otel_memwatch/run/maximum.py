"""The largest of successive values."""

from __future__ import annotations


class Maximum:
    """The largest value so far. All are `None` before the first.

    Attributes:
        value: the largest.
        at: when it was first seen, in monotonic seconds.
        first: the first value of all.

    """

    __slots__ = ("at", "first", "value")

    def __init__(self) -> None:
        self.value: int | None = None
        self.first: int | None = None
        self.at: float | None = None

    def copy(self) -> Maximum:
        """Return a copy."""
        other = Maximum()
        other.value, other.first, other.at = self.value, self.first, self.at
        return other

    def add(self, time: float, value: int | None) -> None:
        """Add a value; `None` is no value."""
        if value is not None and (self.value is None or value > self.value):
            if self.value is None:
                self.first = value
            self.value, self.at = value, time
