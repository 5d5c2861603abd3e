"""Exact figures, and peaks from a counter and its error.

`runtime.exactness` defines "exact"; the watched program imports it too. Rules ask this module, which returns peaks.
"""

from __future__ import annotations

from otel_memwatch.model import Certainty, Evidence, Peak
from otel_memwatch.runtime.exactness import EXACT_BYTES, EXACT_PARTS, is_exact

__all__ = ["EXACT_BYTES", "around", "at_least", "is_exact", "is_one_figure", "of_counter", "tolerance"]


def tolerance(value: int) -> int:
    """Return the bytes by which an exact figure of `value` bytes may be off.

    Examples: 1 MiB for 69 MiB, 2 MiB for 400 MiB.
    """
    return max(EXACT_BYTES, value // EXACT_PARTS)


def is_one_figure(low: int, high: int) -> bool:
    """Return whether two bounds are so near that the value in the middle is exact."""
    return is_exact((low + high) // 2, low, high)


def around(value: int, low: int, high: int, **rest: object) -> Peak:
    """Return the best estimate between two bounds: EXACT if both are near enough, else an interval with this estimate."""
    if is_exact(value, low, high):
        return Peak(value, Certainty.EXACT, low, high, **rest)  # type: ignore[arg-type]
    return Peak.interval(low, high, estimate=value, **rest)


def of_counter(value: int, error: int, **rest: object) -> Peak:
    """Return the peak of a counter that may be off by `error` bytes: EXACT if that is small enough, else an interval.

    Example: 69 MiB to 0.7 MiB on two processors is exact. To 95 MiB, on 64 processors, it is between 0 and 164 MiB.
    """
    return around(value, max(0, value - error), value + error, **rest)


def at_least(low: int, *evidence: Evidence, at: float | None = None, pid: int | None = None) -> Peak:
    """Return a peak of at least `low` bytes, without an upper bound."""
    return Peak.interval(low, None, at=at, pid=pid, evidence=evidence)
