"""One run while it is recorded: its sources, its ticks, its operations, its telemetry. All of it in the monitor's thread.

`Monitor` makes a `RunRecording` and calls, in this order, `take_first_tick`, `open_the_rest` and `run`; once the thread has ended
`completion` completes the record. The first tick waits for nothing that it does not need.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module

from otel_memwatch.model import ProcessNote, ProcessRecord
from otel_memwatch.monitor.recording.batching import SampleBatcher
from otel_memwatch.monitor.recording.periodic import PeriodicAction
from otel_memwatch.monitor.recording.run_info import (
    LIMIT,
    address_space_limit,
    gpu_fields,
    group_value,
    host_memory,
)
from otel_memwatch.monitor.sampling.opening import Opening
from otel_memwatch.monitor.workers.rendering import needed_to_render
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otel_memwatch.model import Column, Snapshot, Value
    from otel_memwatch.monitor.messages import Messages
    from otel_memwatch.monitor.recording.needed_bounds import NeededBounds
    from otel_memwatch.monitor.recording.run_info import MetricSeries, TargetInfo
    from otel_memwatch.monitor.sampling.sampler import Flag, SourceHealth
    from otel_memwatch.monitor.sampling.sources import Context
    from otel_memwatch.monitor.telemetry import Telemetry
    from otel_memwatch.monitor.telemetry.otlp_receiver.socket import Listening
    from otel_memwatch.record.follower import OperationFollower
    from otel_memwatch.record.writer import RunWriter
    from otel_memwatch.run import Peaks
    from otel_memwatch.run.operation_digest import OperationAggregator

_FOLLOW_SECONDS = 1.0
"""Time after which what operations tell goes into the aggregator, where nobody wants to know of it at once."""

_FOLLOWED = 16
"""Processes that mark operations up to which each tick looks at what they have written: who waits for the end does not wait
for it to be read then. Of more, a look in `_FOLLOW_SECONDS` is what a tick has time for."""

_MANY = 100
"""Operations that were closed since the last look, from which on they are read between two ticks too."""

_ALONE = (os.cpu_count() or 1) == 1
"""Whether there is one processor for the program and us."""

_READING_SHARE = 0.5 if _ALONE else 0.9
"""Part of the time that reading may take while so many are marked: on one processor the program needs the rest."""

_LEAST_SHARE = 0.5
"""Part of the time between two ticks in which they are read, even though that makes the next tick late."""

_PAUSE = 0.01
"""Seconds between two looks then, where all had been read."""

_PAUSE_BEFORE = 0.02
"""The same of a program that has just begun and has marked none: most never do."""

_KNOWN_AFTER = 5.0
"""Seconds after which a boundary has been read for certain, unless its process was stopped between clock and write."""

_SETTLED_SECONDS = 0.4
"""Time after which a command is no short one: the modules that its end needs are worth loading before it, by each tick some.
Until then they are loaded between ticks where a processor may be idle."""

_LOADING_SECONDS = 0.02
"""Time that loading them takes at one tick, and one module more."""

_PEAKS_SECONDS = 1.0
"""Time between two looks at the peaks so far, for telemetry."""


class RunRecording:
    """What is opened and read for one run.

    The kernel's sources are opened when it is made. Raises `Unavailable` where the process tree cannot be read: without it
    there is nothing to record.

    Args:
        writer: of the run directory, whose `run.json` has been written.
        target: what is watched.
        settings: the options in force.
        messages: to the person.
        drivers_asked: set when no driver need be waited for any more.

    Attributes:
        tree: the source process_tree.
        limit: the hard limit that the run was given.
        watched_to_the_end: whether the last tick, after the target's end, was taken.

    """

    def __init__(
        self,
        writer: RunWriter,
        target: TargetInfo,
        settings: Mapping[str, Any],
        messages: Messages,
        drivers_asked: Flag,
    ) -> None:
        from otel_memwatch.monitor.sampling.sampler import Sampler

        self.writer = writer
        self.batcher = SampleBatcher()
        self.follower: OperationFollower | None = None
        self.operations: OperationAggregator | None = None
        """`None`: none has begun."""
        self.telemetry: Telemetry | None = None
        self.sources: Sequence[Any] = ()
        self.watched_to_the_end = False
        self.limit = target.limit
        self._target = target
        self._settings = settings
        self._messages = messages
        self._first: tuple[Sequence[Column], Snapshot] | None = None
        self._any_left_cgroup = self._any_reset = False
        self._peaks: Peaks | None = None
        """Peaks so far. Telemetry looks at these from threads of its own; the aggregator itself is for one thread."""
        self._follow = PeriodicAction(self._follow_operations)
        self._settle = PeriodicAction(self._settle_operations, _FOLLOW_SECONDS)
        self._peaks_so_far = PeriodicAction(self._update_peaks, _PEAKS_SECONDS)
        self._settled = 0
        """How many closed operations the aggregator has."""
        self._behind = False
        """Whether the files of operations have more than was read."""
        self._followed = 0
        """How many had been closed at the last tick."""
        self._many = False
        """Whether operations are marked faster than a look at each tick reads them."""
        self._drivers_asked = drivers_asked
        self._to_load = list(needed_to_render(settings))
        self._context = self._make_context()
        self._opening = Opening(self._context, drivers_asked)
        sources, absent = self._opening.first()
        tree: Any = next((source for source in sources if source.name == "process_tree"), None)
        if tree is None:
            raise absent["process_tree"]
        self.tree = tree
        if self.tree.blind is not None:
            messages.problem(self.tree.blind)
            writer.mark(self.tree.blind)
        self._add_sources(sources, absent)
        self.sampler = Sampler(self.sources, settings["interval"], self._on_health)
        self._needed_bounds: NeededBounds | None = None

    # -- what `Monitor` calls

    def take_first_tick(self) -> None:
        """Records the first tick and the limits that hold at it."""
        self._declare_columns()
        self.sampler.tick()

    def _declare_columns(self) -> None:
        """Write the columns of the samples that follow, and receive these."""
        self.writer.columns(self.sampler.columns)
        self.sampler.subscribe(self._on_tick)
        if self._needed_bounds is not None:
            self._needed_bounds.declare(self.sampler.columns)
            self.sampler.complete = self._needed_bounds.fill

    def _open_needed_bounds(self) -> None:
        """Begin to fill in the bounds of memory needed. The first sample has none, so it need not wait for these imports."""
        from otel_memwatch.monitor.recording.needed_bounds import NeededBounds

        assert self._first is not None
        columns, first = self._first
        self._needed_bounds = bounds = NeededBounds(self.writer.info)
        bounds.declare(columns)
        bounds.fill(first.time, list(first.values))
        self.sampler.complete = bounds.fill

    def open_the_rest(self, stop: Flag, listening: Listening | None, say: Callable[[str], None]) -> None:
        """Opens what may take its time, drivers, the aggregator and telemetry, while the ticks go on.

        Where the target has ended already (`stop`), no driver is asked any more: nothing is left to be read from it.
        """
        if not stop.is_set():
            self._opening.start()
        if self._target.own_cgroup is not None:
            self._open_needed_bounds()
        while not self._drivers_asked.is_set() and not self.sampler.wait(self._drivers_asked):
            self.sampler.tick()
        self.follow_operations()
        late = self._add_sources(*self._opening.late())
        if late:
            self.sampler = self.sampler.joined_by(late)
            self._declare_columns()
        self.batcher.open(self.sampler.columns, self.writer.info, drawn=self._settings["report"])
        self._open_telemetry(listening, say)

    def run(self, stop: Flag) -> None:
        """Ticks until the target has ended, and once more then."""
        while not self._wait(stop):
            self.sampler.tick()
        self.sampler.tick(last=True)
        self.watched_to_the_end = True

    def _wait(self, stop: Flag) -> bool:
        """Waits for the next tick (`False`) or for `stop` (`True`). While a program marks very many operations they are read.

        So are those of a program that has just begun, and what its end needs is loaded: of a tenth of a second nothing
        would have been done before the end, and somebody would wait for it all.
        """
        interval = self._settings["interval"]
        # Where ticks are late there is little time to the next one, and yet no less to be read.
        begun, least = time.monotonic(), _LEAST_SHARE * interval
        until = begun + max(_READING_SHARE * self.sampler.left_to_look(), least if self.operations else 0.0)
        settled = self._target.started + _SETTLED_SECONDS
        while not _ALONE and (now := time.monotonic()) < until and now < settled:
            if self._to_load:
                self._load_one()
            # No longer than until the tick is due: at a short interval it would be late, or missed.
            elif not self.read_operations() and stop.wait(
                min(until - now, _PAUSE if self.operations else _PAUSE_BEFORE)
            ):
                return True
            if stop.is_set():
                return True
        until = begun + max(_READING_SHARE * self.sampler.left(), least)
        while self._many and time.monotonic() < until:
            # No pause while there is more: on a busy machine it would be one's turn again much later.
            if stop.is_set() if self.read_operations() else stop.wait(_PAUSE):
                return True
        return self.sampler.wait(stop)

    # -- values of the control group

    def latest_of_group(self, series: MetricSeries) -> int | None:
        """The last known value of a series of the control group; `None`: there is none, or it is not known."""
        return group_value(self.sampler.columns, self.sampler.latest(), series)

    def growth_of_group(self, series: MetricSeries) -> int | None:
        """By how much a counter of the control group has grown since the first tick; `None`: not known."""
        if self._first is None:
            return None
        first, last = group_value(*self._first, series), self.latest_of_group(series)
        return None if first is None or last is None else last - first

    # -- sources

    def _make_context(self) -> Context:
        from otel_memwatch.monitor.sampling.sources import Context

        target = self._target
        return Context(
            root=target.pid,
            interval=self._settings["interval"],
            started=target.started,
            adopt=target.mode == "wrap",
            exclude=target.helpers | {os.getpid()},
            on_process=self._on_process,
            marks_operations=self._marks_operations,
            own_cgroup=target.own_cgroup,
            environment=target.environment,
            allocated_before=target.allocated_before,
        )

    def _add_sources(self, sources: Sequence[Any], absent: Mapping[str, Exception]) -> Sequence[Any]:
        """Notes which sources work and which do not, for the next update of `run.json`; gives those that do."""
        from otel_memwatch.monitor.sampling.sources.quirks import quirks
        from otel_memwatch.runtime.kernel import PAGE_SIZE, rss_error
        from otel_memwatch.runtime.procfs.system import fault_bytes

        self.sources = [*self.sources, *sources]
        self.writer.note(
            sources=self.writer.info.get("sources", {})
            | {source.name: {"state": "ok"} for source in sources}
            | {name: {"state": "unavailable", "hint": str(why)} for name, why in absent.items()},
            gpus=gpu_fields(self.sources),
            quirks=list(quirks()),
            rss_error_bytes=rss_error(),
            fault_bytes=fault_bytes(self._context.sys, os.uname().release),
            page_bytes=PAGE_SIZE,
            faults_carried=True,
            portable=self._context.system != "linux",
            blind=self.tree.blind is not None,
        )
        return sources

    # -- called while a tick is taken

    def _on_process(self, record: ProcessRecord) -> None:
        self.writer.process(record)
        self.batcher.process(record)
        if record.note == ProcessNote.LEFT_CGROUP and not self._any_left_cgroup:
            self._any_left_cgroup = True
            self.writer.mark(
                f"processes left the run's control group: {record.command} ({record.pid}) was the first that was seen outside. "
                "What the tree needed is an interval, without the group's upper bound"
            )

        if record.note == ProcessNote.WATERMARK_RESET and not self._any_reset:
            self._any_reset = True
            self.writer.mark(
                f"somebody else reset the watermark of {record.command} ({record.pid}): what it had before may be unknown, and "
                "nothing bounds it from above"
            )

    def _on_tick(self, snapshot: Snapshot) -> None:
        columns = self.sampler.columns
        self.writer.tick(snapshot)
        if self._to_load and snapshot.time - self._target.started > _SETTLED_SECONDS:
            self._load_what_the_end_needs()
        self.batcher.sample(columns, snapshot)
        for action in (self._follow, self._settle, self._peaks_so_far):
            action.run_if_due(snapshot.time)
        if self._first is None:
            self._first = columns, snapshot
            limits = {
                "cgroup_bytes": group_value(columns, snapshot, LIMIT),
                "host_bytes": host_memory(),
                "rlimit_as_bytes": address_space_limit(self._target.pid),
            }
            self.writer.update(limits=limits)

    def _load_what_the_end_needs(self) -> None:
        """Imports some of the modules that reports are made with, while nobody waits; the next tick stays in time."""
        until = time.monotonic() + min(_LOADING_SECONDS, self._settings["interval"] / 4)
        while self._to_load:
            self._load_one()
            if time.monotonic() >= until:
                return

    def _load_one(self) -> None:
        with contextlib.suppress(Exception):  # whoever needs it tells what is wrong
            import_module(self._to_load.pop(0))

    def _on_health(self, name: str, health: SourceHealth) -> None:
        state = "works again" if health.up else f"failed: {health.error}"
        self.writer.mark(f"source {name} {state}")

    # -- operations

    def _marks_operations(self, pid: int) -> bool:
        """Whether a process resets its own watermark; asked of few, perhaps before anybody follows operations."""
        self.follow_operations()
        assert self.follower is not None
        return self.follower.marks_operations(pid)

    def follow_operations(self) -> None:
        """Begins to follow what the target writes of its operations. Their files are not read yet."""
        from otel_memwatch.record.follower import OperationFollower

        if self.follower is None:
            self.follower = OperationFollower(self.writer.path)

    def read_operations(self, *, last: bool = False) -> bool:
        """Read operations into aggregator and digest; return whether there are more.

        Args:
            last: all processes have ended, so a line without its newline is complete.

        """
        assert self.follower is not None
        so_far = self.operations
        found = self.follower.poll(
            last=last,
            on_close=None if so_far is None else so_far.close_lines,
            on_pairs=None if so_far is None or not so_far.too_many else so_far.close_pairs,
        )
        if so_far is None and (found.closed or found.opened):
            from otel_memwatch.run.operation_digest import OperationAggregator

            self.operations = OperationAggregator()
            for operation in found.closed:
                self.operations.close(operation)
        if last and self.operations is not None:
            self._tell_aggregator()
        return found.behind

    def _tell_aggregator(self) -> None:
        """Tells the aggregator what processes said of themselves at the boundaries of their operations."""
        aggregator = self.batcher.aggregator
        assert aggregator is not None
        assert self.follower is not None
        aggregator.boundaries(self.follower.lines())

    def _follow_operations(self, now: float) -> None:
        """Read operations: at each sample, or once a second if there are many files.

        The aggregator gets what was read once a second, or from `_MANY` operations on. A sample whose caches are cold
        has no time for more.
        """
        assert self.follower is not None
        self._behind = self.read_operations()
        closed = 0 if self.operations is None else self.operations.closed
        self._many, self._followed = self._behind or closed - self._followed >= _MANY, closed
        few = self.follower.files <= _FOLLOWED
        self._follow.period = 0.0 if few or self._many else _FOLLOW_SECONDS
        if closed - self._settled >= _MANY:
            self._settle.due = now

    def _settle_operations(self, now: float) -> None:
        """Give the aggregator and the history the operations that were read, and make room for the next ones."""
        assert self.follower is not None
        self._settled = 0 if self.operations is None else self.operations.closed
        operations, history, aggregator = self.operations, self.batcher.history, self.batcher.aggregator
        if history is None or aggregator is None:
            return
        if operations is None:
            history.merge(lambda: (), now - _KNOWN_AFTER)
            return
        self._tell_aggregator()
        from otel_memwatch.run.operation_digest import LIMIT, moments_of

        if operations.closed > LIMIT:
            moments = moments_of(aggregator.peaks(), aggregator.conditions.started)
            operations.look_at(moments, aggregator.conditions.interval, self.follower.open_operations())
        if not self._behind:
            history.merge(self._boundaries, now - _KNOWN_AFTER)

    def _update_peaks(self, _now: float) -> None:
        aggregator = self.batcher.aggregator
        self._peaks = None if aggregator is None else aggregator.peaks()

    def _boundaries(self) -> Iterable[float]:
        assert self.follower is not None
        assert self.operations is not None
        return self.operations.boundaries(self.follower.open_operations())

    # -- telemetry

    def _open_telemetry(self, listening: Listening | None, say: Callable[[str], None]) -> None:
        from otel_memwatch.monitor.telemetry import TelemetryInputs, start
        from otel_memwatch.record.resource import ci_attributes, resource_attributes
        from otel_memwatch.record.tags import engine_tags

        sampler, writer, target = self.sampler, self.writer, self._target
        info = writer.info
        resource = resource_attributes(info, target.environment)
        self._join_group(resource)
        near = os.getppid() if target.mode == "wrap" else target.pid
        # What a person says of a run is truer than what an engine does.
        tags = {**engine_tags(target.environment, info.get("cwd"), resource, near), **info.get("tags", {})}
        writer.update(resource=resource, ci=ci_attributes(target.environment), tags=tags)
        parts = TelemetryInputs(
            run=info,
            columns=sampler.columns,
            latest=self._latest_of_run(),
            health=sampler.health,
            ticks=lambda: (sampler.ticks, sampler.missed),
            peaks=lambda: self._peaks,
            directory=writer.path,
            environment=dict(os.environ),
            listening=listening,
            say=say,
        )
        self.telemetry = start(self._settings, parts)
        self._follow.due = self._settle.due = 0.0
        if self.telemetry.active:
            self._peaks_so_far.due = 0.0

    def _join_group(self, resource: dict[str, Any]) -> None:
        """Note the run's group, also among the attributes of its resource, and the host's clock."""
        from otel_memwatch.record.identity import clock_fields, group_attributes, identity

        settings, writer = self._settings, self.writer
        own = identity(self._target.environment, resource, settings["group"], settings["rank"])
        writer.note(group=None if own is None else own._asdict(), clock=clock_fields())
        if own is not None:
            resource |= {name: value for name, value in group_attributes(own).items() if name not in resource}

    def _latest_of_run(self) -> Callable[[], Snapshot | None]:
        """What gives the latest snapshot, with the tree's counters from the beginning of the run."""
        from otel_memwatch.run.counter_rebase import CounterRebase, counters_in

        columns, latest = self.sampler.columns, self.sampler.latest
        if self._target.mode == "wrap":
            return latest
        assert self._first is not None
        first: dict[Column, Value] = dict(zip(self._first[0], self._first[1].values, strict=True))
        rebase = CounterRebase(counters_in(columns))
        for column in columns:
            rebase.of(column, first.get(column))

        def latest_of_run() -> Snapshot | None:
            snapshot = latest()
            if snapshot is None:
                return None
            return snapshot._replace(values=tuple(map(rebase.of, columns, snapshot.values)))

        return latest_of_run
