"""The sampler: reads every source once per interval, by absolute deadlines, and passes the snapshot on.

One thread samples. It calls the subscribers with each snapshot. Other threads use `Sampler.latest()`, which never
reads the machine.
"""

from __future__ import annotations

import math
import time

from otel_memwatch import catalog
from otel_memwatch.errors import describe
from otel_memwatch.model import Column, Snapshot, Value
from otel_memwatch.monitor.sampling.early_samples import EarlySampleScheduler
from otel_memwatch.record.format import READING_SECONDS
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from otel_memwatch.model import Source
    from otel_memwatch.monitor.sampling.auto_interval import AutoInterval
    from otel_memwatch.monitor.sampling.repeated import Repetition
    from otel_memwatch.runtime.polling import Pace, Poller

CPU_SHARE = 0.05
"""Share of one core that a source may use; a more expensive source is read less often."""

CPU_ADVANCE = 0.04
"""CPU seconds that a source may use ahead of its share.

A read of 0.3 ms occasionally takes 25 ms, when the host takes the processor away from a virtual machine. A pause for
that would lose half a second of the source's figures, and with them an exact peak.
"""

_MOST_REPEATED = 512
"""Samples at a time that repeat the one before."""

STALE_PERIODS = 3.0
"""Periods after which the last value of a slow column is stale."""
_READING = Column(catalog.MEMWATCH_SAMPLER_READING_DURATION, period=1.0)
"""The last column: it costs the record of a fast sample nothing."""


if TYPE_CHECKING:

    class Stop(Protocol):
        """A `Flag` or a `threading.Event` that ends the wait for a sample."""

        def is_set(self) -> bool:
            """Return whether it is set."""

        def wait(self, timeout: float) -> bool:
            """Wait until it is set (`True`) or `timeout` seconds have passed (`False`)."""

    class Clock(Protocol):
        """Clock of the sampler; tests replace it."""

        def monotonic(self) -> float:
            """Return monotonic seconds."""

        def wall(self) -> float:
            """Return Unix seconds."""

        def cpu(self) -> float:
            """Return the CPU seconds of the calling thread."""

        def wait(self, stop: Stop, seconds: float) -> bool:
            """Wait until `stop` is set (`True`) or `seconds` have passed (`False`)."""


class SystemClock:
    """The machine's clocks."""

    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)
    cpu = staticmethod(time.thread_time)

    def wait(self, stop: Stop, seconds: float) -> bool:
        """Wait until `stop` is set (`True`) or `seconds` have passed (`False`)."""
        return stop.wait(seconds)


class SourceHealth(NamedTuple):
    """State of a source."""

    up: bool
    """True if its last read succeeded."""
    reads: int
    failures: int
    seconds: float
    """CPU seconds of all its reads, at most."""
    stretched: int
    """Samples without it, because it had used up its share of a core."""
    error: str | None
    """Message of the last failure; `None` while it is up."""


