"""When a tick is taken before it is due: a source that can tell cheaply is asked between ticks whether one is worth its cost."""

from __future__ import annotations

import math

from otel_memwatch.runtime.typed import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

CPU_ADVANCE = 0.06
"""Seconds of CPU time that glances, and the ticks which they call for, may use at once: some sixty such ticks."""
CPU_SHARE = 0.002
"""Share of one core at which they may use it again."""
REST = 100
"""Times what one glance has cost that nobody looks after it: those at a large tree cost no larger part of a core."""
LEAST_LEFT = 0.005
"""Seconds before the next tick within which none is called for any more."""


class Glancing(Protocol):
    """A source that can be asked between ticks."""

    glance_within: float
    """Seconds after which a glance is worth its cost, counted from its last reading or glance; infinite: none is."""

    def glance(self, now: float) -> bool:
        """Whether a tick now would tell more than the next that is due; `now` is monotonic seconds."""


class Glances:
    """The glances of one sampler, and what they may cost."""

    def __init__(self, sources: Iterable[object]) -> None:
        self._sources: list[Glancing] = [source for source in sources if hasattr(source, "glance")]  # type: ignore[misc] # as asked
        self.due = math.inf
        """Monotonic seconds at which a glance is due; infinite: none is."""
        self._ahead = self._accounted_at = 0.0
        """CPU time used beyond the share, and the monotonic seconds at which it was."""
        self._rests_until = 0.0
        """Monotonic seconds until which no glance is taken, by what the last one has cost."""

    def plan(self, now: float, next_tick: float) -> None:
        """Find out when the next glance is due, after a tick or a glance at `now`."""
        self.due = math.inf
        if not self._sources or self._left(now) <= 0:
            return
        due = max(self._rests_until, now + min(source.glance_within for source in self._sources))
        if due < next_tick - LEAST_LEFT:
            self.due = due

    def ask(self, now: float) -> bool:
        """Whether a source wants a tick now. One that fails is not asked again: its readings tell what is wrong."""
        wanted = False
        for source in list(self._sources):
            try:
                wanted = source.glance(now) or wanted
            except Exception:  # noqa: BLE001 - whatever a source does, the run goes on
                self._sources.remove(source)
        return wanted

    def looked(self, now: float, seconds: float) -> None:
        """Account for a glance at `now` that has used `seconds` of CPU time."""
        self._rests_until = now + REST * seconds
        self.spent(now, seconds)

    def spent(self, now: float, seconds: float) -> None:
        """Account for `seconds` of CPU time that a glance, or a tick that one called for, has used."""
        self._ahead = CPU_ADVANCE - self._left(now) + seconds
        self._accounted_at = now

    def _left(self, now: float) -> float:
        """CPU seconds that may be used now."""
        return CPU_ADVANCE - max(0.0, self._ahead - (now - self._accounted_at) * CPU_SHARE)
