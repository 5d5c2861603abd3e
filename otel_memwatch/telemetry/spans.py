"""Spans of the run and of its operations, with the ids that the record gave them.

They are built whole, at their end: the SDK's tracer would make ids of its own, and times of now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags, set_span_in_context
from opentelemetry.trace.status import Status, StatusCode

from otel_memwatch import __version__
from otel_memwatch.telemetry.instruments import SCHEMA_URL, SCOPE

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.resources import Resource

    from otel_memwatch.model import Operation, Peak

_TOTALS = {
    "cpu_seconds": "memwatch.cpu.time",
    "read_bytes": "memwatch.io.read",
    "write_bytes": "memwatch.io.write",
    "minor_faults": "memwatch.faults.minor",
    "major_faults": "memwatch.faults.major",
}

Attributes = dict[str, Any]


class Spans:
    """Makes the spans of one run.

    Args:
        run: fields of run.json known at the start: `trace`, `started`, `command`, `id`, `target`.
        resource: what the spans belong to.
        attributes: more attributes of the run's span, such as the CI run.

    """

    def __init__(self, run: Mapping[str, Any], resource: Resource, attributes: Mapping[str, Any]) -> None:
        self._run = run
        self._resource = resource
        self._attributes = dict(attributes)
        trace = run["trace"]
        self._trace_id: str = trace["trace_id"]
        self._span_id: str = trace["span_id"]
        self._parent: str | None = trace.get("parent_span_id")
        self._flags = TraceFlags(int(str(trace.get("flags") or "01"), 16))
        started = run["started"]
        self._offset = float(started["wall"]) - float(started["monotonic"])
        self._started = float(started["monotonic"])
        self._scope = InstrumentationScope(SCOPE, __version__, SCHEMA_URL)

    @property
    def sampled(self) -> bool:
        """Whether the trace that the run continues is to be exported."""
        return bool(self._flags & TraceFlags.SAMPLED)

    def context_of(self, operation: Operation) -> Context:
        """OpenTelemetry context in which the operation's measurements are recorded: it makes them exemplars."""
        return set_span_in_context(NonRecordingSpan(self._context(operation.trace_id, operation.span_id)))

    def of_operation(self, operation: Operation) -> ReadableSpan:
        """Span of a closed operation; one that was never closed ends with the record and says so."""
        end = operation.start if operation.end is None else operation.end
        parent = operation.parent_span_id or self._span_id
        failed = operation.status == "error"
        events = []
        if failed and operation.error:
            events.append(Event("exception", {"exception.type": operation.error}, self._nanoseconds(end)))
        return ReadableSpan(
            operation.name,
            context=self._context(operation.trace_id, operation.span_id),
            parent=self._context(operation.trace_id, parent),
            resource=self._resource,
            attributes=operation_attributes(operation),
            events=events,
            kind=SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, operation.error) if failed else Status(StatusCode.UNSET),
            start_time=self._nanoseconds(operation.start),
            end_time=self._nanoseconds(end),
            instrumentation_scope=self._scope,
        )

    def of_run(self, end: float, ending: Any, peaks: Any) -> ReadableSpan:
        """Span of the whole run, which ended at `end` (monotonic seconds) as `ending` says."""
        attributes = {
            **self._attributes,
            **self._identity(),
            **_ending_attributes(ending),
            **_peak_attributes(peaks),
        }
        events = []
        if ending is not None and ending.oom_kills:
            events.append(
                Event("memwatch.oom_kill", {"memwatch.oom_kills": ending.oom_kills}, self._nanoseconds(end))
            )
        failed = ending is not None and bool(ending.signal or ending.exit_code or ending.oom_kills)
        command = self._run.get("command") or ["run"]
        return ReadableSpan(
            str(command[0]).rpartition("/")[2] or "run",
            context=self._context(self._trace_id, self._span_id),
            parent=self._context(self._trace_id, self._parent, remote=True) if self._parent else None,
            resource=self._resource,
            attributes=attributes,
            events=events,
            kind=SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, ending.reason) if failed else Status(StatusCode.UNSET),
            start_time=self._nanoseconds(self._started),
            end_time=self._nanoseconds(end),
            instrumentation_scope=self._scope,
        )

    def _identity(self) -> Attributes:
        target = self._run.get("target") or {}
        pid = target.get("pid")
        return {"memwatch.run.id": str(self._run.get("id")), **({"process.pid": pid} if pid else {})}

    def _context(self, trace_id: str, span_id: str, *, remote: bool = False) -> SpanContext:
        return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=remote, trace_flags=self._flags)

    def _nanoseconds(self, monotonic: float) -> int:
        return int((monotonic + self._offset) * 1e9)


def operation_attributes(operation: Operation) -> Attributes:
    """Attributes of an operation's span: the program's own, then the figures that are known."""
    attributes: Attributes = {name: _plain(value) for name, value in operation.attributes.items()}
    attributes["process.pid"] = operation.pid
    if operation.start_bytes is not None:
        attributes["memwatch.memory.start"] = operation.start_bytes
    if operation.end_bytes is not None:
        attributes["memwatch.memory.end"] = operation.end_bytes
    if operation.start_bytes is not None and operation.end_bytes is not None:
        attributes["memwatch.memory.delta"] = operation.end_bytes - operation.start_bytes
    attributes.update(_peak("memwatch.memory", operation.peak))
    attributes.update({_TOTALS[name]: value for name, value in operation.totals.items() if name in _TOTALS})
    if operation.status == "open":
        attributes["memwatch.operation.open"] = True
    return attributes


def _peak(prefix: str, peak: Peak | None) -> Attributes:
    if peak is None:
        return {}
    return {f"{prefix}.peak": peak.bytes, f"{prefix}.certainty": peak.certainty.value}


def _ending_attributes(ending: Any) -> Attributes:
    if ending is None:
        return {}
    known = {
        "process.exit.code": ending.exit_code,
        "memwatch.exit.signal": ending.signal,
        "memwatch.oom_kills": ending.oom_kills,
        "memwatch.exit.reason": ending.reason,
    }
    return {name: value for name, value in known.items() if value is not None}


def _peak_attributes(peaks: Any) -> Attributes:
    attributes: Attributes = {}
    for prefix, which in (
        ("memwatch.memory", "tree"),
        ("memwatch.main.memory", "main"),
        ("memwatch.process.memory", "process"),
        ("memwatch.cgroup.memory", "cgroup"),
    ):
        attributes.update(_peak(prefix, getattr(peaks, which, None)))
    return attributes


def _plain(value: object) -> Any:
    """A value that OpenTelemetry takes as an attribute."""
    if isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, type(value[0])) for item in value):
        if isinstance(value[0], (str, bool, int, float)):
            return list(value)
    return str(value)
