"""What other recommenders would have said of the same runs, from what they would have seen of them.

==========  =============================================================================================================
rule        of what it sees
==========  =============================================================================================================
VPA         90th percentile of the peaks of the runs, 15 % more, no less than 250 MiB a pod; scraped once a minute
KRR         the largest that was scraped, 15 % more, no less than 100 MiB
seff        the largest that Slurm polled, as it stands
==========  =============================================================================================================

Each sees a run at moments that are a fixed time apart, the first at random in that time: a run that is over before it was
looked at is not seen at all.
"""

from __future__ import annotations

import math

from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_MIB = 1 << 20
VPA_FLOOR, KRR_FLOOR = 250 * _MIB, 100 * _MIB


def polled(times: Sequence[float], sizes: Sequence[float], period: float, first: float) -> float | None:
    """The largest size that looks at `first`, `first + period`, ... see; `None`: the run was over before the first.

    Args:
        times: seconds since the start of the run, of each size, ascending.
        sizes: bytes, each until the next.
        period: seconds between two looks.
        first: when the first is, between 0 and `period`.

    """
    seen: float | None = None
    index, look = 0, first
    while times and look <= times[-1]:
        while index + 1 < len(times) and times[index + 1] <= look:
            index += 1
        if times[index] <= look:
            seen = sizes[index] if seen is None else max(seen, sizes[index])
        look += period
    return seen


def vpa(seen: Sequence[float | None]) -> float:
    """The Vertical Pod Autoscaler's target, in bytes."""
    values = sorted(value for value in seen if value is not None)
    if not values:
        return float(VPA_FLOOR)
    percentile = values[min(len(values) - 1, math.ceil(0.9 * len(values)) - 1)]
    return max(percentile * 1.15, VPA_FLOOR)


def krr(seen: Sequence[float | None]) -> float:
    """KRR's request and limit, in bytes."""
    return max(max((value for value in seen if value is not None), default=0.0) * 1.15, KRR_FLOOR)


def seff(seen: Sequence[float | None]) -> float:
    """What Slurm's efficiency report says was used, in bytes; 0 where nothing was seen."""
    return max((value for value in seen if value is not None), default=0.0)


RULES: dict[str, Callable[[Sequence[float | None]], float]] = {"VPA": vpa, "KRR": krr, "seff": seff}
