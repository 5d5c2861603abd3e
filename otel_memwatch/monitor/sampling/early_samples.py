"""Early samples: between samples, a source with a cheap test decides whether one is worth its cost now."""

from __future__ import annotations

import math

from otel_memwatch.runtime.typed import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

CPU_ADVANCE = 0.06
"""CPU seconds that probes and early samples may use at once: about sixty early samples."""
CPU_SHARE = 0.002
"""Share of one core at which this budget refills, if samples follow each other at the shortest interval."""
LEAST_SHARE = 0.0001
"""Share in long intervals: enough for a probe every two seconds. All of the monitor may take 0.0005 there."""
REST = 100
"""Pause after a probe, as a multiple of its cost: a large tree takes no larger share of a core."""
LEAST_LEFT = 0.005
"""No early sample is taken in the last seconds before a regular one."""


if TYPE_CHECKING:

    class EarlySampleSource(Protocol):
        """A source with a probe between samples."""

        may_probe: bool
        """A probe is worth its cost at some time of the run."""
        probe_after: float
        """Seconds from the last sample or probe until a probe is worth its cost; infinite: never."""

        def probe(self, now: float) -> bool:
            """Return whether a sample now is worth its cost; `now` is monotonic seconds."""


class EarlySampleScheduler:
    """Schedule of the probes of a sampler's sources, within a budget of CPU time."""

    def __init__(self, sources: Iterable[object]) -> None:
        self._sources: list[EarlySampleSource] = [
            source  # type: ignore[misc] # it has `probe` too
            for source in sources
            if getattr(source, "may_probe", False)
        ]
        self.due = math.inf
        """Monotonic seconds at which a probe is due; infinite: never."""
        self._share = CPU_SHARE
        self._ahead = self._accounted_at = 0.0
        """CPU seconds used beyond the share, and the monotonic time of this account."""
        self._rests_until = 0.0
        """Monotonic end of the pause after the last probe."""

    def set_interval(self, now: float, ratio: float) -> None:
        """Refill the budget more slowly in long intervals; `ratio`: interval from `now` on, in shortest ones."""
        self.spent(now, 0.0)
        self._share = max(LEAST_SHARE, CPU_SHARE / ratio)

    def plan(self, now: float, next_tick: float) -> None:
        """Schedule the next probe, after a sample or a probe at `now`."""
        after = self.due = math.inf
        if not self._sources:
            return
        for source in self._sources:
            after = min(after, source.probe_after)
        due = now + after
        if due < next_tick - LEAST_LEFT and self._left(now) > 0:
            due = max(self._rests_until, due)
            if due < next_tick - LEAST_LEFT:
                self.due = due

    def ask(self, now: float) -> bool:
        """Return whether a source requests a sample now. A failing source is not asked again: its readings show the error."""
        wanted = False
        for source in list(self._sources):
            try:
                wanted = (source.probe_after < math.inf and source.probe(now)) or wanted
            except Exception:  # noqa: BLE001 - no source ends the run
                self._sources.remove(source)
        return wanted

    def probed(self, now: float, seconds: float) -> None:
        """Account for a probe at `now` that used `seconds` of CPU time."""
        self._rests_until = now + REST * seconds
        self.spent(now, seconds)

    def spent(self, now: float, seconds: float) -> None:
        """Account for `seconds` of CPU time of a probe or of an early sample."""
        self._ahead = CPU_ADVANCE - self._left(now) + seconds
        self._accounted_at = now

    def _left(self, now: float) -> float:
        """Return the CPU seconds available now."""
        return CPU_ADVANCE - max(0.0, self._ahead - (now - self._accounted_at) * self._share)
