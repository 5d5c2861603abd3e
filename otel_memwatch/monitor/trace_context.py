"""The run's place in a trace, after the W3C Trace Context in `TRACEPARENT`.

OpenTelemetry's specification "Environment Variables as Context Propagation Carriers" names the variable.
"""

from __future__ import annotations

import os

from otel_memwatch.runtime.typed import NamedTuple

VARIABLE = "TRACEPARENT"
_LENGTHS = (2, 32, 16, 2)
_DIGITS = frozenset("0123456789abcdef")


class TraceContext(NamedTuple):
    """Ids of the run's span, as hexadecimal digits."""

    trace_id: str
    span_id: str
    parent_span_id: str | None
    flags: str = "01"

    @property
    def traceparent(self) -> str:
        """What the target inherits: its spans become children of the run's."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


def run_context(traceparent: str | None) -> TraceContext:
    """A span for the run: child of the context given, or root of a new trace when there is none or it is malformed."""
    span_id = os.urandom(8).hex()
    parts = _parts((traceparent or "").strip())
    if parts is None:
        return TraceContext(os.urandom(16).hex(), span_id, None)
    _, trace_id, parent, flags = parts
    return TraceContext(trace_id, span_id, parent, flags)


def _parts(text: str) -> list[str] | None:
    """Version, trace id, parent id and flags; `None` where it has not the standard's form.

    Later versions may have more parts.
    """
    parts = text.split("-", 4)[:4]
    if "\n" in text or tuple(map(len, parts)) != _LENGTHS or not _DIGITS.issuperset("".join(parts)):
        return None
    version, trace_id, parent, _ = parts
    return None if version == "ff" or not trace_id.strip("0") or not parent.strip("0") else parts
