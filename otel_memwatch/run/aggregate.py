"""Folds a run into its figures, tick by tick: while it is recorded, and again when a broken record is read."""

from __future__ import annotations

import threading

from otel_memwatch import catalog
from otel_memwatch.model import Peak, ProcessEvent
from otel_memwatch.run.attribution import attribute_peaks
from otel_memwatch.run.cgroup_bounds import CgroupTick
from otel_memwatch.run.conditions import RunConditions
from otel_memwatch.run.counter_rebase import SinceFirst
from otel_memwatch.run.maximum import Maximum
from otel_memwatch.run.peaks import Evidence, peaks_from, tree_low
from otel_memwatch.run.process_bounds import TreeBounds
from otel_memwatch.run.tree_bounds import UNCAPPED, Span
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_memwatch.model import Column, ProcessRecord, Snapshot, Value
    from otel_memwatch.record.operation_lines import OperationLines
    from otel_memwatch.run.attribution import SizedOperations
    from otel_memwatch.run.results import Peaks

_READ = {"disk.io.direction": "read"}
_WRITE = {"disk.io.direction": "write"}
_MAJOR = {"system.paging.fault.type": "major"}

_TOTAL_COLUMNS: tuple[tuple[str, str, Mapping[str, str]], ...] = (
    ("cpu_seconds", catalog.MEMWATCH_TREE_CPU_TIME, {}),
    ("read_bytes", catalog.MEMWATCH_TREE_DISK_IO, _READ),
    ("write_bytes", catalog.MEMWATCH_TREE_DISK_IO, _WRITE),
    ("read_chars", catalog.MEMWATCH_TREE_SYSCALL_IO, _READ),
    ("write_chars", catalog.MEMWATCH_TREE_SYSCALL_IO, _WRITE),
    ("major_faults", catalog.MEMWATCH_TREE_PAGING_FAULTS, _MAJOR),
)
"""Keys of the totals, and the columns that are summed for each."""

METRICS = frozenset(metric for _, metric, _ in _TOTAL_COLUMNS) | {
    catalog.PROCESS_MEMORY_USAGE,
    catalog.MEMWATCH_PROCESS_MEMORY_PEAK,
    catalog.MEMWATCH_TREE_MEMORY_USAGE,
    catalog.MEMWATCH_TREE_MEMORY_PSS,
    catalog.MEMWATCH_TREE_MEMORY_HUGETLB,
    catalog.MEMWATCH_TREE_MEMORY_BOUND,
    catalog.MEMWATCH_TREE_MEMORY_NEEDED,
    catalog.MEMWATCH_TREE_MEMORY_NEEDED_LOW,
    catalog.MEMWATCH_TREE_MEMORY_NEEDED_HIGH,
    catalog.MEMWATCH_TREE_MEMORY_PSS_NEEDED,
    catalog.MEMWATCH_TREE_PROCESS_COUNT,
    catalog.MEMWATCH_TREE_UNOBSERVED,
    catalog.MEMWATCH_TREE_UNOBSERVED_FAULTS,
    catalog.MEMWATCH_CGROUP_MEMORY_USAGE,
    catalog.MEMWATCH_CGROUP_MEMORY_ANON,
    catalog.MEMWATCH_CGROUP_MEMORY_FILE,
    catalog.MEMWATCH_CGROUP_MEMORY_SHMEM,
    catalog.MEMWATCH_CGROUP_MEMORY_KERNEL,
    catalog.MEMWATCH_CGROUP_MEMORY_PEAK,
    catalog.MEMWATCH_CGROUP_MEMORY_LIMIT,
    catalog.MEMWATCH_CGROUP_MEMORY_SWAP,
    catalog.MEMWATCH_CGROUP_OUTSIDE,
    catalog.MEMWATCH_CGROUP_PAGING_FAULTS,
    catalog.MEMWATCH_CGROUP_MEMORY_UNEVICTABLE,
    catalog.MEMWATCH_TREE_PAGING_FAULTS,
    catalog.MEMWATCH_TREE_MEMORY_SHMEM,
    catalog.SYSTEM_PAGING_USAGE,
    catalog.MEMWATCH_CGROUP_MEMORY_WINDOW,
    catalog.MEMWATCH_CGROUP_MEMORY_WINDOW_GAP,
    catalog.HW_GPU_MEMORY_USAGE,
}
"""The metrics that the tally looks at."""


