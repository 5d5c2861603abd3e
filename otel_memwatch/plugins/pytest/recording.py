"""The record of one process that runs tests: its operations, and a monitor beside it that knows its children.

Where the process is recorded already, under `otel-memwatch wrap`, that run is joined.
"""

from __future__ import annotations

import math
import os
import sys
import time
from bisect import bisect_left
from pathlib import Path

from otel_memwatch.api.monitor_process import MonitorProcess
from otel_memwatch.config import OPTIONS
from otel_memwatch.errors import MemwatchError, UsageError
from otel_memwatch.in_target.operations import RUN_DIRECTORY_VARIABLE, activate, deactivate
from otel_memwatch.model import ProcessEvent
from otel_memwatch.monitor.run.run_directory import absolute, create_directory, run_name, temporary_runs
from otel_memwatch.record.format import RUN_FILE, RUNS_DIRECTORY, SAMPLES_FILE
from otel_memwatch.run.conditions import RunConditions
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple
from otel_memwatch.truth.certainty import CLOCK_TICK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_memwatch.model import Peak
    from otel_memwatch.plugins.pytest.figures import PhaseFigures, TreeKey
    from otel_memwatch.run import RecordedRun

INTERVAL = 0.1
"""Seconds between two ticks."""
_SETTINGS = {"interval": INTERVAL, "quiet": True, "report": False, "plot": False}
"""Reports are for whoever asks for them: nobody waits for them at the end of the tests."""

_AFTERMATH = "otel_memwatch.plugins.pytest.aftermath"
_TICK_SECONDS = 1.0
"""How long a test with a limit of its tree waits for the next tick."""
_COMPLETE_SECONDS = 10.0
READING_SECONDS = 0.01
"""How much later than its time a tick may have looked at a process."""


def default_directory() -> Path:
    """Where a run is recorded that was given no directory."""
    runs = os.environ.get(OPTIONS["runs"].variable) or RUNS_DIRECTORY
    return absolute(runs) / run_name(["pytest"])


