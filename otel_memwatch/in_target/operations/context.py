"""Current operation of a context: open an operation below it, and close one with its phases."""

from __future__ import annotations

from contextvars import ContextVar
from sys import modules

from otel_memwatch.in_target.operations import tracing
from otel_memwatch.in_target.operations.journal import warn_once
from otel_memwatch.in_target.operations.recorder import may_set_context
from otel_memwatch.record.operation_writer import LONGEST_NAME, clean_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_memwatch.in_target.operations.operation_values import LiveOperation
    from otel_memwatch.in_target.operations.recorder import Recorder

current: ContextVar[LiveOperation | None] = ContextVar("otel_memwatch_operation", default=None)
"""Innermost operation of the current context. It may be closed, or belong to the parent of a forked process."""

open_phases: dict[LiveOperation, None] = {}
"""Open phases in order of their start, including those of the parent of a forked process."""


def begin(recorder: Recorder, name: object, attributes: Mapping[str, object] | None) -> LiveOperation:
    """Open an operation below the current one, as a span of the program's tracer if it has one."""
    if type(name) is not str or not 0 < len(name) <= LONGEST_NAME:
        name, is_usable = clean_name(name)
        if not is_usable:
            warn_once(
                "name",
                "the name of an operation is empty, too long or not text; it is recorded in a changed form.",
            )
    parent = current.get()
    while parent is not None and parent.closed:
        parent = parent.parent
    if "opentelemetry.trace" in modules:
        span = tracing.start(name, attributes)
        if span is not None:
            live = recorder.open(name, attributes, parent, span.ids)
            live.program_span = span
            return live
    return recorder.open(name, attributes, parent)


def end(
    live: LiveOperation, error: BaseException | None, attributes: Mapping[str, object] | None = None
) -> None:
    """Close the phases inside an operation, the operation, and its span."""
    inner = live.phase
    if inner is not None and not inner.closed:
        end(inner, None)
    if live.is_phase:
        open_phases.pop(live, None)
    span = live.program_span
    if span is not None and may_set_context():
        span.detach()
    # A closed generator and sys.exit() are normal ends.
    is_orderly = isinstance(error, GeneratorExit) or (
        isinstance(error, SystemExit) and error.code in {None, 0}
    )
    failed = error is not None and not is_orderly
    closed = live.recorder.close(live, type(error).__name__ if failed else None, attributes)
    if span is not None and closed:
        span.end(live.figures, error if failed else None)


def trouble(error: BaseException) -> None:
    """Warn once that an operation is missing from the record."""
    warn_once("trouble", f"cannot record an operation: {type(error).__name__}: {error}.")
