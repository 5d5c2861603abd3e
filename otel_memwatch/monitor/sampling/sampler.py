"""The clock of a run: reads every source once a tick, by absolute deadlines, and hands the snapshot on.

One thread samples. Everybody else is a subscriber, called in that thread with each snapshot, or looks at
`Sampler.latest()`, which never reads the machine.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from otel_memwatch.errors import describe
from otel_memwatch.model import Column, Snapshot, Source, Value
from otel_memwatch.monitor.sampling.early_samples import EarlySampleScheduler
from otel_memwatch.runtime.typed import NamedTuple, Protocol

CPU_SHARE = 0.05
"""Share of one core that a source may use: one that costs more is read less often."""

CPU_ADVANCE = 0.04
"""Seconds of CPU time that a source may use ahead of its share.

A read of 0.3 ms takes 25 once in a while, where the host takes the processor away from a virtual machine. If the source
rested for that, half a second of its figures would be missing, and with them an exact peak.
"""

STALE_PERIODS = 3.0
"""Periods after which a slow column's last value no longer counts as current."""


class Stop(Protocol):
    """What ends the waiting for a tick: a `Flag`, or a `threading.Event`."""

    def is_set(self) -> bool:
        """Whether it is over."""

    def wait(self, timeout: float) -> bool:
        """Waits until it is over (`True`) or so many seconds have passed (`False`)."""


class Flag:
    """A `threading.Event` that one thread waits for: a wait is one system call and makes no objects.

    Ten times a second with cold caches, that is a tenth of what an idle monitor costs.
    """

    def __init__(self) -> None:
        self._set = False
        self._held = threading.Lock()
        self._held.acquire()

    def is_set(self) -> bool:
        """Whether it has been set."""
        return self._set

    def set(self) -> None:
        """Ends all waiting, for good."""
        self._set = True
        with contextlib.suppress(RuntimeError):  # somebody has set it already
            self._held.release()

    def wait(self, timeout: float) -> bool:
        """Waits until it is set (`True`) or so many seconds have passed (`False`)."""
        if not self._set and self._held.acquire(timeout=timeout):
            with contextlib.suppress(RuntimeError):  # it was set once more at this moment
                self._held.release()
        return self._set


class Clock(Protocol):
    """Time as the sampler sees it; tests put their own in."""

    def monotonic(self) -> float:
        """Monotonic seconds."""

    def wall(self) -> float:
        """Unix seconds."""

    def cpu(self) -> float:
        """CPU seconds of the calling thread."""

    def wait(self, stop: Stop, seconds: float) -> bool:
        """Waits until `stop` is set (`True`) or the time is over (`False`)."""