class SessionRecord:
    """What is recorded of this process, from `begin` to `finish`.

    Args:
        directory: run directory to create.
        aftermath: whether the monitor says which test was running if this process is killed.

    Attributes:
        directory: the run directory in use; `None`: nothing is recorded.
        problems: one sentence for everything that is missing therefore.

    """

    def __init__(self, directory: Path, *, aftermath: bool) -> None:
        self.problems: list[str] = []
        self.directory: Path | None = None
        self.joined = False
        """Whether somebody else records us: then other programs may be in that record."""
        self._wanted = directory
        self._aftermath = aftermath
        self._monitor: MonitorProcess | None = None
        self._alone: list[tuple[Any, ...]] = []
        """When tests without children began and ended, and their operations."""
        self._shared: list[int] = []
        """The operations of tests with children."""

    def note_test(self, began: float, alone: bool, ids: tuple[int, ...]) -> None:
        """Keeps whether the record has to be asked about a test that has just ended; `ids`: its operations."""
        if alone:
            self._alone.append((began, time.monotonic(), *ids))
        else:
            self._shared += ids

    def begin(self) -> None:
        """Starts recording; the monitor comes up beside us."""
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
            self.problems.append(f"nothing is recorded: {self.directory} cannot be written")
            self.directory = None
            return
        if sys.platform == "linux" and not os.path.exists("/proc/self/stat"):
            self.problems.append("peaks are bounds, and children are not measured: there is no /proc")
            return
        try:
            self._monitor = MonitorProcess(
                os.getpid(),
                self.directory,
                {**_SETTINGS, "out": str(self.directory)},
                wait=False,
                afterwards=_AFTERMATH if self._aftermath else "",
            )
        except OSError as error:
            self.problems.append(f"children are not measured: no monitor can be started: {error.strerror}")

    def _made(self, directory: Path) -> Path:
        """The directory, or one in the temporary directory where that cannot be made."""
        try:
            create_directory(directory)
        except UsageError as refused:
            path = temporary_runs() / directory.name
            create_directory(path)
            self.problems.append(f"{refused.message.rstrip('.')}; recorded in {path}")
            return path
        return directory

    def launched(self) -> None:
        """Waits until the monitor is no child of ours."""
        if self._monitor is not None:
            self._monitor.launched()

    def _wanted_keys(self) -> list[TreeKey]:
        """The operations of the tests that were not alone, as far as anybody can tell."""
        # A process that no test waits for may have outlived the one that started it: not the kernel but the record tells.
        company = self._company()
        wanted = list(self._shared)
        for began, ended, *ids in self._alone if company else ():
            if any(start <= ended and end >= began for start, end in company):
                wanted += ids
        return [(os.getpid(), identity) for identity in wanted]

    def _company(self) -> list[tuple[float, float]]:
        """From which tick to which other processes of ours were seen, in monotonic seconds; infinite: to the end."""
        if self.directory is None or self.joined:
            return []
        from otel_memwatch.record.open import read_run

        spans: dict[tuple[int, float], tuple[float, float]] = {}
        try:
            record = read_run(self.directory)
            # What started the monitor had gone before the first test; a session may end before a tick tells that it has.
            launcher = None if self._monitor is None else self._monitor.launcher_pid
            others = [line for line in record.process_records() if line.pid not in (os.getpid(), launcher)]
            ticks = [time for time, _ in record.ticks()] if others else []
        except MemwatchError:
            return []
        for line in others:
            first, _ = spans.get((line.pid, line.start), (line.time, 0.0))
            last = math.inf
            if line.event is ProcessEvent.EXIT:  # the tick that tells of it did not see it any more
                # Its time is that of the tick, which the ticks' own column has in tenths of milliseconds.
                last = ticks[max(0, bisect_left(ticks, line.time - 1e-3) - 1)] if ticks else line.time
            spans[line.pid, line.start] = first, last
        return list(spans.values())

    def lowest_tree(self, call: PhaseFigures) -> int | None:
        """Bytes that the process and its children certainly had while a call was open that has just ended.

        Waits for the next tick. `None`: not known.
        """
        if self.directory is None or self.joined:
            return None
        self._wait_for_tick()
        try:
            found = trees(self._run(), [call.key]).get(call.key)
        except MemwatchError:
            return None
        return None if found is None else found.low

    def _wait_for_tick(self) -> None:
        assert self.directory is not None
        samples = self.directory / SAMPLES_FILE
        deadline = time.monotonic() + _TICK_SECONDS
        seen = None
        ticks = 0
        # The first change may be a tick that began before the call had ended.
        while ticks < 2 and time.monotonic() < deadline:
            try:
                now = samples.stat().st_size
            except OSError:
                now = 0
            if seen is not None and now != seen:
                ticks += 1
            seen = now
            time.sleep(0.01)

    def finish(self) -> dict[TreeKey, Peak]:
        """Ends the recording; the tree's peak in all operations of tests that were not alone."""
        wanted = self._wanted_keys()
        monitor, self._monitor = self._monitor, None
        if monitor is not None:
            complete = monitor.stop(_COMPLETE_SECONDS if wanted else 0.0)
            if not complete and wanted:
                self.problems.append("the record is not complete yet: bounds may be missing")
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


def trees(run: RecordedRun, wanted: Iterable[TreeKey]) -> dict[TreeKey, Peak]:
    """What the record says of the tree in each of the operations that are asked for."""
    left = set(wanted)
    children = _seen_children(run)
    found = {}
    for figures in run.operations:
        operation, peak = figures.operation, figures.tree_peak
        key = operation.pid, operation.id
        if key in left and peak is not None and operation.end is not None:
            inside = [child.low for child in children if child.lived_in(operation.start, operation.end)]
            found[key] = peak._replace(low=max(peak.low or 0, *inside, 0))
    return found


class SeenChild(NamedTuple):
    """A process that a tick saw, other than the one that runs the tests. Monotonic seconds."""

    start: float
    seen: float
    """The first tick."""
    low: int
    """Bytes that it certainly had."""

    def lived_in(self, start: float, end: float) -> bool:
        """Whether it was started in a phase of a test before and after which there was no child.

        It lived at a tick in that time, and not before it. Its start alone, which is told to a clock tick, could be that of
        the child of the test before.
        """
        return start - CLOCK_TICK <= self.start and start <= self.seen and self.seen + READING_SECONDS <= end


def _seen_children(run: RecordedRun) -> list[SeenChild]:
    error = RunConditions.of(run.info).rss_error
    found: dict[tuple[int, float], SeenChild] = {}
    for line in run.record.process_records():
        if line.pid != os.getpid():
            key = line.pid, line.start
            child = found.get(key) or SeenChild(line.start, line.time, 0)
            found[key] = child._replace(low=max(child.low, (line.peak or 0) - error))
    return list(found.values())