class _Reader:
    """A source with the indices of its columns, its cost and its failures.

    Args:
        source: the source to read.
        fast: index of its first column that is read at every sample; the others follow.
        slow: index of its first slow column; the others follow.
    """

    def __init__(self, source: Source, fast: int, slow: int) -> None:
        self.source = source
        self.idle = getattr(source, "idle", None)
        """Its answer when nothing was due and nothing was read."""
        self.pace: Pace | None = getattr(source, "pace", None)
        """Its schedule; `None`: it is read at every sample."""
        self._count = len(source.columns)
        slow_ones = [column.period > 0 for column in source.columns]
        self.fast_count = slow_ones.count(False)
        order = sorted(range(self._count), key=slow_ones.__getitem__)
        self._order = order if slow_ones != sorted(slow_ones) else None
        """Order with fast columns first, if the source has another order."""
        self._fast, self._slow = fast, slow
        self.up = True
        self.reads = self.failures = self.stretched = 0
        self.seconds = 0.0
        """CPU seconds of all its reads, at most."""
        self.error: str | None = None
        self.rests_until = 0.0
        """Monotonic end of a pause that keeps it within its share of a core."""
        self._ahead = self._accounted_at = 0.0
        """CPU seconds used beyond the share, and the monotonic time of this account."""

    def continue_account(self, before: _Reader) -> None:
        """Take over state, costs and failures of the same source in another sampler."""
        self.up, self.error, self.rests_until = before.up, before.error, before.rests_until
        self.reads, self.failures, self.stretched = before.reads, before.failures, before.stretched
        self.seconds, self._ahead, self._accounted_at = before.seconds, before._ahead, before._accounted_at

    def make_due(self) -> None:
        """Let the next reading be complete. After an OOM kill, the counters of a surrounding cgroup are read for the last time."""
        for pace in getattr(self.source, "paces", ()):
            pace.next = -math.inf

    def spent(self, now: float, seconds: float) -> None:
        """Account for a read at `now` that took `seconds` of CPU time."""
        self.seconds += seconds
        self._ahead = max(0.0, self._ahead - (now - self._accounted_at) * CPU_SHARE) + seconds
        self._accounted_at = now
        self.rests_until = now + max(0.0, self._ahead - CPU_ADVANCE) / CPU_SHARE

    def read(self, now: float, values: list[Value]) -> bool:
        """Put its values into `values`, or none if it fails. Return whether it read anything.

        Raises `ValueError` unless it returns one value for each column.
        """
        try:
            read = self.source.read(now)
        except Exception as error:  # noqa: BLE001 - no source ends the run
            self.failures += 1
            self.up, self.error = False, describe(error)
            return True
        self.reads += 1
        if not self.up:
            self.up, self.error = True, None
        if read is self.idle:
            return False
        self.put(read, values)
        return True

    def repetition(self, now: float) -> Repetition | None:
        """Return until when the next samples repeat its values; `None`: they may differ."""
        if not self.up or now < self.rests_until:
            return None
        # Not before it is needed: most commands are short.
        from otel_memwatch.monitor.sampling.repeated import Repetition

        repeats: Callable[[], Repetition | None] | None = getattr(self.source, "repeats", None)
        if repeats is not None:
            try:
                return repeats()
            except Exception:  # noqa: BLE001 - no source ends the run: its next reading shows the error
                return None
        return None if self.pace is None else Repetition(self.pace.next, (None,) * self._count)

    def repeated(self, times: int, seconds: float, contents: Sequence[bytes | None]) -> None:
        """Account for samples that repeated its values.

        Args:
            times: number of samples.
            seconds: time of all their readings, those of other sources included.
            contents: last contents of the files of its repetition.
        """
        if contents:
            self.reads += times
            self.seconds += seconds
            note: Callable[[Sequence[bytes | None]], None] | None = getattr(
                self.source, "note_repeated", None
            )
            if note is not None:
                note(contents)

    def put(self, read: Sequence[Value], values: list[Value]) -> None:
        """Put values of all its columns into those of the sampler."""
        count, fast = self._count, self.fast_count
        if len(read) != count:
            raise ValueError(f"{self.source.name} gave {len(read)} values for {count} columns")
        if self._order is not None:
            read = [read[index] for index in self._order]
        values[self._fast : self._fast + fast] = read[:fast]
        values[self._slow : self._slow + count - fast] = read[fast:]

    def slow_indices(self) -> Iterable[int]:
        """Return the indices of its slow values."""
        return range(self._slow, self._slow + self._count - self.fast_count)

    def health(self) -> SourceHealth:
        poller: Poller | None = getattr(self.source, "poller", None)
        seconds = self.seconds + (0.0 if poller is None else poller.cpu_seconds)
        return SourceHealth(self.up, self.reads, self.failures, seconds, self.stretched, self.error)


def _leave_as_read(_time: float, _values: list[Value]) -> None:
    """Leave the values unchanged: the default of `Sampler.complete`."""


