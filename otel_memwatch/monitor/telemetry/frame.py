"""Values of a run at one moment, fixed once for each collection, and the catalogue as OpenTelemetry instruments of them.

Nothing here reads the machine. If a source hangs, the last snapshot stays in place; a scrape costs the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial

from opentelemetry.metrics import CallbackOptions, Observation

from otel_memwatch import catalog
from otel_memwatch.catalog import BOUNDS, METRICS, Instrument
from otel_memwatch.model import Attributes, Column, RecordedOperation, Snapshot, Value
from otel_memwatch.run.growth import GrowthFinding, exported
from otel_memwatch.runtime.kernel import PAGE_SIZE, read_once
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, Meter


Series = tuple[Value, Mapping[str, str]]
"""A value with its attributes."""

MAX_NAMES = 100
"""Operation names with separate series."""

OTHER = "(other)"
"""Name for all further operations."""


class Names:
    """Operation names that become series, bounded in number."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def bounded(self, name: str) -> str:
        """Return `name`, or `OTHER` if there are `MAX_NAMES` already."""
        if name in self._known:
            return name
        if len(self._known) >= MAX_NAMES:
            return OTHER
        self._known.add(name)
        return name


class Frame:
    """Values of the run for telemetry.

    Args:
        columns: columns of the snapshots.
        latest: returns the latest snapshot, or `None` before the first.
        health: returns the state of each source (`up`, `seconds`, `failures`), by name.
        ticks: returns the samples taken and deadlines missed so far.
        peaks: returns the peaks so far, with the attributes `tree` and `process`; may return `None`, or raise.
        stalls: returns shares of the time without progress so far, by resource.
        findings: returns leaks, and memory that allocators keep.
        failures: returns the batches that each exporter could not deliver.

    """

    def __init__(
        self,
        columns: Sequence[Column],
        latest: Callable[[], Snapshot | None],
        *,
        health: Callable[[], Mapping[str, Any]],
        ticks: Callable[[], tuple[int, int]],
        peaks: Callable[[], Any],
        stalls: Callable[[], Mapping[str, float]] = dict,
        findings: Callable[[], Sequence[GrowthFinding]] = list,
        failures: Callable[[], Mapping[str, int]],
    ) -> None:
        self.columns: tuple[Column, ...] = ()
        self.names = Names()
        self._latest = latest
        self._health = health
        self._ticks = ticks
        self._peaks = peaks
        self._stalls = stalls
        self._findings = findings
        self._failures = failures
        self._values: Sequence[Value] = ()
        self._moment_peaks: Any = None
        self._open: dict[str, int] = {}
        self._closed: dict[tuple[str, str], int] = {}
        self._seconds: dict[str, float] = {}
        self._largest: dict[str, int] = {}
        self._final: dict[tuple[str, Attributes], Value] = {}
        self._exit_code: int | None = None
        self._ended: float | None = None
        self._indexes: dict[str, list[int]] = {}
        self.running = True
        self.set_columns(columns)

    def set_columns(self, columns: Sequence[Column]) -> None:
        """Set the columns of the snapshots. Later calls add columns behind those so far."""
        indexes: dict[str, list[int]] = {}
        for index, column in enumerate(columns):
            indexes.setdefault(column.metric, []).append(index)
        self.columns = tuple(columns)
        self._indexes = indexes

    def metrics(self) -> tuple[str, ...]:
        """Return the metrics that have columns, in their order."""
        return tuple(self._indexes)

    def pin(self) -> None:
        """Keep the latest snapshot: all values until the next call belong to one moment."""
        snapshot = self._latest()
        self._values = () if snapshot is None else snapshot.values
        try:
            self._moment_peaks = self._peaks()
        except Exception:  # noqa: BLE001 - the sampling thread may be changing the aggregator
            return

    def set_open(self, names: Sequence[str]) -> None:
        """Set the open operations. A name that was open once stays, with 0: its series continues."""
        counts = dict.fromkeys(self._open, 0)
        for name in names:
            bounded = self.names.bounded(name)
            counts[bounded] = counts.get(bounded, 0) + 1
        self._open = counts

    def add_closed(self, operation: RecordedOperation) -> None:
        """Count a closed operation."""
        name = self.names.bounded(operation.name)
        self._closed[name, operation.status] = self._closed.get((name, operation.status), 0) + 1
        if operation.end is not None:
            seconds = max(0.0, operation.end - operation.start)
            self._seconds[name] = self._seconds.get(name, 0.0) + seconds
        if operation.peak is not None:
            self._largest[name] = max(operation.peak.bytes, self._largest.get(name, 0))

    def end(
        self,
        exit_code: int | None,
        peaks: Any,
        main_peak: int | None,
        stalls: Mapping[str, float],
        ended: float,
    ) -> None:
        """Set the result of the run and its end in Unix seconds; these values replace those of the last sample."""
        self.running = False
        self._ended = ended
        self._exit_code = exit_code
        self._open = dict.fromkeys(self._open, 0)
        if peaks is not None:
            self._peaks = lambda: peaks
        self._stalls = lambda: stalls
        if main_peak is not None:
            self._final[catalog.MEMWATCH_PROCESS_MEMORY_PEAK, ()] = main_peak

    def latest_values(self, series: Sequence[tuple[str, Attributes]]) -> list[Value]:
        """Return values at the latest sample for columns given by metric and attributes; `None`: unknown."""
        snapshot = self._latest()
        known: dict[tuple[str, Attributes], Value] = {}
        if snapshot is not None:
            known = {
                (column.metric, column.attributes): value
                for column, value in zip(self.columns, snapshot.values, strict=False)
            }
        return [known.get(one) for one in series]

    def column(self, index: int) -> Value:
        """Return the value of a column at the pinned moment; `None`: unknown."""
        column = self.columns[index]
        final = self._final.get((column.metric, column.attributes))
        if final is not None:
            return final
        return self._values[index] if index < len(self._values) else None

    def series_of(self, metric: str) -> Iterator[Series]:
        """Yield a metric's value at the pinned moment for each of its columns."""
        for index in self._indexes[metric]:
            yield self.column(index), dict(self.columns[index].attributes)

    def own_series(self) -> dict[str, Callable[[], Iterator[Series]]]:
        """Return the metrics without a column, each with the callable that yields its series."""
        return {
            catalog.MEMWATCH_TREE_MEMORY_PEAK: lambda: self._peak("tree"),
            catalog.MEMWATCH_TREE_MEMORY_PEAK_HIGH: lambda: self._peak_high("tree"),
            catalog.MEMWATCH_TREE_PROCESS_MEMORY_PEAK: lambda: self._peak("process"),
            catalog.MEMWATCH_TREE_PROCESS_MEMORY_PEAK_HIGH: lambda: self._peak_high("process"),
            catalog.MEMWATCH_RUN_ACTIVE: lambda: iter([(int(self.running), {})]),
            catalog.MEMWATCH_RUN_EXIT_CODE: lambda: iter([(self._exit_code, {})]),
            catalog.MEMWATCH_RUN_STALLED: lambda: (
                (share, {"memwatch.pressure.resource": resource})
                for resource, share in self._stalls().items()
            ),
            catalog.MEMWATCH_RUN_LEAK: lambda: self._judged(catalog.MEMWATCH_RUN_LEAK),
            catalog.MEMWATCH_RUN_HANDLE_LEAK: lambda: self._judged(catalog.MEMWATCH_RUN_HANDLE_LEAK),
            catalog.MEMWATCH_RUN_KEPT: lambda: self._judged(catalog.MEMWATCH_RUN_KEPT),
            catalog.MEMWATCH_RUN_END_TIME: lambda: iter([(self._ended, {})]),
            catalog.MEMWATCH_OPERATION_ACTIVE: lambda: self._by_name(self._open),
            catalog.MEMWATCH_OPERATION_COUNT: self._counts,
            catalog.MEMWATCH_OPERATION_TIME: lambda: self._by_name(self._seconds),
            catalog.MEMWATCH_OPERATION_MEMORY_PEAK_MAX: lambda: self._by_name(self._largest),
            catalog.MEMWATCH_SOURCE_UP: lambda: self._sources("up"),
            catalog.MEMWATCH_SOURCE_DURATION: lambda: self._sources("seconds"),
            catalog.MEMWATCH_SOURCE_FAILURES: lambda: self._sources("failures"),
            catalog.MEMWATCH_SAMPLER_TICKS: lambda: iter([(self._ticks()[0], {})]),
            catalog.MEMWATCH_SAMPLER_MISSED: lambda: iter([(self._ticks()[1], {})]),
            catalog.MEMWATCH_EXPORT_FAILURES: lambda: (
                (count, {"memwatch.exporter.name": name}) for name, count in self._failures().items()
            ),
            catalog.MEMWATCH_MONITOR_CPU_TIME: lambda: iter([(time.process_time(), {})]),
            catalog.MEMWATCH_MONITOR_MEMORY_USAGE: lambda: iter([(_own_memory(), {})]),
        }

    def _peak(self, which: str) -> Iterator[Series]:
        peak = getattr(self._moment_peaks, which, None)
        if peak is not None and peak.low is not None:  # otherwise only the upper bound is known
            yield peak.bytes, {}

    def _peak_high(self, which: str) -> Iterator[Series]:
        peak = getattr(self._moment_peaks, which, None)
        if peak is not None:
            yield peak.high, {}

    def _judged(self, metric: str) -> Iterator[Series]:
        for attributes, value in exported(self._findings())[metric]:
            yield value, attributes

    def _by_name(self, values: Mapping[str, Value]) -> Iterator[Series]:
        # Copy in one step: another thread adds to it.
        for name, value in dict(values).items():
            yield value, {"memwatch.operation.name": name}

    def _counts(self) -> Iterator[Series]:
        for (name, status), count in dict(self._closed).items():
            yield count, {"memwatch.operation.name": name, "memwatch.operation.status": status}

    def _sources(self, field: str) -> Iterator[Series]:
        for name, health in self._health().items():
            value = getattr(health, field)
            yield (int(value) if isinstance(value, bool) else value), {"memwatch.source.name": name}


