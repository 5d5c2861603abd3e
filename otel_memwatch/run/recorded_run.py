"""A recorded run, derived from its directory: the input of every report."""

from __future__ import annotations

import os
from math import inf, isinf

from otel_memwatch.config import AUTO, auto_interval, recorded_predictions
from otel_memwatch.errors import RunError
from otel_memwatch.record.fields import mapping, text
from otel_memwatch.record.format import BUDGETS_FILE, STACKS_FILE
from otel_memwatch.record.run_info_schema import RunInfo, written_figures
from otel_memwatch.run.conditions import RunConditions
from otel_memwatch.run.ending import ending_of, state_of, verdict_of
from otel_memwatch.run.results import QUALITY, TOTALS, OperationFigures, Peaks, ProcessFigures
from otel_memwatch.run.stalls import Stalls
from otel_memwatch.runtime.light import cached_property, partial, suppress
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from otel_memwatch.model import Ending, Peak, RecordedOperation
    from otel_memwatch.record.made_of import MadeOf
    from otel_memwatch.record.operation_index import OperationTable
    from otel_memwatch.record.operation_lines import OperationLines
    from otel_memwatch.record.reader import Record
    from otel_memwatch.record.samples import Samples
    from otel_memwatch.record.stacks import Capture, Stacks
    from otel_memwatch.record.torch_snapshots import TorchSnapshot
    from otel_memwatch.run.curves import DrawnCurves
    from otel_memwatch.run.growth import GrowthFinding
    from otel_memwatch.run.operation_aggregator import OperationAggregator
    from otel_memwatch.run.operation_digest import OperationDigest
    from otel_memwatch.run.operations import OperationContext
    from otel_memwatch.run.processes import RecordedProcesses
    from otel_memwatch.run.replayed import ReplayedRecord
    from otel_memwatch.run.sample_history import HistoricSeries
    from otel_memwatch.run.sample_series import TreeSeries
    from otel_memwatch.run.stacks import PeakStack
    from otel_memwatch.run.uncovered import Gap
    from otel_memwatch.truth.heap import HeapReading


class KnownOperations(NamedTuple):
    """The monitor's knowledge of a run's operations at its end, without reading the record again."""

    so_far: OperationAggregator | None
    """The closed ones; `None`: none was marked."""
    still_open: Sequence[RecordedOperation]
    lines: Sequence[OperationLines]
    """Each file of operations, with the data of its process."""
    series: HistoricSeries | None
    """Samples next to their boundaries; `None` without operations."""
    damage: Sequence[tuple[str, int]]
    """Files with lines that could not be read, and how many."""

    def table(self) -> OperationTable | None:
        """Return all operations as a table; `None`: none was marked, so the record has none either."""
        if self.so_far is not None:
            return self.so_far.table(self.still_open)
        if not self.still_open:
            return None
        from otel_memwatch.record.operation_index import ListedOperations

        return ListedOperations(self.still_open)


