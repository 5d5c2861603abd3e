"""One run while it is recorded: its sources, samples, operations and telemetry, all in the monitor's thread.

`Monitor` makes a `RunRecording` and calls `begin`, `open_the_rest` and `run`, in this order. After the thread
has ended, `completion` completes the record. The first sample waits only for things that it needs.
"""

from __future__ import annotations

import math
import os
import time

from otel_memwatch.config import AUTO, shortest_interval
from otel_memwatch.model import ProcessRecord
from otel_memwatch.monitor.recording.batching import PeriodicAction, SampleBatcher
from otel_memwatch.monitor.recording.followed_operations import FollowedOperations
from otel_memwatch.monitor.recording.run_info import (
    FIRST_OF_ITS_KIND,
    LIMIT,
    absence,
    address_space_limit,
    gpu_fields,
    group_value,
    host_memory,
    mark_of,
    may_export,
    note_identity,
)
from otel_memwatch.monitor.sampling.sources import Context, Opening
from otel_memwatch.monitor.workers.detached_report import may_detach
from otel_memwatch.monitor.workers.rendering import needed_to_render
from otel_memwatch.record.format import READING_SECONDS
from otel_memwatch.runtime.lazy import load_module
from otel_memwatch.runtime.light import load_array, suppress
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from otel_memwatch.model import Column, Snapshot
    from otel_memwatch.monitor.messages import Messages
    from otel_memwatch.monitor.recording.needed_bounds import NeededBounds
    from otel_memwatch.monitor.recording.process_details import ProcessDetails
    from otel_memwatch.monitor.recording.run_info import MetricSeries, TargetInfo
    from otel_memwatch.monitor.sampling.sampler import SourceHealth
    from otel_memwatch.monitor.telemetry import Telemetry
    from otel_memwatch.monitor.telemetry.otlp_receiver.socket import ListeningPort
    from otel_memwatch.record.writer import RunWriter
    from otel_memwatch.run.growth import GrowthFinding
    from otel_memwatch.runtime.threads import Alarm, Flag
    from otel_memwatch.truth.heap import HeapReading

_ALONE = (os.cpu_count() or 1) == 1
"""True if the program and we share one processor."""

_READING_SHARE = 0.5 if _ALONE else 0.9
"""Share of time for reading while so many are marked: on one processor the program needs the rest."""

_LEAST_SHARE = 0.5
"""Share of the interval for reading them even if that delays the next sample."""

_PAUSE = 0.01
"""Seconds between two such readings, if the first one has read everything."""

_PAUSE_BEFORE = 0.05
"""Seconds between two such readings early in a program that has marked none: most never do."""

_SETTLED_SECONDS = 0.4
"""Seconds after which a command counts as long: each sample then loads some of the modules that its end needs.

Before that, they are loaded between samples if a processor may be idle.
"""

_LOADING_SECONDS = 0.02
"""Seconds for loading them at one sample, plus one module."""

_REST_SECONDS = 2.0
"""Longest time without a search for operations while no process of the tree runs: only `otel-memwatch mark` adds any."""

_SHARED_SECONDS = 1.5
"""Seconds by which the search may come early, at a sample of the sources: they take one each second or two."""

_STALL_CHECKS, _STALL_SAMPLES = 40, 10
"""Number of checks and least number of samples within the time of --stalled."""

_STALL_CHECK_SECONDS = 1.0
"""Longest time between two of these checks."""


