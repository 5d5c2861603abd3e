"""Run in the text format of Prometheus (OpenMetrics): every sample, or only the final figures.

* Every sample, with timestamps, is input for `promtool tsdb create-blocks-from openmetrics`. Names match the Prometheus
  endpoint. `job` and `instance` are the service's name and instance, like in series that Prometheus makes from OTLP.
  `target_info`, which dashboards join, and the active state of the run are included.
* The final figures, one per line, are input for GitLab, which compares branches by name and labels. So their labels are
  the same in every run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping

from otel_memwatch import catalog
from otel_memwatch.catalog import METRICS, Instrument, prometheus_names
from otel_memwatch.run.figures import at_end, bounded_at_end
from otel_memwatch.run.growth import exported
from otel_memwatch.run.spans import resource_of
from otel_memwatch.runtime.typed import TYPE_CHECKING, BinaryIO
from otel_memwatch.text import clean

if TYPE_CHECKING:
    from otel_memwatch.model import Column
    from otel_memwatch.reports import Options
    from otel_memwatch.run import RecordedRun

_STEP = 60.0
"""Seconds between points of constant series; Prometheus looks back five minutes."""

_TYPES = {Instrument.COUNTER: "counter", Instrument.UP_DOWN_COUNTER: "gauge", Instrument.GAUGE: "gauge"}


def render(run: RecordedRun, out: BinaryIO, options: Options) -> None:
    """Write every sample; with `options["at_end"]` only the final figures."""
    lines = _figures_at_end(run) if options.get("at_end") else _every_sample(run)
    out.writelines(line.encode() for line in lines)
    out.write(b"# EOF\n")


# -- the figures at the end


def _figures_at_end(run: RecordedRun) -> Iterator[str]:
    """Yield the lines of the figures at the end."""
    # Largest peak of the operations of one name; each is the peak of the operation's process.
    largest: dict[str, int] = {}
    for operation in (figures.operation for figures in run.iterate_operations()):
        if operation.peak is not None:
            largest[operation.name] = max(operation.peak.bytes, largest.get(operation.name, 0))
    metric = catalog.MEMWATCH_OPERATION_MEMORY_PEAK
    peaks = [(metric, {"memwatch.operation.name": name}, peak) for name, peak in sorted(largest.items())]
    before = ""
    for name, labels, value in (*at_end(run), *_stalled(run), *peaks):
        if name != before:
            yield _head(name)
            before = name
        yield f"{prometheus_names(METRICS[name])[0]}{_labels(labels)} {_number(value)}\n"


# -- every sample


def _every_sample(run: RecordedRun) -> Iterator[str]:
    """Yield lines metric by metric: the format requires this order."""
    resource = resource_of(run.info)
    service = str(resource.get("service.name") or "")
    namespace = resource.get("service.namespace")
    common = {
        "job": f"{namespace}/{service}" if namespace else service,
        "instance": str(resource.get("service.instance.id") or run.fields.id or ""),
    }
    samples = run.samples()
    by_name: dict[str, list[Column]] = {}
    for column in samples.columns:  # includes sources that opened late
        if column.metric in METRICS and METRICS[column.metric].instrument in _TYPES:
            by_name.setdefault(column.metric, []).append(column)
    for name in sorted(by_name):
        yield _head(name)
        for column in by_name[name]:
            times, values = samples.known(column)
            yield from _series(name, {**common, **dict(column.attributes)}, times + run.started_wall, values)
    # Bounds that are known at the end. The main process's peak is a column.
    for name, value in bounded_at_end(run):
        yield _head(name)
        yield from _series(name, common, [run.started_wall + run.seconds], [value])
    # Times from the start to the end of the run, including the end.
    steps, end = int(run.seconds // _STEP) + 1, run.started_wall + run.seconds
    before = [run.started_wall + step * _STEP for step in range(steps)]
    ended, code = run.state == "finished", run.ending.shell_code
    if ended:
        yield _head(catalog.MEMWATCH_RUN_END_TIME)
        yield from _series(catalog.MEMWATCH_RUN_END_TIME, common, [end], [end])
    yield _head(catalog.MEMWATCH_RUN_ACTIVE)
    active = [1.0] * len(before) + [0.0 if ended else 1.0]
    yield from _series(catalog.MEMWATCH_RUN_ACTIVE, common, [*before, end], active)
    if ended and code is not None:
        yield _head(catalog.MEMWATCH_RUN_EXIT_CODE)
        yield from _series(catalog.MEMWATCH_RUN_EXIT_CODE, common, [end], [code])
    if stalled := _stalled(run):
        yield _head(catalog.MEMWATCH_RUN_STALLED)
    for name, of_resource, share in stalled:
        yield from _series(name, {**common, **of_resource}, [end], [share])
    yield from _findings(run, common, end)
    yield "# TYPE target info\n# HELP target Who the run is.\n"
    labels = _labels({**{name: str(value) for name, value in resource.items()}, **common})
    yield from (f"target_info{labels} 1 {moment:.3f}\n" for moment in (*before, end))


def _stalled(run: RecordedRun) -> list[tuple[str, dict[str, str], float]]:
    """Return metric, attributes and value of each known share of the time without progress."""
    shares = run.stalls.by_resource()
    return [
        (catalog.MEMWATCH_RUN_STALLED, {"memwatch.pressure.resource": resource}, share)
        for resource, share in shares.items()
    ]


def _findings(run: RecordedRun, common: Mapping[str, str], end: float) -> Iterator[str]:
    """Yield leaks and memory that allocators keep, at the end of the run."""
    for name, points in exported(run.findings).items():
        if points:
            yield _head(name)
        for attributes, value in points:
            yield from _series(name, {**common, **attributes}, [end], [value])


def _series(
    name: str, labels: Mapping[str, str], times: Iterable[float], values: Iterable[float]
) -> Iterator[str]:
    series = prometheus_names(METRICS[name])[0] + _labels(labels)
    before = -math.inf
    for time, value in zip(times, values, strict=True):
        # Prometheus accepts one point per millisecond.
        stamp = round(float(time), 3)
        if stamp > before:
            yield f"{series} {_number(value)} {stamp:.3f}\n"
            before = stamp


# -- the format


def _head(name: str) -> str:
    """Return the two lines before the series of a metric. In OpenMetrics the family of a counter lacks "_total"."""
    metric = METRICS[name]
    family = prometheus_names(metric)[0]
    if metric.instrument is Instrument.COUNTER:
        family = family.removesuffix("_total")
    kind = _TYPES.get(metric.instrument, "gauge")
    return f"# TYPE {family} {kind}\n# HELP {family} {_escape(metric.description)}\n"


def _labels(attributes: Mapping[str, str]) -> str:
    """Return attributes as labels. Empty ones are omitted: Prometheus treats them as absent."""
    parts = [
        f'{re.sub(r"[^A-Za-z0-9_]+", "_", name)}="{_escape(value)}"'
        for name, value in attributes.items()
        if value
    ]
    return f"{{{','.join(parts)}}}" if parts else ""


def _escape(text: str) -> str:
    # The format allows control characters, but terminals and line-based log parsers interpret them.
    return "\\n".join(clean(line).replace("\\", "\\\\").replace('"', '\\"') for line in text.split("\n"))


def _number(value: float) -> str:
    value = float(value)
    return str(int(value)) if value.is_integer() else repr(value)
