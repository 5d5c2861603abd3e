"""Spans of the run and of its operations, with the ids in the record, and their delivery to an exporter.

They are built whole, at their end: the SDK's tracer would assign new ids and the current time.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, attach, set_value
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
from otel_memwatch.errors import describe
from otel_memwatch.run.spans import (
    SCHEMA_URL,
    SCOPE,
    operation_attributes,
    run_attributes,
    run_failed,
    run_name,
)
from otel_memwatch.runtime.threads import Thread
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.resources import Resource

    from otel_memwatch.model import RecordedOperation
    from otel_memwatch.monitor.telemetry.delivery import ExporterDelivery
    from otel_memwatch.record.follower import PollResult


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


_BATCH = 512
_DELAY = 5.0
"""Spans of one request, and seconds that fewer spans wait: the defaults of the OpenTelemetry specification."""

_POLL = 0.2
"""Seconds between two reads of the record."""


class Follower(Protocol):
    """Reads the operations of a run as they are recorded."""

    def poll(self) -> PollResult:
        """Return the operations closed since the last call, at most a few thousand."""

    def open_operations(self) -> Sequence[RecordedOperation]:
        """Return the operations open at the last call of `poll`."""


class SpanSender:
    """One exporter of spans and the thread that reads the record for it.

    The run directory holds every operation, so a queue is unnecessary. A thread reads a batch, sends it, and continues
    when the endpoint has accepted it. Each exporter has a separate sender, so a slow endpoint delays no other.

    Args:
        delivery: sends through the exporter; its `export` returns when a batch was accepted or cannot be delivered.
        follower: reads the operations from the first one on.
        span_of: makes the span of an operation; `None` if the program exports it itself.
        environ: holds the OTEL_BSP_* variables.

    """

    def __init__(
        self,
        delivery: ExporterDelivery,
        follower: Follower,
        span_of: Callable[[RecordedOperation], ReadableSpan | None],
        environ: Mapping[str, str],
    ) -> None:
        self.delivery = delivery
        self._follower = follower
        self._span_of = span_of
        self._batch = int(_positive(environ.get("OTEL_BSP_MAX_EXPORT_BATCH_SIZE")) or _BATCH)
        self._delay = (_positive(environ.get("OTEL_BSP_SCHEDULE_DELAY")) or _DELAY * 1000) / 1000
        self._until = math.inf
        self._last: Sequence[ReadableSpan] = ()
        self._running = threading.Event()
        self._running.set()
        self._ending = threading.Event()
        self._wake = threading.Event()
        self._thread = Thread(self._run, "otel-memwatch-spans")
        delivery.shut_down = lambda _: self._thread.join()

    def start(self) -> None:
        """Start to read the record."""
        self._thread.start()

    def pause(self) -> None:
        """Stop reading until `resume`: the monitor completes the record and needs the CPU."""
        self._running.clear()

    def resume(self) -> None:
        """Continue to read at once."""
        self._running.set()
        self._wake.set()

    def finish(self, last: Sequence[ReadableSpan], until: float) -> None:
        """Let the thread send the rest of the record, then the `last` spans; return at once.

        Args:
            last: spans that end with the run.
            until: monotonic seconds at which the thread stops reading; the `last` spans are sent even then.

        """
        self._last, self._until = last, until
        self._ending.set()
        self.resume()

    @property
    def arrived(self) -> int:
        """Return the number of spans that the endpoint has accepted."""
        return self.delivery.arrived

    def _run(self) -> None:
        # Instrumented HTTP libraries must not create spans for our requests.
        attach(set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
        try:
            self._send_record()
        except Exception as error:  # noqa: BLE001 - the run's own spans may still arrive
            with contextlib.suppress(Exception):
                self.delivery.failed(f"receives no more spans of operations: {describe(error)}")
            self._ending.wait()
        if self._last:
            self._send(self._last)

    def _send_record(self) -> None:
        waiting: list[ReadableSpan] = []
        due = time.monotonic() + self._delay
        while time.monotonic() < self._until:
            ending = self._ending.is_set()
            found = self._follower.poll()
            spans = map(self._span_of, found.closed)
            waiting += [span for span in spans if span is not None]
            whole = len(waiting) - len(waiting) % self._batch
            if time.monotonic() >= due or (ending and not found.behind):
                whole = len(waiting)
                due = time.monotonic() + self._delay
            if not self._send(waiting[:whole]):
                return
            del waiting[:whole]
            self._running.wait()
            if not found.behind:
                if ending:
                    return
                self._wake.wait(_POLL)
                self._wake.clear()

    def _send(self, spans: Sequence[ReadableSpan]) -> bool:
        """Send spans in batches; return whether to continue: at the end of the run one failure stops it."""
        for begin in range(0, len(spans), self._batch):
            if time.monotonic() >= self._until and spans is not self._last:
                return False
            accepted = False
            try:
                result = self.delivery.export(spans[begin : begin + self._batch])
                accepted = result.name == "SUCCESS"
            except Exception as error:  # noqa: BLE001 - a plug-in may raise anything; the next batch may arrive
                with contextlib.suppress(Exception):
                    self.delivery.failed(f"failed: {describe(error)}")
            if not accepted and self._ending.is_set():
                return False
        return True


def _positive(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 1 <= value < math.inf else None