class SystemClock:
    """The machine's clocks."""

    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)
    cpu = staticmethod(time.thread_time)

    def wait(self, stop: Stop, seconds: float) -> bool:
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
    """A source with the indices of its columns, its cost and its failures.

    Args:
        source: what is read.
        fast: index of the first of its columns that are read at every tick; they follow each other.
        slow: index of the first of the others, which do too.
    """

    def __init__(self, source: Source, fast: int, slow: int) -> None:
        self.source = source
        self.idle = getattr(source, "idle", None)
        """What it gives when nothing was due and nothing was read."""
        self._count = len(source.columns)
        slow_ones = [column.period > 0 for column in source.columns]
        self._fast_count = slow_ones.count(False)
        order = sorted(range(self._count), key=slow_ones.__getitem__)
        self._order = order if slow_ones != sorted(slow_ones) else None
        """Fast columns first, where the source has them in another order."""
        self._fast, self._slow = fast, slow
        self.up = True
        self.reads = self.failures = self.stretched = 0
        self.seconds = 0.0
        self.error: str | None = None
        self.rests_until = 0.0
        """Monotonic seconds until which it is left out, so that it uses no more than its share of a core."""
        self._ahead = self._accounted_at = 0.0
        """CPU time used beyond the share, and the monotonic seconds at which it was."""

    def spent(self, now: float, seconds: float) -> None:
        """Accounts for a read at `now` that took `seconds` of CPU time."""
        self.seconds += seconds
        self._ahead = max(0.0, self._ahead - (now - self._accounted_at) * CPU_SHARE) + seconds
        self._accounted_at = now
        self.rests_until = now + max(0.0, self._ahead - CPU_ADVANCE) / CPU_SHARE

    def read(self, now: float, values: list[Value]) -> bool:
        """Puts its values where they belong; whether there was anything to be read. When it fails, none are.

        Raises `ValueError` where it does not give one value for each column.
        """
        try:
            read = self.source.read(now)
        except Exception as error:  # noqa: BLE001 - whatever a source does, the run goes on
            self.failures += 1
            self.up, self.error = False, describe(error)
            return True
        self.reads += 1
        if not self.up:
            self.up, self.error = True, None
        if read is self.idle:
            return False
        count, fast = self._count, self._fast_count
        if len(read) != count:
            raise ValueError(f"{self.source.name} gave {len(read)} values for {count} columns")
        if self._order is not None:
            read = [read[index] for index in self._order]
        values[self._fast : self._fast + fast] = read[:fast]
        values[self._slow : self._slow + count - fast] = read[fast:]
        return True

    def slow_indices(self) -> Iterable[int]:
        """Where its slow values are."""
        return range(self._slow, self._slow + self._count - self._fast_count)

    def health(self) -> SourceHealth:
        return SourceHealth(self.up, self.reads, self.failures, self.seconds, self.stretched, self.error)


def _leave_as_read(_time: float, _values: list[Value]) -> None:
    """Complete nothing."""