class RunRecording:
    """Everything that is opened and read for one run.

    The constructor opens the kernel's sources. It raises `Unavailable` if the process tree is unreadable.

    Args:
        writer: writer of the run directory.
        target: the target.
        settings: the options in force.
        messages: messages to the user.
        drivers_asked: set when no driver is waited for any more.
        ended: the command has ended, so there is one sample, the last, of the sources that still show something of it.

    Attributes:
        tree: the source process_tree.
        guard: what may end the run; `None`: nothing does.
        watched_to_the_end: true if the last sample, after the target's end, was taken.
        limitless: true as long as no sample has shown a limit of the cgroup.

    """

    def __init__(
        self,
        writer: RunWriter,
        target: TargetInfo,
        settings: Mapping[str, Any],
        messages: Messages,
        drivers_asked: Flag,
        *,
        ended: bool = False,
    ) -> None:
        from otel_memwatch.monitor.sampling.sampler import Sampler

        self.writer = writer
        self.batcher = SampleBatcher()
        self.telemetry: Telemetry | None = None
        self.details: ProcessDetails | None = None
        self._messages = messages
        self.sources: Sequence[Any] = ()
        self.watched_to_the_end, self.limitless = False, True
        self.guard = target.guard
        self._target, self._ended = target, ended
        self._settings = settings
        self._first: tuple[Sequence[Column], Snapshot] | None = None
        self._noted: set[str | None] = set()
        self._findings: list[GrowthFinding] = []
        self._drivers_asked = drivers_asked
        detachable = target.mode == "wrap" and may_detach(settings, os.environ)
        self._to_load = list(needed_to_render(settings, detachable=detachable))
        self._interval = min(shortest_interval(settings["interval"]), _longest_interval(settings))
        self._context = self._make_context()
        auto = self._context.auto
        self.followed = FollowedOperations(writer.path, self.batcher, None if auto is None else auto.notice)
        self._actions: list[PeriodicAction] = []
        """Actions for samples, beside those of `followed`."""
        self._next_action = 0.0
        """Monotonic time of the next action while no process of the tree runs."""
        self._runs: int | None = None
        """`TreeSource.runs` at the last actions."""
        self._opening = Opening(self._context, drivers_asked)
        sources, absent = self._opening.first(ended=ended)
        tree: Any = next((source for source in sources if source.name == "process_tree"), None)
        if tree is None:
            raise absent["process_tree"]
        self.tree = tree
        if self.tree.blind is not None:
            messages.problem(self.tree.blind)
            writer.mark(self.tree.blind)
        self._add_sources(sources, absent)
        self.sampler = Sampler(self.sources, self._interval, self._on_health, auto=self._context.auto)
        self._needed_bounds: NeededBounds | None = None

    # -- called by `Monitor`

    def begin(self) -> None:
        """Declare the columns. Record the first sample and the limits at that time, unless the command has ended."""
        self._note_machine()
        self._declare_columns()
        if not self._ended:
            self.sampler.tick()

    def _declare_columns(self) -> None:
        """Write the columns of the following samples, and subscribe to these."""
        self.writer.columns(self.sampler.columns)
        self._limits = [index for index, column in enumerate(self.sampler.columns) if column[:2] == LIMIT]
        """Indices of the cgroup's limit in a sample's values."""
        self.sampler.subscribe(self._on_tick)
        if self._needed_bounds is not None:
            self._needed_bounds.declare(self.sampler.columns)
            self._fill_bounds(self._needed_bounds)

    def _fill_bounds(self, bounds: NeededBounds) -> None:
        self.sampler.complete, self.sampler.complete_repeated = bounds.fill, bounds.fill_repeated

    def open_the_rest(self, stop: Flag, listening: ListeningPort | None, say: Callable[[str], None]) -> None:
        """Open slow parts while sampling continues: drivers, the aggregator, telemetry.

        If the target has already ended (`stop`), no driver is asked: it has nothing left to read.
        """
        if not stop.is_set():
            load_array()
            self._opening.start()
        if self._context.in_group and not self._ended:
            # The first sample has no bounds of memory needed, so it does not wait for these imports.
            from otel_memwatch.monitor.recording.needed_bounds import NeededBounds

            assert self._first is not None
            columns, first = self._first
            self._needed_bounds = bounds = NeededBounds(self.writer.info)
            bounds.declare(columns)
            bounds.fill(first.time, list(first.values))
            self._fill_bounds(bounds)
        while not self._drivers_asked.is_set() and not self.sampler.wait(self._drivers_asked):
            self.sampler.tick()
        if self._context.system == "linux" and not stop.is_set():
            from otel_memwatch.monitor.recording.process_details import ProcessDetails

            remote = self._messages.problem if self._settings.get("remote_exec") else None
            self.details = ProcessDetails(
                self.writer, self.tree, self._target.pid, self.sampler.columns, remote
            )
        self._join_drivers()
        lasts = not stop.is_set()
        self.batcher.open(
            self.sampler.columns,
            self.writer.info,
            drawn=self._settings["report"] and lasts,
            marked=lasts or self.followed.have_begun(),
        )
        note_identity(self.writer, self._target, self._settings)
        if lasts:
            self.writer.update()
        self._begin_actions(listening, say)

    def run(self, stop: Flag, alarm: Alarm) -> None:
        """Take samples until the target has ended, and a last one then. `alarm` rings if a process has ended, or `stop` is set."""
        while not self._wait(stop):
            if self._opening.answered and self._join_drivers():
                self.batcher.join(self.sampler.columns)
                if self.telemetry is not None:
                    self.telemetry.join(self.sampler.columns)
                self.writer.update()
            alarm.silence()
            self.sampler.tick()
            if not stop.is_set():  # it may have rung before `silence`
                self._repeat(alarm)
        self.sampler.tick(last=True)
        self.watched_to_the_end = True
        if self.details is not None:
            self.details.close()

    def _repeat(self, alarm: Alarm) -> None:
        """Take the next samples without the sources, for as long as no value changes and nothing else is due."""
        until = self._rests_until()
        if until == -math.inf:
            return
        taken, unwritten = self.sampler.repeat(until, alarm.descriptor, self.writer.repeated_line)
        if taken:
            self.writer.repeated([snapshot.time for snapshot in taken], unwritten)
        for snapshot in taken:
            self.batcher.sample(self.sampler.columns, snapshot)

    def _rests_until(self) -> float:
        """Return the monotonic seconds of the next sample at which something is due, if the tree rests until then."""
        last = self.sampler.last_time
        if (
            not self.tree.resting
            or self._to_load
            or self.followed.many
            or self.telemetry is not None
            or self.writer.stopped is not None
            or last - self._target.started < _SETTLED_SECONDS
        ):
            return -math.inf
        return self._next_action if self.details is None else min(self._next_action, self.details.due(last))

    def _join_drivers(self) -> bool:
        """Add the sources whose drivers have answered; return whether there are any."""
        late = self._add_sources(*self._opening.late())
        if late:
            self.sampler = self.sampler.joined_by(late)
            self._declare_columns()
        return bool(late)

    def _wait(self, stop: Flag) -> bool:
        """Wait for the next sample (`False`) or for `stop` (`True`), and use the time.

        - Read operations while a program marks very many.
        - In a program that has just begun, read operations and load the modules that its end needs. Otherwise all of that
          would delay the prompt after a command of a tenth of a second.
        """
        settled = self._target.started + _SETTLED_SECONDS
        if not self.followed.many and time.monotonic() >= settled:
            return self.sampler.wait(stop)
        interval = self._interval
        # If samples are late, little time remains to the next one, but there is no less to read.
        begun, least = time.monotonic(), _LEAST_SHARE * interval
        until = begun + max(
            _READING_SHARE * self.sampler.left_to_probe(), least if self.followed.aggregator else 0.0
        )
        while not _ALONE and (now := time.monotonic()) < until and now < settled:
            if self._to_load:
                self._load_one()
            # No longer than until the sample is due: at a short interval it would be late or missed.
            elif not self.followed.read() and stop.wait(
                min(until - now, _PAUSE if self.followed.aggregator else _PAUSE_BEFORE)
            ):
                return True
            if stop.is_set():
                return True
        until = begun + max(_READING_SHARE * self.sampler.left(), least)
        while self.followed.many and time.monotonic() < until:
            # No pause while there is more: on a busy machine our next turn may come much later.
            if stop.is_set() if self.followed.read() else stop.wait(_PAUSE):
                return True
        return self.sampler.wait(stop)

    # -- values of the cgroup

    def keep_group(self, contents: Mapping[str, bytes]) -> None:
        """Keep contents of files of the target's cgroup, for a last sample after its removal. Any thread may call this."""
        for source in self.sources:
            if source.name == "cgroup":
                source.keep_last(contents)

    def lost_group(self) -> bool:
        """Return whether the cgroup that is the target was removed before its last reading."""
        return any(one.name == "cgroup" and one.groups.target and one.removed for one in self.sources)

    def latest_of_group(self, series: MetricSeries) -> int | None:
        """Return the last known value of a series of the cgroup; `None`: absent or unknown."""
        return group_value(self.sampler.columns, self.sampler.latest(), series)

    def growth_of_group(self, series: MetricSeries) -> int | None:
        """Return the growth of a counter of the cgroup since the first sample; `None`: unknown."""
        if self._first is None:
            return None
        first, last = group_value(*self._first, series), self.latest_of_group(series)
        return None if first is None or last is None else last - first

    # -- sources

    def _make_context(self) -> Context:
        from otel_memwatch.monitor.sampling.auto_interval import AutoInterval

        target = self._target
        return Context(
            root=target.pid,
            interval=self._interval,
            auto=AutoInterval(target.started, _longest_interval(self._settings))
            if self._settings["interval"] == AUTO
            else None,
            started=target.started,
            adopt=target.mode == "wrap",
            exclude=target.helpers | {os.getpid()},
            on_process=self._on_process,
            marks_operations=lambda pid: self.followed.marks_operations(pid),  # noqa: PLW0108 - made later
            resets_itself=lambda pid: self.followed.resets_itself(pid),  # noqa: PLW0108 - as above
            own_cgroup=target.own_cgroup,
            target_group=None if target.group is None else target.group.path,
            environment=target.environment,
            allocated_before=target.allocated_before,
        )

    def _add_sources(self, sources: Sequence[Any], absent: Mapping[str, Exception]) -> Sequence[Any]:
        """Add sources, and note working and unavailable ones for the next update of `run.json`; return the working ones."""
        self.sources = [*self.sources, *sources]
        self.writer.note(
            sources=self.writer.info.get("sources", {})
            | {source.name: {"state": "ok"} for source in sources}
            | {name: absence(why) for name, why in absent.items()},
            gpus=gpu_fields(self.sources),
        )
        return sources

    def _note_machine(self) -> None:
        """Note properties of the machine that the figures depend on, for the next update of `run.json`."""
        from otel_memwatch.runtime.kernel import PAGE_SIZE, rss_error
        from otel_memwatch.runtime.procfs.sums import quirks, sums_are_exact
        from otel_memwatch.runtime.procfs.system import fault_bytes

        is_linux = self._context.system == "linux"
        self.writer.note(
            quirks=list(quirks()),
            rss_error_bytes=rss_error(),
            exact_sums=is_linux and sums_are_exact(),
            fault_bytes=fault_bytes(self._context.sys, os.uname().release),
            page_bytes=PAGE_SIZE,
            reading_seconds=READING_SECONDS,
            faults_carried=True,
            portable=not is_linux,
            blind=self.tree.blind is not None,
        )

    # -- called during a sample

    def _on_process(self, record: ProcessRecord) -> None:
        self.writer.process(record)
        self.batcher.process(record)
        note = record.note
        if note is not None and note in FIRST_OF_ITS_KIND and note not in self._noted:
            self._noted.add(note)
            self.writer.mark(mark_of(note, f"{record.command} ({record.pid})", self._target.argv))

    def _on_tick(self, snapshot: Snapshot) -> None:
        columns = self.sampler.columns
        self.writer.tick(snapshot)
        self.limitless = self.limitless and all(snapshot.values[index] is None for index in self._limits)
        if self._to_load and snapshot.time - self._target.started > _SETTLED_SECONDS:
            self._load_what_the_end_needs()
        self.batcher.sample(columns, snapshot)
        runs = self.tree.runs
        # Few samples at rest are more than a repetition: the actions share one with the sources that are due.
        due = self._next_action - _SHARED_SECONDS
        if runs is None or runs != self._runs or self.followed.many or snapshot.time >= due:
            self._runs = runs
            self._act(snapshot.time)
        if self.details is not None:
            self._note_heaps(self.details.read(snapshot))
        if self._first is None:
            self._first = columns, snapshot
            limits = {
                "cgroup_bytes": group_value(columns, snapshot, LIMIT),
                "host_bytes": host_memory(),
                "rlimit_as_bytes": address_space_limit(self._target.pid),
            }
            self.writer.note(limits=limits)
            if (
                not self._drivers_asked.is_set()
            ):  # otherwise the command has ended, and its end is written in a moment
                self.writer.update()

    def _act(self, now: float) -> None:
        """Run the actions that are due. While no process of the tree runs, those of operations are less frequent."""
        for action in (*self.followed.actions, *self._actions):
            action.run_if_due(now)
        rest = _REST_SECONDS - self._interval / 2
        self._next_action = min([now + rest, *(action.due for action in self._actions)])

    def _note_heaps(self, readings: Sequence[HeapReading]) -> None:
        # The batcher's aggregator is asked last: it processes the batch first.
        if not readings or (aggregator := self.batcher.aggregator) is None:
            return
        from otel_memwatch.run.heaps import written_heap

        aggregator.add_heaps(readings)
        self.writer.update(heaps=[written_heap(one) for one in aggregator.heaps])

    def _load_what_the_end_needs(self) -> None:
        """Import some modules for reports in advance, without delay of the next sample."""
        until = time.monotonic() + min(_LOADING_SECONDS, self._interval / 4)
        while self._to_load:
            self._load_one()
            if time.monotonic() >= until:
                return

    def _load_one(self) -> None:
        with suppress(Exception):  # its user reports the error
            load_module(self._to_load.pop(0))

    def _on_health(self, name: str, health: SourceHealth) -> None:
        state = "works again" if health.up else f"failed: {health.error}"
        self.writer.mark(f"source {name} {state}")

    def judge_growth(self, *, job: bool) -> list[GrowthFinding]:
        """Return what the run so far shows about the growth of its memory, and note it for telemetry."""
        aggregator, operations = self.batcher.aggregator, self.followed.aggregator
        repeats = None if operations is None else operations.repeats
        self._findings = [] if aggregator is None else aggregator.findings(repeats, job=job)
        return self._findings

    def _watch_stalls(self, now: float) -> None:  # noqa: ARG002
        aggregator = self.batcher.aggregator
        if self.guard is not None and aggregator is not None:
            self.guard.note_stalls(aggregator.ledger)

    def _begin_actions(self, listening: ListeningPort | None, say: Callable[[str], None]) -> None:
        """Begin the actions for samples, and telemetry if it is requested."""
        self.followed.begin()
        stalled = self._settings.get("stalled")
        if stalled:
            seconds = min(_STALL_CHECK_SECONDS, stalled / _STALL_CHECKS)
            self._actions.append(PeriodicAction(self._watch_stalls, seconds, due=0.0))
        if listening is None and not may_export(self._settings):
            return
        from pathlib import Path

        from otel_memwatch.monitor.recording.live_figures import FiguresSoFar, since_first
        from otel_memwatch.monitor.telemetry import Telemetry, TelemetryInputs

        live = FiguresSoFar(self.batcher, lambda: self.judge_growth(job=False))
        # A late driver replaces the sampler.
        inputs = TelemetryInputs(
            run=self.writer.info,
            columns=self.sampler.columns,
            latest=(lambda: self.sampler.latest())  # noqa: PLW0108
            if self._first is None or self._target.mode == "wrap"
            else since_first(*self._first, lambda: self.sampler),
            health=lambda: self.sampler.health(),  # noqa: PLW0108
            ticks=lambda: (self.sampler.ticks, self.sampler.missed),
            peaks=lambda: live.peaks,
            stalls=lambda: live.stalls,
            findings=lambda: self._findings,
            directory=Path(self.writer.path),
            environment=dict(os.environ),
            listening=listening,
            say=say,
        )
        self.telemetry = Telemetry(self._settings, inputs)
        if self.telemetry.active:
            self._actions += live.actions


def _longest_interval(settings: Mapping[str, Any]) -> float:
    """Return the longest interval with which a stalled run is seen in time."""
    stalled: float | None = settings.get("stalled")
    return stalled / _STALL_SAMPLES if stalled else math.inf
