"""Every tick as OpenMetrics text with timestamps: what `promtool tsdb create-blocks-from openmetrics` takes.

Names are those of the Prometheus endpoint; `job` and `instance` are the service's name and instance, as in the series
that Prometheus makes of OTLP. `target_info`, with which dashboards join, is there too, and whether the run was active.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator

from otel_memwatch import catalog
from otel_memwatch.analysis.spans import resource_of
from otel_memwatch.catalog import METRICS, Instrument, Metric, prometheus_names
from otel_memwatch.reports.formatting import clean
from otel_memwatch.runtime.typed import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from otel_memwatch.analysis import Run
    from otel_memwatch.model import Column
    from otel_memwatch.reports import Options

_STEP = 60.0
"""Seconds between samples of what does not change; Prometheus looks back five minutes."""

_TYPES = {Instrument.COUNTER: "counter", Instrument.UP_DOWN_COUNTER: "gauge", Instrument.GAUGE: "gauge"}


def render(run: Run, out: BinaryIO, options: Options) -> None:  # noqa: ARG001 - every report is called alike
    """Writes metric by metric, as the format demands."""
    resource = resource_of(run.info)
    common = {
        "job": _job(resource),
        "instance": str(resource.get("service.instance.id") or run.info.get("id") or ""),
    }
    samples = run.samples()
    by_name: dict[str, list[Column]] = {}
    for column in samples.columns:  # those of sources that were opened late, too
        if column.metric in METRICS and METRICS[column.metric].instrument in _TYPES:
            by_name.setdefault(column.metric, []).append(column)
    for name in sorted(by_name):
        _family(out, METRICS[name])
        for column in by_name[name]:
            times, values = samples.known(column)
            labels = _labels({**common, **dict(column.attributes)})
            _write(out, _series(METRICS[name], labels, times + run.started_wall, values))
    _peaks(run, out, common)
    _state(run, out, common)
    _info(run, out, {**{name: str(value) for name, value in resource.items()}, **common})
    out.write(b"# EOF\n")


def _job(resource: dict[str, object]) -> str:
    namespace, name = resource.get("service.namespace"), str(resource.get("service.name") or "")
    return f"{namespace}/{name}" if namespace else name


def _family(out: BinaryIO, metric: Metric) -> None:
    name = prometheus_names(metric)[0]
    base = name.removesuffix("_total") if metric.instrument is Instrument.COUNTER else name
    out.write(
        f"# TYPE {base} {_TYPES[metric.instrument]}\n# HELP {base} {_escape(metric.description)}\n".encode()
    )


def _series(metric: Metric, labels: str, times: Iterable[float], values: Iterable[float]) -> Iterator[str]:
    name = prometheus_names(metric)[0] + labels
    before = -math.inf
    for time, value in zip(times, values, strict=True):
        # Two points of one millisecond are one to Prometheus.
        stamp = round(float(time), 3)
        if stamp > before:
            yield f"{name} {_number(float(value))} {stamp:.3f}\n"
            before = stamp


def _write(out: BinaryIO, lines: Iterator[str]) -> None:
    out.writelines(line.encode("utf-8", "replace") for line in lines)


def _peaks(run: Run, out: BinaryIO, common: dict[str, str]) -> None:
    """The peaks that are known at the end; the source's own peak is a column."""
    end = run.started_wall + run.seconds
    for name, peak in (
        (catalog.MEMWATCH_TREE_MEMORY_PEAK, run.peaks.tree),
        (catalog.MEMWATCH_TREE_PROCESS_MEMORY_PEAK, run.peaks.process),
    ):
        if peak is not None:
            _family(out, METRICS[name])
            labels = _labels({**common, "memwatch.certainty": peak.certainty.value})
            _write(out, _series(METRICS[name], labels, [end], [peak.bytes]))


def _moments(run: Run) -> list[float]:
    """From the start to the end of the run, the end included; Unix seconds."""
    steps = int(run.seconds // _STEP) + 1
    return [*(run.started_wall + place * _STEP for place in range(steps)), run.started_wall + run.seconds]


def _state(run: Run, out: BinaryIO, common: dict[str, str]) -> None:
    """That it was active, and how it ended, where that is known."""
    *before, end = _moments(run)
    ended = run.state == "finished"
    active, code = METRICS[catalog.MEMWATCH_RUN_ACTIVE], METRICS[catalog.MEMWATCH_RUN_EXIT_CODE]
    _family(out, active)
    values = [1.0] * len(before) + [0.0 if ended else 1.0]
    _write(out, _series(active, _labels(common), [*before, end], values))
    value = run.ending.shell_code
    if ended and value is not None:
        _family(out, code)
        _write(out, _series(code, _labels(common), [end], [value]))


def _info(run: Run, out: BinaryIO, attributes: dict[str, str]) -> None:
    out.write(b"# TYPE target info\n# HELP target Who the run is.\n")
    _write(out, (f"target_info{_labels(attributes)} 1 {moment:.3f}\n" for moment in _moments(run)))


def _labels(attributes: dict[str, str]) -> str:
    parts = (
        f'{re.sub(r"[^A-Za-z0-9_]+", "_", name)}="{_escape(value)}"'
        for name, value in attributes.items()
        if value
    )
    return "{" + ",".join(parts) + "}"


def _escape(text: str) -> str:
    # The format forbids no control character; a terminal, or a log that is parsed line by line, obeys them.
    return "\\n".join(clean(line).replace("\\", "\\\\").replace('"', '\\"') for line in text.split("\n"))


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)
