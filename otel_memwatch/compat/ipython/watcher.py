"""Measurement of each cell of an IPython session: exact peak from the kernel, children from the monitor."""

from __future__ import annotations

import os
import resource
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from otel_memwatch.compat.current_memory import size_of, tree_now
from otel_memwatch.compat.ipython.cells import Cell, Summary
from otel_memwatch.compat.ipython.perf import PerfCounter, check, describe
from otel_memwatch.compat.shared_recording import TickReader, ToolRecording, acquire, release
from otel_memwatch.runtime.kernel import MAXRSS_BYTES, rss_error

if TYPE_CHECKING:
    from collections.abc import Callable


_INTERVAL = 0.1


class _Usage(NamedTuple):
    """Memory of this process, or of all children that it has waited for."""

    peak: int
    """Largest resident size of one process, in bytes. A child starts with the high-water mark of its parent."""
    faults: int


def _usage(whose: int) -> _Usage:
    usage = resource.getrusage(whose)
    return _Usage(usage.ru_maxrss * MAXRSS_BYTES, usage.ru_minflt)


class Measurement:
    """Measurement of one piece of work. The clock runs only between `begin` and `end`, not during the readings."""

    def __init__(self, ticks: TickReader, name: str, event: str | None) -> None:
        from otel_memwatch.in_target.operations import operation

        self._ticks = ticks
        self._ticks.skip()
        self._operation = operation(name)
        self._perf = None if event is None else PerfCounter(event)
        self._event = event

    def begin(self) -> None:
        """Begin to measure."""
        self._operation.__enter__()
        self._children = _usage(resource.RUSAGE_CHILDREN)
        if self._perf is not None:
            self._perf.start()
        self._processors = Processors()
        self._began = time.monotonic()
        self._clock = time.perf_counter()

    def end(self, number: int, source: str, before: int | None, error: BaseException | None) -> Cell:
        """Return the figures. `before`: resident memory to compare `used` with; `None`: the value at the start."""
        seconds, ended = time.perf_counter() - self._clock, time.monotonic()
        load = self._processors.load()
        # Before perf ends, because its memory is not part of the measurement.
        children = _usage(resource.RUSAGE_CHILDREN)
        # perf is a child of this program, so samples include it.
        beside = 0 if self._perf is None else self._perf.resident()
        counts = tuple(self._perf.stop()) if self._perf is not None else ()
        self._operation.__exit__(None if error is None else type(error), error, None)
        size = tree_now()
        figures = self._operation.figures
        peak, certainty = (figures.peak or 0, figures.certainty) if figures is not None else (0, "sampled")
        # The operation's high-water mark covers this process alone; only samples include the children.
        inside = [t for t in self._ticks.read() if t.rss is not None and self._began <= t.time <= ended]
        with_children = max((t.rss - beside for t in inside if t.rss is not None), default=0.0)
        start = figures.start if figures is not None else None
        own_high = max(peak, (figures.high or 0) if figures is not None else 0)
        if children.faults > self._children.faults:
            # A child ended in this cell, and the samples may have missed it.
            certainty = "sampled"
            # A child begins with the high-water mark of this process, which the operation reset at the start of the cell.
            if children.peak > max(self._children.peak, own_high + 2 * rss_error()):
                own = size_of(os.getpid())
                with_children = max(with_children, children.peak + min(start or 0, own.rss if own else 0))
        # A sample is exact on new kernels, but the mark is not: a slightly larger sample can be this process alone.
        if with_children > own_high:
            peak, certainty = int(with_children), "sampled"
        start = start if before is None else before
        return Cell(
            number=number,
            source=source,
            used=size.rss - (size.rss if start is None else start),
            seconds=seconds,
            cpu_mean=load.mean,
            cpu_max=load.busiest,
            peaked=max(0, peak - size.rss),
            current=size.rss,
            certainty=certainty,
            failed=error is not None,
            counts=counts,
        )


