"""Span processor that makes the program's OpenTelemetry spans operations. It runs in the watched program.

A program that configures its tracing adds one line::

    provider.add_span_processor(OperationSpanProcessor())

Under `opentelemetry-instrument`, the entry point `follow_spans` adds it. Disable it, like any instrumentation, with
`OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=memwatch`. Outside a run it does nothing.
"""

from __future__ import annotations

import os

from opentelemetry import context, propagate, trace
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.trace import Status, StatusCode

from otel_memwatch.in_target.operations import tracing
from otel_memwatch.in_target.operations.context import trouble
from otel_memwatch.in_target.operations.recorder import get_recorder
from otel_memwatch.record.format import RUN_DIRECTORY_VARIABLE
from otel_memwatch.record.operation_writer import clean_name
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, Span

    from otel_memwatch.in_target.operations.operation_values import LiveOperation


class OperationSpanProcessor(SpanProcessor):
    """Processor that opens an operation with every recorded span, closes it with the span, and sets its figures.

    The SDK freezes a span before it notifies its processors of the end. Therefore each span gets an `end` method that
    sets the figures and then calls the SDK's. If the span ends another way, its operation is closed without figures on
    the span. No error reaches the program, even if the SDK changes.
    """

    def __init__(self) -> None:
        self._open: dict[int, LiveOperation] = {}

    def on_start(self, span: Span, parent_context: context.Context | None = None) -> None:  # noqa: ARG002 - the SDK's signature
        """Open an operation for a span, unless an operation has just created this span."""
        try:
            here = None if tracing.making.now else get_recorder()
            ids = tracing.span_ids(span) if here is not None else None
            if here is None or ids is None:
                return
            begins = span.parent is None or span.parent.is_remote
            if begins and here.root_span is not None and ids[0] != here.trace:
                # The first span of another trace, such as a request to a service: link it with the run's span.
                run_span = trace.SpanContext(int(here.trace, 16), int(here.root_span, 16), is_remote=True)
                span.add_link(run_span)
            live = here.open(clean_name(span.name)[0], None, None, ids)
            self._open[span.get_span_context().span_id] = live
            _Ending(span, live)
        except Exception as error:  # noqa: BLE001 - the SDK passes exceptions on to the program
            trouble(error)

    def on_end(self, span: ReadableSpan) -> None:
        """Close the operation if the span's `end` method has not closed it."""
        try:
            identity = span.get_span_context()
            live = self._open.pop(identity.span_id, None) if identity is not None else None
            if live is not None and not live.closed:
                live.recorder.close(live, _error_type(span), dict(span.attributes or {}))
        except Exception as error:  # noqa: BLE001 - as above
            trouble(error)

    def shutdown(self) -> None:
        """Do nothing, because no resources are held."""

    def force_flush(self, timeout_millis: int = 30000) -> bool:  # noqa: ARG002 - the SDK's signature
        """Return true, because nothing is buffered."""
        return True


class _Ending:
    """Replacement for the `end` method of one span: closes its operation, sets the figures, and ends the span."""

    __slots__ = ("_live", "_span")

    def __init__(self, span: Span, live: LiveOperation) -> None:
        self._span = span
        self._live = live
        span.end = self  # type: ignore[method-assign]

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        span, live = self._span, self._live
        try:
            del span.end  # restores the SDK's method and leaves no reference cycle
            if live.recorder.close(live, _error_type(span), dict(span.attributes or {})):
                figures = live.figures
                if figures is not None:
                    span.set_attributes(tracing.span_attributes(figures))
        except Exception as trouble_with_us:  # noqa: BLE001 - as above
            trouble(trouble_with_us)
        span.end(*args, **kwargs)


def _error_type(span: ReadableSpan) -> str | None:
    """Return the exception type of a failed span: the last recorded one, or from its attributes. `None`: no failure."""
    status: Status | None = span.status
    if status is None or status.status_code is not StatusCode.ERROR:
        return None
    for event in reversed(span.events or ()):
        kind = (event.attributes or {}).get("exception.type")
        if kind:
            return str(kind).rpartition(".")[2]
    return str((span.attributes or {}).get("error.type") or "error")


def follow_spans() -> None:
    """Add the span processor. Entry point `opentelemetry_post_instrument`, called after the tracer provider is set."""
    disabled = os.environ.get("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "").replace(" ", "").split(",")
    if "memwatch" in disabled or "*" in disabled:
        return
    try:
        add = getattr(trace.get_tracer_provider(), "add_span_processor", None)
        if add is not None:
            add(OperationSpanProcessor())
            _continue_run()
    except Exception as error:  # noqa: BLE001 - an exception would make the loader stop all instrumentation
        trouble(error)


def _continue_run() -> None:
    """Make the run's span the parent of the main thread's spans, because the SDK does not read `TRACEPARENT`."""
    carrier = {
        name.lower(): value for name in ("TRACEPARENT", "TRACESTATE") if (value := os.environ.get(name))
    }
    if (
        get_recorder() is None
        or "traceparent" not in carrier
        or trace.get_current_span().get_span_context().is_valid
    ):
        return
    extracted: context.Context | None = propagate.extract(carrier)
    if extracted is not None:  # `None` without a propagator
        context.attach(_as_sampled(extracted))


def _as_sampled(extracted: context.Context) -> context.Context:
    """Return the run's context, sampled only if the program's sampler would sample a trace of this id.

    A sampler that follows the parent would otherwise sample every span below the run's span. A program that keeps one
    trace in a hundred would pay for all of them. If the run's span has a parent, the parent's decision applies.
    """
    run = tracing.RunTrace(os.environ.get(RUN_DIRECTORY_VARIABLE, ""))
    parent = trace.get_current_span(extracted).get_span_context()
    sampler = getattr(trace.get_tracer_provider(), "sampler", None)
    if sampler is None or run.parent or trace.format_span_id(parent.span_id) != run.span:
        return extracted
    if sampler.should_sample(context.Context(), parent.trace_id, "").decision.is_sampled():
        return extracted
    unsampled = trace.SpanContext(
        parent.trace_id, parent.span_id, parent.is_remote, trace.TraceFlags(0), parent.trace_state
    )
    return trace.set_span_in_context(trace.NonRecordingSpan(unsampled), extracted)
