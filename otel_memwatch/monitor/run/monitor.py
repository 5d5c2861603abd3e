"""The monitor of one run, as the supervisor's thread sees it: started, informed of every process that ends, finished.

Everything heavy is imported in the monitor's own thread, after the target has started. Whatever goes wrong here becomes one
line on stderr and a mark in the record; it never reaches the target.
"""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from otel_memwatch.errors import Unavailable, describe
from otel_memwatch.monitor.recording.recording import RunRecording
from otel_memwatch.monitor.recording.run_info import LIMIT, OOM_KILLS, PEAK, start_fields
from otel_memwatch.monitor.run.completion import complete, write_end
from otel_memwatch.monitor.sampling.sampler import Flag
from otel_memwatch.monitor.workers.rendering import render
from otel_memwatch.record.format import RUNNING
from otel_memwatch.runtime.address_space import keep_to_one_heap
from otel_memwatch.runtime.threads import Thread, ThreadErrors
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otel_memwatch.model import ChildExit, Ending
    from otel_memwatch.monitor.messages import Messages
    from otel_memwatch.monitor.recording.run_info import TargetInfo
    from otel_memwatch.monitor.recording.trace_context import TraceContext
    from otel_memwatch.monitor.telemetry.otlp_receiver.socket import Listening
    from otel_memwatch.monitor.workers.rendering import CompletedRecord
    from otel_memwatch.record.writer import RunWriter

_ROOM = 32 << 20
"""Bytes of address space that the monitor takes beside telemetry: 20 MiB, and some for a large tree."""