class Watcher:
    """Watcher that measures and reports each cell of a shell while it is on.

    Attributes:
        history: all cells measured so far.

    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self.history: list[Cell] = []
        self._recording: ToolRecording | None = None
        self._ticks: TickReader | None = None
        self._event: str | None = None
        self._told = False
        self._measurement: Measurement | None = None
        self._resident: int | None = None

    @property
    def watching(self) -> bool:
        """True while the watcher measures cells."""
        return self._recording is not None

    @property
    def last(self) -> Cell | None:
        """Last measured cell."""
        return self.history[-1] if self.history else None

    def summary(self) -> Summary:
        """Return all cells, the largest peak first."""
        return Summary(self.history)

    def start(self, event: str | None = None, *, told: bool = False) -> None:
        """Begin to measure each cell, including this one; restart if already measuring.

        `told`: print our line for each cell, which names the peak; otherwise print the older tool's line, to the letter.

        Raises `Unavailable` or `UsageError` if perf cannot count `event`.
        """
        if event is not None:
            check(event)
        self.stop()
        self._event = event
        self._told = told
        self._recording = acquire(_INTERVAL)
        self._ticks = TickReader(self._recording.path)
        self._shell.events.register("pre_run_cell", self.pre_run_cell)
        self._shell.events.register("post_run_cell", self.post_run_cell)
        self._resident = tree_now().rss
        self._begin()

    def stop(self) -> None:
        """End measuring and keep the history."""
        if self._recording is None:
            return
        self._discard()
        for event, callback in (("pre_run_cell", self.pre_run_cell), ("post_run_cell", self.post_run_cell)):
            self._shell.events.unregister(event, callback)
        release(self._recording, keep=False)
        self._recording = self._ticks = None

    def _discard(self) -> None:
        """End the current measurement without reporting it."""
        if self._measurement is not None:
            self._measurement.end(0, "", None, None)
            self._measurement = None

    def _begin(self) -> None:
        if self._ticks is not None:
            self._measurement = Measurement(self._ticks, f"In [{self._number() + 1}]", self._event)
            self._measurement.begin()

    def _number(self) -> int:
        """Number of the cell that ran last; some kernels keep no list of inputs."""
        return len(self._shell.user_ns.get("In", ())) - 1

    def pre_run_cell(self, info: object = None) -> None:  # noqa: ARG002 - IPython's signature
        """Begin the measurement of a cell."""
        self._discard()
        self._begin()

    def post_run_cell(self, result: Any = None) -> None:
        """End the measurement of a cell and print its line."""
        measurement, self._measurement = self._measurement, None
        if measurement is None:
            return
        error = getattr(result, "error_in_exec", None) or getattr(result, "error_before_exec", None)
        source = getattr(getattr(result, "info", None), "raw_cell", "") or ""
        cell = measurement.end(self._number(), source, self._resident, error)
        self._resident = cell.current
        self.history.append(cell)
        print(cell.told if self._told else cell)  # noqa: T201 - the user requested a line for each cell
        if self._event is not None:
            print(describe(list(cell.counts), cell.seconds))  # noqa: T201

    def measure(self, source: str, run: Callable[[], Any]) -> Cell:
        """Run a function and return its figures, independent of the measurement of cells. Its exceptions propagate."""
        recording = acquire(_INTERVAL)
        try:
            measurement = Measurement(TickReader(recording.path), "%memwatch", None)
            measurement.begin()
            try:
                run()
            except BaseException as error:
                failed = measurement.end(self._number(), source, None, error)
                self._keep(failed)
                print(failed.told)  # noqa: T201 - after an error, IPython shows no value
                raise
            cell = measurement.end(self._number(), source, None, None)
        finally:
            release(recording, keep=False)
        self._keep(cell)
        return cell

    def _keep(self, cell: Cell) -> None:
        """Add it to the history, unless cells are measured: then the history gets the enclosing cell."""
        if not self.watching:
            self.history.append(cell)


_SHORTEST = 0.05
"""Seconds below which the kernel's counters are too coarse: they advance by clock ticks of 10 ms."""


class CpuLoad(NamedTuple):
    """Load in percent between two readings."""

    mean: float
    """Mean over all processors."""
    busiest: float
    """Load of the busiest processor."""


class Processors:
    """Kernel counters at one moment.

    If the period is too short for them, the CPU time of this process replaces them.
    """

    def __init__(self) -> None:
        self._clock = time.perf_counter()
        self._own = time.process_time()
        self._counters = _counters()

    def load(self) -> CpuLoad:
        """Return the load since the reading."""
        seconds = max(time.perf_counter() - self._clock, 1e-9)
        own = 100 * (time.process_time() - self._own) / seconds
        now = _counters()
        shares = []
        for before, after in zip(self._counters, now, strict=False):
            total = after[1] - before[1]
            if total > 0:
                shares.append(100 * min(1.0, max(0.0, (after[0] - before[0]) / total)))
        if not shares or seconds < _SHORTEST or len(shares) < len(now):
            return CpuLoad(min(100.0, own / (os.cpu_count() or 1)), min(100.0, own))
        return CpuLoad(sum(shares) / len(shares), max(shares))


def _counters() -> list[tuple[float, float]]:
    """Return busy and total time of each processor."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            lines = [line.split() for line in file if line.startswith("cpu") and line[3:4].isdigit()]
    except OSError:
        import psutil

        return [(sum(times) - times.idle, sum(times)) for times in psutil.cpu_times(percpu=True)]
    result = []
    for _, *texts in lines:
        # user, nice, system, idle, iowait, irq, softirq, steal; guest time is part of user time
        times = [float(text) for text in texts[:8]]
        result.append((sum(times) - times[3] - times[4], sum(times)))
    return result
