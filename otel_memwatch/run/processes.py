"""Processes of a run, each with its final figures."""

from __future__ import annotations

import math

from otel_memwatch.run.peaks import peak_of_process
from otel_memwatch.run.process_bounds import ProcessBounds, ProcessCollection
from otel_memwatch.run.process_curves import ProcessLives
from otel_memwatch.run.results import ProcessFigures
from otel_memwatch.run.tree_bounds import Span, SumOverTime, processes_between, sum_over_time
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple
from otel_memwatch.truth.processes import is_bounded, is_same_process

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from otel_memwatch.record.operation_lines import OperationLines
    from otel_memwatch.record.reader import Record
    from otel_memwatch.run.conditions import RunConditions

_KEPT = (
    "command", "argv", "ppid", "cpu_user", "cpu_system", "read_bytes", "write_bytes", "read_chars", "write_chars",
    "minor_faults", "major_faults", "threads", "exit_code", "signal", "note",
)  # fmt: skip
"""Fields that keep their last known value."""

_COUNTERS = (
    "cpu_user", "cpu_system", "read_bytes", "write_bytes", "read_chars", "write_chars", "minor_faults", "major_faults",
)  # fmt: skip
"""Fields that a process counts from its start."""


class RecordedProcess(NamedTuple):
    """Last figures of a process, and the bounds of its memory."""

    bounds: ProcessBounds
    fields: dict[str, Any]
    before: Mapping[str, Any]
    """Counters at its first sample, if the process is older than the run; empty for all others."""


class RecordedProcesses:
    """Every process of a record.

    Args:
        record: of the run.
        conditions: of the run.
        whole: whether the record reaches to the run's end.

    """

    def __init__(self, record: Record, conditions: RunConditions, *, whole: bool) -> None:
        self._conditions = conditions
        self.tree = ProcessCollection(conditions)
        """Bounds of the tree, equal to those of the aggregator during a recording."""
        self.lives = ProcessLives(conditions.started)
        """Memory of the largest processes over time."""
        found: dict[tuple[int, float], RecordedProcess] = {}
        for line in record.process_records():
            self.lives.add(line)
            key = line.pid, line.start
            bounds = self.tree.add_record(line)
            if bounds is not None and key not in found:
                older = conditions.is_older(line.start)
                before = {name: getattr(line, name) for name in _COUNTERS} if older else {}
                found[key] = RecordedProcess(bounds, {}, before)
            for name in _KEPT:
                value = getattr(line, name)
                if value is not None:
                    found[key].fields[name] = value
        self.all = sorted(found.values(), key=lambda process: (process.bounds.start, process.bounds.pid))
        """Sorted by start."""
        self.by_pid: dict[int, list[ProcessBounds]] = {}
        """Bounds of all processes, by pid; the kernel may use a pid again."""
        for process in self.all:
            self.by_pid.setdefault(process.bounds.pid, []).append(process.bounds)
        self._add_segments(record.operation_lines)
        if not whole:
            for process in self.all:
                process.bounds.reopen()
        self.tree.settle(math.inf)

    def _add_segments(self, files: Iterable[OperationLines]) -> None:
        for lines in files:
            if lines.largest is None:
                continue
            value, time = lines.largest
            reporters = [
                bounds
                for bounds in self.by_pid.get(lines.pid, [])
                if is_same_process(bounds.start, lines.start)
            ]
            for bounds in reporters:
                bounds.add_segment(value, time)
                self.tree.raise_to(bounds, value, time)  # the tree keeps the largest of its processes
            if not reporters:
                self.tree.add_segment(lines.pid, lines.start, value, time)

    @property
    def all_ended(self) -> bool:
        """True if no process outlived the recording."""
        return not self.tree.living

    def sum_over_time(self, unseen: Iterable[Span]) -> SumOverTime | None:
        """Return an upper bound of the tree's memory over time; `None`: no bound can be certified.

        Args:
            unseen: short-lived processes without a sample.

        """
        unseen = list(unseen)
        unseen_max = self.tree.unseen_max_bytes(max((span.end for span in unseen), default=None))
        if self.tree.pinned or not is_bounded(
            seen=bool(self.all),
            all_bounded=all(process.bound is not None for process in self.tree.living),
            unbounded=bool(unseen) or self.tree.any_vanished,
            unseen=unseen_max,
            unwatched=self.tree.unwatched,
        ):
            return None
        weight = 0 if unseen_max is None else unseen_max + self._conditions.rss_error
        spans = [*(self.tree.span(process.bounds) for process in self.all), *unseen]
        return sum_over_time((span.start, span.end, span.weight(weight)) for span in spans)

    def alone(self, unseen: Iterable[Span], begin: float, end: float) -> bool:
        """Return whether the tree was one process between two moments; `unseen`: as for `sum_over_time`."""
        spans = *(self.tree.span(process.bounds) for process in self.all), *unseen
        unknown = self.tree.unwatched or self.tree.pinned
        return not unknown and processes_between(spans, begin, end) == 1

    def figures(self) -> tuple[ProcessFigures, ...]:
        """Return the reported figures of each process."""
        return tuple(map(self._figures, self.all))

    def _figures(self, process: RecordedProcess) -> ProcessFigures:
        bounds, conditions, fields = process.bounds, self._conditions, dict(process.fields)
        for name, before in process.before.items():
            if name in fields:
                fields[name] = None if before is None else max(0, fields[name] - before)
        user, system = fields.pop("cpu_user", None), fields.pop("cpu_system", None)
        cpu = None if user is None and system is None else round((user or 0.0) + (system or 0.0), 6)
        unseen_max = self.tree.unseen_max_bytes(vanished=bounds) if bounds.bound is None else None
        return ProcessFigures(
            pid=bounds.pid,
            command=fields.pop("command", None),
            argv=fields.pop("argv", None),
            ppid=fields.pop("ppid", None),
            start=round(bounds.start - conditions.started, 4),
            end=None if bounds.end is None else round(bounds.end - conditions.started, 4),
            peak=peak_of_process(bounds, conditions, unseen_max),
            cpu_seconds=cpu,
            **fields,
        )
