"""Aggregate a run into its figures, sample by sample: while it is recorded, and when a broken record is read."""

from __future__ import annotations

from otel_memwatch import catalog
from otel_memwatch.model import Evidence, Peak, ProcessEvent
from otel_memwatch.record.schema import FIELDS, fields_in, series_picker, whole_of
from otel_memwatch.run.conditions import RunConditions
from otel_memwatch.run.counter_rebase import CounterRebase
from otel_memwatch.run.maximum import Maximum
from otel_memwatch.run.peaks import RunEvidence, peaks_from, processes_high
from otel_memwatch.run.process_bounds import ProcessCollection
from otel_memwatch.run.stall_ledger import StallLedger
from otel_memwatch.run.tree_bounds import UNCAPPED, Span
from otel_memwatch.run.working_set import WorkingSet
from otel_memwatch.runtime.light import Lock, attrgetter
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.truth.cgroup_windows import needed_at_sample
from otel_memwatch.truth.estimates import largest_sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from otel_memwatch.model import Column, ProcessRecord, Value
    from otel_memwatch.record.operation_lines import OperationLines
    from otel_memwatch.record.schema import Sample
    from otel_memwatch.run.attribution import Candidates
    from otel_memwatch.run.growth import GrowthFinding, HandleFloors, Repeats, TimeFloors
    from otel_memwatch.run.heaps import Heaps
    from otel_memwatch.run.results import Peaks
    from otel_memwatch.run.stalls import Stalls
    from otel_memwatch.truth.heap import HeapReading

TOTALS = ("cpu_seconds", "read_bytes", "write_bytes", "read_chars", "write_chars", "major_faults")
"""Counters of the tree; the last value of each is a total of the run."""

_LARGEST = {
    "rss": "rss",
    "pss": "pss",
    "hugetlb": "hugetlb",
    "shared": "shared",
    "outside": "outside",
    "cgroup_swap": "cgroup_swap",
    "swap": "system_swap",
    "watermark": "watermark",
}
"""Fields of a sample and the evidence that their largest value gives."""

_OF_OTHERS = ("virtual", "system")
"""Fields that only the superseded tools read."""

METRICS = frozenset(metric for field, (metric, _) in FIELDS.items() if field not in _OF_OTHERS) | {
    catalog.HW_GPU_MEMORY_USAGE,
    catalog.MEMWATCH_TREE_GPU_MEMORY_USAGE,
}
"""Metrics behind the figures of a run and of its operations."""


_LEVELS = 64
"""Samples in a batch for the judgement of growth."""
_HANDLES_AFTER = 900.0
"""Seconds after which handles are counted: a service is not judged earlier anyway."""


class DeviceMaxima:
    """Largest value by device, from the columns of one metric."""

    def __init__(self, metric: str, columns: Sequence[Column]) -> None:
        self._metric = metric
        self._largest: dict[str, Maximum] = {}
        self.join(columns)

    def join(self, columns: Sequence[Column]) -> None:
        """Set the columns of the following samples."""
        keys, self._pick = series_picker(columns, {self._metric})
        self._devices = [dict(attributes).get("hw.id") for _, attributes in keys]
        for device in self._devices:
            if device is not None:
                self._largest.setdefault(device, Maximum())

    def add(self, sample: Sample) -> None:
        """Add a sample."""
        if not self._devices:
            return
        for device, value in zip(self._devices, self._pick(sample.row), strict=True):
            if device is not None:
                self._largest[device].add(sample.time, whole_of(value))

    def peaks(self, started: float, *evidence: Evidence) -> Mapping[str, Peak]:
        """Return a peak for each device that has a value."""
        return {
            device: largest_sample(
                largest.value,
                *evidence,
                at=round(max(0.0, largest.at - started), 4),
            )
            for device, largest in self._largest.items()
            if largest.value is not None and largest.at is not None
        }


