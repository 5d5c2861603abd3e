"""Folds a run into its figures, tick by tick: while it is recorded, and again when a broken record is read."""

from __future__ import annotations

import threading

from otel_memwatch import catalog
from otel_memwatch.analysis.attribution import place
from otel_memwatch.analysis.cgroup_bounds import Reading
from otel_memwatch.analysis.maxima import Devices
from otel_memwatch.analysis.process_bounds import Lives
from otel_memwatch.analysis.run_conditions import Basis
from otel_memwatch.analysis.since import SinceFirst
from otel_memwatch.analysis.tree_bounds import UNCAPPED, Span
from otel_memwatch.analysis.verdicts import Facts, judge, tree_low
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_memwatch.analysis.results import Peaks
    from otel_memwatch.model import Column, Operation, ProcessRecord, Snapshot, Value
    from otel_memwatch.record.operation_lines import OperationLines

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
    catalog.MEMWATCH_TREE_MEMORY_BOUND,
    catalog.MEMWATCH_TREE_PROCESS_COUNT,
    catalog.MEMWATCH_TREE_UNOBSERVED,
    catalog.MEMWATCH_TREE_UNOBSERVED_FAULTS,
    catalog.MEMWATCH_CGROUP_MEMORY_USAGE,
    catalog.MEMWATCH_CGROUP_MEMORY_FILE,
    catalog.MEMWATCH_CGROUP_MEMORY_SHMEM,
    catalog.MEMWATCH_CGROUP_MEMORY_KERNEL,
    catalog.MEMWATCH_CGROUP_MEMORY_PEAK,
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


