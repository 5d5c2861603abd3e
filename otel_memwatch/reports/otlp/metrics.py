"""Samples of a run as OTLP metrics."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator, Mapping

from otel_memwatch import catalog
from otel_memwatch.catalog import BOUNDS, METRICS, Instrument
from otel_memwatch.record.otlp_file import PEAK_METADATA
from otel_memwatch.reports.otlp.values import Json, Times, attributes, request
from otel_memwatch.run.conditions import RunConditions
from otel_memwatch.run.counter_rebase import CounterRebase, counters_in
from otel_memwatch.run.figures import bounded_at_end
from otel_memwatch.run.growth import exported
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.truth.partial_records import exported_fields

if TYPE_CHECKING:
    from otel_memwatch.model import Column, Value
    from otel_memwatch.run import RecordedRun

_POINTS_PER_LINE = 4000
"""Points of one request, about 600 kB. The Collector's file receiver skips lines above 1 MiB."""

_CUMULATIVE = 2


def metric_requests(run: RecordedRun, chosen: Container[str] | None = None) -> Iterator[Mapping[str, Any]]:
    """Yield requests with all samples, then one with the final figures: peaks, exit code, operations.

    `chosen`: names of the metrics to include; `None`: all.
    """
    wanted: Container[str] = METRICS if chosen is None else chosen
    times = Times(run)
    columns = run.record.columns
    rebase = CounterRebase(counters_in(columns) if RunConditions.of(run.info).joined else ())
    batch = _Batch(columns, times, wanted)
    for time, values in run.record.sample_values():
        batch.add(times.of(time), map(rebase.of, columns, values))
        if batch.points >= _POINTS_PER_LINE:
            yield request(run, "Metrics", "metrics", batch.metrics())
            batch = _Batch(columns, times, wanted)
    if batch.points:
        yield request(run, "Metrics", "metrics", batch.metrics())
    last = [metric for metric in _final(run, times) if metric["name"] in wanted]
    if last:
        yield request(run, "Metrics", "metrics", last)


class _Batch:
    """Points of some samples, series by series."""

    def __init__(self, columns: tuple[Column, ...], times: Times, wanted: Container[str]) -> None:
        self.points = 0
        self._columns = columns
        self._times = times
        self._attributes = [attributes(dict(column.attributes)) for column in columns]
        self._series: list[list[Json]] = [[] for _ in columns]
        self._wanted = [column.metric in wanted and column.metric in METRICS for column in columns]

    def add(self, time: str, values: Iterable[Value]) -> None:
        for index, value in enumerate(values):
            if value is not None and self._wanted[index]:
                self._series[index].append(
                    _point(
                        self._columns[index].metric, self._attributes[index], value, time, self._times.start
                    )
                )
                self.points += 1

    def metrics(self) -> Iterator[Json]:
        by_name: dict[str, list[Json]] = {}
        for column, points in zip(self._columns, self._series, strict=True):
            by_name.setdefault(column.metric, []).extend(points)
        for name, points in by_name.items():
            if points:
                yield _metric(name, points)


def _metric(name: str, points: list[Json]) -> Json:
    row = METRICS[name]
    described: Json = {"name": name, "unit": row.unit, "description": row.description}
    if row.instrument is Instrument.GAUGE:
        return {**described, "gauge": {"dataPoints": points}}
    data: Json = {"dataPoints": points, "aggregationTemporality": _CUMULATIVE}
    if row.instrument is Instrument.HISTOGRAM:
        return {**described, "histogram": data}
    if row.instrument is Instrument.COUNTER:
        data["isMonotonic"] = True
    return {**described, "sum": data}


def _point(metric: str, labels: list[Json], value: Value, time: str, start: str) -> Json:
    point: Json = {"timeUnixNano": time}
    if labels:
        point["attributes"] = labels
    row = METRICS.get(metric)
    if row is not None and row.instrument is not Instrument.GAUGE:
        point["startTimeUnixNano"] = start
    if isinstance(value, float):
        point["asDouble"] = value
    else:
        point["asInt"] = str(value)
    return point


