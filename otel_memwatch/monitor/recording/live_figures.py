"""Figures of the run so far, for telemetry. Only a run with telemetry needs this module."""

from __future__ import annotations

from otel_memwatch.monitor.recording.batching import PeriodicAction
from otel_memwatch.run.counter_rebase import CounterRebase, counters_in
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from otel_memwatch.model import Column, Snapshot
    from otel_memwatch.monitor.recording.batching import SampleBatcher
    from otel_memwatch.monitor.sampling.sampler import Sampler
    from otel_memwatch.run import Peaks

_PEAKS_SECONDS, _GROWTH_SECONDS = 1.0, 60.0
"""Seconds between two updates of the peaks and stalls, and of the growth."""


class FiguresSoFar:
    """Peaks and stalls so far. The threads of telemetry read them; the aggregator itself is for one thread.

    Args:
        batcher: has the aggregator.
        judge_growth: judges the growth so far.

    Attributes:
        actions: update all of them.

    """

    def __init__(self, batcher: SampleBatcher, judge_growth: Callable[[], object]) -> None:
        self.peaks: Peaks | None = None
        self.stalls: Mapping[str, float] = {}
        self._batcher = batcher
        self.actions = (
            PeriodicAction(self._update, _PEAKS_SECONDS, due=0.0),
            PeriodicAction(lambda _: judge_growth(), _GROWTH_SECONDS, due=0.0),
        )

    def _update(self, _now: float) -> None:
        aggregator = self._batcher.aggregator
        if aggregator is not None:
            self.peaks, self.stalls = aggregator.peaks(), aggregator.stalls().by_resource()


def since_first(
    first_columns: Sequence[Column], first: Snapshot, sampler: Callable[[], Sampler]
) -> Callable[[], Snapshot | None]:
    """Return a getter of the latest snapshot of a sampler, with the tree's counters since the first one."""
    rebase = CounterRebase(counters_in(sampler().columns))
    for column, value in zip(first_columns, first.values, strict=True):
        rebase.of(column, value)

    def latest() -> Snapshot | None:
        now = sampler()
        snapshot = now.latest()
        if snapshot is None:
            return None
        return snapshot._replace(values=tuple(map(rebase.of, now.columns, snapshot.values)))

    return latest
