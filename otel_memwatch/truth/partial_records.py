"""Recordings that stop before the run does, and peaks imported from another program's format."""

from __future__ import annotations

from otel_memwatch.model import Certainty, Evidence, Peak
from otel_memwatch.truth.exact import is_exact

_TICK_ROUNDING = 0.001
"""Precision of a recorded sample time, in seconds, with a margin."""

_EXPORTED = (Evidence.OTLP,)

PEAK_FIELDS = ("certainty", "low", "high", "estimate", "excludes", "excluded_bytes")
"""Exported fields of a peak beside its value."""


def stopped(peak: Peak | None) -> Peak | None:
    """Return the peak of a run that continued after the recording stopped; `None`: no bound remains.

    A lower bound stays true, an upper bound does not. A sample never had a bound.

    Example: EXACT 500 MiB becomes "at least 500 MiB".
    """
    if peak is None or peak.certainty is Certainty.SAMPLED:
        return peak
    if not peak.low:
        return None
    return Peak.interval(
        peak.low,
        None,
        at=peak.at,
        pid=peak.pid,
        operation=peak.operation,
        source=peak.source,
        evidence=peak.evidence,
    )


def is_over(end: float | None, last_tick: float | None, *, anybody_alive: bool) -> bool:
    """Return whether a sample after the command's end found none of its processes alive: none can have grown later."""
    return not (end is None or last_tick is None or anybody_alive or last_tick < end - _TICK_ROUNDING)


def is_after(time: float, last_tick: float) -> bool:
    """Return whether a moment is later than the last sample."""
    return time > last_tick + _TICK_ROUNDING


def exported_peak(
    value: int,
    certainty: str | None,
    low: int | None = None,
    high: int | None = None,
    estimate: int | None = None,
    *,
    ended: bool = True,
) -> Peak | None:
    """Return a peak that was exported as numbers and a word; `None`: nothing is certain.

    Near bounds alone are never EXACT: without a cgroup, kernel memory is in neither of them.

    | certainty | the run has ended | peak |
    | --- | --- | --- |
    | exact, and the bounds agree | yes | EXACT |
    | exact, no bounds (older versions) | yes | EXACT |
    | censored | yes | CENSORED |
    | sampled | any | SAMPLED |
    | anything else | yes | INTERVAL |
    | censored | unknown: it may have grown | none |
    | anything else | unknown: it may have grown | at least the lower bound |

    Example: 66.7 MiB, "interval", high 67.4: between 66.7 and 67.4 MiB.

    Args:
        value: in bytes.
        certainty: value of `Certainty`; `None`: not exported.
        low: lower bound, in bytes; `None`: not exported.
        high: upper bound, in bytes; `None`: unknown.
        estimate: best estimate, in bytes; `None`: there is none.
        ended: whether the export is known to cover the run's end.
    """
    if certainty == "sampled":
        return Peak.sampled(value, evidence=_EXPORTED)
    if certainty == "censored":
        return Peak.censored(value, low, evidence=_EXPORTED) if ended else None
    if certainty == "exact" and ended:
        # Older versions exported no lower bound; the error of a counter is the same on both sides.
        error = 0 if high is None else max(0, high - value)
        least, most = max(0, value - error) if low is None else low, value + error
        if is_exact(value, least, most):
            return Peak(value, Certainty.EXACT, least, most, evidence=_EXPORTED)
        return Peak.interval(least, most, estimate=value, evidence=_EXPORTED)
    least = value if low is None else low
    if not ended:
        return Peak.interval(least, None, evidence=_EXPORTED)
    if high is not None and high < least:
        high = None
    return Peak.interval(least, high, estimate=estimate, evidence=_EXPORTED)


def exported_fields(peak: Peak, prefix: str) -> dict[str, int | str | tuple[str, ...]]:
    """Return the certainty of a peak, its bounds and what they exclude, for export."""
    known = {
        "certainty": peak.certainty.value,
        "low": peak.low,
        "high": peak.high,
        "estimate": peak.estimate,
        "excludes": peak.excludes or None,
        "excluded_bytes": peak.excluded_bytes or None,
    }
    return {f"{prefix}{name}": value for name, value in known.items() if value is not None}