def _own_memory() -> int | None:
    """Return the resident bytes of this process, from a file that never makes the reader wait."""
    try:
        return int(read_once("/proc/self/statm").split()[1]) * PAGE_SIZE
    except (OSError, ValueError, IndexError):
        return None


def create_instruments(meter: Meter, frame: Frame, chosen: Container[str]) -> Mapping[str, Histogram]:
    """Create the instruments of all `chosen` metrics on `meter`; return the histograms by name.

    The columns and the bounds of `Frame` fix the number of series, for any process tree. Metrics of the catalogue
    without a source in the run do not appear.
    """
    every = {**frame.own_series(), **_of_columns(frame)}
    found = [(name, series) for name, series in every.items() if name in chosen]
    for number, (name, series) in enumerate(found):
        _observe(meter, name, series if number else _pinning(frame, series))
    return {
        name: meter.create_histogram(
            name,
            unit=METRICS[name].unit,
            description=METRICS[name].description,
            explicit_bucket_boundaries_advisory=bounds,
        )
        for name, bounds in BOUNDS.items()
        if name in chosen
    }


def join_columns(meter: Meter, frame: Frame, chosen: Container[str], columns: Sequence[Column]) -> None:
    """Export `columns`: those so far, and others behind them.

    A metric that already has an instrument gets more series; any other metric gets an instrument.
    """
    before = frame.metrics()
    frame.set_columns(columns)
    for name, series in _of_columns(frame).items():
        if name in chosen and name not in before:
            _observe(meter, name, series)


def _of_columns(frame: Frame) -> dict[str, Callable[[], Iterator[Series]]]:
    return {name: partial(frame.series_of, name) for name in frame.metrics()}


def _pinning(frame: Frame, series: Callable[[], Iterable[Series]]) -> Callable[[], Iterator[Series]]:
    """Return the first instrument's callback, which pins the frame for all: the SDK calls them in creation order."""

    def pinned() -> Iterator[Series]:
        frame.pin()
        yield from series()

    return pinned


def _observe(meter: Meter, name: str, series: Callable[[], Iterable[Series]]) -> None:
    metric = METRICS[name]
    create: Mapping[Instrument, Any] = {
        Instrument.COUNTER: meter.create_observable_counter,
        Instrument.UP_DOWN_COUNTER: meter.create_observable_up_down_counter,
        Instrument.GAUGE: meter.create_observable_gauge,
    }

    def callback(_options: CallbackOptions) -> Iterable[Observation]:
        try:
            return [Observation(value, attributes) for value, attributes in series() if value is not None]
        except Exception:  # noqa: BLE001 - the SDK would log a traceback at every collection
            return []

    create[metric.instrument](metric.name, [callback], unit=metric.unit, description=metric.description)
