"""Trace events in JSON for ui.perfetto.dev and chrome://tracing: curves, operations, processes.

A curve has at most `POINTS` pairs of points: the smallest and the largest value of each stretch. No peak is lost.
"""

from __future__ import annotations

from collections.abc import Iterator

from otel_memwatch.catalog import METRICS, Instrument
from otel_memwatch.run.spans import operation_attributes, run_name
from otel_memwatch.runtime import strict_json
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from otel_memwatch.model import Column
    from otel_memwatch.record.samples import Samples
    from otel_memwatch.reports import Options
    from otel_memwatch.run import RecordedRun

Json = dict[str, Any]

POINTS = 20_000

_CURVES = 1
"""Process id of the curves in the trace. A recorded tree has no process 1, except for its init."""


def render(run: RecordedRun, out: BinaryIO, options: Options) -> None:  # noqa: ARG001 - every report is called alike
    """Write the events one by one."""
    head = {"displayTimeUnit": "ms", "otherData": {"run": run.fields.id or ""}}
    out.write(strict_json.dumps(head)[:-1].encode() + b', "traceEvents": [\n')
    separator = b""
    for event in _events(run):
        out.write(separator + strict_json.dumps(event, separators=(",", ":")).encode())
        separator = b",\n"
    out.write(b"\n]}\n")


def _events(run: RecordedRun) -> Iterator[Json]:
    yield _name(_CURVES, f"run {run_name(run.info)}")
    yield {
        "ph": "X",
        "name": run_name(run.info),
        "pid": _CURVES,
        "tid": 0,
        "ts": 0,
        "dur": _micro(run.seconds),
    }
    for process in run.processes:
        yield _name(process.pid, process.command or str(process.pid))
        end = run.seconds if process.end is None else process.end
        start = max(0.0, process.start)
        details = {
            "peak_bytes": process.peak.bytes if process.peak else None,
            "cpu_seconds": process.cpu_seconds,
            "exit_code": process.exit_code,
            "signal": process.signal,
        }
        yield {
            "ph": "X",
            "name": process.command or str(process.pid),
            "cat": "process",
            "pid": process.pid,
            "tid": process.pid,
            "ts": _micro(start),
            "dur": _micro(max(0.0, end - start)),
            "args": {name: value for name, value in details.items() if value is not None},
        }
    # Operations are asynchronous events: those of one process may overlap in any way.
    for number, figures in enumerate(run.iterate_operations()):
        operation = figures.operation
        common = {
            "cat": "operation",
            "name": operation.name,
            "id": operation.span_id or str(number),
            "pid": operation.pid,
            "tid": operation.thread or operation.pid,
        }
        arguments = operation_attributes(operation)
        yield {**common, "ph": "b", "ts": _micro(figures.start), "args": arguments}
        yield {**common, "ph": "e", "ts": _micro(figures.end)}
    samples = run.samples()
    for column in samples.columns:
        if column.metric in METRICS:
            yield from _curve(samples, column)


def _curve(samples: Samples, column: Column) -> Iterator[Json]:
    """Yield a counter track: levels, or growing totals of counters."""
    reduced = samples.reduced(column, POINTS)
    attributes = ",".join(value for _, value in column.attributes)
    metric = METRICS[column.metric]
    unit = " (total)" if metric.instrument is Instrument.COUNTER else ""
    name = f"{column.metric}{f'[{attributes}]' if attributes else ''} {metric.unit}{unit}"
    for time, low, high in zip(reduced.time, reduced.low, reduced.high, strict=True):
        for value in (low,) if low == high else (low, high):
            yield {
                "ph": "C",
                "name": name,
                "pid": _CURVES,
                "ts": _micro(float(time)),
                "args": {"value": float(value)},
            }


def _name(pid: int, name: str) -> Json:
    return {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}


def _micro(seconds: float) -> float:
    return round(seconds * 1e6, 1)
