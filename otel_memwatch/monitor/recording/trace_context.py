"""The run's place in a trace, from the W3C Trace Context in `TRACEPARENT`.

OpenTelemetry's specification "Environment Variables as Context Propagation Carriers" names the variable.
"""

from __future__ import annotations

import os

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


VARIABLE = "TRACEPARENT"
STATE_VARIABLE = "TRACESTATE"
_LONGEST_STATE = 512
"""Number of characters that the standard requires to preserve."""
_LENGTHS = (2, 32, 16, 2)
_DIGITS = frozenset("0123456789abcdef")


class TraceContext(NamedTuple):
    """Ids of the run's span in hexadecimal digits."""

    trace_id: str
    span_id: str
    parent_span_id: str | None
    flags: str = "01"
    state: str = ""
    """`TRACESTATE`, unchanged: the run's span carries it like the target's spans."""

    @property
    def traceparent(self) -> str:
        """Return the variable's value for the target: its spans become children of the run's span."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


def run_context(environ: Mapping[str, str]) -> TraceContext:
    """Return a span for the run: a child of `TRACEPARENT`, or the root of a new trace if that is absent or malformed.

    The run follows the sampling decision of the target's SDK for this trace (OTEL_TRACES_SAMPLER and
    OTEL_TRACES_SAMPLER_ARG). It neither adds traces that the program drops nor drops traces that it keeps. With a
    sampler outside the specification, the run counts as sampled, or follows its parent.
    """
    span_id = os.urandom(8).hex()
    parts = _parts((environ.get(VARIABLE) or "").strip())
    if parts is None:
        trace_id, parent, given, state = os.urandom(16).hex(), None, None, ""
    else:
        _, trace_id, parent, given = parts
        state = (environ.get(STATE_VARIABLE) or "").strip()[:_LONGEST_STATE]
    return TraceContext(trace_id, span_id, parent, _flags(trace_id, given, environ), state)


def _flags(trace_id: str, given: str | None, environ: Mapping[str, str]) -> str:
    """Return the trace flags of the run's span; `given`: those of its parent.

    | sampler | without a parent | with one |
    | --- | --- | --- |
    | always_on, always_off, traceidratio | its decision | its decision |
    | parentbased_ and one of these | that one's decision | the parent's |
    | any other, or none named | sampled | the parent's |
    """
    name = environ.get("OTEL_TRACES_SAMPLER", "").strip().lower()
    decided = {
        "always_on": 1.0,
        "always_off": 0.0,
        "traceidratio": _ratio(environ.get("OTEL_TRACES_SAMPLER_ARG")),
    }
    if given is not None and name not in decided:
        return given
    ratio = decided.get(name.removeprefix("parentbased_"), 1.0)
    # The SDK for Python compares the lower half of the id in the same way.
    return "01" if int(trace_id[16:], 16) < round(ratio * 2**64) else "00"


def _ratio(text: str | None) -> float:
    """Return the argument of traceidratio; if it is invalid, the specification requires 1."""
    try:
        ratio = float(text or "1")
    except ValueError:
        return 1.0
    return ratio if 0.0 <= ratio <= 1.0 else 1.0


def _parts(text: str) -> list[str] | None:
    """Return version, trace id, parent id and flags; `None` if the form is not the standard's.

    Later versions may have more parts.
    """
    parts = text.split("-", 4)[:4]
    if "\n" in text or tuple(map(len, parts)) != _LENGTHS or not _DIGITS.issuperset("".join(parts)):
        return None
    version, trace_id, parent, _ = parts
    return None if version == "ff" or not trace_id.strip("0") or not parent.strip("0") else parts
