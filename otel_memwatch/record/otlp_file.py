"""Runs from OTLP JSON lines that otel-memwatch exported, directly or through a Collector's file exporter.

Every number series becomes a column, every span an operation. Times are Unix seconds throughout: such a file contains
no other clock. Histograms do not fit into a sample and are skipped.
"""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from otel_memwatch import catalog
from otel_memwatch.errors import RunError
from otel_memwatch.model import Column, Peak, ProcessRecord, RecordedOperation, Value
from otel_memwatch.record.fields import mapping, moment, number, text, texts, whole
from otel_memwatch.record.format import FINISHED, METRICS_OTLP_FILE, SCHEMA, TRACES_OTLP_FILE
from otel_memwatch.record.jsonl import Damage, objects
from otel_memwatch.record.reader import Record
from otel_memwatch.record.samples import Samples
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple
from otel_memwatch.truth.partial_records import PEAK_FIELDS, exported_peak

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.record.operation_index import OperationTable
    from otel_memwatch.record.operation_lines import OperationLines, OperationRow

_ERROR = 2

_VALUES = 16_000_000
_VALUES_PER_POINT = 16
"""Limit of moments times series in a file: a fixed number, plus a number for each of its points.

Values exported together share one moment. A few megabytes of series without common moments would represent terabytes.
"""

_PEAKS = {
    "tree": (
        catalog.MEMWATCH_TREE_MEMORY_PEAK,
        catalog.MEMWATCH_TREE_MEMORY_PEAK_HIGH,
        "memwatch.memory",
    ),
    "process": (
        catalog.MEMWATCH_TREE_PROCESS_MEMORY_PEAK,
        catalog.MEMWATCH_TREE_PROCESS_MEMORY_PEAK_HIGH,
        "memwatch.process.memory",
    ),
    "main": (catalog.MEMWATCH_PROCESS_MEMORY_PEAK, "", "memwatch.main.memory"),
    "cgroup": ("", "", "memwatch.cgroup.memory"),
}
"""Each peak of a run: metrics of its lower and upper bound, and prefix of its attributes on the run's span."""


PEAK_METADATA = "memwatch.peak."
"""Prefix of the metadata of a peak's metrics, which identifies no series."""


class ServiceInstance(NamedTuple):
    """Attributes that distinguish the resources of a file."""

    service: str
    instance: str

    def __str__(self) -> str:
        return f"{self.service} {self.instance}".strip()


class Contents:
    """Content of the lines of one or more files, by resource."""

    def __init__(self) -> None:
        self.attributes: dict[ServiceInstance, dict[str, Any]] = {}
        self._points: dict[ServiceInstance, dict[Column, tuple[array[float], array[float]]]] = {}
        self._spans: dict[ServiceInstance, list[RecordedOperation]] = {}
        self._metadata: dict[ServiceInstance, dict[str, dict[str, Any]]] = {}

    @property
    def resources(self) -> list[ServiceInstance]:
        """Return all resources, the one with most data first."""

        def size(resource: ServiceInstance) -> int:
            series = self._points.get(resource, {}).values()
            return sum(len(times) for times, _ in series) + len(self._spans.get(resource, ()))

        return sorted(self.attributes, key=size, reverse=True)

    def is_of_run(self, resource: ServiceInstance) -> bool:
        """Return whether otel-memwatch exported it: the resource or a span of it names a run."""
        return "memwatch.run.id" in self.attributes[resource] or any(
            "memwatch.run.id" in span.attributes for span in self.spans(resource)
        )

    def series(self, resource: ServiceInstance) -> dict[Column, tuple[array[float], array[float]]]:
        """Return times (Unix seconds) and values of every series."""
        return self._points.get(resource, {})

    def metadata(self, resource: ServiceInstance, metric: str) -> Mapping[str, Any]:
        """Return the metadata of a metric from its last request, such as the certainty of a peak."""
        return self._metadata.get(resource, {}).get(metric, {})

    def spans(self, resource: ServiceInstance) -> list[RecordedOperation]:
        """Return the spans as operations, times in Unix seconds."""
        return self._spans.get(resource, [])

    def add(self, line: Mapping[str, Any]) -> bool:
        """Add a line; return whether it was OTLP of a known signal."""
        known = False
        for group in _list(line, "resourceMetrics"):
            known = True
            resource = self._resource(group)
            series = self._points.setdefault(resource, {})
            for scope in _list(group, "scopeMetrics"):
                for metric in _list(scope, "metrics"):
                    _add_metric(series, metric)
                    if "metadata" in metric:
                        described = self._metadata.setdefault(resource, {})
                        described[text(metric.get("name")) or ""] = _attributes(metric, "metadata")
        for group in _list(line, "resourceSpans"):
            known = True
            resource = self._resource(group)
            pid = whole(self.attributes[resource].get("process.pid")) or 0
            spans = self._spans.setdefault(resource, [])
            for scope in _list(group, "scopeSpans"):
                for span in _list(scope, "spans"):
                    operation = _operation(span, pid, len(spans) + 1)
                    if operation is not None:
                        spans.append(operation)
        return known or "resourceLogs" in line

    def _resource(self, group: Mapping[str, Any]) -> ServiceInstance:
        attributes = _attributes(mapping(group.get("resource")))
        resource = ServiceInstance(
            str(attributes.get("service.name") or ""), str(attributes.get("service.instance.id") or "")
        )
        self.attributes.setdefault(resource, attributes)
        return resource