class ReapedChildren:
    """Ends of processes, noted by the supervisor's thread, for the source process_tree, which may not be open yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._early: deque[ChildExit] = deque()
        self._tree: Any = None

    def note(self, child: ChildExit) -> None:
        """Hands the end of a process to the tree, at once or as soon as there is one."""
        with self._lock:
            if self._tree is None:
                self._early.append(child)
            else:
                self._tree.note_exit(child)

    def connect(self, tree: Any) -> None:
        """Hands it all that has been noted so far, and what comes."""
        with self._lock:
            self._tree = tree
            for child in self._early:
                tree.note_exit(child)


class Monitor:
    """Records one run from `start` to `finish`.

    Attributes:
        messages: what was said to the person, problems among them.

    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, Any],
        target: TargetInfo,
        trace: TraceContext,
        messages: Messages,
        *,
        listening: Listening | None = None,
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._target = target
        self._trace = trace
        self.messages = messages
        self._listening = listening
        self._stop = Flag()
        """Set when the target has ended."""
        self._drivers_asked = Flag()
        """Set when no driver need be waited for any more."""
        self._first_tick = threading.Event()
        self._reaped = ReapedChildren()
        self._writer: RunWriter | None = None
        self._recording: RunRecording | None = None
        self._thread_errors = ThreadErrors()
        self._thread = Thread(self._record, "otel-memwatch", room=_ROOM)

    # -- called by the supervisor's thread

    def start(self) -> None:
        """Starts the thread; where the system allows no more, the run is not recorded."""
        self._thread_errors.keep()
        keep_to_one_heap()
        try:
            self._thread.start()
        except Unavailable as error:
            self.messages.problem(f"nothing is recorded: {error}")
            self._let_go()

    def wait_for_first_tick(self, seconds: float) -> bool:
        """Whether the first tick was recorded, or given up, within `seconds`."""
        return self._first_tick.wait(seconds)

    def note_exit(self, child: ChildExit) -> None:
        """Notes what the kernel said of a process that the supervisor reaped. Raises nothing."""
        try:
            self._reaped.note(child)
        except Exception as error:  # noqa: BLE001 - the supervisor goes on
            self.messages.problem(f"the end of process {child.pid} could not be recorded: {describe(error)}")

    def oom_kills(self) -> int | None:
        """Processes of the control group that the OOM killer has killed since the first tick; `None`: unknown."""
        return None if self._recording is None else self._recording.growth_of_group(OOM_KILLS)

    def ending(self, exit_code: int | None, signal: int | None, oom_kills: int | None) -> Ending:
        """How the target ended, in words, with what its control group had and may have."""
        from otel_memwatch.run.ending import describe_end
        from otel_memwatch.runtime.memory_headroom import own_share

        peak, limit = (
            None if self._recording is None else self._recording.latest_of_group(series)
            for series in (PEAK, LIMIT)
        )
        share = own_share(limit) if oom_kills and limit is not None else None
        return describe_end(exit_code, signal, oom_kills, peak, limit, monitor=share)

    def finish(self, end: Callable[[], Ending], interrupted: Callable[[], bool] | None = None) -> None:
        """Waits for the last tick, completes the record, and makes the report. `end` words how the target ended.

        Then lingers for a last scrape, where that was asked for. When `interrupted` says that we should go, there is
        no picture and no lingering; `None`: nobody can say so, then there is a picture and no lingering.
        """
        ended = time.monotonic()
        if self._recording is not None and self._recording.telemetry is not None:
            self._recording.telemetry.pause()
        self._stop.set()
        self._drivers_asked.set()
        if self._thread.ident is not None:
            self._thread.join()
        for sentence in self._thread_errors.sentences():
            self.messages.problem(sentence)
        try:
            completed = self._complete(end, ended)
            if completed is not None:
                self._render(completed, interrupted or (lambda: False))
        except Exception as error:  # noqa: BLE001 - the target's exit code must not depend on us
            self.messages.problem(f"the record could not be completed: {describe(error)}")
        telemetry = None if self._recording is None else self._recording.telemetry
        if telemetry is not None:
            with contextlib.suppress(Exception):  # what there was to deliver has been delivered
                telemetry.linger(interrupted or (lambda: True))
            telemetry.close()

    def _complete(self, end: Callable[[], Ending], ended: float) -> CompletedRecord | None:
        if self._recording is not None:
            return complete(self._recording, end, ended)
        if self._writer is not None:
            write_end(self._writer, end(), ended)
        return None

    def _render(self, completed: CompletedRecord, hurried: Callable[[], bool]) -> None:
        assert self._writer is not None
        render(
            completed,
            self._settings,
            self.messages,
            hurried,
            writable=self._writer.stopped is None,
        )
        if self._settings.get("tracker") and self._writer.stopped is None:
            from otel_memwatch.monitor.workers.tracking import track

            track(self._directory, self._settings["tracker"], self.messages, hurried)

    # -- the monitor's thread

    def _record(self) -> None:
        """Records the run, from the first tick, taken as early as can be, to the last."""
        from otel_memwatch.record.writer import RunWriter

        try:
            writer = self._writer = RunWriter(self._directory, self.messages.problem)
            fields = start_fields(self._directory, self._target, self._settings, self._trace)
            writer.update(state=RUNNING, **fields)
            recording = RunRecording(writer, self._target, self._settings, self.messages, self._drivers_asked)
            self._reaped.connect(recording.tree)
            self._recording = recording
            recording.take_first_tick()
            self._first_tick.set()
            recording.open_the_rest(self._stop, self._listening, self.messages.info)
            # What exists now lives as long as the run: the collector of garbage need never look through it.
            gc.freeze()
            gc.enable()
            recording.run(self._stop)
        except Exception as error:  # noqa: BLE001 - the target goes on without us
            self.messages.problem(f"recording stopped: {describe(error)}")
            if self._writer is not None:
                self._writer.mark(self.messages.problems[-1])
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """Keeps nobody waiting for what will not come."""
        self._first_tick.set()
        served = self._recording is not None and self._recording.telemetry is not None
        if self._listening is not None and not served:
            # The target would wait for answers of a port that nobody serves.
            self._listening.socket.close()