class Sampler:
    """Reads `sources` every `interval` seconds.

    `columns` are those of all sources: first the ones read at every tick, last the slow ones, so that a tick's
    record can leave out the end. A tick that comes too late is made at once; deadlines that have passed
    altogether are counted as missed, never made up for. A source may call for a tick between two that are due (`EarlySampleScheduler`).

    Args:
        sources: what to read, in this order.
        interval: seconds between ticks.
        on_health: called with (name, health) whenever a source begins to fail, or recovers.
        clock: the time.

    Attributes:
        complete: called with time and values of each sample, before it is handed on, to fill in what follows from
            several sources.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        interval: float,
        on_health: Callable[[str, SourceHealth], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.interval = interval
        self.complete: Callable[[float, list[Value]], None] = _leave_as_read
        self.ticks = self.missed = 0
        self._clock = clock or SystemClock()
        self._on_health = on_health
        self._subscribers: list[Callable[[Snapshot], None]] = []
        self._last: Snapshot | None = None
        self._deadline: float | None = None
        self._early = EarlySampleScheduler(sources)
        self._called_for = False
        """The next tick is one that a source has called for, before it is due."""
        self._readers = self._lay_out(sources)

    def _lay_out(self, sources: Sequence[Source]) -> list[_Reader]:
        """Orders all columns; gives each source with the indices at which its values go."""
        order = sorted(
            (
                (column.period > 0, s, c)
                for s, source in enumerate(sources)
                for c, column in enumerate(source.columns)
            ),
        )
        self.columns: tuple[Column, ...] = tuple(sources[s].columns[c] for _, s, c in order)
        self._slow = [
            (i, column.period * STALE_PERIODS) for i, column in enumerate(self.columns) if column.period > 0
        ]
        self._fast_count = len(self.columns) - len(self._slow)
        self._nothing: list[Value] = [None] * len(self.columns)
        self._no_slow: list[Value] = [None] * len(self._slow)
        self._slow_values: dict[int, tuple[float, Value]] = {}
        readers = []
        fast, slow = 0, self._fast_count
        for source in sources:
            readers.append(_Reader(source, fast, slow))
            some = sum(column.period > 0 for column in source.columns)
            fast, slow = fast + len(source.columns) - some, slow + some
        return readers

    def subscribe(self, subscriber: Callable[[Snapshot], None]) -> None:
        """Calls `subscriber` with every snapshot from now on, in the sampling thread."""
        self._subscribers.append(subscriber)

    def latest(self) -> Snapshot | None:
        """The last snapshot, slow columns filled with their last value unless it is stale; `None` before the first."""
        last = self._last
        if last is None:
            return None
        values = list(last.values)
        for index, lifetime in self._slow:
            known = self._slow_values.get(index)
            if values[index] is None and known is not None and last.time - known[0] <= lifetime:
                values[index] = known[1]
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
        called_for, self._called_for = self._called_for, False
        late, missed = (0.0, 0) if called_for else self._lateness(now)
        values = self._nothing.copy()
        begun = began = clock.cpu()
        for reader in self._readers:
            if now < reader.rests_until and not last:
                reader.stretched += 1
                continue
            was_up = reader.up
            if reader.read(now, values):
                ended = clock.cpu()
                reader.spent(now, ended - began)
                began = ended
            if reader.up is not was_up or not was_up:
                self._health_changed(reader, was_up)
        if values[self._fast_count :] != self._no_slow:
            for index, _ in self._slow:
                if values[index] is not None:
                    self._slow_values[index] = now, values[index]
        self.complete(now, values)
        snapshot = Snapshot(now, clock.wall(), tuple(values), late, missed)
        self.ticks += 1
        self.missed += missed
        self._last = snapshot
        for subscriber in self._subscribers:
            subscriber(snapshot)
        if called_for:
            self._early.spent(now, clock.cpu() - begun)
        assert self._deadline is not None
        self._early.plan(now, self._deadline)
        return snapshot

    def _health_changed(self, reader: _Reader, was_up: bool) -> None:
        """A source fails, or works again: what it gave before does not count any more."""
        if not reader.up:
            for index in reader.slow_indices():
                self._slow_values.pop(index, None)
        if reader.up is not was_up and self._on_health is not None:
            self._on_health(reader.source.name, reader.health())

    def _lateness(self, now: float) -> tuple[float, int]:
        """Seconds past the deadline and deadlines missed; sets the next deadline."""
        if self._deadline is None:
            self._deadline = now + self.interval
            return 0.0, 0
        late = max(0.0, now - self._deadline)
        missed = int(late / self.interval)
        self._deadline += (missed + 1) * self.interval
        return late, missed

    def run(self, stop: Stop) -> None:
        """Ticks until `stop` is set; at once when there has been no tick yet."""
        while not self.wait(stop):
            self.tick()

    def wait(self, stop: Stop) -> bool:
        """Waits for the next tick, due or called for (`False`), or until `stop` is set (`True`)."""
        if self._deadline is None:
            return stop.is_set()
        clock = self._clock
        while not clock.wait(stop, self.left_to_look()):
            if self._early.due >= self._deadline or self._glance():
                return False
        return True

    def _glance(self) -> bool:
        """Whether a source calls for a tick now."""
        clock, early = self._clock, self._early
        now, began = clock.monotonic(), clock.cpu()
        assert self._deadline is not None
        self._called_for = now < self._deadline and early.ask(now)
        early.looked(now, clock.cpu() - began)
        early.plan(now, self._deadline)
        return self._called_for

    def left(self) -> float:
        """Seconds until the next tick is due; 0 where it is."""
        return 0.0 if self._deadline is None else max(0.0, self._deadline - self._clock.monotonic())

    def left_to_look(self) -> float:
        """Seconds until the next sample or question is due; 0 where it is."""
        return min(self.left(), max(0.0, self._early.due - self._clock.monotonic()))

    def joined_by(self, sources: Sequence[Source]) -> Sampler:
        """A sampler that goes on where this one stands, with more sources; subscribers have to subscribe again."""
        joined = Sampler(
            [*(reader.source for reader in self._readers), *sources],
            self.interval,
            self._on_health,
            self._clock,
        )
        joined.ticks, joined.missed, joined._deadline = self.ticks, self.missed, self._deadline
        joined._early = self._early
        return joined
