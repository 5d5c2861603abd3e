"""The record of one process that runs tests: its operations, and a monitor beside it that knows its children.

Where the process is recorded already, under `otel-memwatch wrap`, that run is joined.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from otel_memwatch.api.monitor_process import MonitorProcess
from otel_memwatch.errors import MemwatchError, UsageError
from otel_memwatch.in_target.operations import RUN_DIRECTORY_VARIABLE, activate, deactivate
from otel_memwatch.monitor.run_directory import absolute, create_directory, run_name, temporary_runs
from otel_memwatch.record.format import RUN_FILE, RUNS_DIRECTORY, SAMPLES_FILE
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_memwatch.analysis import RecordedRun
    from otel_memwatch.model import Peak
    from otel_memwatch.plugins.pytest.figures import PhaseFigures, TreeKey

_SETTINGS = {"quiet": True, "report": False, "plot": False}
"""Reports are for whoever asks for them: nobody waits for them at the end of the tests."""

_AFTERMATH = "otel_memwatch.plugins.pytest.aftermath"
_TICK_SECONDS = 1.0
"""How long a test with a limit of its tree waits for the next tick."""
_COMPLETE_SECONDS = 10.0


def default_directory() -> Path:
    """Where a run is recorded that was given no directory."""
    return absolute(RUNS_DIRECTORY) / run_name("pytest")


class SessionRecord:
    """What is recorded of this process, from now to `finish`.

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
        self._monitor: MonitorProcess | None = None
        outer = os.environ.get(RUN_DIRECTORY_VARIABLE)
        self.joined = bool(outer) and os.path.isfile(os.path.join(str(outer), RUN_FILE))
        """Whether somebody else records us: then other programs may be in that record."""
        if self.joined:
            self.directory = Path(str(outer))
            return
        try:
            self.directory = self._made(directory)
        except UsageError as error:
            self.problems.append(f"nothing is recorded: {error}")
            return
        if activate(str(self.directory)) is None:
            self.problems.append(f"nothing is recorded: {self.directory} cannot be written")
            self.directory = None
            return
        try:
            self._monitor = MonitorProcess(
                os.getpid(),
                self.directory,
                {**_SETTINGS, "out": str(self.directory)},
                wait=False,
                afterwards=_AFTERMATH if aftermath else "",
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
        """Sees to it that the monitor is no child of ours, before any test looks at its children."""
        if self._monitor is not None:
            self._monitor.launched()

    def company(self, until: float | None = None) -> list[tuple[float, float]]:
        """From when to when other processes of ours were seen, in monotonic seconds; of one that lives, up to `until`."""
        if self.directory is None or self.joined:
            return []
        from otel_memwatch.record.open import read_run

        try:
            records = read_run(self.directory).process_records()
        except MemwatchError:
            return []
        spans: dict[TreeKey, tuple[float, float]] = {}
        for line in records:
            if line.pid != os.getpid():
                ended = line.time if line.event.value == "exit" else until or float("inf")
                spans[line.pid, round(line.start * 100)] = line.start, ended
        return list(spans.values())

    def tree_of_call(self, call: PhaseFigures) -> tuple[int | None, int | None]:
        """Bounds of the tree while a call was open that has just ended; waits for the next tick.

        What lives may still grow, for all that the record says before its end: there is a lower bound only.
        """
        if self.directory is None:
            return call.low, None
        self._wait_for_tick()
        try:
            found = trees(self._run(), [(call.pid, call.id)], joined=self.joined)
        except MemwatchError:
            return call.low, None
        peak = found.get((call.pid, call.id))
        return (call.low, None) if peak is None else (max(call.low or 0, peak.low or 0), None)

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

    def finish(self, wanted: Iterable[TreeKey]) -> dict[TreeKey, Peak]:
        """Ends the recording; the tree's peak in each of the operations that are asked for."""
        wanted = list(wanted)
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
            return trees(self._run(), wanted, joined=self.joined)
        except MemwatchError as error:
            self.problems.append(f"children are not measured: {error}")
            return {}

    def _run(self) -> RecordedRun:
        from otel_memwatch.analysis import load

        assert self.directory is not None
        return load(self.directory)


def trees(run: RecordedRun, wanted: Iterable[TreeKey], *, joined: bool) -> dict[TreeKey, Peak]:
    """The tree's peak in each of the operations that are asked for.

    `joined`: of a run that other programs are in too. What they all had is an upper bound of what ours had.
    """
    left = set(wanted)
    found: dict[TreeKey, Peak] = {}
    for figures in run.operations:
        key = figures.operation.pid, figures.operation.id
        peak, own = figures.tree_peak, figures.operation.peak
        if key not in left or peak is None:
            continue
        if joined:
            low = None if own is None else own.low
            peak = peak._replace(bytes=low or 0, low=low, certainty=peak.certainty.INTERVAL)
        found[key] = peak
    return found
