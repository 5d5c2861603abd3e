"""From a recorded run to the figures by which it is judged."""

from __future__ import annotations

import hashlib
import os

from otel_memwatch import catalog
from otel_memwatch.errors import RunError
from otel_memwatch.model import Certainty
from otel_memwatch.record.fields import mapping
from otel_memwatch.run import load
from otel_memwatch.run.figures import (
    CPU,
    GPU,
    MEMORY,
    OPERATION,
    OPERATION_PROCESS,
    PROCESS,
    SECONDS,
    WRITTEN,
    Conditions,
    Figure,
    LeftOut,
    RunFigures,
)
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from otel_memwatch.model import Peak
    from otel_memwatch.run import RecordedRun

_LEAST_TICKS = 2
"""Ticks that have to have looked before anything is said about who was at work."""


def figures_of(run: RecordedRun, *, operations: bool = True, compared: bool = True) -> RunFigures:
    """All figures of a run that has ended. What is not known is not among them.

    Args:
        run: the run.
        operations: whether those of its operations are wanted. They need numpy.
        compared: whether they are for a comparison; else nobody need know who made them, which needs numpy.

    """
    workers = _Workers(run, looked_at=compared)
    peaks, figures = run.peaks, {}
    basis = _basis(run)
    for name, peak, kind in ((MEMORY, peaks.tree, basis), (PROCESS, peaks.process, "")):
        if peak is not None:
            window = (0.0, run.seconds) if peak.at is None else (peak.at - (run.interval or 0.0), peak.at)
            figures[name] = Figure.of_peak(peak, alone=workers.alone(*window), basis=kind)
    if peaks.gpu:
        figures[GPU] = _largest(list(peaks.gpu.values()), alone=workers.alone(0.0, run.seconds))
    written, cpu = run.totals.get("write_bytes"), run.totals.get("cpu_seconds")
    if written is not None:
        figures[WRITTEN] = Figure.measured(written, alone=workers.alone(0.0, run.seconds))
    if cpu is not None:
        figures[CPU] = Figure.measured(cpu)
    figures[SECONDS] = Figure.measured(run.seconds)
    if operations:
        figures.update(_operations(run, workers, basis))
    return RunFigures(figures, conditions_of(run), run.started_wall, str(run.path))


def usable(paths: Iterable[Path]) -> tuple[list[RecordedRun], list[LeftOut]]:
    """The runs that have ended and can be read, and those that are left out, each with the reason."""
    runs, left_out = [], []
    for path in paths:
        try:
            run = load(path)
            run.peaks  # noqa: B018 - what is broken shows here
        except RunError as error:
            left_out.append(LeftOut(str(path), error.message))
            continue
        if run.state == "finished" and not run.damage:
            runs.append(run)
        else:
            why = "it is still running" if run.state == "running" else "its record was cut off"
            left_out.append(LeftOut(str(path), why if run.state != "finished" else run.damage[0]))
    return runs, left_out


def comparable(runs: Iterable[RecordedRun]) -> tuple[list[RunFigures], list[LeftOut]]:
    """The figures of the runs whose records can be read as a whole, and the others, each with the reason."""
    found, left_out = [], []
    for run in runs:
        try:
            figures = figures_of(run)
        except RunError as error:
            left_out.append(LeftOut(str(run.path), error.message))
            continue
        if run.damage:
            left_out.append(LeftOut(str(run.path), run.damage[0]))
        else:
            found.append(figures)
    return found, left_out


def successful(runs: Sequence[RecordedRun], *, must: bool = False) -> tuple[list[RecordedRun], list[LeftOut]]:
    """The runs that ended with exit code 0, and the others; all of them where none did, as with a search that finds nothing.

    What a run needs that broke off says nothing of one that did not. `must`: only those that ended with 0 will do, since
    they are held against some that did.
    """
    if not must and not any(run.ending.exit_code == 0 for run in runs):
        return list(runs), []
    kept = [run for run in runs if run.ending.exit_code == 0]
    return kept, [
        LeftOut(str(run.path), f"it failed: {run.ending.reason}") for run in runs if run.ending.exit_code != 0
    ]


