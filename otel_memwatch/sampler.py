"""The clock of a run: reads every source once a tick, by absolute deadlines, and hands the snapshot on.

One thread samples. Everybody else is a subscriber, called in that thread with each snapshot, or looks at
`Sampler.latest()`, which never reads the machine.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from otel_memwatch.model import Column, Snapshot, Source, Value

CPU_SHARE = 0.05
"""Share of one core that a source may use: one that costs more is read less often."""

STALE_PERIODS = 3.0
"""Periods after which a slow column's last value no longer counts as current."""


class Clock(Protocol):
    """Time as the sampler sees it; tests put their own in."""

    def monotonic(self) -> float:
        """Monotonic seconds."""

    def wall(self) -> float:
        """Unix seconds."""

    def cpu(self) -> float:
        """CPU seconds of the calling thread."""

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        """Waits until `stop` is set (`True`) or the time is over (`False`)."""


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    def wall(self) -> float:
        """Unix seconds."""
        return time.time()

    def cpu(self) -> float:
        """CPU seconds of the calling thread."""
        return time.thread_time()

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        """Waits until `stop` is set (`True`) or the time is over (`False`)."""
        return stop.wait(seconds)


class SourceHealth(NamedTuple):
    """How a source fares."""

    up: bool
    """Whether its last read succeeded."""
    reads: int
    failures: int
    seconds: float
    """CPU seconds spent reading it, in all."""
    stretched: int
    """Ticks at which it was left out because it had used up its share of a core."""
    error: str | None
    """The last failure, in words; `None` while it is up."""


class _Reader:
    """A source with its place in the snapshot, its cost and its failures."""

    def __init__(self, source: Source, places: list[int]) -> None:
        self.source = source
        self.places = places
        self.up = True
        self.reads = self.failures = self.stretched = 0
        self.seconds = 0.0
        self.error: str | None = None
        self._rest_until = 0.0

    def read(self, now: float, clock: Clock, *, last: bool = False) -> Sequence[Value] | None:
        """Its values, or `None` when it failed or rests; for the `last` time it does not rest."""
        if now < self._rest_until and not last:
            self.stretched += 1
            return None
        began = clock.cpu()
        try:
            values = self.source.read(now)
        except Exception as error:  # noqa: BLE001 - whatever a source does, the run goes on
            self.failures += 1
            self.up, self.error = False, f"{type(error).__name__}: {error}"
            values = None
        else:
            self.reads += 1
            self.up, self.error = True, None
        cost = max(0.0, clock.cpu() - began)
        self.seconds += cost
        self._rest_until = now + cost / CPU_SHARE
        return values

    def health(self) -> SourceHealth:
        return SourceHealth(self.up, self.reads, self.failures, self.seconds, self.stretched, self.error)


class Sampler:
    """Reads `sources` every `interval` seconds.

    `columns` are those of all sources: first the ones read at every tick, last the slow ones, so that a tick's
    record can leave out the end. A tick that comes too late is taken at once; deadlines that have passed
    altogether are counted as missed, never made up for.

    Args:
        sources: what to read, in this order.
        interval: seconds between ticks.
        on_health: called with (name, health) whenever a source begins to fail, or recovers.
        clock: the time.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        interval: float,
        on_health: Callable[[str, SourceHealth], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.interval = interval
        self.ticks = self.missed = 0
        self._clock = clock or SystemClock()
        self._on_health = on_health
        self._subscribers: list[Callable[[Snapshot], None]] = []
        self._last: Snapshot | None = None
        self._deadline: float | None = None
        self._readers = self._place(sources)

    def _place(self, sources: Sequence[Source]) -> list[_Reader]:
        """Orders all columns and tells each source where its values go."""
        order = sorted(
            (
                (column.period > 0, s, c)
                for s, source in enumerate(sources)
                for c, column in enumerate(source.columns)
            ),
        )
        place = {(s, c): i for i, (_, s, c) in enumerate(order)}
        self.columns: tuple[Column, ...] = tuple(sources[s].columns[c] for _, s, c in order)
        self._slow = [
            (i, column.period * STALE_PERIODS) for i, column in enumerate(self.columns) if column.period > 0
        ]
        self._slow_values: dict[int, tuple[float, Value]] = {}
        return [
            _Reader(source, [place[s, c] for c in range(len(source.columns))])
            for s, source in enumerate(sources)
        ]

    def subscribe(self, subscriber: Callable[[Snapshot], None]) -> None:
        """Calls `subscriber` with every snapshot from now on, in the sampling thread."""
        self._subscribers.append(subscriber)

    def latest(self) -> Snapshot | None:
        """The last snapshot, slow columns filled with their last value unless it is stale; `None` before the first."""
        last = self._last
        if last is None:
            return None
        values = list(last.values)
        for place, lifetime in self._slow:
            known = self._slow_values.get(place)
            if values[place] is None and known is not None and last.time - known[0] <= lifetime:
                values[place] = known[1]
        return last._replace(values=tuple(values))

    def health(self) -> dict[str, SourceHealth]:
        """Every source's state, by its name."""
        return {reader.source.name: reader.health() for reader in self._readers}

    def tick(self, *, last: bool = False) -> Snapshot:
        """Reads everything now and hands the snapshot to all subscribers.

        The `last` time sources that have used up their share of a core are read too: the totals of a run are theirs.
        """
        clock = self._clock
        now = clock.monotonic()
        late, missed = self._lateness(now)
        values: list[Value] = [None] * len(self.columns)
        for reader in self._readers:
            was_up = reader.up
            read = reader.read(now, clock, last=last)
            if read is not None:
                for place, value in zip(reader.places, read, strict=True):
                    values[place] = value
            elif not reader.up:
                for place in reader.places:
                    self._slow_values.pop(place, None)
            if reader.up is not was_up and self._on_health is not None:
                self._on_health(reader.source.name, reader.health())
        for place, _ in self._slow:
            if values[place] is not None:
                self._slow_values[place] = now, values[place]
        snapshot = Snapshot(now, clock.wall(), tuple(values), late, missed)
        self.ticks += 1
        self.missed += missed
        self._last = snapshot
        for subscriber in self._subscribers:
            subscriber(snapshot)
        return snapshot

    def _lateness(self, now: float) -> tuple[float, int]:
        """Seconds past the deadline and deadlines missed; sets the next deadline."""
        if self._deadline is None:
            self._deadline = now + self.interval
            return 0.0, 0
        late = max(0.0, now - self._deadline)
        missed = int(late / self.interval)
        self._deadline += (missed + 1) * self.interval
        return late, missed

    def run(self, stop: threading.Event) -> None:
        """Ticks until `stop` is set; at once when there has been no tick yet."""
        while not self.wait(stop):
            self.tick()

    def wait(self, stop: threading.Event) -> bool:
        """Waits for the next tick to be due (`False`), or until `stop` is set (`True`)."""
        if self._deadline is None:
            return stop.is_set()
        return self._clock.wait(stop, max(0.0, self._deadline - self._clock.monotonic()))

    def joined_by(self, sources: Sequence[Source]) -> Sampler:
        """A sampler that goes on where this one stands, with more sources; subscribers have to subscribe again."""
        joined = Sampler(
            [*(reader.source for reader in self._readers), *sources],
            self.interval,
            self._on_health,
            self._clock,
        )
        joined.ticks, joined.missed, joined._deadline = self.ticks, self.missed, self._deadline
        return joined
