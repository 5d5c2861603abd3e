"""Monitor of one run. The supervisor's thread starts it, passes ended processes to it and finishes it.

The monitor's thread imports everything heavy, after the target has started. The supervisor's thread waits for the target
meanwhile, and notes its end at once. A command that has ended by then is recorded without a thread. Any failure here becomes
one line on stderr and a mark in the record; it never reaches the target.
"""

from __future__ import annotations

import gc
import os
import resource
import sys

from otel_memwatch.config import AUTO
from otel_memwatch.errors import TargetEnded, Unavailable, describe
from otel_memwatch.monitor.run.supervise.target import has_ended
from otel_memwatch.record.format import RUNNING
from otel_memwatch.runtime.light import Lock, deque, suppress
from otel_memwatch.runtime.threads import Alarm, Flag, Thread, ThreadErrors, keep_to_one_heap
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from otel_memwatch.model import ChildExit, Ending
    from otel_memwatch.monitor.messages import Messages
    from otel_memwatch.monitor.recording.recording import RunRecording
    from otel_memwatch.monitor.recording.run_info import TargetInfo
    from otel_memwatch.monitor.recording.trace_context import TraceContext
    from otel_memwatch.monitor.telemetry.otlp_receiver.socket import ListeningPort
    from otel_memwatch.monitor.workers.rendering import CompletedRecord
    from otel_memwatch.record.writer import RunWriter

_SWITCH_SECONDS = 0.0005
"""Seconds after which a thread yields to another. Reaping a process takes ten system calls, each of which gives up the
interpreter's lock. At Python's 5 ms, the end of a short command was noticed 30 ms late while modules were imported."""

_ROOM = 34 << 20
"""Bytes of address space of the monitor's thread without telemetry: 29 MiB, and some for a large tree."""

_FILES = 48
"""Descriptors that a recording takes without telemetry: 36. Few processes of the tree have files that stay open."""