class RunAggregator:
    """The figures of a run so far. A sample costs some 10 us; memory does not grow with samples or ended processes.

    One thread may add while another asks for the figures.

    Args:
        columns: of the samples.
        info: `run.json` at the start, with all fields that `RunConditions.of` reads.
    """

    def __init__(self, columns: Sequence[Column], info: Mapping[str, Any]) -> None:
        self._lock = Lock()
        self.conditions = RunConditions.of(info)
        self.processes = ProcessCollection(self.conditions)
        self._heaps: Heaps | None = None
        """Readings of allocators; `None`: none so far."""
        self.samples = self.missed = 0
        self.first_time: float | None = None
        """Seconds from the start of the run to the first sample."""
        self.last_time: float | None = None
        """Seconds from the start of the run to the last sample."""
        self._longest_gap: float | None = None
        """The most seconds between two samples, or between the start and the first one."""
        self.reading = self.conditions.reading_seconds
        """The most seconds that reading a sample took so far."""
        self._evidence = evidence = RunEvidence(self.conditions, self.processes)
        self._beside_disk = 0
        """Bytes of write calls so far, less the bytes that went to disk."""
        self._unseen_faults = 0
        """Page faults of unseen processes so far."""
        self._faults_of_unseen: int | None = None
        """Their count at the sample that found `Evidence.unseen`; `None`: not known."""
        self._latest: float | None = None
        """Monotonic seconds of the last sample."""
        self._tree_read = self.conditions.started, self.conditions.started
        """Monotonic seconds of the last two samples that read the tree. Costly sources are not read at every sample."""
        self._totals: dict[str, Value] = dict.fromkeys(TOTALS)
        self._fields = fields_in(columns)
        # If the run has its cgroup, the cgroup bounds the memory needed, not page faults.
        self._by_faults = "needed_high" in self._fields and not self.conditions.own_cgroup
        self._rebase = CounterRebase(TOTALS if self.conditions.joined else ())
        self.ledger = StallLedger(columns, self.conditions)
        self._working_set = WorkingSet(self.conditions.disk_rate)
        self._floors: TimeFloors | None = None
        """Memory of no file; `None` in a run of few samples, which has no growth to judge."""
        self._levels: list[tuple[float, float, float, int]] = []
        """Memory of no file, monotonic seconds, CPU seconds and processes at samples that `_floors` lacks."""
        self._handles: HandleFloors | None = None
        self._processes = 0
        """Number of processes at the last sample that counted them."""
        self._devices = DeviceMaxima(catalog.HW_GPU_MEMORY_USAGE, columns)
        self._held_by_tree = DeviceMaxima(catalog.MEMWATCH_TREE_GPU_MEMORY_USAGE, columns)
        maxima = [
            (field, getattr(evidence, name)) for field, name in _LARGEST.items() if field in self._fields
        ]
        self._largest: list[tuple[Callable[[Sample], Value], Maximum]] = [
            (attrgetter(field), maximum) for field, maximum in maxima
        ]

    def pass_over(self, time: float, missed: int) -> None:
        """Count a sample that equals those before and after it, so only its time matters."""
        self.last_time = time - self.conditions.started
        if self._latest is None:
            self.first_time = self._longest_gap = self.last_time
        elif self._longest_gap is None or time - self._latest > self._longest_gap:
            self._longest_gap = time - self._latest
        self.samples += 1
        self.missed += missed
        self._latest = self._evidence.last_tick = time

    def add(self, sample: Sample, missed: int = 0) -> None:
        """Add a sample; `missed`: deadlines that passed without one before it."""
        with self._lock:
            time = sample.time
            self.pass_over(time, missed)
            if sample.reading is not None and sample.reading > self.reading:
                self.reading = float(sample.reading)
            for get, maximum in self._largest:
                value = get(sample)
                if value is not None and (maximum.value is None or value > maximum.value):
                    maximum.add(time, int(value))
            self._add_totals(sample)
            self._add_main(sample)
            self._add_unseen(sample)
            self._add_cgroup(sample)
            self._add_anonymous(sample)
            self.ledger.add(sample)
            self._devices.add(sample)
            self._held_by_tree.add(sample)
            self.processes.settle(time)

    def _add_totals(self, sample: Sample) -> None:
        totals, evidence = self._totals, self._evidence
        for name in TOTALS:
            value = getattr(sample, name)
            if value is not None:
                totals[name] = self._rebase.of(name, value)
        to_disk, by_calls = totals["write_bytes"], totals["write_chars"]
        if to_disk is not None and by_calls is not None:
            before, self._beside_disk = self._beside_disk, int(by_calls) - int(to_disk)
            evidence.most_written = max(evidence.most_written, self._beside_disk - before)
            evidence.written_by_mapping = max(0, -self._beside_disk)

    def _add_main(self, sample: Sample) -> None:
        main = self.processes.main
        if main is None or main.end is not None:
            return
        rss, peak = whole_of(sample.main), whole_of(sample.main_peak)
        main.sampled = max(main.sampled, rss or 0)
        if rss is not None and rss > main.low:
            self.processes.raise_to(main, rss, sample.time)
        if peak is not None and peak > main.low:
            self.processes.add_watermark(main, peak, sample.time)

    def _add_unseen(self, sample: Sample) -> None:
        """Add the bound of this sample's window, and the processes that began and ended since the sample before.

        A sample that did not read the tree ends no window of it. The next window then reaches back to the last sample that did.
        """
        evidence, time = self._evidence, sample.time
        if self._by_faults:
            evidence.ledger.low.add(time, whole_of(sample.needed_low))
        evidence.alive = whole_of(sample.processes)
        evidence.tree_read = evidence.alive is not None or "processes" not in self._fields
        if not evidence.tree_read:
            return
        faults: int | None = None  # page faults of unseen processes since the sample before; `None`: unknown
        total = whole_of(sample.unseen_faults)
        if total is not None:
            faults, self._unseen_faults = max(0, total - self._unseen_faults), total
            evidence.unseen_faults = total
            evidence.most_unseen_faults = max(evidence.most_unseen_faults, faults)
        new = max(0, (whole_of(sample.unseen) or 0) - evidence.unseen_count)
        if "bound" in self._fields:
            evidence.window_bounds.add_sample(time, whole_of(sample.bound), new)
        if self._by_faults:
            evidence.ledger.add_sample(time, whole_of(sample.needed_high), faults, resident=bool(sample.rss))
            evidence.ledger.add_guess(
                time,
                whole_of(sample.needed),
                whole_of(sample.needed_shares),
                sample.needed_factor,
                has_factors="needed_factor" in self._fields,
            )
        self._close_unseen(faults)
        if new:
            # Its end may be reported one sample late.
            evidence.unseen = Span(self._tree_read[0], time, 0, new)
            self._faults_of_unseen = faults
            evidence.unseen_count += new
            evidence.latest_unseen = time
        self._tree_read = self._tree_read[1], time

    def _close_unseen(self, faults: int | None) -> None:
        """Add the processes that the previous sample missed, now that all their page faults are known.

        Together they never had more than one page (or huge page) for each fault. The faults of a process are known when
        its parent waits for it, and reading a sample takes a moment:

            sample 1: the count of processes ... | the parent waits ... | sample 2: the faults of the child

        So the processes that sample 1 counted can have had the faults that both samples counted.
        """
        unseen, before = self._evidence.unseen, self._faults_of_unseen
        self._evidence.unseen = None
        if unseen is None:
            return
        if faults is not None and before is not None:
            unseen = unseen._replace(cap=min(UNCAPPED, (before + faults) * self.conditions.fault_bytes))
        self.processes.ended_spans.add(unseen)

    def _add_cgroup(self, sample: Sample) -> None:
        evidence, time = self._evidence, sample.time
        charged, file = whole_of(sample.usage), whole_of(sample.file)
        if charged is not None and file is not None:
            evidence.needed.add(time, needed_at_sample(charged, file, self.conditions.processors))
        evidence.private.add(time, whole_of(sample.anon))
        if "watermark" in self._fields:
            evidence.watermark_read = sample.watermark is not None
        if self.conditions.own_cgroup:
            evidence.left, evidence.moved = charged, whole_of(sample.moved)
            window = evidence.cgroup.add(sample)
            evidence.add_cgroup_window(window)
            self._working_set.add(sample, window)
        limit = whole_of(sample.limit)
        if limit is not None:
            low, high = evidence.limits or (limit, limit)
            evidence.limits = min(low, limit), max(high, limit)
        faults, cgroup_faults = whole_of(sample.faults), whole_of(sample.cgroup_faults)
        if faults is not None:
            evidence.counted_faults = max(faults, evidence.counted_faults or 0)
        if faults is not None and cgroup_faults is not None:
            evidence.faults_elsewhere.add(time, faults, cgroup_faults)
        shmem, kernel = whole_of(sample.shmem), whole_of(sample.kernel)
        if shmem is not None and kernel is not None:
            evidence.unmapped.add(time, shmem + kernel)

    def _add_anonymous(self, sample: Sample) -> None:
        """Add memory that belongs to no file: of the run's cgroup, else the certain part of the tree's."""
        value = whole_of(sample.needed_low)
        if self.conditions.own_cgroup and sample.anon is not None:
            value = (whole_of(sample.anon) or 0) + (whole_of(sample.shmem) or 0)
        if value is not None:
            cpu = self._totals["cpu_seconds"] or 0.0
            self._processes = whole_of(sample.processes) or self._processes
            self._levels.append((value, sample.time, cpu, self._processes))
            if len(self._levels) >= _LEVELS:
                self._fold_levels()
            if sample.time - self.conditions.started > _HANDLES_AFTER:
                from otel_memwatch.run.growth import HandleFloors
                from otel_memwatch.truth.service_growth import ServiceLoad

                self._handles = self._handles or HandleFloors()
                self._handles.add(sample, ServiceLoad(sample.time, cpu, self._processes))

    def _fold_levels(self) -> TimeFloors:
        """Return the floors of the memory of no file, with all samples so far."""
        from otel_memwatch.run.growth import TimeFloors
        from otel_memwatch.truth.service_growth import ServiceLoad

        self._floors = self._floors or TimeFloors()
        for value, time, cpu, processes in self._levels:
            self._floors.add(value, ServiceLoad(time, cpu, processes))
        self._levels.clear()
        return self._floors

    def join(self, columns: Sequence[Column]) -> None:
        """Set the columns of the following samples: those so far, and others of devices."""
        with self._lock:
            self.ledger.join(columns)
            self._devices.join(columns)
            self._held_by_tree.join(columns)

    def process(self, record: ProcessRecord) -> None:
        """Add a record of a process."""
        with self._lock:
            self.processes.add_record(record)
            if record.event is ProcessEvent.EXIT:
                self.processes.settle(record.time)

    def boundaries(self, lines: Iterable[OperationLines]) -> None:
        """Add the maxima between the boundaries of operations so far.

        Call it before `peaks` if processes reset their own high-water mark. The kernel then reports only the maximum since
        the last reset.
        """
        lines = list(lines)
        with self._lock:
            if heaps := [line for line in lines if line.last_heap is not None]:
                from otel_memwatch.run.heaps import Heaps

                self._heaps = self._heaps or Heaps()
                self._heaps.add(heaps)
            for line in lines:
                if line.largest is not None:
                    self.processes.add_segment(line.pid, line.start, *line.largest)

    @property
    def window(self) -> float:
        """The most seconds without a sample so far."""
        return max(self.conditions.interval, self._longest_gap or 0.0)

    def peaks(self, operations: Candidates | None = None, *, whole: bool = True) -> Peaks:
        """Return the peaks so far, each with the innermost of `operations` that was open at the peak.

        If `whole` is false, the recording stopped before the run did. Peaks that can have grown since have no upper bound.
        """
        with self._lock:
            peaks = peaks_from(self._evidence, whole=whole)._replace(
                gpu=self._devices.peaks(self.conditions.started, Evidence.DEVICE_SAMPLES, Evidence.SAMPLES),
                gpu_tree=self._held_by_tree.peaks(self.conditions.started, Evidence.SAMPLES),
            )
        if operations is None:
            return peaks
        from otel_memwatch.run.attribution import attribute_peaks

        return attribute_peaks(
            peaks,
            operations,
            self.conditions.started,
            self.window,
            self.reading,
            alone=self._evidence.alone,
        )

    def totals(self) -> dict[str, float | None]:
        """Return the totals of the tree so far: the last values of the counters, and the processes seen and not seen.

        Totals cover the recorded time only, not earlier use.
        """
        totals = {name: None if value is None else round(value, 6) for name, value in self._totals.items()}
        totals["processes"] = None if self.conditions.blind else self.processes.count or None
        counted = "unseen" in self._fields and self.samples > 0
        totals["unseen_processes"] = self._evidence.unseen_count if counted else None
        return totals

    def processes_high(self) -> int | None:
        """Return `peaks.processes_high`, in bytes; `None`: unknown."""
        with self._lock:
            return processes_high(self._evidence)

    def files_beside_peak(self) -> int | None:
        """Return the files that full speed needs beside the peak, in bytes; `None`: unknown."""
        with self._lock:
            most, processes = self.processes.most_file, self.processes.count
            seconds = max(0.0, (self.last_time or 0.0) - self.ledger.contention)
            return self._working_set.beside_peak(most, processes, seconds)

    def findings(self, repeats: Repeats | None, *, job: bool) -> list[GrowthFinding]:
        """Return what the run so far shows about the growth of its memory, and about memory that allocators keep.

        `job`: the command ended by itself without an error. A job may collect data until its end, a service must not.
        """
        error = self.conditions.sum_error
        found = [] if repeats is None else repeats.findings(self._fold_levels(), error)
        of_service = None if job else self._fold_levels().finding(error)
        found = found if of_service is None else [*found, of_service]
        if self._handles is not None and not job:
            found += self._handles.findings()
        if found and self.conditions.torch_history:
            from otel_memwatch.run.growth import without_history

            found = [without_history(one) for one in found]
        return found if self._heaps is None else self._heaps.findings(found)

    def add_heaps(self, readings: Iterable[HeapReading]) -> None:
        """Add readings of allocators by the monitor."""
        from otel_memwatch.run.heaps import Heaps

        with self._lock:
            self._heaps = self._heaps or Heaps()
            for reading in readings:
                self._heaps.add_reading(reading)

    @property
    def heaps(self) -> list[HeapReading]:
        """The last readings of allocators by process."""
        return [] if self._heaps is None else self._heaps.readings()

    def stalls(self) -> Stalls:
        """Return the shares of the time without progress so far."""
        return self.ledger.stalls(self.last_time or 0.0)

    def quality(self) -> dict[str, float | None]:
        """Return the quality of the recording so far."""
        hertz = None
        if self.samples > 1 and self.first_time is not None and self.last_time is not None:
            seconds = self.last_time - self.first_time
            hertz = round((self.samples - 1) / seconds, 3) if seconds > 0 else None
        if hertz is not None and self.conditions.interval:
            # The last sample is taken when the target ends, at any point of the interval.
            hertz = min(hertz, round(1 / self.conditions.interval, 3))
        return {
            "interval": self.conditions.interval or None,
            "achieved_hz": hertz,
            "ticks": self.samples,
            "missed_ticks": self.missed,
            "longest_gap": None if hertz is None else round(self._longest_gap or 0.0, 4),
        }