def columns_for_total(columns: Iterable[Column], key: str) -> list[Column]:
    """The columns whose sum is the total `key` so far (a key of `figures.TOTALS`); none where it is not recorded."""
    for name, metric, attributes in _TOTAL_COLUMNS:
        if name == key:
            return [
                c for c in columns if c.metric == metric and attributes.items() <= dict(c.attributes).items()
            ]
    return []


class DeviceMaxima:
    """Largest device memory by device, from the columns of `hw.gpu.memory.usage`."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = [
            (index, dict(column.attributes)["hw.id"])
            for index, column in enumerate(columns)
            if column.metric == catalog.HW_GPU_MEMORY_USAGE and "hw.id" in dict(column.attributes)
        ]
        self._largest: dict[str, Maximum] = {device: Maximum() for _, device in self._columns}

    def add_tick(self, time: float, values: Sequence[Value]) -> None:
        """Takes a tick in."""
        for index, device in self._columns:
            value = values[index]
            if value is not None:
                self._largest[device].add(time, int(value))

    def peaks(self, started: float) -> Mapping[str, Peak]:
        """By device; devices without a value are left out."""
        return {
            device: Peak.sampled(
                largest.value,
                at=round(max(0.0, largest.at - started), 4),
                how="device memory in use, at ticks",
            )
            for device, largest in self._largest.items()
            if largest.value is not None and largest.at is not None
        }


class Tally:
    """The figures of a run so far. A tick costs a few microseconds; memory does not grow with ticks or ended processes.

    One thread may fold while another asks for the figures.

    Args:
        columns: of the snapshots.
        info: `run.json` as it is at the start: what `RunConditions.of` reads has to be in it.

    """

    def __init__(self, columns: Sequence[Column], info: Mapping[str, Any]) -> None:
        self._lock = threading.Lock()
        self.conditions = RunConditions.of(info)
        self.processes = TreeBounds(self.conditions)
        self.ticks = self.missed = 0
        self.first_tick: float | None = None
        """Seconds since the start of the run."""
        self.last_tick: float | None = None
        """Seconds since the start of the run."""
        self._longest_gap: float | None = None
        self._evidence = Evidence(self.conditions, self.processes)
        self._beside_disk = 0
        """Bytes of write calls so far, less those that went to disk."""
        self._unseen_faults = 0
        """Page faults of unseen processes so far."""
        self._faults_of_unseen: int | None = None
        """Those of the tick at which `Evidence.unseen` were found; `None`: not known."""
        self._last_time: float | None = None
        self._last_of_tree: float | None = None
        """Monotonic seconds of the last tick that read the tree: what costs too much is not read at every one."""
        self._totals: dict[int, Value] = {}
        self._total_columns = {}
        for name, *_ in _TOTAL_COLUMNS:
            summed = set(columns_for_total(columns, name))
            self._total_columns[name] = [index for index, column in enumerate(columns) if column in summed]
        self._since = SinceFirst(columns, joined=self.conditions.joined)
        self._devices = DeviceMaxima(columns)
        self._find_columns({column.metric: index for index, column in reversed(list(enumerate(columns)))})

    def _find_columns(self, indices: Mapping[str, int]) -> None:
        """Finds the columns that it looks at, by their metrics."""
        evidence, find = self._evidence, indices.get
        self._main_rss = find(catalog.PROCESS_MEMORY_USAGE)
        self._main_peak = find(catalog.MEMWATCH_PROCESS_MEMORY_PEAK)
        largest = {
            catalog.MEMWATCH_TREE_MEMORY_USAGE: evidence.rss,
            catalog.MEMWATCH_TREE_MEMORY_PSS: evidence.pss,
            catalog.MEMWATCH_TREE_MEMORY_NEEDED_LOW: evidence.ledger.low,
            catalog.MEMWATCH_TREE_MEMORY_HUGETLB: evidence.hugetlb,
            catalog.MEMWATCH_TREE_MEMORY_SHMEM: evidence.shared,
            catalog.MEMWATCH_CGROUP_OUTSIDE: evidence.outside,
            catalog.MEMWATCH_CGROUP_MEMORY_SWAP: evidence.group_swap,
            catalog.SYSTEM_PAGING_USAGE: evidence.system_swap,
            catalog.MEMWATCH_CGROUP_MEMORY_PEAK: evidence.watermark,
        }
        self._largest = [
            (indices[metric], maximum) for metric, maximum in largest.items() if metric in indices
        ]
        self._bound = find(catalog.MEMWATCH_TREE_MEMORY_BOUND)
        self._processes = find(catalog.MEMWATCH_TREE_PROCESS_COUNT)
        self._needed = find(catalog.MEMWATCH_TREE_MEMORY_NEEDED)
        self._shares = find(catalog.MEMWATCH_TREE_MEMORY_PSS_NEEDED)
        self._needed_high = find(catalog.MEMWATCH_TREE_MEMORY_NEEDED_HIGH)
        self._unseen = find(catalog.MEMWATCH_TREE_UNOBSERVED)
        self._faults = find(catalog.MEMWATCH_TREE_UNOBSERVED_FAULTS)
        self._minor_faults = find(catalog.MEMWATCH_TREE_PAGING_FAULTS)
        self._charged_faults = find(catalog.MEMWATCH_CGROUP_PAGING_FAULTS)
        self._charged = find(catalog.MEMWATCH_CGROUP_MEMORY_USAGE)
        self._private = find(catalog.MEMWATCH_CGROUP_MEMORY_ANON)
        self._locked = find(catalog.MEMWATCH_CGROUP_MEMORY_UNEVICTABLE)
        self._file = find(catalog.MEMWATCH_CGROUP_MEMORY_FILE)
        self._window = find(catalog.MEMWATCH_CGROUP_MEMORY_WINDOW)
        self._watermark = find(catalog.MEMWATCH_CGROUP_MEMORY_PEAK)
        self._gap = find(catalog.MEMWATCH_CGROUP_MEMORY_WINDOW_GAP)
        self._limit = find(catalog.MEMWATCH_CGROUP_MEMORY_LIMIT)
        self._shmem = find(catalog.MEMWATCH_CGROUP_MEMORY_SHMEM)
        self._kernel = find(catalog.MEMWATCH_CGROUP_MEMORY_KERNEL)
        self._moved = [*self._total_columns["read_bytes"], *self._total_columns["write_bytes"]]
        self._counters = [index for indices in self._total_columns.values() for index in indices]

    def tick(self, snapshot: Snapshot) -> None:
        """Takes a tick in."""
        with self._lock:
            self._add_tick(snapshot)

    def _add_tick(self, snapshot: Snapshot) -> None:
        time, values = snapshot.time, snapshot.values
        if self._last_time is not None:
            gap = time - self._last_time
            if self._longest_gap is None or gap > self._longest_gap:
                self._longest_gap = gap
        else:
            self.first_tick = time - self.conditions.started
        self.ticks += 1
        self.missed += snapshot.missed
        self.last_tick = time - self.conditions.started
        for index, maximum in self._largest:
            value = values[index]
            if value is not None and (maximum.value is None or value > maximum.value):
                maximum.add(time, int(value))
        for index in self._counters:
            if values[index] is not None:
                self._totals[index] = self._since.of(index, values[index])
        before = self._beside_disk
        to_disk, by_calls = self._sum_of("write_bytes"), self._sum_of("write_chars")
        if to_disk is not None and by_calls is not None:
            self._beside_disk = beside = by_calls - to_disk
            self._evidence.most_written = max(self._evidence.most_written, beside - before)
            self._evidence.written_by_mapping = max(0, -beside)
        self._add_main(time, values)
        self._add_unseen(time, values)
        self._add_cgroup(time, values)
        self._devices.add_tick(time, values)
        self._last_time = self._evidence.last_tick = time
        self.processes.settle(time)

    def _sum_of(self, total: str) -> int | None:
        """A total so far; `None`: not known."""
        known = [v for v in map(self._totals.get, self._total_columns[total]) if v is not None]
        return int(sum(known)) if known else None

    def _add_main(self, time: float, values: Sequence[Value]) -> None:
        main = self.processes.main
        if main is None or main.end is not None:
            return
        rss, peak = _at(values, self._main_rss), _at(values, self._main_peak)
        if rss is not None and rss > main.low:
            self.processes.raise_to(main, rss, time)
        if peak is not None and peak > main.low:
            self.processes.add_watermark(main, peak, time)

    def _add_unseen(self, time: float, values: Sequence[Value]) -> None:
        """Takes in the bound of this tick's window, and the processes that began and ended since the tick before.

        A tick at which the tree was not read ends no window of it: that of the next one reaches back to the last that did.
        """
        evidence = self._evidence
        evidence.alive = _at(values, self._processes)
        if self._processes is not None and evidence.alive is None:
            return
        faults = self._new_faults(values)
        new = max(0, (_at(values, self._unseen) or 0) - evidence.unseen_count)
        if self._bound is not None:
            evidence.window_bounds.add_tick(time, _at(values, self._bound), new)
        if self._needed_high is not None:
            evidence.ledger.add_tick(time, _at(values, self._needed_high), faults)
            evidence.ledger.add_guess(time, _at(values, self._needed), _at(values, self._shares))
        self._close_unseen(faults)
        if new:
            begin = self.conditions.started if self._last_of_tree is None else self._last_of_tree
            evidence.unseen = Span(begin, time, 0, new)
            self._faults_of_unseen = faults
            evidence.unseen_count += new
            evidence.latest_unseen = time
        self._last_of_tree = time

    def _close_unseen(self, faults: int | None) -> None:
        """Adds the processes that the tick before found to have been missed, now that all their page faults are known.

        Together they never had more than one page (or huge page) for each fault. The faults of a process are known when
        its parent waits for it, and reading a tick takes a moment:

            tick 1: the count of processes ... | the parent waits ... | tick 2: the faults of the child

        So those that tick 1 counted can have had the faults that both ticks counted.
        """
        unseen, before = self._evidence.unseen, self._faults_of_unseen
        self._evidence.unseen = None
        if unseen is None:
            return
        if faults is not None and before is not None:
            unseen = unseen._replace(cap=min(UNCAPPED, (before + faults) * self.conditions.fault_bytes))
        self.processes.ended_spans.add(unseen)

    def _new_faults(self, values: Sequence[Value]) -> int | None:
        """Page faults of unseen processes since the tick before; `None`: not known."""
        total = _at(values, self._faults)
        if total is None:
            return None
        new, self._unseen_faults = max(0, total - self._unseen_faults), total
        self._evidence.unseen_faults = total
        return new

    def _add_cgroup(self, time: float, values: Sequence[Value]) -> None:
        evidence = self._evidence
        charged, file = _at(values, self._charged), _at(values, self._file)
        if charged is not None and file is not None:
            evidence.needed.add(time, max(0, charged - file))
        evidence.private.add(time, _at(values, self._private))
        if self._watermark is not None:
            evidence.watermark_read = values[self._watermark] is not None
        if self.conditions.own_cgroup:
            evidence.add_cgroup_window(evidence.cgroup.add_tick(self._cgroup_tick(time, values)))
        limit = _at(values, self._limit)
        if limit is not None:
            low, high = evidence.limits or (limit, limit)
            evidence.limits = min(low, limit), max(high, limit)
        faults, charged_faults = _at(values, self._minor_faults), _at(values, self._charged_faults)
        if faults is not None:
            evidence.counted_faults = max(faults, evidence.counted_faults or 0)
        if faults is not None and charged_faults is not None:
            evidence.faults_elsewhere.add(time, faults, charged_faults)
        shmem, kernel = _at(values, self._shmem), _at(values, self._kernel)
        if shmem is not None and kernel is not None:
            evidence.unmapped.add(time, shmem + kernel)

    def _cgroup_tick(self, time: float, values: Sequence[Value]) -> CgroupTick:
        """What this tick tells of the run's own control group."""
        moved = [value for value in (_at(values, index) for index in self._moved) if value is not None]
        return CgroupTick(
            time,
            _at(values, self._charged),
            _at(values, self._window),
            None if self._gap is None else values[self._gap],
            _at(values, self._watermark),
            _at(values, self._file),
            sum(moved) if moved and len(moved) == len(self._moved) else None,
            _at(values, self._locked) or 0,
        )

    def process(self, record: ProcessRecord) -> None:
        """Takes in what is known of a process."""
        with self._lock:
            self.processes.add_record(record)
            if record.event is ProcessEvent.EXIT:
                self.processes.settle(record.time)

    def boundaries(self, lines: Iterable[OperationLines]) -> None:
        """Takes in the maxima between the boundaries of operations so far.

        Needed before `peaks` where processes reset their own watermark: what the kernel tells afterwards is only
        the maximum since the last reset.
        """
        with self._lock:
            for line in lines:
                if line.largest is not None:
                    self.processes.add_segment(line.pid, line.start, *line.largest)

    @property
    def tree_low(self) -> int | None:
        """Bytes that the tree certainly needed at its worst so far; `None`: nothing known. Cheap."""
        return tree_low(self._evidence)

    def peaks(self, operations: SizedOperations | None = None, *, whole: bool = True) -> Peaks:
        """The peaks so far, each with the innermost of `operations` that was open when it was reached.

        `whole` false: the recording stopped before the run did, and what could have grown since has no upper bound.
        """
        with self._lock:
            peaks = peaks_from(self._evidence, whole=whole)._replace(
                gpu=self._devices.peaks(self.conditions.started)
            )
        if operations is None:
            return peaks
        return attribute_peaks(peaks, operations, self.conditions.started, self.conditions.interval)

    def totals(self) -> dict[str, float | None]:
        """Totals of the tree so far: the last values of the counters, and the processes seen and not seen.

        They are those of the recorded time: what was used before it is not in them.
        """
        totals: dict[str, float | None] = {}
        for name, indices in self._total_columns.items():
            known = [v for v in (self._totals.get(index) for index in indices) if v is not None]
            totals[name] = round(sum(known), 6) if known else None
        totals["processes"] = None if self.conditions.blind else self.processes.count or None
        counted = self._unseen is not None and self.ticks > 0
        totals["unseen_processes"] = self._evidence.unseen_count if counted else None
        return totals

    def quality(self) -> dict[str, float | None]:
        """How well it was recorded so far."""
        hertz = None
        if self.ticks > 1 and self.first_tick is not None and self.last_tick is not None:
            seconds = self.last_tick - self.first_tick
            hertz = round((self.ticks - 1) / seconds, 3) if seconds > 0 else None
        if hertz is not None and self.conditions.interval:
            # The last tick is taken when the target ends, whenever that is.
            hertz = min(hertz, round(1 / self.conditions.interval, 3))
        return {
            "interval": self.conditions.interval or None,
            "achieved_hz": hertz,
            "ticks": self.ticks,
            "missed_ticks": self.missed,
            "longest_gap": None if self._longest_gap is None else round(self._longest_gap, 4),
        }


def _at(values: Sequence[Value], index: int | None) -> int | None:
    """The value of a column; `None` when there is no such column, or no value."""
    if index is None:
        return None
    value = values[index]
    return None if value is None else int(value)