def read_contents(paths: Iterable[Path], damages: Mapping[str, Damage]) -> Contents:
    """Read files of JSON lines; count a line that is not OTLP in the file's damage."""
    contents = Contents()
    for path in paths:
        damage = damages[path.name]
        for line in objects(path, damage):
            if not contents.add(line):
                damage.lines += 1
    return contents


class OtlpRecord(Record):
    """A run with samples from OTLP lines.

    Args:
        path: run directory, or a file of lines.
        info: its `run.json`, if it has one.
    """

    def __init__(self, path: Path, info: Mapping[str, Any] | None = None) -> None:
        files = (
            [path]
            if os.path.isfile(path)
            else [path / name for name in (METRICS_OTLP_FILE, TRACES_OTLP_FILE)]
        )
        files = [file for file in files if os.path.exists(file)]
        damages = {file.name: Damage(file.name) for file in files}
        contents = read_contents(files, damages)
        resources = contents.resources
        if not resources:
            raise RunError(
                f"{path} holds no OTLP JSON lines.",
                "otel-memwatch export RUN --to otlp writes them",
            )
        if os.path.isfile(path):  # our local exporter writes a directory, from the program's telemetry
            ours = [one for one in resources if contents.is_of_run(one)]
            if not ours:
                raise RunError(
                    f"{path} was not exported by otel-memwatch: no resource in it has memwatch.run.id.",
                    "read it with the program that wrote it",
                )
            resources = [*ours, *(one for one in resources if one not in ours)]
        self._resource = resources[0]
        self._contents = contents
        self._series = contents.series(self._resource)
        spans = contents.spans(self._resource)
        self._run_span = next((span for span in spans if "memwatch.run.id" in span.attributes), None)
        self._spans = [span for span in spans if span is not self._run_span]
        if len(resources) > 1:
            others = ", ".join(str(resource) for resource in resources[1:4])
            damages[files[0].name].other.append(
                f"{path} holds {len(resources)} services; {self._resource} was read, left out: {others}"
                + (" ..." if len(resources) > 4 else ".")
            )
        described = self._description(path, contents.attributes[self._resource], info or {})
        super().__init__(path if os.path.isdir(path) else path.parent, described)
        self._damage.update(damages)

    def _description(
        self, path: Path, resource: Mapping[str, Any], info: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        times = [t for series, _ in self._series.values() for t in (series[0], series[-1])]
        spans = [*self._spans, *([self._run_span] if self._run_span else [])]
        times += [t for span in spans for t in (span.start, span.end or span.start)]
        start, end = min(times, default=0.0), max(times, default=0.0)
        began = moment(mapping(info.get("started")).get("wall"))
        start = start if began is None else min(began, start)
        identifier = text(resource.get("memwatch.run.id")) or self._resource.instance or path.stem
        span, trace = self._run_span, {}
        if span is not None:
            trace = {
                "trace_id": span.trace_id,
                "span_id": span.span_id,
                "parent_span_id": span.parent_span_id,
            }
        # The interval is the median distance of the points of the longest series.
        longest = max((series[0] for series in self._series.values()), key=len, default=array("d"))
        steps = sorted(after - before for before, after in pairwise(longest))
        interval = round(steps[len(steps) // 2], 6) if steps else None
        return {
            "schema": SCHEMA,
            "id": identifier,
            "command": [self._resource.service or path.stem],
            "host": {"name": resource.get("host.name"), "system": resource.get("os.type")},
            "target": {"pid": whole(resource.get("process.pid"))},
            "monitor": {"mode": "otlp"},
            **info,
            "state": FINISHED,
            "started": {"wall": start, "monotonic": start},
            "ended": {"wall": end, "monotonic": end},
            "interval": interval,
            "resource": dict(resource),
            "exit": self._exit(),
            "peaks": self._peaks(),
            "trace": trace,
        }

    def _peaks(self) -> dict[str, Any] | None:
        """Return the peaks that the run itself exported, with their certainty; `None`: none, the samples provide them."""
        attributes, ended = self._run_span.attributes if self._run_span else {}, self._exit()
        peaks: dict[str, Any] = {}
        for which, (low, high, prefix) in _PEAKS.items():
            found: Mapping[str, Any] = {
                name: attributes.get(f"{prefix}.{name}") for name in ("peak", *PEAK_FIELDS)
            }
            if found["peak"] is None:
                # The peak is in two metrics: in their metadata, or in an attribute of older versions.
                (least, certainty), (most, _) = self._last(low), self._last(high)
                metadata = {
                    name.removeprefix(PEAK_METADATA): value
                    for metric in (high, low)
                    for name, value in self._contents.metadata(self._resource, metric).items()
                }
                value = most if least is None else least
                found = {"certainty": certainty, "high": most, **metadata, "peak": value}
            # Without an end the value is the peak so far: it may have grown later.
            peak = _peak(found, ended=ended is not None)
            peaks[which] = None if peak is None else peak.to_json()
        return {**peaks, "gpu": {}} if peaks["tree"] else None

    def _last(self, metric: str) -> tuple[int | None, str | None]:
        """Return the last value of a metric, and the certainty that older versions exported as its attribute."""
        for column, (_, values) in self._series.items():
            if column.metric == metric and values:
                return int(values[-1]), dict(column.attributes).get("memwatch.certainty")
        return None, None

    def _exit(self) -> dict[str, Any] | None:
        if self._run_span is not None:
            attributes = self._run_span.attributes
            names = {
                "exit_code": "process.exit.code",
                "signal": "memwatch.exit.signal",
                "oom_kills": "memwatch.oom_kills",
            }
            known: dict[str, Any] = {field: whole(attributes.get(name)) for field, name in names.items()}
            return {**known, "reason": text(attributes.get("memwatch.exit.reason"))}
        for column, (_, values) in self._series.items():
            if column.metric == catalog.MEMWATCH_RUN_EXIT_CODE:
                code = int(values[-1])
                signal = code - 128 if 128 < code < 160 else None
                return {"exit_code": None if signal else code, "signal": signal, "oom_kills": None}
        return None

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """Return all number series."""
        return tuple(self._series)

    def sample_values(self) -> Iterator[tuple[float, tuple[Value, ...]]]:
        """Yield every moment with a measurement, and the values of that moment."""
        samples = self.samples()
        arrays = [samples.values(column) for column in self.columns]
        for index, time in enumerate(samples.time):
            values = tuple(
                None if math.isnan(a[index]) else int(a[index]) if a[index].is_integer() else float(a[index])
                for a in arrays
            )
            yield float(time) + self.started, values

    def samples(self, metrics: Iterable[str] | None = None) -> Samples:  # noqa: ARG002 - all are in memory
        """Return the samples as numpy arrays."""
        import numpy as np

        if self._samples is None:
            everything = np.unique(np.round(np.array([t for s, _ in self._series.values() for t in s]), 6))
            points = sum(len(times) for times, _ in self._series.values())
            if len(everything) * len(self._series) > _VALUES + _VALUES_PER_POINT * points:
                raise RunError(
                    f"{self.path} holds {len(self._series)} series of {len(everything)} different moments: they make no table.",
                    "give each job a file of its own",
                )
            values = {}
            for column, (times, numbers) in self._series.items():
                row = np.full(len(everything), math.nan)
                row[np.searchsorted(everything, np.round(np.array(times), 6))] = np.array(numbers)
                values[column] = row
            self._samples = Samples(everything - self.started, self.columns, values)
        return self._samples

    def process_records(self) -> Iterator[ProcessRecord]:
        """Return no records: OTLP has one process only, in its series."""
        return iter(())

    @property
    def marked(self) -> bool:
        """Return whether spans other than the run's span exist."""
        return bool(self._spans)

    has_operations = marked

    @cached_property
    def operation_table(self) -> OperationTable:
        """Return all spans, by their start."""
        from otel_memwatch.record.operation_index import ListedOperations

        return ListedOperations(self._spans)

    def operation_rows(self) -> Iterator[OperationRow]:
        """Yield the rows of all operations by their start."""
        return map(self.operation_table.row, range(len(self.operation_table)))

    @property
    def operation_lines(self) -> Sequence[OperationLines]:
        """Return no lines: no process wrote boundaries."""
        return []


class SpannedRecord(Record):
    """A run with a record of its operations, and spans that a program exported into the directory."""

    @property
    def marked(self) -> bool:
        """Return true: spans are read as operations."""
        return True

    @property
    def has_operations(self) -> bool:
        """Return whether any operation was recorded or exported."""
        return len(self.operation_table) > 0

    @cached_property
    def operation_table(self) -> OperationTable:
        """Return the operations of the run, and the spans that do not belong to any of them."""
        from otel_memwatch.record.operation_index import ListedOperations

        own = list(self._read_operations[0])
        known = {operation.span_id for operation in own}
        damage = Damage(TRACES_OTLP_FILE)
        contents = read_contents([self.path / TRACES_OTLP_FILE], {TRACES_OTLP_FILE: damage})
        self._damage[TRACES_OTLP_FILE] = damage
        offset = (moment(mapping(self.info.get("started")).get("wall")) or 0.0) - self.started
        spans = [
            span._replace(start=span.start - offset, end=None if span.end is None else span.end - offset)
            for resource in contents.resources
            for span in contents.spans(resource)
            if span.span_id not in known
        ]
        return ListedOperations([*own, *spans])

    def operation_rows(self) -> Iterator[OperationRow]:
        """Yield the rows of all operations by their start."""
        return map(self.operation_table.row, range(len(self.operation_table)))


def _peak(found: Mapping[str, Any], *, ended: bool = True) -> Peak | None:
    """Return a peak from its exported fields: `peak`, and those of `PEAK_FIELDS` that are present."""
    value = whole(found.get("peak"))
    if value is None:
        return None
    low, high, estimate = (whole(found.get(name)) for name in ("low", "high", "estimate"))
    peak = exported_peak(value, text(found.get("certainty")), low, high, estimate, ended=ended)
    excluded_bytes = whole(found.get("excluded_bytes")) or 0
    return peak and peak._replace(excludes=texts(found.get("excludes")), excluded_bytes=excluded_bytes)


def _add_metric(series: dict[Column, tuple[array[float], array[float]]], metric: Mapping[str, Any]) -> None:
    name = text(metric.get("name"))
    data = mapping(metric.get("sum")) or mapping(metric.get("gauge"))
    if not name:
        return
    for point in _list(data, "dataPoints"):
        nanoseconds = _integer(point.get("timeUnixNano"))
        value = number(point.get("asDouble"))
        if value is None:
            value = _integer(point.get("asInt"))
        if nanoseconds is None or value is None:
            continue
        column = Column(name, tuple(sorted((key, str(item)) for key, item in _attributes(point).items())))
        times, values = series.setdefault(column, (array("d"), array("d")))
        times.append(nanoseconds / 1e9)
        values.append(float(value))


def _operation(span: Mapping[str, Any], pid: int, number: int) -> RecordedOperation | None:
    start, end = _integer(span.get("startTimeUnixNano")), _integer(span.get("endTimeUnixNano"))
    name, trace, identity = (text(span.get(key)) for key in ("name", "traceId", "spanId"))
    if start is None or not name or not trace or not identity:
        return None
    attributes = _attributes(span)
    peak = {name: attributes.get(f"memwatch.memory.{name}") for name in ("peak", *PEAK_FIELDS)}
    return RecordedOperation(
        name=name,
        pid=whole(attributes.pop("process.pid", None)) or pid,
        id=number,
        start=start / 1e9,
        end=None if end is None else end / 1e9,
        status="error" if whole(mapping(span.get("status")).get("code")) == _ERROR else "ok",
        trace_id=trace.lower(),
        span_id=identity.lower(),
        parent_span_id=(text(span.get("parentSpanId")) or "").lower() or None,
        peak=_peak(peak),
        start_bytes=whole(attributes.get("memwatch.memory.start")),
        end_bytes=whole(attributes.get("memwatch.memory.end")),
        attributes=attributes,
        exported=True,
    )


def _attributes(carrier: Mapping[str, Any], key: str = "attributes") -> dict[str, Any]:
    result: dict[str, Any] = {}
    for item in _list(carrier, key):
        name = text(item.get("key"))
        if name:
            result[name] = _plain(mapping(item.get("value")))
    return result


def _plain(value: Mapping[str, Any]) -> Any:
    if "intValue" in value:
        return _integer(value["intValue"])
    if "arrayValue" in value:
        return [_plain(mapping(item)) for item in _list(mapping(value["arrayValue"]), "values")]
    for key in ("stringValue", "boolValue", "doubleValue", "bytesValue"):
        if key in value:
            return value[key]
    return None


def _integer(value: Any) -> int | None:
    """Return an integer from a number or text: OTLP writes 64-bit numbers as text; readers accept both."""
    if isinstance(value, str):
        try:
            return whole(int(value))
        except ValueError:
            return None
    return whole(value)


def _list(value: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    items = value.get(key)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
