"""Spans of the run and of its operations, with the ids in the record.

They are built whole, at their end: the SDK's tracer would assign new ids and the current time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    TraceFlags,
    TraceState,
    set_span_in_context,
)
from opentelemetry.trace.status import Status, StatusCode

from otel_memwatch._version import __version__
from otel_memwatch.run.spans import (
    SCHEMA_URL,
    SCOPE,
    operation_attributes,
    run_attributes,
    run_failed,
    run_name,
)
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.resources import Resource

    from otel_memwatch.model import RecordedOperation


class Spans:
    """Builder of the spans of one run.

    Args:
        run: fields of run.json known at the start: `trace`, `started`, `command`, `id`, `target`, `ci`.
        resource: resource of the spans.

    """

    def __init__(self, run: Mapping[str, Any], resource: Resource) -> None:
        self._run = run
        self._resource = resource
        trace = run["trace"]
        self._trace_id: str = trace["trace_id"]
        self._span_id: str = trace["span_id"]
        self._parent: str | None = trace.get("parent_span_id")
        self._flags = TraceFlags(int(str(trace.get("flags") or "01"), 16))
        self._state = TraceState.from_header([str(trace.get("state") or "")])
        started = run["started"]
        self._offset = float(started["wall"]) - float(started["monotonic"])
        self._started = float(started["monotonic"])
        self._scope = InstrumentationScope(SCOPE, __version__, SCHEMA_URL)

    @property
    def sampled(self) -> bool:
        """Return whether the trace that the run continues is sampled, hence exported."""
        return bool(self._flags & TraceFlags.SAMPLED)

    def context_of(self, operation: RecordedOperation) -> Context:
        """Return the OpenTelemetry context of an operation; measurements recorded in it become exemplars."""
        return set_span_in_context(NonRecordingSpan(self._context(operation.trace_id, operation.span_id)))

    def context_of_run(self) -> Context:
        """Return the context of the run's span."""
        return set_span_in_context(NonRecordingSpan(self._context(self._trace_id, self._span_id)))

    def of_operation(self, operation: RecordedOperation) -> ReadableSpan:
        """Return the span of a closed operation; one that was never closed ends with the record and says so."""
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

    def of_run(
        self, end: float, ending: Any, peaks: Any, roots: Sequence[tuple[str, str]] = ()
    ) -> ReadableSpan:
        """Return the span of the whole run, which ended at `end` (monotonic seconds) with the result `ending`.

        `roots` are trace and span ids of spans that the program sent. Those that began separate traces are linked.
        """
        events = []
        if ending is not None and ending.oom_kills:
            events.append(
                Event("memwatch.oom_kill", {"memwatch.oom_kills": ending.oom_kills}, self._nanoseconds(end))
            )
        return ReadableSpan(
            run_name(self._run),
            context=self._context(self._trace_id, self._span_id),
            parent=self._context(self._trace_id, self._parent, remote=True) if self._parent else None,
            resource=self._resource,
            attributes=run_attributes(self._run, ending, peaks),
            links=[
                Link(self._context(trace, span, remote=True))
                for trace, span in roots
                if trace != self._trace_id
            ],
            events=events,
            kind=SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, ending.reason)
            if run_failed(ending)
            else Status(StatusCode.UNSET),
            start_time=self._nanoseconds(self._started),
            end_time=self._nanoseconds(end),
            instrumentation_scope=self._scope,
        )

    def _context(self, trace_id: str, span_id: str, *, remote: bool = False) -> SpanContext:
        state = self._state if trace_id == self._trace_id else None
        return SpanContext(
            int(trace_id, 16), int(span_id, 16), is_remote=remote, trace_flags=self._flags, trace_state=state
        )

    def _nanoseconds(self, monotonic: float) -> int:
        return int((monotonic + self._offset) * 1e9)
