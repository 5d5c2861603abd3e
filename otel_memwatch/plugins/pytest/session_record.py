"""Record of one process that runs tests: its operations, and a monitor that samples its children.

If `otel-memwatch wrap` already records the process, the session joins that run.
"""

from __future__ import annotations

import math
import os
import sys
import time
from bisect import bisect_left, bisect_right
from pathlib import Path

from otel_memwatch.api.monitor_process import MonitorProcess
from otel_memwatch.errors import MemwatchError, UsageError
from otel_memwatch.in_target.operations import RUN_DIRECTORY_VARIABLE, activate, deactivate
from otel_memwatch.model import ProcessEvent
from otel_memwatch.monitor.run.run_directory import create_directory, temporary_runs
from otel_memwatch.record.format import RUN_FILE, SAMPLES_FILE
from otel_memwatch.run.conditions import RunConditions
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple
from otel_memwatch.truth.processes import CLOCK_TICK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_memwatch.model import Peak
    from otel_memwatch.plugins.pytest.measured_test import PhaseFigures, TreeKey
    from otel_memwatch.run import RecordedRun

INTERVAL = 0.1
"""Seconds between two samples."""
_SETTINGS = {"interval": INTERVAL, "quiet": True, "report": False, "plot": False}
"""No report or plot, because writing them would delay the end of the session."""

_CRASH_REPORT = "otel_memwatch.plugins.pytest.crash_report"
_TICK_SECONDS = 1.0
"""Time limit for a test with a limit of its tree to wait for the next sample."""
_COMPLETE_SECONDS = 10.0


class SessionRecord:
    """Record of this process, from `begin` to `finish`.

    Args:
        directory: run directory to create.
        crash_report: if true and this process is killed, the monitor reports the test that was running.

    Attributes:
        directory: the run directory in use; `None` if nothing is recorded.
        problems: one sentence for each missing part of the record.

    """

    def __init__(self, directory: Path, *, crash_report: bool) -> None:
        self.problems: list[str] = []
        self.directory: Path | None = None
        self.joined = False
        """True if this process joined an enclosing run. Its record may contain other programs."""
        self._wanted = directory
        self._crash_report = crash_report
        self._monitor: MonitorProcess | None = None
        self._alone: list[tuple[Any, ...]] = []
        """Start, end and operations of each test without children."""
        self._shared: list[int] = []
        """Operations of tests with children."""

    def note_test(self, began: float, alone: bool, ids: tuple[int, ...]) -> None:
        """Note the operations of a test that has just ended, for later queries of the record."""
        if alone:
            self._alone.append((began, time.monotonic(), *ids))
        else:
            self._shared += ids

    def begin(self) -> None:
        """Start recording. The monitor starts in parallel."""
        outer = os.environ.get(RUN_DIRECTORY_VARIABLE)
        self.joined = bool(outer) and os.path.isfile(os.path.join(str(outer), RUN_FILE))
        if self.joined:
            self.directory = Path(str(outer))
            return
        try:
            self.directory = self._made(self._wanted)
        except UsageError as error:
            self.problems.append(f"nothing is recorded: {error}")
            return
        if activate(str(self.directory)) is None:
            self.problems.append(f"cannot write {self.directory}: nothing is recorded")
            self.directory = None
            return
        if sys.platform == "linux" and not os.path.exists("/proc/self/stat"):
            self.problems.append("no /proc: peaks are only bounds, and children are not measured")
            return
        try:
            self._monitor = MonitorProcess(
                os.getpid(),
                self.directory,
                {**_SETTINGS, "out": str(self.directory)},
                wait=False,
                afterwards=_CRASH_REPORT if self._crash_report else "",
            )
        except OSError as error:
            self.problems.append(f"cannot start a monitor ({error.strerror}): children are not measured")

    def _made(self, directory: Path) -> Path:
        """Create the directory, or one in the temporary directory if that fails, and return it."""
        try:
            create_directory(directory)
        except UsageError as refused:
            path = Path(temporary_runs()) / directory.name
            create_directory(path)
            self.problems.append(f"{refused.message.rstrip('.')}; recorded in {path}")
            return path
        return directory

    def launched(self) -> None:
        """Wait until the monitor is no longer a child of this process."""
        if self._monitor is not None:
            self._monitor.launched()

    def _company(self) -> list[tuple[float, float]]:
        """Return first and last sample time of each descendant, in monotonic seconds; infinite for "until the end"."""
        if self.directory is None or self.joined:
            return []
        from otel_memwatch.record.open import read_run

        spans: dict[tuple[int, float], tuple[float, float]] = {}
        try:
            record = read_run(self.directory)
            # The monitor's launcher ended before the first test. A short session may end before a sample shows that.
            launcher = None if self._monitor is None else self._monitor.launcher_pid
            others = [line for line in record.process_records() if line.pid not in (os.getpid(), launcher)]
            ticks = [time for time, _ in record.sample_values()] if others else []
        except MemwatchError:
            return []
        for line in others:
            first, _ = spans.get((line.pid, line.start), (line.time, 0.0))
            last = math.inf
            if line.event is ProcessEvent.EXIT:  # the sample that records an exit no longer saw the process
                # The exit has the time of that sample. The column of sample times is rounded to 0.1 ms.
                last = ticks[max(0, bisect_left(ticks, line.time - 1e-3) - 1)] if ticks else line.time
            spans[line.pid, line.start] = first, last
        return list(spans.values())

    def lowest_tree(self, call: PhaseFigures) -> int | None:
        """Return a lower bound, in bytes, of the process and its children during a call that has just ended.

        Waits for the next sample. `None` if unknown.
        """
        if self.directory is None or self.joined:
            return None
        samples = self.directory / SAMPLES_FILE
        deadline = time.monotonic() + _TICK_SECONDS
        seen = None
        ticks = 0
        # The first change may be a sample that began before the end of the call.
        while ticks < 2 and time.monotonic() < deadline:
            try:
                now = samples.stat().st_size
            except OSError:
                now = 0
            if seen is not None and now != seen:
                ticks += 1
            seen = now
            time.sleep(0.01)
        try:
            found = trees(self._run(), [call.key]).get(call.key)
        except MemwatchError:
            return None
        return None if found is None else found.low

    def finish(self) -> dict[TreeKey, Peak]:
        """End the recording, and return the tree's peak for all operations of tests with known or possible children."""
        # A process may outlive its parent without any test waiting for it. Only the record shows such a process.
        company = self._company()
        ids_wanted = list(self._shared)
        for began, ended, *ids in self._alone if company else ():
            if any(start <= ended and end >= began for start, end in company):
                ids_wanted += ids
        wanted = [(os.getpid(), identity) for identity in ids_wanted]
        monitor, self._monitor = self._monitor, None
        if monitor is not None:
            complete = monitor.stop(_COMPLETE_SECONDS if wanted else 0.0)
            if not complete and wanted:
                self.problems.append("the record is still incomplete: bounds may be missing")
        elif not self.joined:
            deactivate()
        if self.directory is None or not wanted:
            return {}
        try:
            return {} if self.joined else trees(self._run(), wanted)
        except MemwatchError as error:
            self.problems.append(f"children are not measured: {error}")
            return {}

    def _run(self) -> RecordedRun:
        from otel_memwatch.run import load

        assert self.directory is not None
        return load(self.directory)


