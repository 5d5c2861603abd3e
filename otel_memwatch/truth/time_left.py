"""Time until growing memory reaches a limit.

Inputs are bytes and monotonic seconds of samples; nothing here reads the machine. A sample shows growth, not its future, so
the time is an estimate between two rates, never a bound.
"""

from __future__ import annotations

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

WINDOWS = (0.0, 1.0, 3.0)
"""Seconds over which growth is measured, the first since the sample before. The fastest and slowest rates limit the range."""


class Growth(NamedTuple):
    """Growth of memory now, and the time that is left below a limit."""

    rate: float | None
    """Bytes a second over the longest window; negative if memory shrinks; `None`: only one sample."""
    low: float | None = None
    """Seconds until the limit at the fastest rate; `None`: no window shows growth."""
    high: float | None = None
    """Seconds at the slowest rate; `None`: one window shows no growth, so the limit may never be reached."""


def growth(samples: Sequence[tuple[float, int]], limit: int) -> Growth:
    """Return growth and time left.

    | rates over the windows | low | high |
    | --- | --- | --- |
    | only one sample | `None` | `None` |
    | none above 0 | `None` | `None` |
    | some above 0 | at the fastest | `None` |
    | all above 0 | at the fastest | at the slowest |

    Args:
        samples: time and bytes, the oldest first; at least one.
        limit: bytes.

    """
    now, used = samples[-1]
    rates = []
    for window in WINDOWS:
        # The newest sample that is at least this old; the oldest one if none is.
        before = next((one for one in reversed(samples[:-1]) if now - one[0] >= window), samples[0])
        if now > before[0]:
            rates.append((used - before[1]) / (now - before[0]))
    if not rates:
        return Growth(None)
    left, growing = max(0, limit - used), [rate for rate in rates if rate > 0]
    if not growing:
        return Growth(rates[-1])
    slowest = left / min(growing) if len(growing) == len(rates) else None
    return Growth(rates[-1], left / max(growing), slowest)
