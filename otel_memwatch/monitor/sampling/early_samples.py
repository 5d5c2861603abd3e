"""Early samples: a source that can tell cheaply is asked between samples whether one is worth its cost now."""

from __future__ import annotations

import math

from otel_memwatch.runtime.typed import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

CPU_ADVANCE = 0.06
"""Seconds of CPU time that questions and early samples may use at once: some sixty early samples."""
CPU_SHARE = 0.002
"""Share of one core at which they may use it again."""
REST = 100
"""Pause after a question, as a multiple of its cost: a large tree takes no larger part of a core."""
LEAST_LEFT = 0.005
"""Seconds before the next regular sample in which no early sample is taken."""


class EarlySampleSource(Protocol):
    """A source that can be asked between samples."""

    glance_within: float
    """Seconds until a question is worth its cost, since the last sample or question; infinite: never."""

    def glance(self, now: float) -> bool:
        """Return whether a sample now is worth its cost; `now` is monotonic seconds."""


class EarlySampleScheduler:
    """Decides when the sources of a sampler are asked, within a budget of CPU time."""

    def __init__(self, sources: Iterable[object]) -> None:
        self._sources: list[EarlySampleSource] = [source for source in sources if hasattr(source, "glance")]  # type: ignore[misc] # as asked
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
        """Return whether a source wants a sample now. A source that fails is not asked again: its readings show the error."""
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
