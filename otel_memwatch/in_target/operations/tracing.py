"""The program's own OpenTelemetry tracer, if it has configured one: operations become its spans.

Only the API is used, and only when the program has imported it; a program without a tracer provider of its own
pays one look into `sys.modules`.
"""

from __future__ import annotations

import sys
from _thread import _local

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from otel_memwatch.in_target.operations.opened import Figures
    from otel_memwatch.in_target.operations.recorder import Ids

PEAK = "memwatch.memory.peak"
START = "memwatch.memory.start"
END = "memwatch.memory.end"
DELTA = "memwatch.memory.delta"
CERTAINTY = "memwatch.memory.certainty"
READ = "memwatch.io.read"
WRITE = "memwatch.io.write"

_SCOPE = "otel_memwatch"


class _Making(_local):
    """Whether this thread is making a span for an operation, which a span processor must not make one again."""

    now = False


making = _Making()


class _Cache:
    provider: Any = None
    tracer: Any = None


def tracer() -> Any | None:
    """A tracer of the provider that the program has set; `None`: it has set none, or one that does nothing."""
    api = sys.modules.get("opentelemetry.trace")
    provider = getattr(api, "_TRACER_PROVIDER", None)
    if provider is None:
        return None
    if provider is not _Cache.provider:
        nothing = tuple(
            kind
            for name in ("ProxyTracerProvider", "NoOpTracerProvider")
            if (kind := getattr(api, name, None))
        )
        _Cache.tracer = None if isinstance(provider, nothing) else provider.get_tracer(_SCOPE)
        _Cache.provider = provider
    return _Cache.tracer


class NativeSpan:
    """A span of the program's tracer that stands for an operation."""

    __slots__ = ("_tokens", "ids", "span")

    def __init__(self, span: Any, ids: Ids) -> None:
        self.span = span
        self.ids = ids
        self._tokens: list[Any] = []

    def attach(self) -> None:
        """Make it the current span of the running context."""
        from opentelemetry import context, trace

        self._tokens.append(context.attach(trace.set_span_in_context(self.span)))

    def detach(self) -> None:
        """Undo the last `attach`. In another context there is nothing to undo."""
        if not self._tokens:
            return
        token = self._tokens.pop()
        try:
            token.var.reset(token)  # as the API's detach does, which logs an error for another context
        except (AttributeError, ValueError, RuntimeError):
            pass

    def end(self, figures: Figures | None, error: BaseException | None) -> None:
        """Put the figures on it, the exception too, and end it."""
        if figures is not None and self.span.is_recording():
            self.span.set_attributes(span_attributes(figures))
        if error is not None:
            from opentelemetry.trace import Status, StatusCode

            self.span.record_exception(error)
            self.span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
        self.span.end()


def start(name: str, attributes: Mapping[str, Any] | None) -> NativeSpan | None:
    """A started span below the current one; `None` where the program has no tracer, or its tracer gives no id."""
    source = tracer()
    if source is None:
        return None
    making.now = True
    try:
        span = source.start_span(name, attributes=attributes)
    finally:
        making.now = False
    ids = span_ids(span)
    return NativeSpan(span, ids) if ids is not None else None


def span_ids(span: Any) -> Ids | None:
    """Ids of an OpenTelemetry span in hexadecimal, and whether it is exported; `None` when it has no valid ids."""
    context = span.get_span_context()
    if context is None or not context.is_valid:
        return None
    parent = getattr(span, "parent", None)
    return (
        f"{context.trace_id:032x}",
        f"{context.span_id:016x}",
        f"{parent.span_id:016x}" if parent is not None and parent.is_valid else None,
        context.trace_flags.sampled,
    )


def span_attributes(figures: Figures) -> dict[str, int | str]:
    """The figures of an operation as attributes of its span; unknown ones left out."""
    found: dict[str, int | str] = {CERTAINTY: figures.certainty}
    if figures.peak is not None:
        found[PEAK] = figures.peak
    if figures.start is not None:
        found[START] = figures.start
    if figures.end is not None:
        found[END] = figures.end
        if figures.start is not None:
            found[DELTA] = figures.end - figures.start
    io = figures.io()
    if io is not None:
        found[READ], found[WRITE] = io[0], io[1]
    return found