def _repeat_as_read(_values: list[Value]) -> bool:
    """Leave the values unchanged: the default of `Sampler.complete_repeated`."""
    return True


class Sampler:
    """Reader of `sources` every `interval` seconds.

    `columns` has the columns of all sources. Those read at every sample come first, and the slow ones last: the record
    of a sample omits unknown values at its end. A late sample is taken at once. Deadlines that have passed completely
    count as missed and are not made up for. A source may request an early sample (`EarlySampleScheduler`).

    Args:
        sources: sources in reading order.
        interval: seconds between samples.
        on_health: called with (name, health) whenever a source begins to fail, or recovers.
        clock: source of time.
        auto: chooses the interval after each sample; `interval` is its shortest. `None`: it is constant.

    Attributes:
        complete: called with time and values of each sample before the subscribers. It fills in values that follow from
            several sources.
        complete_repeated: does the same for samples that repeat the last one; returns `False` if they may differ from it.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        interval: float,
        on_health: Callable[[str, SourceHealth], None] | None = None,
        clock: Clock | None = None,
        auto: AutoInterval | None = None,
    ) -> None:
        self.interval = interval
        self._auto = auto
        self._current = interval
        """Seconds from the last sample to its deadline."""
        self.complete: Callable[[float, list[Value]], None] = _leave_as_read
        self.complete_repeated: Callable[[list[Value]], bool] = _repeat_as_read
        self.ticks = self.missed = 0
        self._clock = clock or SystemClock()
        self._on_health = on_health
        self._subscribers: list[Callable[[Snapshot], None]] = []
        self._dear = True
        """The last sample used more than the share of one source, or one rests: the CPU time of the next sample is measured."""
        self._last: Snapshot | None = None
        self._deadline: float | None = None
        self._early = EarlySampleScheduler(sources)
        self._called_for = False
        """The next sample is an early one that a source requested."""
        every = [*(column for source in sources for column in source.columns), _READING]
        self.columns: tuple[Column, ...] = tuple(sorted(every, key=lambda column: column.period > 0))
        self._slow = [
            (i, column.period * STALE_PERIODS) for i, column in enumerate(self.columns) if column.period > 0
        ]
        self._fast_count = len(self.columns) - len(self._slow)
        if auto is not None:
            auto.declare(self.columns)
        self._nothing: list[Value] = [None] * len(self.columns)
        self._no_slow: list[Value] = [None] * len(self._slow)
        self._slow_values: dict[int, tuple[float, Value]] = {}
        self._readers: list[_Reader] = []
        fast, slow = 0, self._fast_count
        for source in sources:
            reader = _Reader(source, fast, slow)
            self._readers.append(reader)
            fast += reader.fast_count
            slow += len(source.columns) - reader.fast_count

    def subscribe(self, subscriber: Callable[[Snapshot], None]) -> None:
        """Call `subscriber` with every snapshot from now on, in the sampling thread."""
        self._subscribers.append(subscriber)

    def latest(self) -> Snapshot | None:
        """Return the last snapshot, with the last values of slow columns unless stale; `None` before the first."""
        last = self._last
        if last is None:
            return None
        values = list(last.values)
        for index, lifetime in self._slow:
            known = self._slow_values.get(index)
            if values[index] is None and known is not None and last.time - known[0] <= lifetime:
                values[index] = known[1]
        return last._replace(values=tuple(values))

    @property
    def last_time(self) -> float:
        """Return the monotonic time of the last sample; minus infinity before the first."""
        return -math.inf if self._last is None else self._last.time

    def health(self) -> dict[str, SourceHealth]:
        """Return the state of every source by its name."""
        return {reader.source.name: reader.health() for reader in self._readers}

    def tick(self, *, last: bool = False) -> Snapshot:
        """Take a sample now and pass the snapshot to all subscribers.

        The `last` sample includes sources that have used up their share of a core: it has the totals of the run.
        """
        clock = self._clock
        now = clock.monotonic()
        called_for, self._called_for = self._called_for, False
        missed = 0 if called_for else self._missed_until(now)
        values = self._nothing.copy()
        begun = clock.cpu() if called_for else 0.0
        took = self._read_sources(now, values, last=last, early=called_for) - now
        if took > READING_SECONDS:
            values[-1] = round(took + 5e-5, 4)
        if values[self._fast_count :] != self._no_slow:
            for index, _ in self._slow:  # for `latest`
                if values[index] is not None:
                    self._slow_values[index] = now, values[index]
        self.complete(now, values)
        snapshot = Snapshot(now, clock.wall(), tuple(values), missed)
        self.ticks += 1
        self.missed += missed
        self._last = snapshot
        for subscriber in self._subscribers:
            subscriber(snapshot)
        if called_for:
            self._early.spent(now, clock.cpu() - begun)
        assert self._deadline is not None
        self._plan(now, values, self._deadline)
        return snapshot

    def _plan(self, now: float, values: Sequence[Value], deadline: float) -> None:
        """Plan the next sample and the next probe, after a sample at `now`."""
        if self._auto is not None:
            self._current = self._auto.after(now, values)
            self._early.set_interval(now, self._current / self.interval)
            deadline = (
                min(deadline, now + self.interval) if self._current <= self.interval else now + self._current
            )
        self._deadline = deadline
        self._early.plan(now, deadline)

    def repeat(
        self, until: float, alarm: int, line: Callable[[Sequence[Value]], tuple[int, bytes]]
    ) -> tuple[list[Snapshot], bytes]:
        """Take the next samples without the sources, up to `until`, while files show that no value changes.

        No subscriber is called. The lines are written, except for the rest that is returned: the disk did not take it.

        Args:
            until: monotonic seconds.
            alarm: descriptor that becomes readable if the next sample may differ; -1: none.
            line: returns the descriptor of the samples' file, and the line of a sample with these values after its time.
        """
        from otel_memwatch.monitor.sampling.repeated import take_repeated

        last, deadline = self._last, self._deadline
        steady = self._auto is None or self._auto.steady
        if last is None or deadline is None or self._early.due < deadline or not steady:
            return [], b""
        values, found = self._nothing.copy(), []
        for reader in self._readers:
            repetition = reader.repetition(last.time)
            if repetition is None or deadline >= (until := min(until, repetition.until)):
                return [], b""
            reader.put(repetition.values, values)
            found.append(repetition)
        if not self.complete_repeated(values):
            return [], b""
        output, text = line(values)
        times, following, seconds, contents, unwritten = take_repeated(
            deadline, self._current, until, READING_SECONDS, alarm, output, text,
            tuple(file for repetition in found for file in repetition.files), _MOST_REPEATED,
        )  # fmt: skip
        if not times:
            return [], b""
        for reader, repetition in zip(self._readers, found, strict=True):
            count = len(repetition.files)
            reader.repeated(len(times), seconds, contents[:count])
            del contents[:count]
        known, to_wall = tuple(values), self._clock.wall() - self._clock.monotonic()
        taken = [Snapshot(time, time + to_wall, known) for time in times]
        self.ticks += len(taken)
        self._last = taken[-1]
        self._plan(times[-1], values, following)
        return taken, unwritten

    def _read_sources(self, now: float, values: list[Value], *, last: bool, early: bool) -> float:
        """Put the values of all sources that are due into `values`; return the monotonic time of the end.

        A source that an `early` sample reads is still due at the next regular one, or that would lack its values.
        """
        clock = self._clock
        cpu = clock.cpu() if self._dear else 0.0
        began = ended = clock.monotonic()
        elapsed = []
        for reader in self._readers:
            pace, was_up = reader.pace, reader.up
            if last:
                reader.make_due()
            elif pace is not None and now < pace.next:
                continue
            elif now < reader.rests_until:
                reader.stretched += 1
                continue
            due = math.inf if pace is None else pace.next
            if reader.read(now, values):
                before, ended = ended, clock.monotonic()
                elapsed.append((reader, ended - before))
            if early and pace is not None:
                pace.next = due
            if reader.up is not was_up or not was_up:
                self._health_changed(reader, was_up)
        self._account(now, elapsed, ended - began, cpu)
        return ended

    def _account(self, now: float, elapsed: Iterable[tuple[_Reader, float]], took: float, cpu: float) -> None:
        """Account for the readings of a sample at `now`, which together took `took` seconds and began at `cpu` seconds of CPU."""
        if not self._dear:
            for reader, seconds in elapsed:
                reader.seconds += seconds
            self._dear = took > CPU_SHARE * self.interval
            return
        used = self._clock.cpu() - cpu
        for reader, seconds in elapsed:
            # A reading used no more CPU than it took time, nor than all of them: the kernel's clock costs 1 us a call.
            reader.spent(now, min(seconds, used))
        rests = any(now < reader.rests_until for reader in self._readers)
        self._dear = rests or min(took, used) > CPU_SHARE * self.interval

    def _health_changed(self, reader: _Reader, was_up: bool) -> None:
        """Report that a source fails or works again, and drop the earlier values of a failing one."""
        if not reader.up:
            for index in reader.slow_indices():
                self._slow_values.pop(index, None)
        if reader.up is not was_up and self._on_health is not None:
            self._on_health(reader.source.name, reader.health())

    def _missed_until(self, now: float) -> int:
        """Return the number of missed deadlines; set the next deadline."""
        if self._deadline is None:
            self._deadline = now + self.interval
            return 0
        missed = int(max(0.0, now - self._deadline) / self._current)
        self._deadline += (missed + 1) * self.interval
        return missed

    def run(self, stop: Stop) -> None:
        """Take samples until `stop` is set; the first one at once."""
        while not self.wait(stop):
            self.tick()

    def wait(self, stop: Stop) -> bool:
        """Wait for the next regular or early sample (`False`), or until `stop` is set (`True`)."""
        if self._deadline is None:
            return stop.is_set()
        clock, early = self._clock, self._early
        while not clock.wait(stop, max(0.0, min(self._deadline, early.due) - clock.monotonic())):
            if early.due >= self._deadline or self._probe():
                return False
        return True

    def _probe(self) -> bool:
        """Return whether a source requests a sample now."""
        clock, early = self._clock, self._early
        now, began = clock.monotonic(), clock.cpu()
        assert self._deadline is not None
        self._called_for = now < self._deadline and early.ask(now)
        early.probed(now, clock.cpu() - began)
        early.plan(now, self._deadline)
        return self._called_for

    def left(self) -> float:
        """Return the seconds until the next regular sample; 0 if it is due."""
        return 0.0 if self._deadline is None else max(0.0, self._deadline - self._clock.monotonic())

    def left_to_probe(self) -> float:
        """Return the seconds until the next sample or probe; 0 if it is due."""
        return min(self.left(), max(0.0, self._early.due - self._clock.monotonic()))

    def joined_by(self, sources: Sequence[Source]) -> Sampler:
        """Return a sampler with more sources that continues this one. Subscribers must subscribe again."""
        joined = Sampler(
            [*(reader.source for reader in self._readers), *sources],
            self.interval,
            self._on_health,
            self._clock,
            self._auto,
        )
        joined._current = self._current
        joined.ticks, joined.missed, joined._deadline = self.ticks, self.missed, self._deadline
        joined._early = self._early
        for reader, before in zip(joined._readers, self._readers, strict=False):
            reader.continue_account(before)
        if self._last is not None:
            known = dict(zip(self.columns, self._last.values, strict=True))
            joined._last = self._last._replace(values=tuple(map(known.get, joined.columns)))
        moved = {column: index for index, column in enumerate(joined.columns)}
        joined._slow_values = {
            moved[self.columns[index]]: known for index, known in self._slow_values.items()
        }
        return joined