def _final(run: RecordedRun, times: Times) -> Iterator[Json]:
    """Yield the metrics that the live export sends at the end."""

    def single(name: str, value: Value, labels: Mapping[str, str]) -> Json:
        return _metric(name, [_point(name, attributes(labels), value, times.end, times.start)])

    peaks = run.peaks
    of_metric = {
        catalog.MEMWATCH_TREE_MEMORY_PEAK: peaks.tree,
        catalog.MEMWATCH_TREE_MEMORY_PEAK_HIGH: peaks.tree,
        catalog.MEMWATCH_TREE_PROCESS_MEMORY_PEAK: peaks.process,
        catalog.MEMWATCH_TREE_PROCESS_MEMORY_PEAK_HIGH: peaks.process,
        catalog.MEMWATCH_PROCESS_MEMORY_PEAK: peaks.main,
    }
    values = list(bounded_at_end(run))
    if peaks.main is not None:
        values.append((catalog.MEMWATCH_PROCESS_MEMORY_PEAK, peaks.main.bytes))
    for name, value in values:
        metric, peak = single(name, value, {}), of_metric.get(name)
        if peak is not None:  # metadata identifies no series, unlike attributes
            metric["metadata"] = attributes(exported_fields(peak, PEAK_METADATA))
        yield metric
    if run.state == "finished":
        yield single(catalog.MEMWATCH_RUN_ACTIVE, 0, {})
        yield single(catalog.MEMWATCH_RUN_END_TIME, run.started_wall + run.seconds, {})
    ending = run.ending
    code = ending.shell_code
    if code is not None:
        yield single(catalog.MEMWATCH_RUN_EXIT_CODE, code, {})
    stalled = [
        _point(catalog.MEMWATCH_RUN_STALLED, attributes({"memwatch.pressure.resource": name}), share, times.end, times.start)
        for name, share in run.stalls.by_resource().items()
    ]  # fmt: skip
    if stalled:
        yield _metric(catalog.MEMWATCH_RUN_STALLED, stalled)
    for name, points in exported(run.findings).items():
        if points:
            yield _metric(
                name,
                [_point(name, attributes(more), value, times.end, times.start) for more, value in points],
            )
    yield from _operations(run, times)


_Series = list[tuple[Mapping[str, str], Any]]
"""Attributes and value of each series of a metric."""


def _operations(run: RecordedRun, times: Times) -> Iterator[Json]:
    """Yield metrics of operations by name: count, time and largest peak, then histograms of durations and peaks."""
    durations: dict[tuple[str, str], list[float]] = {}
    seconds: dict[str, float] = {}
    peaks: dict[str, list[float]] = {}
    for operation in (figures.operation for figures in run.iterate_operations()):
        if operation.end is not None:
            duration = max(0.0, operation.end - operation.start)
            durations.setdefault((operation.name, operation.status), []).append(duration)
        if operation.peak is not None:
            peaks.setdefault(operation.name, []).append(operation.peak.bytes)
    for (name, _), values in durations.items():
        seconds[name] = seconds.get(name, 0.0) + sum(values)
    named, status = "memwatch.operation.name", "memwatch.operation.status"
    by_status: _Series = [({named: name, status: how}, values) for (name, how), values in durations.items()]
    by_name: _Series = [({named: name}, values) for name, values in peaks.items()]
    totals: dict[str, _Series] = {
        catalog.MEMWATCH_OPERATION_COUNT: [(labels, len(values)) for labels, values in by_status],
        catalog.MEMWATCH_OPERATION_TIME: [({named: name}, total) for name, total in seconds.items()],
        catalog.MEMWATCH_OPERATION_MEMORY_PEAK_MAX: [
            (labels, int(max(values))) for labels, values in by_name
        ],
    }
    points = {
        metric: [
            _point(metric, attributes(labels), value, times.end, times.start) for labels, value in series
        ]
        for metric, series in totals.items()
    }
    for metric, series in (
        (catalog.MEMWATCH_OPERATION_DURATION, by_status),
        (catalog.MEMWATCH_OPERATION_MEMORY_PEAK, by_name),
    ):
        points[metric] = [_histogram(metric, labels, values, times) for labels, values in series]
    for metric, of_metric in points.items():
        if of_metric:
            yield _metric(metric, of_metric)


def _histogram(metric: str, labels: Mapping[str, str], values: list[float], times: Times) -> Json:
    bounds = BOUNDS[metric]
    counts = [0] * (len(bounds) + 1)
    for value in values:
        counts[bisect_left(bounds, value)] += 1
    return {
        "attributes": attributes(labels),
        "startTimeUnixNano": times.start,
        "timeUnixNano": times.end,
        "count": str(len(values)),
        "sum": float(sum(values)),
        "min": float(min(values)),
        "max": float(max(values)),
        "bucketCounts": [str(count) for count in counts],
        "explicitBounds": list(bounds),
    }