class ChildReading(NamedTuple):
    """Figures of a process other than the one that runs the tests. Times are monotonic seconds."""

    start: float
    """Start of the process, to one clock tick."""
    seen: float
    """Time of the first sample that includes it."""
    read: float
    """Time by which the figures were read."""
    low: int
    """Lower bound of its peak up to then, in bytes."""


def trees(run: RecordedRun, wanted: Iterable[TreeKey]) -> dict[TreeKey, Peak]:
    """Return the recorded peak of the tree for each wanted operation."""
    left = set(wanted)
    conditions = RunConditions.of(run.info)
    lines = [line for line in run.record.process_records() if line.pid != os.getpid()]
    samples = [(one.time, one.reading) for one in run.record.each_sample()] if lines else []
    times = [time for time, _ in samples]
    seen: dict[tuple[int, float], float] = {}
    children = []
    for line in lines:
        first_seen = seen.setdefault((line.pid, line.start), line.time)
        # An exit has the time of the sample that no longer saw the process. Its figures were read at the sample before.
        # Times of samples are rounded to 0.1 ms.
        latest = line.time - 1e-3 if line.event is ProcessEvent.EXIT else line.time + 1e-3
        place = bisect_right(times, latest) - 1
        read = conditions.read_until(*samples[place]) if place >= 0 else line.time
        low = max(0, (line.peak or 0) - conditions.rss_error)
        children.append(ChildReading(line.start, first_seen, read, low))
    children.sort()
    starts = [child.start for child in children]
    found = {}
    for figures in run.operations:
        operation, peak = figures.operation, figures.tree_peak
        key = operation.pid, operation.id
        if key in left and peak is not None and operation.end is not None:
            # Children of this phase alone, as they were in it: a sample within the phase includes them. Their start has a
            # resolution of one clock tick, and could belong to a child of the previous test.
            first, end = (
                bisect_left(starts, operation.start - CLOCK_TICK),
                bisect_right(starts, operation.end),
            )
            inside = [
                child.low
                for child in children[first:end]
                if operation.start <= child.seen and child.read <= operation.end
            ]
            found[key] = peak._replace(low=max(peak.low or 0, *inside, 0))
    return found
