"""Trace and span ids, and spans for operations if the program has configured an OpenTelemetry tracer.

This module uses only OpenTelemetry's API, and only after the program has imported it. A program without a tracer
provider pays for one lookup in `sys.modules`.
"""

from __future__ import annotations

import os
import sys
from _thread import _local

from otel_memwatch.in_target.operations.process_state import read_quietly
from otel_memwatch.record.format import SPAN_DIGITS, TRACE_DIGITS, is_id

try:
    from _random import Random  # the generator of `random` without its 3 ms of imports
except ImportError:  # another implementation of Python
    from random import Random  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from otel_memwatch.in_target.operations.operation_values import Figures, Ids

PEAK = "memwatch.memory.peak"
START = "memwatch.memory.start"
END = "memwatch.memory.end"
DELTA = "memwatch.memory.delta"
CERTAINTY = "memwatch.memory.certainty"
READ = "memwatch.io.read"
WRITE = "memwatch.io.write"

_SCOPE = "otel_memwatch"

_STOCK = 64


class IdGenerator:
    """Generator of random ids. Each process needs a separate one, or forked children would repeat their parent's ids."""

    __slots__ = ("_bits", "_spans")

    def __init__(self) -> None:
        self._bits = Random(int.from_bytes(os.urandom(16), "little")).getrandbits  # noqa: S311 - ids are no secrets
        self._spans: list[str] = []

    def trace_id(self) -> str:
        """Return 32 hexadecimal digits, not all zero."""
        return f"{self._bits(128) or 1:032x}"

    def span_id(self) -> str:
        """Return 16 hexadecimal digits, not all zero. Ids are drawn 64 at a time: 0.1 us each instead of 0.3 us."""
        try:
            return self._spans.pop()
        except IndexError:
            bits = self._bits(_STOCK * 64) or 1
            drawn = bits.to_bytes(_STOCK * 8, "little").hex("-", 8).split("-")
            self._spans += [span for span in drawn if span != "0" * SPAN_DIGITS]
            return f"{self._bits(64) or 1:016x}"


def parse_traceparent(text: str | None) -> tuple[str, str] | None:
    """Return trace id and span id of a `traceparent`; `None` if it is missing or invalid."""
    parts = (text or "").strip().lower().split("-")
    if len(parts) < 4 or parts[0] == "ff" or len(parts[0]) != 2:
        return None
    trace, span = parts[1], parts[2]
    return (trace, span) if is_id(trace, TRACE_DIGITS) and is_id(span, SPAN_DIGITS) else None


class RunTrace:
    """Trace id, span id and parent span id of the run's span, from `run.json`; empty if missing.

    The file is searched instead of parsed, because importing `json` costs the program 7 ms.
    """

    def __init__(self, directory: str) -> None:
        text = read_quietly(os.path.join(directory, "run.json"), 1 << 20).decode("utf-8", "replace")
        fields = text.partition('"trace":')[2].partition("}")[0]
        self.trace, self.span, self.parent = (
            _text_field(fields, name) for name in ("trace_id", "span_id", "parent_span_id")
        )

    @property
    def known(self) -> bool:
        """Return whether the run has a valid trace id and span id."""
        return is_id(self.trace, TRACE_DIGITS) and is_id(self.span, SPAN_DIGITS)


def _text_field(fields: str, name: str) -> str:
    rest = fields.partition(f'"{name}":')[2].lstrip()
    return rest[1:].partition('"')[0] if rest.startswith('"') else ""


def root_parent(directory: str) -> tuple[str, str] | None:
    """Return trace id and span id of the parent for this process's outermost operations.

    - `TRACEPARENT` applies if it belongs to the run's trace, because a process between the run and this one may have set
      its span there. It does not apply if it is the parent of the run's span.
    - Otherwise the run's span is the parent.
    - If the run has no trace, any `TRACEPARENT` applies.
    """
    given = parse_traceparent(os.environ.get("TRACEPARENT"))
    run = RunTrace(directory)
    if not run.known:
        return given
    if given is not None and given[0] == run.trace and given[1] != run.parent:
        return given
    return run.trace, run.span


class _Making(_local):
    """True while this thread creates a span for an operation. The span processor ignores such spans."""

    now = False


making = _Making()


class _Cache:
    provider: Any = None
    tracer: Any = None


def tracer() -> Any | None:
    """Return a tracer of the program's provider; `None` if it has set none or a no-op provider."""
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


class ProgramSpan:
    """A span of the program's tracer for an operation."""

    __slots__ = ("_tokens", "ids", "span")

    def __init__(self, span: Any, ids: Ids) -> None:
        self.span = span
        self.ids = ids
        self._tokens: list[Any] = []

    def attach(self) -> None:
        """Make it the current span of the current context."""
        from opentelemetry import context, trace

        self._tokens.append(context.attach(trace.set_span_in_context(self.span)))

    def detach(self) -> None:
        """Undo the last `attach`. Does nothing in another context."""
        if not self._tokens:
            return
        token = self._tokens.pop()
        try:
            token.var.reset(
                token
            )  # like the API's detach, but without an error in the log for another context
        except (AttributeError, ValueError, RuntimeError):
            pass

    def end(self, figures: Figures | None, error: BaseException | None) -> None:
        """Set the figures and the exception on the span, and end it."""
        if figures is not None and self.span.is_recording():
            self.span.set_attributes(span_attributes(figures))
        if error is not None:
            from opentelemetry.trace import Status, StatusCode

            self.span.record_exception(error)
            self.span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
        self.span.end()


def start(name: str, attributes: Mapping[str, Any] | None) -> ProgramSpan | None:
    """Start a span below the current one; return `None` if the program has no tracer or its tracer gives no id."""
    source = tracer()
    if source is None:
        return None
    making.now = True
    try:
        span = source.start_span(name, attributes=attributes)
    finally:
        making.now = False
    ids = span_ids(span)
    return ProgramSpan(span, ids) if ids is not None else None


def span_ids(span: Any) -> Ids | None:
    """Return the ids of a span in hexadecimal and whether it is exported; `None` if the ids are invalid."""
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
    """Return the known figures of an operation as attributes of its span."""
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
