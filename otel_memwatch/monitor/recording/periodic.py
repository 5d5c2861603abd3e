"""Actions of the sampling thread that repeat after a period."""

from __future__ import annotations

import math

from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class PeriodicAction:
    """An action of the sampling thread: once every `period` seconds, at the first sample at which it is due.

    Args:
        action: gets the time of the sample in monotonic seconds.
        period: 0 for every sample.

    Attributes:
        due: time from which on it is due; never until this is set.

    """

    def __init__(self, action: Callable[[float], None], period: float = 0.0) -> None:
        self._action = action
        self.period = period
        self.due = math.inf

    def run_if_due(self, now: float) -> None:
        """Call the action if it is due."""
        if now >= self.due:
            self._action(now)
            self.due = now + self.period