class ReapedChildren:
    """Ends of processes, from the supervisor's thread to the source process_tree, which may open later."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._early: deque[ChildExit] = deque()
        self._tree: Any = None

    def note(self, child: ChildExit) -> None:
        """Pass the end of a process to the tree, at once or as soon as it is open."""
        with self._lock:
            if self._tree is None:
                self._early.append(child)
            else:
                self._tree.note_exit(child)

    def connect(self, tree: Any) -> None:
        """Pass all ends so far to the tree, and each later one."""
        with self._lock:
            self._tree = tree
            for child in self._early:
                tree.note_exit(child)


class Monitor:
    """Recording of one run, from `start` to `finish`.

    Attributes:
        messages: messages to the user, with the problems.
        summarized: whether the summary was printed, if it was requested.

    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        settings: Mapping[str, Any],
        target: TargetInfo,
        trace: TraceContext,
        messages: Messages,
        *,
        listening: ListeningPort | None = None,
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._target = target
        self._trace = trace
        self.messages = messages
        self.summarized = False
        self._later: Callable[[], None] | None = None
        self._listening = listening
        self._stop = Flag()
        """Set when the target has ended."""
        self._alarm = Alarm()
        """Rings if the next sample may differ from the last one for a reason that the kernel's files do not show."""
        self._drivers_asked = Flag()
        """Set when no driver is pending."""
        self._first_tick = Flag()
        self._reaped = ReapedChildren()
        self._writer: RunWriter | None = None
        self._recording: RunRecording | None = None
        self._ended = False
        """The command had ended before a thread was needed: `finish` records it."""
        self._thread_errors = ThreadErrors()
        self._thread = Thread(self._record, "otel-memwatch", room=_ROOM)

    # -- called by the supervisor's thread

    def start(self) -> None:
        """Start the thread, unless the command has ended. If the system allows too little for it, the run is not recorded."""
        if 0 <= resource.getrlimit(resource.RLIMIT_NOFILE)[0] < _FILES:  # -1: no limit
            self._give_up(f"ulimit -n allows fewer than {_FILES} open files.")
            return
        self._ended = self._target.mode == "wrap" and has_ended(self._target.pid)
        if self._ended:
            return
        self._thread_errors.keep()
        keep_to_one_heap()
        sys.setswitchinterval(_SWITCH_SECONDS)
        try:
            self._thread.start()
        except Unavailable as error:
            self._give_up(str(error))

    def _give_up(self, reason: str) -> None:
        self.messages.problem(f"nothing is recorded: {reason}")
        self._let_go()

    def wait_for_first_tick(self, seconds: float) -> bool:
        """Return whether the first sample was recorded, or given up, within `seconds`."""
        return self._first_tick.wait(seconds)

    def note_exit(self, child: ChildExit) -> None:
        """Note the kernel's figures of a process that the supervisor reaped. Raises nothing."""
        try:
            self._reaped.note(child)
            self._alarm.ring()
        except Exception as error:  # noqa: BLE001 - the supervisor goes on
            self.messages.problem(f"cannot record the end of process {child.pid}: {describe(error)}")

    def keep_group(self, contents: Mapping[str, bytes]) -> None:
        """Keep contents of files of the target's cgroup, for a last sample after its removal."""
        if self._recording is not None:
            self._recording.keep_group(contents)

    def oom_kills(self) -> int | None:
        """Return the number of OOM kills in the cgroup since the first sample; `None`: unknown."""
        from otel_memwatch.monitor.recording.run_info import OOM_KILLS

        return None if self._recording is None else self._recording.growth_of_group(OOM_KILLS)

    @property
    def tree_peak(self) -> Mapping[str, Any] | None:
        """Peak of the whole tree as written in `run.json`; `None`: unknown."""
        peaks = None if self._writer is None else self._writer.info.get("peaks")
        return None if peaks is None else peaks["tree"]

    def ending(self, exit_code: int | None, signal: int | None, oom_kills: int | None) -> Ending:
        """Return how the target ended, in words, with peak and limit of its cgroup."""
        from otel_memwatch.monitor.recording.run_info import LIMIT, PEAK
        from otel_memwatch.run.ending import describe_end

        peak, limit = (
            None if self._recording is None else self._recording.latest_of_group(series)
            for series in (PEAK, LIMIT)
        )
        share = None
        if oom_kills and limit is not None:
            from otel_memwatch.runtime.memory_headroom import own_share

            share = own_share(limit)
        return describe_end(exit_code, signal, oom_kills, peak, limit, monitor=share)

    def finish(
        self,
        end: Callable[[], Ending],
        interrupted: Callable[[], bool],
        problems: Iterable[str] = (),
        *,
        ended: float,
    ) -> None:
        """Wait for the last sample, complete the record and make the report. Then wait for a last scrape, if requested.

        Args:
            end: describes how the target ended.
            interrupted: returns whether a signal asks us to end: then make no picture and do not wait.
            problems: sentences of our other processes about what the record lacks.
            ended: monotonic seconds of the target's end, or of the end of the recording.

        """
        if self._recording is not None and self._recording.telemetry is not None:
            self._recording.telemetry.pause()
        self._stop.set()
        self._alarm.ring()
        self._drivers_asked.set()
        self._take_last_sample()
        self._alarm.close()
        for sentence in self._thread_errors.sentences():
            self.messages.problem(sentence)
        for sentence in problems:
            self.messages.problem(sentence)
            if self._writer is not None:
                self._writer.note_mark(sentence)
        try:
            completed = self._complete(end, ended)
        except Exception as error:  # noqa: BLE001 - the target's exit code must not depend on us
            completed = None
            self.messages.problem(f"the record is incomplete: {describe(error)}")
            self._write_end(end, ended)
        try:
            if completed is not None:
                self._render(completed, interrupted)
                self.summarized = True
        except Exception as error:  # noqa: BLE001
            self.messages.problem(f"the report is incomplete: {describe(error)}")
        telemetry = None if self._recording is None else self._recording.telemetry
        if telemetry is not None:
            with suppress(Exception):  # everything is delivered by now
                telemetry.linger(interrupted)
            telemetry.close()

    def _take_last_sample(self) -> None:
        """Wait for the thread to do so, if there is one."""
        if self._ended:
            self._record()
        elif self._thread.ident is not None:
            self._thread.join()

    def _complete(self, end: Callable[[], Ending], ended: float) -> CompletedRecord | None:
        if self._recording is not None:
            from otel_memwatch.monitor.run.completion import complete

            return complete(self._recording, end, ended)
        self._write_end(end, ended)
        return None

    def _write_end(self, end: Callable[[], Ending], ended: float) -> None:
        """Write how the run ended, without figures, unless it is recorded."""
        with suppress(Exception):
            if self._writer is not None and "exit" not in self._writer.info:
                from otel_memwatch.monitor.run.completion import write_end

                write_end(self._writer, end(), ended)

    def _render(self, completed: CompletedRecord, hurried: Callable[[], bool]) -> None:
        from otel_memwatch.monitor.workers.detached_report import may_detach
        from otel_memwatch.monitor.workers.rendering import render

        assert self._writer is not None
        self._later = render(
            completed,
            self._settings,
            self.messages,
            hurried,
            writable=self._writer.stopped is None,
            detachable=self._target.mode == "wrap" and may_detach(self._settings, os.environ),
        )
        if self._settings.get("tracker") and self._writer.stopped is None:
            from pathlib import Path

            from otel_memwatch.monitor.workers.rendering import track

            track(Path(self._writer.path), self._settings["tracker"], self.messages, hurried)

    def start_detached(self) -> None:
        """Start the process that makes report and page, if one does. Nothing else remains to be done then."""
        if self._later is not None:
            self._later()
            self._later = None

    # -- the monitor's thread

    @property
    def _is_segmented(self) -> bool:
        """True unless a reader follows the offsets of one file: an upload, or a tool in the program."""
        settings = self._settings
        return not settings.get("upload") and (self._target.mode != "watch" or settings["interval"] == AUTO)

    def _record(self) -> None:
        """Record the run, from the earliest possible sample to the last."""
        try:
            from otel_memwatch.monitor.recording.recording import RunRecording
            from otel_memwatch.monitor.recording.run_info import start_fields
            from otel_memwatch.record.writer import RunWriter

            directory = os.fspath(self._directory)
            writer = self._writer = RunWriter(directory, self.messages.problem, segmented=self._is_segmented)
            fields = start_fields(directory, self._target, self._settings, self._trace)
            # What the command left is all that can be read. One sample has it, and the end is written in a moment.
            ended = self._target.mode == "wrap" and self._stop.is_set()
            (writer.note if ended else writer.update)(state=RUNNING, **fields)
            recording = RunRecording(
                writer, self._target, self._settings, self.messages, self._drivers_asked, ended=ended
            )
            self._reaped.connect(recording.tree)
            self._recording = recording
            recording.begin()
            self._first_tick.set()
            if not ended:
                from otel_memwatch.runtime.memory_headroom import be_spared

                be_spared()  # the target exists by now and has not inherited it
            recording.open_the_rest(self._stop, self._listening, self.messages.info)
            if not self._stop.is_set():
                # Objects that exist now live as long as the run, so the garbage collector need not scan them.
                gc.freeze()
                gc.enable()
            recording.run(self._stop, self._alarm)
        except Exception as error:  # noqa: BLE001 - the target goes on without us
            sentence = f"recording stopped: {describe(error)}"
            # The end of the program that started us is no problem, and a plugin reports it better.
            if self._target.mode != "watch" or not isinstance(error, TargetEnded):
                self.messages.problem(sentence)
            if self._writer is not None:
                self._writer.mark(sentence)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """Release everyone who waits for the first sample or for the OTLP port."""
        self._first_tick.set()
        served = self._recording is not None and self._recording.telemetry is not None
        if self._listening is not None and not served:
            # The target would wait for answers from a port that is not served.
            self._listening.socket.close()
