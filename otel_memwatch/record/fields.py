"""Checked fields of a JSON object, each of the expected type or `None`: a reader trusts no file."""

from __future__ import annotations

import math

from otel_memwatch.record.format import SPAN_DIGITS, TRACE_DIGITS, is_id
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_LARGEST = 2**63 - 1
FARTHEST = 2.0**33
"""Seconds, 272 years: the largest time with nanoseconds that fit 64 bits. A later moment is damage."""


def whole(value: Any) -> int | None:
    """Return a whole number that fits 64 bits, or `None`."""
    if type(value) is int and -_LARGEST <= value <= _LARGEST:
        return value  # the usual case: a program may write a hundred thousand a second
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        value = int(value)
    return value if -_LARGEST <= value <= _LARGEST else None


def number(value: Any) -> float | None:
    """Return a finite number, or `None`."""
    if type(value) is float and math.isfinite(value):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        result = float(value)
    except OverflowError:
        return None
    return result if math.isfinite(result) else None


def moment(value: Any) -> float | None:
    """Return seconds of a clock, at most `FARTHEST` from 0; `None` for anything else."""
    seconds = number(value)
    return seconds if seconds is not None and abs(seconds) <= FARTHEST else None


def period(value: Any) -> float | None:
    """Return a sampling interval in seconds, from 1e-6 to `FARTHEST`; `None` for anything else."""
    seconds = number(value)
    return seconds if seconds is not None and 1e-6 <= seconds <= FARTHEST else None


def text(value: Any) -> str | None:
    """Return a string, or `None`."""
    return value if isinstance(value, str) else None


def mapping(value: Any) -> Mapping[str, Any]:
    """Return an object; empty for anything else."""
    return value if isinstance(value, dict) else {}


def is_trace_id(value: Any) -> bool:
    """Return whether the value is a trace id: 32 hexadecimal digits, not all zero."""
    return isinstance(value, str) and is_id(value, TRACE_DIGITS)


def is_span_id(value: Any) -> bool:
    """Return whether the value is a span id: 16 hexadecimal digits, not all zero."""
    return isinstance(value, str) and is_id(value, SPAN_DIGITS)


def trace_ids(trace: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the run's "trace" without an invalid parent; empty unless it names a span."""
    if not (is_trace_id(trace.get("trace_id")) and is_span_id(trace.get("span_id"))):
        return {}
    if is_span_id(trace.get("parent_span_id")):
        return trace
    return {**trace, "parent_span_id": None}


def texts(value: Any) -> tuple[str, ...]:
    """Return the strings of an array; empty for anything else."""
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()