def _basis(run: RecordedRun) -> str:
    """Where the memory of all processes is known from: a control group leaves out files, resident sizes do not."""
    if run.info.get("portable") is True:
        return "sizes at ticks"
    return "the control group" if run.info.get("own_cgroup") else "the processes"


def _largest(peaks: Sequence[Peak], *, alone: bool, basis: str = "") -> Figure:
    """The largest of several peaks: its bounds are the largest of theirs, its certainty the least of those in reach."""
    largest = max(peaks, key=lambda peak: peak.bytes)
    if len(peaks) == 1:
        return Figure.of_peak(largest, alone=alone, basis=basis)
    low = max(peak.low or 0 for peak in peaks)
    high = None if any(peak.high is None for peak in peaks) else max(peak.high or 0 for peak in peaks)
    in_reach = [peak for peak in peaks if peak.high is None or peak.high >= low]
    certainty = largest.certainty
    if any(peak.certainty is Certainty.SAMPLED for peak in in_reach):
        certainty = Certainty.SAMPLED
    elif any(peak.certainty is not Certainty.EXACT for peak in in_reach):
        certainty = Certainty.INTERVAL
    return Figure(largest.bytes, certainty, low, high, alone, basis)


def _operations(run: RecordedRun, workers: _Workers, basis: str) -> dict[str, Figure]:
    """Of each name the largest of its operations, of all processes and of its own."""
    peaks: dict[str, list[Peak]] = {}
    times: dict[str, tuple[float, float]] = {}
    for operation in run.iterate_operations():
        name = operation.operation.name
        for key, peak in (
            (OPERATION + name, operation.tree_peak),
            (OPERATION_PROCESS + name, operation.operation.peak),
        ):
            if peak is not None:
                peaks.setdefault(key, []).append(peak)
                start, end = times.get(key, (operation.start, operation.end))
                times[key] = min(start, operation.start), max(end, operation.end)
    return {
        key: _largest(
            found, alone=workers.alone(*times[key]), basis=basis if key.startswith(OPERATION) else ""
        )
        for key, found in peaks.items()
    }


class _Workers:
    """Who was at work when: one process with one thread, or more.

    A process that waits for its child works no less alone: processes are in one line when each is a child of the one before.
    """

    def __init__(self, run: RecordedRun, *, looked_at: bool) -> None:
        self._run = run
        self._alone_until: float | None = None
        self._read = not looked_at

    def alone(self, start: float, end: float) -> bool:
        """Whether no tick up to `end` saw a second thread, and the processes alive from `start` to `end` are in one line."""
        if not self._read:
            self._alone_until, self._read = self._first_crowd(), True
        if self._alone_until is None or end > self._alone_until:
            return False
        alive = [p for p in self._run.processes if p.start <= end and (p.end is None or p.end >= start)]
        pids = {process.pid for process in alive}
        parents = [process.ppid for process in alive if process.ppid in pids]
        return len(parents) == len(set(parents)) and len(parents) >= len(alive) - 1

    def _first_crowd(self) -> float | None:
        """Seconds of the last tick before one that saw more threads than processes; `None`: too few ticks looked."""
        threads, processes = catalog.MEMWATCH_TREE_THREAD_COUNT, catalog.MEMWATCH_TREE_PROCESS_COUNT
        samples = self._run.samples([threads, processes])
        counted, alive = samples.column(threads), samples.column(processes)
        known = counted == counted  # noqa: PLR0124 - not NaN
        if known.sum() < _LEAST_TICKS:
            return None
        crowds = (counted > alive).nonzero()[0]
        return float("inf") if not len(crowds) else float(samples.time[crowds[0]]) - 1e-6


def conditions_of(run: RecordedRun) -> Conditions:
    """On what a run was made."""
    host = run.host
    release = ".".join(str(host.get("release") or "").split("-")[0].split(".")[:2])
    settings = mapping(run.info.get("allocator"))
    return Conditions(
        " ".join(filter(None, (host.get("system"), release, host.get("machine")))),
        host.get("cpus"),
        host.get("memory_bytes"),
        " ".join(f"{name}={os.path.basename(str(settings[name]))}" for name in sorted(settings)),
        hashlib.sha256(str(host.get("name") or "").encode("utf-8", "surrogateescape")).hexdigest()[:12],
    )
