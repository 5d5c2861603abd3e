"""Largest values, with the moment at which each was first seen."""

from __future__ import annotations

from otel_memwatch import catalog
from otel_memwatch.model import Column, Peak, Value
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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
        """Another one of the same values."""
        other = Maximum()
        other.value, other.first, other.at = self.value, self.first, self.at
        return other

    def take(self, time: float, value: int | None) -> None:
        """Takes a value in; `None` is no value."""
        if value is not None and (self.value is None or value > self.value):
            if self.value is None:
                self.first = value
            self.value, self.at = value, time


class Devices:
    """Largest device memory by device, from the columns of `hw.gpu.memory.usage`."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._places = [
            (place, dict(column.attributes)["hw.id"])
            for place, column in enumerate(columns)
            if column.metric == catalog.HW_GPU_MEMORY_USAGE and "hw.id" in dict(column.attributes)
        ]
        self._largest: dict[str, Maximum] = {device: Maximum() for _, device in self._places}

    def take(self, time: float, values: Sequence[Value]) -> None:
        """Takes a tick in."""
        for place, device in self._places:
            value = values[place]
            if value is not None:
                self._largest[device].take(time, int(value))

    def peaks(self, started: float) -> Mapping[str, Peak]:
        """By device; devices without a value are left out."""
        return {
            device: Peak.sampled(
                largest.value,
                at=round(max(0.0, largest.at - started), 4),
                how="device memory in use, at ticks",
            )
            for device, largest in self._largest.items()
            if largest.value is not None and largest.at is not None
        }
