"""The monitor: sources, sampler, recorder, tally and telemetry of one run, in one thread beside the supervisor's.

Everything heavy is imported in that thread, after the target has started. Whatever goes wrong here is told in one
line and marked in the record; it never reaches the target.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from otel_memwatch.errors import RunError, Unavailable, describe
from otel_memwatch.model import ProcessRecord
from otel_memwatch.monitor.fields import (
    LIMIT,
    OOM_KILLS,
    PEAK,
    gpu_fields,
    group_value,
    health_fields,
    moment,
)
from otel_memwatch.monitor.folding import Folding
from otel_memwatch.monitor.opening import Opening
from otel_memwatch.monitor.rendering import render
from otel_memwatch.monitor.run_info import Watched, address_space_limit, description, host_memory
from otel_memwatch.monitor.sampler import Flag
from otel_memwatch.record.format import FINISHED, RUNNING
from otel_memwatch.runtime.address_space import keep_to_one_heap
from otel_memwatch.runtime.threads import Thread, ThreadErrors
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otel_memwatch.analysis import Peaks
    from otel_memwatch.model import ChildExit, Column, Ending, Operation, Snapshot, Value
    from otel_memwatch.monitor.sampler import Sampler, SourceHealth
    from otel_memwatch.monitor.sources import Context
    from otel_memwatch.monitor.telemetry import Telemetry
    from otel_memwatch.monitor.telemetry.listening import Listening
    from otel_memwatch.monitor.trace_context import TraceContext
    from otel_memwatch.record.follower import OperationFollower
    from otel_memwatch.record.operation_lines import OperationLines
    from otel_memwatch.record.writer import RunWriter

_ROOM = 32 << 20
"""Bytes of address space that the monitor takes beside telemetry: 20 MiB, and some for a large tree."""

_FOLLOW_SECONDS = 1.0
"""Time between two looks at what the target tells of its operations, where nobody wants to know at once."""

_CATCHING_UP_SECONDS = 0.3
"""Time that telemetry may read operations on after the end: a burst may have left more of them than can be delivered."""

_PEAKS_SECONDS = 1.0
"""Time between two looks at the peaks so far, for telemetry."""


class Monitor:
    """Records one run from `start` to `finish`."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, Any],
        target: Watched,
        trace: TraceContext,
        say: Callable[[str], None],
        *,
        listening: Listening | None = None,
    ) -> None:
        self.directory = directory
        self.troubles: list[str] = []
        """One sentence for each thing that kept the record from being whole."""
        self._settings = settings
        self._target = target
        self._trace = trace
        self._say = say
        self._stop = Flag()
        self._opened = Flag()
        """Set when no source need be waited for any more."""
        self._first_tick = threading.Event()
        self._first: Snapshot | None = None
        self._first_values: Mapping[Column, Value] = {}
        self._early: deque[ChildExit] = deque()
        self._lock = threading.Lock()
        self._tree: Any = None
        self._folding = Folding()
        self._sources: Sequence[Any] = ()
        self._sampler: Sampler | None = None
        self._writer: RunWriter | None = None
        self._follower: OperationFollower | None = None
        self._context: Context | None = None
        self._telemetry: Telemetry | None = None
        self._peaks: Peaks | None = None
        """Peaks so far, taken in the sampling thread: the tally is not made for two."""
        self._peaks_due = self._follow_due = math.inf
        self._follow_period = _FOLLOW_SECONDS
        self._listening = listening
        self._watched_to_the_end = False
        """Whether the last tick, after the target's end, was taken."""
        self._completed = False
        self._place = directory
        """Where the rest of the record is read from in the end."""
        self._info: Mapping[str, Any] = {}
        """`run.json` as it is in the end, whether it could be written or not."""
        self._thread_errors = ThreadErrors()
        self._thread = Thread(self._guarded, "otel-memwatch", room=_ROOM)

    # -- called by the supervisor's thread

    def start(self) -> None:
        """Starts the thread; where the system allows no more, the run is not recorded."""
        self._thread_errors.keep()
        keep_to_one_heap()
        try:
            self._thread.start()
        except Unavailable as error:
            self.trouble(f"nothing is recorded: {error}")
            self._let_go()

    def wait_for_first_tick(self, seconds: float) -> bool:
        """Whether the first tick was recorded within `seconds`."""
        return self._first_tick.wait(seconds)

    def note_exit(self, child: ChildExit) -> None:
        """Takes in what the kernel said of a process that the supervisor reaped. Raises nothing."""
        try:
            with self._lock:
                if self._tree is None:
                    self._early.append(child)
                else:
                    self._tree.note_exit(child)
        except Exception as error:  # noqa: BLE001 - the supervisor goes on
            self.trouble(f"the end of process {child.pid} could not be recorded: {describe(error)}")

    def oom_kills(self) -> int | None:
        """Processes of the control group that the OOM killer has killed since the first tick; `None`: unknown."""
        first, last = (group_value(self._sampler, OOM_KILLS, at) for at in (self._first, self._latest()))
        return None if first is None or last is None else last - first

    def ending(self, exit_code: int | None, signal: int | None, oom_kills: int | None) -> Ending:
        """How the target ended, in words, with what its control group had and may have."""
        from otel_memwatch.analysis.ending import describe_end

        peak = group_value(self._sampler, PEAK, self._latest())
        return describe_end(exit_code, signal, oom_kills, peak, self._cgroup_limit())

    def _cgroup_limit(self) -> int | None:
        """Bytes of the smallest limit that applies; `None`: none, or unknown."""
        return group_value(self._sampler, LIMIT, self._latest())

    def _latest(self) -> Snapshot | None:
        return self._sampler.latest() if self._sampler else None

    def finish(self, end: Callable[[], Ending], interrupted: Callable[[], bool] | None = None) -> None:
        """Takes a last tick, completes the record, and makes the report. `end` words how the target ended.

        Then lingers for a last scrape, where that was asked for. When `interrupted` says that we should go, there is
        no picture and no lingering; `None`: nobody can say so, then there is a picture and no lingering.
        """
        ended = time.monotonic()
        if self._telemetry is not None:
            self._telemetry.pause()
        self._stop.set()
        self._opened.set()
        if self._thread.ident is not None:
            self._thread.join()
        for sentence in self._thread_errors.sentences():
            self.trouble(sentence)
        try:
            self._complete(end, ended)
            if self._completed:
                render(self._place, self._info, self._settings, self, interrupted or (lambda: False))
        except Exception as error:  # noqa: BLE001 - the target's exit code must not depend on us
            self.trouble(f"the record could not be completed: {describe(error)}")
        if self._telemetry is not None:
            with contextlib.suppress(Exception):  # what there was to deliver has been delivered
                self._telemetry.linger(interrupted or (lambda: True))
            self._telemetry.close()

    # -- the monitor's thread

    def _guarded(self) -> None:
        try:
            self._open()
            # What is there now stays: it need never be looked through again.
            gc.freeze()
            gc.enable()
            assert self._sampler is not None
            self._sampler.run(self._stop)
            self._sampler.tick(last=True)
            self._watched_to_the_end = True
        except Exception as error:  # noqa: BLE001 - the target goes on without us
            self.trouble(f"recording stopped: {describe(error)}")
            if self._writer is not None:
                self._writer.mark(self.troubles[-1])
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """Keeps nobody waiting for what will not come."""
        self._first_tick.set()
        if self._listening is not None and self._telemetry is None:
            # The target would wait for answers of a port that nobody serves.
            self._listening.socket.close()

    def _open(self) -> None:
        """Takes the first tick as early as can be; what is not needed for it comes after."""
        from otel_memwatch.monitor.sampler import Sampler
        from otel_memwatch.record.writer import RunWriter

        self._writer = RunWriter(self.directory, self.trouble)
        self._writer.update(
            state=RUNNING, **description(self.directory, self._target, self._settings, self._trace)
        )
        if self._settings["exact"]:
            self._follow_operations()
        opening = Opening(self._make_context(), self._opened)
        self._take_in(opening.first())
        self._sampler = Sampler(self._sources, self._settings["interval"], self._health_changed)
        self._writer.columns(self._sampler.columns)
        self._sampler.subscribe(self._recorded)
        self._sampler.tick()
        if not self._stop.is_set():  # else the command has ended: nothing is left to be read from a driver
            opening.start()
        while not self._opened.is_set() and not self._sampler.wait(self._opened):
            self._sampler.tick()
        self._follow_operations()
        self._join(opening)
        self._folding.open(self._sampler.columns, self._writer.info)
        self._open_telemetry()

    def _follow_operations(self) -> None:
        from otel_memwatch.record.follower import OperationFollower

        if self._follower is None:
            self._follower = OperationFollower(self.directory)

    def _join(self, opening: Opening) -> None:
        """Goes on with the sources that took their time to open."""
        assert self._sampler is not None
        assert self._writer is not None
        late = self._take_in(opening.late())
        if late:
            self._sampler = self._sampler.joined_by(late)
            self._writer.columns(self._sampler.columns)
            self._sampler.subscribe(self._recorded)

    def _take_in(self, opened: tuple[Sequence[Any], Mapping[str, Exception]]) -> Sequence[Any]:
        """Notes which sources work and which do not, for the next update of `run.json`; gives those that do."""
        from otel_memwatch.monitor.sources.process_tree.windows import fault_bytes
        from otel_memwatch.monitor.sources.quirks import quirks
        from otel_memwatch.runtime.kernel import rss_error

        assert self._writer is not None
        assert self._context is not None
        sources, absent = opened
        if self._tree is None:
            tree: Any = next((source for source in sources if source.name == "process_tree"), None)
            if tree is None:
                raise absent["process_tree"]
            with self._lock:
                self._tree = tree
                for child in self._early:
                    tree.note_exit(child)
            if tree.blind is not None:
                self.trouble(tree.blind)
                self._writer.mark(tree.blind)
        self._sources = [*self._sources, *sources]
        self._writer.note(
            sources=self._writer.info.get("sources", {})
            | {source.name: {"state": "ok"} for source in sources}
            | {name: {"state": "unavailable", "hint": str(why)} for name, why in absent.items()},
            gpus=gpu_fields(self._sources),
            quirks=list(quirks()),
            rss_error_bytes=rss_error(),
            fault_bytes=fault_bytes(self._context.sys, os.uname().release),
            portable=self._context.system != "linux",
            blind=self._tree.blind is not None,
        )
        return sources

    def _make_context(self) -> Context:
        from otel_memwatch.monitor.sources import Context

        target = self._target
        self._context = Context(
            root=target.pid,
            interval=self._settings["interval"],
            started=target.started,
            exact=self._settings["exact"],
            adopt=target.mode == "wrap",
            exclude=target.helpers | {os.getpid()},
            on_process=self._process,
            marks_operations=lambda pid: self._follower is not None and self._follower.marks_operations(pid),
            own_cgroup=target.own_cgroup,
            environment=target.environment,
        )
        return self._context

    def _open_telemetry(self) -> None:
        from otel_memwatch.monitor.telemetry import Parts, start
        from otel_memwatch.record.resource import ci_attributes, resource_attributes

        sampler, writer = self._sampler, self._writer
        assert sampler is not None
        assert writer is not None
        info = writer.info
        writer.update(
            resource=resource_attributes(info, self._target.environment),
            ci=ci_attributes(self._target.environment),
        )
        parts = Parts(
            run=info,
            columns=sampler.columns,
            latest=self._latest_of_run(),
            health=sampler.health,
            ticks=lambda: (sampler.ticks, sampler.missed),
            peaks=lambda: self._peaks,
            directory=self.directory,
            environment=dict(os.environ),
            listening=self._listening,
            say=self._say,
        )
        self._telemetry = start(self._settings, parts)
        self._follow_due = 0.0
        if self._telemetry.active:
            self._peaks_due = 0.0
        if self._telemetry.active or self._settings["exact"]:
            # They are told at once, and no watermark may be reset that its process resets itself.
            self._follow_period = 0.0

    def _latest_of_run(self) -> Callable[[], Snapshot | None]:
        """What gives the latest snapshot, with the tree's counters from the beginning of the run."""
        from otel_memwatch.analysis.since import SinceFirst

        assert self._sampler is not None
        columns, latest = self._sampler.columns, self._sampler.latest
        if self._target.mode == "wrap":
            return latest
        since = SinceFirst(columns, joined=True)
        for place, column in enumerate(columns):
            since.of(place, self._first_values.get(column))

        def latest_of_run() -> Snapshot | None:
            snapshot = latest()
            if snapshot is None:
                return None
            return snapshot._replace(
                values=tuple(since.of(place, value) for place, value in enumerate(snapshot.values))
            )

        return latest_of_run

    def _process(self, record: ProcessRecord) -> None:
        assert self._writer is not None
        self._writer.process(record)
        self._folding.process(record)

    def _recorded(self, snapshot: Snapshot) -> None:
        assert self._writer is not None
        assert self._sampler is not None
        self._writer.tick(snapshot)
        self._folding.tick(self._sampler.columns, snapshot)
        if snapshot.time >= self._follow_due:
            self._follow_due = snapshot.time + self._follow_period
            self._follow()
        if snapshot.time >= self._peaks_due:
            self._peaks_due = snapshot.time + _PEAKS_SECONDS
            tally = self._folding.tally
            self._peaks = None if tally is None else tally.peaks()
        if self._first is None:
            self._first = snapshot
            self._first_values = dict(zip(self._sampler.columns, snapshot.values, strict=True))
            self._writer.update(limits=self._limits())
            self._first_tick.set()

    def _follow(self) -> bool:
        """Takes in what the target said of its operations since the last time; whether it said anything."""
        assert self._follower is not None
        found = self._follower.poll()
        if not found.closed and not found.opened:
            return False
        tally = self._folding.tally
        assert tally is not None
        tally.boundaries(self._follower.lines())
        if self._telemetry is not None and self._telemetry.active:
            self._telemetry.operations(found.closed, [one.name for one in self._follower.open_operations()])
        return True

    def _limits(self) -> dict[str, int | None]:
        """Memory limits that apply to the target, in bytes."""
        return {
            "cgroup_bytes": self._cgroup_limit(),
            "host_bytes": host_memory(),
            "rlimit_as_bytes": address_space_limit(self._target.pid),
        }

    def _health_changed(self, name: str, health: SourceHealth) -> None:
        assert self._writer is not None
        state = "works again" if health.up else f"failed: {health.error}"
        self._writer.mark(f"source {name} {state}")

    @property
    def recording(self) -> bool:
        """Whether the run directory could be written to the end."""
        return self._writer is not None and self._writer.stopped is None

    def say(self, text: str) -> None:
        """Tells the person something."""
        self._say(text)

    def trouble(self, sentence: str) -> None:
        """Tells the person what keeps the record from being whole."""
        self.troubles.append(sentence)
        self._say(f"otel-memwatch: {sentence}")

    # -- the end

    def _complete(self, end: Callable[[], Ending], ended: float) -> None:
        if self._writer is None:
            return
        tally = self._folding.tally
        if tally is None or self._tree is None or self._sampler is None:
            self._give_up(end(), ended)
            return
        self._tree.finish(time.monotonic())
        ending = end()
        self._writer.check()
        lines, operations = self._operations()
        tally = self._folding.tally or tally
        tally.boundaries(lines)
        self._note_missing()
        self._writer.update(
            state=FINISHED,
            ended=moment(ended),
            exit=ending._asdict(),
            peaks=tally.peaks(operations, whole=self._watched_to_the_end).to_json(),
            totals=tally.totals(),
            quality=tally.quality(),
            sources={**self._writer.info["sources"], **health_fields(self._sampler)},
            gpus=gpu_fields(self._sources),
        )
        self._deliver(ending, ended, operations)
        self._tell_whether_written()
        self._completed = True
        self._writer.close()

    def _note_missing(self) -> None:
        """Notes from when on the record has no ticks although the run went on."""
        writer = self._writer
        assert writer is not None
        if self._watched_to_the_end and not writer.missing:
            return
        until = self._started if writer.last_tick is None else writer.last_tick
        writer.note(recorded_until=until)
        if writer.missing:
            since = max(0.0, until - self._started)
            writer.note_mark(
                f"{writer.missing} ticks are missing, from {since:.1f} s on: peaks and totals are from memory"
            )

    @property
    def _started(self) -> float:
        assert self._writer is not None
        return float(self._writer.info["started"]["monotonic"])

    def _tell_whether_written(self) -> None:
        """Says in what is still to be told of the run when the record does not hold it."""
        writer = self._writer
        assert writer is not None
        in_place = writer.in_place
        # Nothing is read of what may stand in its place now.
        self._place = self.directory if in_place else self.directory / f"lost-{os.getpid()}"
        if not writer.written and not writer.update():  # there may be space again
            writer.note_mark("the end could not be recorded" if in_place else "the record is lost")
        self._info = json.loads(json.dumps(writer.info))

    def _give_up(self, ending: Ending, ended: float) -> None:
        """Completes the record of a run whose recording never came about, or failed, as far as that goes."""
        assert self._writer is not None
        self._writer.update(ended=moment(ended), exit=ending._asdict())
        self._writer.close()

    def _operations(self) -> tuple[list[OperationLines], list[Operation]]:
        """What the processes told of their operations; where the files have gone, what was read before."""
        assert self._writer is not None
        assert self._follower is not None
        from otel_memwatch.record.reader import read_run

        if self._writer.in_place:
            with contextlib.suppress(RunError):
                record = read_run(self.directory)
                return record.operation_lines, record.operations
        return self._follower.lines(), self._follower.open_operations()

    def _deliver(self, ending: Ending, ended: float, operations: Sequence[Operation]) -> None:
        """Gives telemetry the final figures; what it could not deliver is marked in the record."""
        if self._telemetry is None or not self._telemetry.active:
            return
        from otel_memwatch.analysis import Peaks
        from otel_memwatch.monitor.telemetry import Ended

        assert self._writer is not None
        assert self._follower is not None
        until = time.monotonic() + _CATCHING_UP_SECONDS
        while self._follow() and time.monotonic() < until:
            pass
        peaks = Peaks.from_json(self._writer.info["peaks"])
        still_open = [operation for operation in operations if operation.status == "open"]
        closed = [operation for operation in operations if operation.status != "open"]
        for problem in self._telemetry.finish(Ended(ended, ending, peaks, still_open, closed)):
            self._writer.mark(problem)
