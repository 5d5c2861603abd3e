"""The run's place in a trace, after the W3C Trace Context in `TRACEPARENT`.

OpenTelemetry's specification "Environment Variables as Context Propagation Carriers" names the variable.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

VARIABLE = "TRACEPARENT"
_FORM = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


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
    match = _FORM.fullmatch((traceparent or "").strip())
    if match is None:
        return TraceContext(os.urandom(16).hex(), span_id, None)
    return TraceContext(match[1], span_id, match[2], match[3])
