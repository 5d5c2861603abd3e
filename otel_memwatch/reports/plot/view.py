"""What every panel of the picture needs to know."""

from __future__ import annotations

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from otel_memwatch.analysis import Run
    from otel_memwatch.record.samples import Samples


class View(NamedTuple):
    """A run and the time axis that it is drawn on."""

    run: Run
    samples: Samples
    end: float
    """Seconds at the right end of the time axis."""
    interval: float
    """Seconds between ticks."""
    scale: float
    """Seconds in the unit of the time axis."""
    unit: str


def time_unit(seconds: float) -> tuple[float, str]:
    """Seconds in the unit in which a time axis of this length reads best, and its name."""
    for longest, scale, name in (
        (1.0, 1e-3, "ms"),
        (180.0, 1.0, "s"),
        (10800.0, 60.0, "min"),
        (259200.0, 3600.0, "h"),
    ):
        if seconds < longest:
            return scale, name
    return 86400.0, "days"