class RecordedRun:
    """One run: its description, its peaks, its operations, its processes, its samples.

    Costly figures are computed on first use. A finished run has the `peaks`, `totals` and `quality` that the monitor wrote
    at the end. For any other run they are computed from the recorded lines, by the same code.
    """

    def __init__(self, record: Record, known: KnownOperations | None = None) -> None:
        self.record = record
        self._known = known
        if known is not None:
            record.know(known.table(), known.lines, known.damage)
        self.directory = record.directory
        """Run directory."""
        self.info = record.info
        """`run.json` as it is."""
        self.fields = fields = RunInfo.of(self.info)
        """Typed fields of `run.json`."""
        self.id: str = fields.id or os.path.basename(os.path.realpath(self.directory))
        self.name: str | None = fields.name
        """Name from the user; several runs may have it."""
        self.tags: Mapping[str, str] = fields.tags
        """Tags from the user, or from the engine that ran it: "rule", "slurm.job" ..."""
        self.command: tuple[str, ...] = fields.command
        self.cwd: str = fields.cwd or ""
        self.mode: str = fields.monitor.mode or "wrap"
        self.state: str = state_of(fields, self.directory)
        """Either "running"; "finished"; "incomplete": the monitor died before the end."""
        self.started_wall: float = fields.started.wall or 0.0
        """Unix seconds."""
        self.interval: float | None = fields.interval
        """Requested seconds between samples; the shortest, if they vary."""
        self.limits: Mapping[str, int | None] = fields.limits
        """In bytes: "cgroup_bytes", "host_bytes", "rlimit_as_bytes"; absent or `None`: none known."""
        self.quirks: tuple[str, ...] = fields.quirks
        self.sources: Mapping[str, Mapping[str, Any]] = fields.sources
        self.settings: Mapping[str, Any] = fields.settings
        self.trace: Mapping[str, Any] = fields.trace

    @property
    def host(self) -> Mapping[str, Any]:
        """Fields of the machine: "name", "system", "release", "machine", "cpus", "memory_bytes", "swap_bytes", "disk_rate"."""
        written = mapping(self.info.get("host"))
        return {name: value for name, value in self.fields.host._asdict().items() if name in written}

    @cached_property
    def _conditions(self) -> RunConditions:
        """Conditions under which the run was recorded."""
        return RunConditions.of(self.info)

    @property
    def started(self) -> float:
        """Start in monotonic seconds of the recording machine."""
        return self.record.started

    @cached_property
    def seconds(self) -> float:
        """Duration of the run; for an unfinished run, up to the last recorded line."""
        ended = self.fields.ended.monotonic
        if ended is not None:
            return max(0.0, ended - self.started)
        return self._replayed.seconds

    @property
    def longest_interval(self) -> float:
        """Requested seconds between samples; the longest, if they vary. Much longer ones are gaps."""
        return auto_interval(self.seconds) if self.settings.get("interval") == AUTO else self.interval or 0.1

    @property
    def marks(self) -> tuple[tuple[float | None, str], ...]:
        """Problems of the recording: seconds since the start of the run, and a sentence."""
        return tuple(
            (None if mark.time is None else mark.time - self.started, mark.text) for mark in self.fields.marks
        )

    @property
    def damage(self) -> list[str]:
        """Unreadable parts of the files read so far, in sentences."""
        return self.record.damage

    @cached_property
    def ending(self) -> Ending:
        """Ending of the target."""
        if self.state != "incomplete":
            return ending_of(self.fields, self.state, None, ())
        table = self.record.operation_table
        names = [table.row(n).name for n in table.never_closed()]
        return ending_of(self.fields, self.state, self._replayed.aggregator.last_time, names)

    @property
    def verdict(self) -> str | None:
        """Verdict: "finished", "killed", "limit", "stalled", "machine" or "timeout"; `None`: running, or the monitor died."""
        return verdict_of(self.fields, self.state, self.ending)

    @cached_property
    def peaks(self) -> Peaks:
        """The peaks of the run."""
        written = self.info.get("peaks")
        if self.state == "finished" and isinstance(written, dict):
            with suppress(ValueError, KeyError, TypeError, AttributeError):
                return Peaks.from_json(written)
        from otel_memwatch.run.attribution import Candidates

        operations = Candidates(self.record.operation_table)
        return self._replayed.aggregator.peaks(operations, whole=self._whole)

    @cached_property
    def totals(self) -> Mapping[str, float | None]:
        """Totals of the whole tree in the recorded time, by the names of `TOTALS`; `None`: not known."""
        return self._written("totals", TOTALS) or self._replayed.aggregator.totals()

    @property
    def cores(self) -> float | None:
        """Processors used on average; `None`: unknown. If the monitor died, CPU time is known up to the last sample only."""
        used = self.totals.get("cpu_seconds")
        if used is None or self.seconds <= 0 or self.state == "incomplete":
            return None
        return used / self.seconds

    @property
    def file_bytes(self) -> int | None:
        """Most file pages (RssFile) that a sample found in one process; `None`: not recorded."""
        if self.state == "finished":
            return self.fields.file_bytes
        return self._replayed.aggregator.processes.most_file

    @property
    def files_beside_peak(self) -> int | None:
        """Files that full speed needs beside the peak, in bytes; `None`: not recorded, or without a cgroup of the run."""
        if self.state == "finished":
            return self.fields.files_beside_peak
        return self._replayed.aggregator.files_beside_peak()

    @cached_property
    def stalls(self) -> Stalls:
        """Shares of the time in which the run waited for memory, disk and CPU; all unknown in older records."""
        if self.state == "finished":
            return Stalls.of(mapping(self.info.get("stalls")))
        return self._replayed.aggregator.stalls()

    @cached_property
    def findings(self) -> Sequence[GrowthFinding]:
        """Growth of memory that deserves a sentence; empty in older records."""
        written = self.info.get("findings")
        if self.state == "finished" and not written:
            return ()
        if self.state == "finished":
            from otel_memwatch.run.growth import GrowthFinding

            return GrowthFinding.each_of(written)
        repeats = self._aggregated_operations[0].repeats if self.record.marked else None
        return self._replayed.aggregator.findings(repeats, job=False)

    @cached_property
    def heaps(self) -> Sequence[HeapReading]:
        """The last readings of allocators by process; empty without operations, and in older records."""
        if self.state != "finished":
            return self._replayed.aggregator.heaps
        written = self.info.get("heaps")
        if not written:
            return ()
        from otel_memwatch.run.heaps import heaps_of

        return heaps_of(written)

    @cached_property
    def predicted(self) -> Mapping[str, float]:
        """Predictions of `--predicted`, in bytes and seconds, by the name of the figure."""
        return recorded_predictions(self.settings.get("predicted"))

    @cached_property
    def path(self) -> Path:
        """Run directory."""
        return self.record.path

    @property
    def has_stacks(self) -> bool:
        """True if stacks were captured or watched (`--stacks`)."""
        return os.path.exists(os.path.join(self.directory, STACKS_FILE))

    @cached_property
    def stacks(self) -> Stacks:
        """Captured stacks (`--stacks`); none without that option."""
        from otel_memwatch.record.stacks import read_stacks

        return read_stacks(self.directory)

    @cached_property
    def made_of(self) -> MadeOf | None:
        """Kinds of memory at the last new peak that was read; `None` for short and small runs."""
        from otel_memwatch.record.made_of import read_made_of

        return read_made_of(self.directory)

    @cached_property
    def torch_snapshots(self) -> list[TorchSnapshot]:
        """Snapshots of PyTorch's allocator (`--torch-snapshot`); none without that option."""
        with suppress(OSError):
            if not any(name.startswith("torch-") for name in os.listdir(self.directory)):
                return []
        from otel_memwatch.record.torch_snapshots import read_torch_snapshots

        return read_torch_snapshots(self.path)

    @cached_property
    def peak_stack(self) -> PeakStack | None:
        """The captured stack that explains the peak; `None` if there is none."""
        from otel_memwatch.run.stacks import peak_stack

        tree = self.peaks.tree
        return peak_stack(self.stacks, None if tree is None else tree.bytes if tree.low is None else tree.low)

    @cached_property
    def capture_spans(self) -> Mapping[Capture, RecordedOperation]:
        """Innermost operation of the process that was open at each capture; captures outside all operations are left out."""
        from otel_memwatch.run.stacks import capture_spans

        operations = self.iterate_operations() if self.stacks.captures and self.marked else ()
        return capture_spans(self.stacks.captures, operations, self.started)

    @property
    def peak(self) -> Peak | None:
        """Memory that the whole tree needed at its peak, with its certainty: `peaks.tree`."""
        return self.peaks.tree

    @cached_property
    def quality(self) -> Mapping[str, Any]:
        """Quality of the recording.

        * "interval": requested seconds between samples
        * "ticks", "missed_ticks": number of samples, and of deadlines without a sample
        * "achieved_hz", "longest_gap" in seconds (the start counts as a sample): `None` with fewer than two samples
        """
        return self._written("quality", QUALITY) or self._replayed.aggregator.quality()

    def _written(self, name: str, keys: tuple[str, ...]) -> dict[str, float | None] | None:
        return written_figures(self.info, name, keys) if self.state == "finished" else None

    @cached_property
    def operations(self) -> tuple[OperationFigures, ...]:
        """All operations by start, nested ones after the enclosing one.

        Each takes a kilobyte for as long as the run is in memory. `iterate_operations` keeps none of them.
        """
        return tuple(self.iterate_operations())

    def iterate_operations(self) -> Iterator[OperationFigures]:
        """Yield the operations, read from the record each time; `OperationFigures.parent` counts them from 0."""
        operations = self.record.operation_table
        if not len(operations):
            return
        from otel_memwatch.run.operations import operation_figures

        yield from operation_figures(operations, self.operation_context, self.peaks)

    @cached_property
    def uncovered(self) -> Sequence[Gap]:
        """Time that no operation covers; empty without operations, and if there are too many."""
        if not self.marked or self.too_many_operations:
            return ()
        from otel_memwatch.run.uncovered import uncovered

        return uncovered(self.operations, self.seconds, self.fields.target.pid)

    @property
    def too_many_operations(self) -> bool:
        """True if reports show `operation_digest` instead of every operation."""
        known = self._known
        if not (self.record.marked if known is None else self.marked):
            return False
        from otel_memwatch.run.operation_aggregator import LIMIT

        if known is None and self.record.operation_table_read:
            return len(self.record.operation_table) > LIMIT
        so_far, still_open = (
            self._aggregated_operations if known is None else (known.so_far, known.still_open)
        )
        return (0 if so_far is None else so_far.closed) + len(still_open) > LIMIT

    @property
    def marked(self) -> bool:
        """True if any operation was marked."""
        if self._known is not None:
            return self._known.so_far is not None or bool(self._known.still_open)
        return self.record.has_operations

    @cached_property
    def ranks(self) -> Mapping[int, int]:
        """Ranks by pid, from a launcher (torchrun, mpirun, srun); only of processes that marked operations."""
        if not self.record.marked:
            return {}
        return {lines.pid: lines.rank for lines in self.record.operation_lines if lines.rank is not None}

    @property
    def operations_need_numpy(self) -> bool:
        """True if reports have to read the record again for its operations."""
        return self._known is None and self.record.marked

    @cached_property
    def operation_digest(self) -> OperationDigest:
        """Totals of the operations by name, and the largest ones, if a report cannot list them all."""
        from otel_memwatch.run.operation_digest import digest

        known = self._known
        if known is not None and known.so_far is not None and known.series is not None:
            return digest(known.so_far, known.still_open, self._context_of(known.series), self.peaks)
        so_far, still_open = self._aggregated_operations
        return digest(so_far, still_open, self.operation_context, self.peaks)

    @cached_property
    def _aggregated_operations(self) -> tuple[OperationAggregator, Sequence[RecordedOperation]]:
        """Closed operations of the record, aggregated as the monitor does it, and the others by their start."""
        from otel_memwatch.run.operation_aggregator import OperationAggregator
        from otel_memwatch.run.operation_digest import moments_of

        so_far = OperationAggregator()
        still_open: list[RecordedOperation] = []
        if self.state == "finished":
            so_far.look_at(
                moments_of(self.peaks, self.started),
                self._conditions.interval,
                (),
                self._conditions.reading_seconds,
            )
        for row in self.record.operation_rows():
            if isinf(row.end):
                still_open.append(row.operation())
            else:
                so_far.close(row)
        still_open.sort(key=lambda operation: operation.start)
        table = so_far.table(still_open)
        if table is not None:
            self.record.operation_table = table
        return so_far, still_open

    @cached_property
    def operation_context(self) -> OperationContext:
        """Readings that the figures of a part of the run follow from."""
        from otel_memwatch.run.sample_series import METRICS, TreeSeries

        known = self._known
        if known is not None and known.series is not None and not self.too_many_operations:
            return self._context_of(known.series)
        conditions, all_ended = self._conditions, self._recorded_processes.all_ended
        return self._context_of(TreeSeries(self.samples(METRICS), conditions, all_ended=all_ended))

    def _context_of(self, series: TreeSeries | HistoricSeries) -> OperationContext:
        from otel_memwatch.run.operations import OperationContext

        conditions, processes = self._conditions, self._recorded_processes
        unseen = series.unseen_spans()
        # Sizes reveal processes outside only if the cgroup was read as long as the processes.
        left = (
            processes.tree.have_left(series.most_charged, series.uncounted, series.faults)
            if self._whole
            else processes.tree.left_cgroup
        )
        watched_until = self._last
        if not self._whole:
            watched_until = self.started + (self._replayed.aggregator.last_time or 0.0)
        return OperationContext(
            conditions,
            series,
            processes.by_pid,
            processes.sum_over_time(unseen),
            conditions.own_cgroup and left,
            self._last,
            watched_until,
            most_file=processes.tree.most_file or 0,
            window=max(conditions.interval, self.quality.get("longest_gap") or 0.0),
            by_faults=not conditions.own_cgroup and processes.tree.bounded_by_faults(series.windows.highest),
            alone_until=series.main.last_positive() if len(processes.all) == 1 and not unseen else -inf,
            alone=partial(processes.alone, unseen),
            stalls=self.stalls,
            whole=self._whole,
        )

    @cached_property
    def processes(self) -> tuple[ProcessFigures, ...]:
        """All known processes, by start."""
        return self._recorded_processes.figures()

    def tree_bound(self, start: float, end: float) -> int | None:
        """Return the bytes that the tree never exceeded between two moments, in seconds since its start; `None`: unknown."""
        from otel_memwatch.run.operations import figures_between

        start, end = self.started + start, self.started + end
        peak = figures_between(start, end, "", self.operation_context, self.peaks).tree_peak
        return None if peak is None else peak.high

    @cached_property
    def recorded_limit(self) -> int | None:
        """Limit of the cgroup from the first samples, if `limits` has none; `None`: unknown."""
        return self.record.limit()

    @cached_property
    def curves(self) -> DrawnCurves:
        """Figures over time in few points that keep every peak. Reads all samples, unless the monitor has them already."""
        from otel_memwatch.run.curves import curves_of

        samples = None
        if (self.operations_need_numpy or self.state != "finished") and self.record.is_long:
            # Figures of operations, or of the run, need the same samples: read a day's samples once, not twice.
            from otel_memwatch.run import aggregate, sample_series
            from otel_memwatch.run.replayed import DRAWN

            figures = sample_series.METRICS if self.state == "finished" else aggregate.METRICS
            samples = self.samples(figures | DRAWN)
        if self.record.damage:
            samples = None
        seconds = self.seconds if self.state == "finished" else 0.0
        processes = self._recorded_processes
        return curves_of(self.record, samples, seconds, processes.lives).drawn(all_ended=processes.all_ended)

    @cached_property
    def _recorded_processes(self) -> RecordedProcesses:
        from otel_memwatch.run.processes import RecordedProcesses

        if self._known is None and self.record.marked and not self.record.operations_read:
            # Processes need the segments of all lines, and reports the aggregate: one pass gives both.
            _ = self._aggregated_operations
        return RecordedProcesses(self.record, self._conditions, whole=self._whole)

    @property
    def _last(self) -> float:
        return self.started + self.seconds

    @property
    def _whole(self) -> bool:
        """True if the lines of the record reach to the run's end."""
        return self.state == "finished" and self.fields.recorded_until is None

    @cached_property
    def budgets(self) -> tuple[Mapping[str, Any], ...]:
        """Verdicts of the run's budgets, as `record.format` describes them; empty without budgets."""
        from otel_memwatch.record.open import read_info

        try:
            listed = read_info(f"{self.directory}/{BUDGETS_FILE}").get("budgets")
        except RunError:
            return ()
        entries = [mapping(entry) for entry in listed] if isinstance(listed, list) else []
        return tuple(entry for entry in entries if text(entry.get("figure")) and text(entry.get("verdict")))

    def samples(self, metrics: Iterable[str] | None = None) -> Samples:
        """Return the samples as numpy arrays; naming the necessary metrics saves time and memory for long runs.

        `time` of the result is an array of float64, shape (samples,): seconds since the start of the run. For each of
        `columns`, `values(column)` is another array of this shape in the unit of its metric. NaN: unknown, or not read at
        that sample. Raises `RunError` if the values do not fit into memory.
        """
        return self.record.samples(metrics)

    @cached_property
    def _replayed(self) -> ReplayedRecord:
        from otel_memwatch.run.replayed import replay

        return replay(self.record, whole=self._whole)


def load(path: str | os.PathLike[str]) -> RecordedRun:
    """Open a run directory. Raises `RunError` if it is no run, or one that this version cannot read."""
    from otel_memwatch.record.open import read_run

    return RecordedRun(read_run(path))
