"""Upper bounds of the tree in the stretches between ticks, from windowed watermarks.

Each stretch has two bounds: what its windows tell, and what the processes that lived in it had in their whole lives, which
is known in the end only. The nearer one holds. So the stretches whose windows tell the most are kept until then, the
others count by their windows alone.
"""

from __future__ import annotations

import heapq
import math

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_KEPT = 64
"""Stretches that are kept."""


class _Stretch(NamedTuple):
    """What the windows between two ticks tell; they sort by that."""

    bound: float
    """Bytes, without the processes that no tick saw; infinite: they tell nothing."""
    start: float
    end: float
    units: int
    """Processes that no tick saw."""

    def total(self, unit: int) -> float:
        """With the processes that no tick saw, of which none had more than `unit` bytes."""
        return self.bound + self.units * unit


class Stretches:
    """The stretches so far, in little memory: a tick costs a microsecond."""

    def __init__(self) -> None:
        self._kept: list[_Stretch] = []
        self._other = _Stretch(-math.inf, 0.0, 0.0, 0)
        """More than any that is not kept."""
        self._open: _Stretch | None = None
        """The newest, whose end is the next tick."""
        self._before = -math.inf

    def tick(self, time: float, bound: int | None, units: int) -> None:
        """A tick ends a stretch.

        The readings of a tick take a moment: what the tick before told covers the time until this one, and what no tick
        saw until now may have been there already.

        Args:
            time: monotonic seconds.
            bound: bytes of the processes that were seen; `None`: the windows tell nothing.
            units: processes that no tick saw.

        """
        if self._open is not None:
            before = self._open
            self._keep(before._replace(end=time, units=before.units + units))
        told = math.inf if bound is None else float(bound)
        self._open = _Stretch(told, self._before, math.inf, units)
        self._before = time

    def _keep(self, stretch: _Stretch) -> None:
        if len(self._kept) < _KEPT:
            heapq.heappush(self._kept, stretch)
            return
        least = heapq.heappushpop(self._kept, stretch)
        most = max(self._other.bound, least.bound), max(self._other.units, least.units)
        self._other = _Stretch(most[0], 0.0, 0.0, most[1])

    def largest(self, unit: int, lives: Callable[[float, float], int]) -> float:
        """The largest bound of all stretches, that after the last tick included; infinite where there is none.

        Args:
            unit: bytes that none of the processes that no tick saw exceeded.
            lives: bound of the processes that live between two moments, both included.

        """
        last = [] if self._open is None else [self._open]
        most = max(lives(math.nextafter(self._before, math.inf), math.inf), self._other.total(unit))
        for stretch in (*self._kept, *last):
            total = stretch.total(unit)
            if total > most:
                most = max(most, min(total, lives(stretch.start, stretch.end)))
        return most