class Tally:
    """The figures of a run so far. A tick costs a few microseconds; memory does not grow with ticks or ended processes.

    One thread may fold while another asks for the figures.

    Args:
        columns: of the snapshots.
        info: `run.json` as it is at the start: what `Basis.of` reads has to be in it.

    """

    def __init__(self, columns: Sequence[Column], info: Mapping[str, Any]) -> None:
        self._lock = threading.Lock()
        self.basis = Basis.of(info)
        self.lives = Lives(self.basis)
        self.ticks = self.missed = 0
        self.first_tick: float | None = None
        """Seconds since the start of the run."""
        self.last_tick: float | None = None
        """Seconds since the start of the run."""
        self._longest_gap: float | None = None
        self._facts = Facts(self.basis, self.lives)
        self._unobserved = self._faults = 0
        self._unseen_before: int | None = None
        """Page faults of unseen processes at the tick before."""
        self._last_time: float | None = None
        self._totals: dict[int, Value] = {}
        self._total_places = {}
        for name, *_ in _TOTAL_COLUMNS:
            summed = set(columns_for_total(columns, name))
            self._total_places[name] = [place for place, column in enumerate(columns) if column in summed]
        self._since = SinceFirst(columns, joined=self.basis.joined)
        self._devices = Devices(columns)
        self._connect({column.metric: place for place, column in reversed(list(enumerate(columns)))})

    def _connect(self, places: Mapping[str, int]) -> None:
        """Finds the places of the columns that it looks at."""
        facts, prefix = self._facts, "memwatch.cgroup.memory."
        self._main_rss = places.get(catalog.PROCESS_MEMORY_USAGE)
        self._main_peak = places.get(catalog.MEMWATCH_PROCESS_MEMORY_PEAK)
        largest = {
            catalog.MEMWATCH_TREE_MEMORY_USAGE: facts.rss,
            catalog.MEMWATCH_TREE_MEMORY_PSS: facts.pss,
            prefix + "peak": facts.watermark,
        }
        self._largest = [(places[metric], maximum) for metric, maximum in largest.items() if metric in places]
        self._bound = places.get(catalog.MEMWATCH_TREE_MEMORY_BOUND)
        self._unobserved_place = places.get(catalog.MEMWATCH_TREE_UNOBSERVED)
        self._faults_place = places.get(catalog.MEMWATCH_TREE_UNOBSERVED_FAULTS)
        self._charged, self._file = places.get(prefix + "usage"), places.get(prefix + "file")
        self._window, self._watermark = places.get(prefix + "window"), places.get(prefix + "peak")
        self._gap = places.get(prefix + "window.gap")
        self._moved = [*self._total_places["read_bytes"], *self._total_places["write_bytes"]]
        self._shmem, self._kernel = places.get(prefix + "shmem"), places.get(prefix + "kernel")
        self._counters = [p for counters in self._total_places.values() for p in counters]

    def tick(self, snapshot: Snapshot) -> None:
        """Takes a tick in."""
        with self._lock:
            self._tick(snapshot)

    def _tick(self, snapshot: Snapshot) -> None:
        time, values = snapshot.time, snapshot.values
        if self._last_time is not None:
            gap = time - self._last_time
            if self._longest_gap is None or gap > self._longest_gap:
                self._longest_gap = gap
        else:
            self.first_tick = time - self.basis.started
        self.ticks += 1
        self.missed += snapshot.missed
        self.last_tick = time - self.basis.started
        for place_, maximum in self._largest:
            value = values[place_]
            if value is not None and (maximum.value is None or value > maximum.value):
                maximum.take(time, int(value))
        for place_ in self._counters:
            if values[place_] is not None:
                self._totals[place_] = self._since.of(place_, values[place_])
        self._fold_main(time, values)
        self._fold_bounds(time, values)
        self._fold_cgroup(time, values)
        self._devices.take(time, values)
        self._last_time = self._facts.last = time
        self.lives.settle(time)

    def _fold_main(self, time: float, values: Sequence[Value]) -> None:
        main = self.lives.main
        if main is None or main.end is not None:
            return
        rss, peak = _at(values, self._main_rss), _at(values, self._main_peak)
        if rss is not None and rss > main.low:
            self.lives.raise_to(main, rss, time)
        if peak is not None and peak > main.low:
            self.lives.raise_watermark(main, peak, time)

    def _fold_bounds(self, time: float, values: Sequence[Value]) -> None:
        total, faults = _at(values, self._unobserved_place), self._unseen_faults(values)
        more = max(0, (total or 0) - self._unobserved)
        if self._bound is not None:
            self._facts.stretches.tick(time, _at(values, self._bound), more)
        self._close_unseen(faults)
        if more:
            begin = self.basis.started if self._last_time is None else self._last_time
            self._facts.unseen = Span(begin, time, 0, more)
            self._unseen_before = faults
            self._unobserved += more
            self._facts.unobserved = self._unobserved

    def _close_unseen(self, faults: int | None) -> None:
        """Takes in the processes that no tick saw until the tick before.

        What of them was waited for while that tick was taken is in the page faults of this one.
        """
        unseen, before = self._facts.unseen, self._unseen_before
        self._facts.unseen = None
        if unseen is not None:
            known = faults is not None and before is not None
            allowed = ((before or 0) + (faults or 0)) * self.basis.fault_bytes
            self.lives.past.add(unseen._replace(cap=min(UNCAPPED, allowed)) if known else unseen)

    def _unseen_faults(self, values: Sequence[Value]) -> int | None:
        """Page faults of unseen processes since the tick before; `None`: not known."""
        total, self._faults = _at(values, self._faults_place), self._faults
        if total is None:
            return None
        more, self._faults = max(0, total - self._faults), total
        return more

    def _fold_cgroup(self, time: float, values: Sequence[Value]) -> None:
        charged, file = _at(values, self._charged), _at(values, self._file)
        if charged is not None and file is not None:
            self._facts.needed.take(time, max(0, charged - file))
        if self._watermark is not None:
            self._facts.watermark_read = values[self._watermark] is not None
        if self.basis.own_cgroup:
            self._facts.take_window(self._facts.windows.take(self._reading(time, values)))
        shmem, kernel = _at(values, self._shmem), _at(values, self._kernel)
        if shmem is not None and kernel is not None:
            self._facts.unmapped.take(time, shmem + kernel)

    def _reading(self, time: float, values: Sequence[Value]) -> Reading:
        """What this tick tells of the run's own control group."""
        moved = [value for value in (_at(values, place_) for place_ in self._moved) if value is not None]
        return Reading(
            time,
            _at(values, self._charged),
            _at(values, self._window),
            None if self._gap is None else values[self._gap],
            _at(values, self._watermark),
            _at(values, self._file),
            sum(moved) if moved and len(moved) == len(self._moved) else None,
        )

    def process(self, record: ProcessRecord) -> None:
        """Takes in what is known of a process."""
        with self._lock:
            self.lives.take(record)

    def boundaries(self, lines: Iterable[OperationLines]) -> None:
        """Takes in the maxima between the boundaries of operations so far.

        Needed before `peaks` where processes reset their own watermark: what the kernel tells afterwards is only
        the maximum since the last reset.
        """
        with self._lock:
            for line in lines:
                if line.largest is not None:
                    self.lives.segment(line.pid, line.start, *line.largest)

    @property
    def tree_low(self) -> int | None:
        """Bytes that the tree certainly needed at its worst so far; `None`: nothing known. Cheap."""
        return tree_low(self._facts)

    def peaks(self, operations: Iterable[Operation] = (), *, whole: bool = True) -> Peaks:
        """The peaks so far, each with the innermost of `operations` that was open when it was reached.

        `whole` false: the recording stopped before the run did, and what could have grown since has no upper bound.
        """
        with self._lock:
            peaks = judge(self._facts, whole=whole)._replace(gpu=self._devices.peaks(self.basis.started))
        return place(peaks, tuple(operations), self.basis.started, self.basis.interval)

    def totals(self) -> dict[str, float | None]:
        """Totals of the tree so far: the last values of the counters, and the processes seen and not seen.

        They are those of the recorded time: what was used before it is not in them.
        """
        totals: dict[str, float | None] = {}
        for name, places in self._total_places.items():
            known = [v for v in (self._totals.get(p) for p in places) if v is not None]
            totals[name] = round(sum(known), 6) if known else None
        totals["processes"] = None if self.basis.blind else self.lives.seen or None
        told = self._unobserved_place is not None and self.ticks > 0
        totals["unseen_processes"] = self._unobserved if told else None
        return totals

    def quality(self) -> dict[str, float | None]:
        """How well it was recorded so far."""
        hertz = None
        if self.ticks > 1 and self.first_tick is not None and self.last_tick is not None:
            seconds = self.last_tick - self.first_tick
            hertz = round((self.ticks - 1) / seconds, 3) if seconds > 0 else None
        if hertz is not None and self.basis.interval:
            # The last tick is taken when the target ends, whenever that is.
            hertz = min(hertz, round(1 / self.basis.interval, 3))
        return {
            "interval": self.basis.interval or None,
            "achieved_hz": hertz,
            "ticks": self.ticks,
            "missed_ticks": self.missed,
            "longest_gap": None if self._longest_gap is None else round(self._longest_gap, 4),
        }


def _at(values: Sequence[Value], place: int | None) -> int | None:
    """The value at a place; `None` when there is no such column, or no value."""
    if place is None:
        return None
    value = values[place]
    return None if value is None else int(value)
