"""Growth of a service over hours: a leak, or memory that follows load, generations of workers and collections.

Inputs are seconds and bytes; nothing here reads the machine. A verdict is a judgement with a stated rate of errors
(`tests/bench/growth.py`), never a bound.

Workers that are replaced, two generations during a deployment, collections and trims leave the floors level. They still
scatter by a part of each cycle, so single floors fall during a leak. A leak is a line through the floors that rises by many
standard errors, and at the end about as fast as at the beginning. Its load must not have grown as much.

The time that a leak takes to be found follows from the scatter of the floors: the standard error of a slope falls with the
1.5th power of the time.
"""

from __future__ import annotations

from itertools import pairwise

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.truth.growth import (
    LEAK,
    STEADY,
    UNKNOWN,
    GrowthShape,
    block_floors,
    half_rates,
    least_rise,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.truth.growth import Point

_LASTING = 0.7
"""Least share of the slope of the first half that the second half of a leak has. It is low: caches fill over hours."""
_LINES = ((14, 10.2, 0.0), (21, 8.4, 0.1))
"""Numbers of floors of a service, each with two limits for a leak:

- the least ratio of the rise to its standard error: 1.5 times that of one chance in 100 000 by Student's distribution, because
  floors are not independent
- the largest correlation of neighbouring residuals: above it, the floors have steps, follow a curve, or wander

Few floors are of longer periods, with whole cycles of a garbage collector in each. Many show a leak in little noise.
"""
_SMALL = 0.03
"""Share of the rise below which residuals have no shape that matters."""
_LEAST_SHARE = 0.04
"""Least rise, as a share of the first floor."""
LEAST_SECONDS = 2.5 * 3600
"""Seconds before which a service is not judged."""
_EARLY_SECONDS = 900.0
"""Seconds after which growth of a service is mentioned: before, most programs load data."""
_SAME_LOAD = 1.1
"""CPU time or processes of the second half, in those of the first half: above it, the load has grown."""
_BEYOND_LOAD = 1.25
"""Least ratio of a leak's growth to that of the load, both as shares."""
_IDLE = 0.001
"""CPU seconds in a second that are no load."""


class ServiceLoad(NamedTuple):
    """Load of a service at one moment."""

    time: float
    """Monotonic seconds."""
    cpu_seconds: float
    """CPU time of all processes so far."""
    processes: int


def judge_service(
    points: Sequence[Point], loads: Sequence[ServiceLoad], error: float = 0.0
) -> GrowthShape | None:
    """Return the shape of a service's memory over time; `None`: no change that matters.

    Before `LEAST_SECONDS`, and with fewer points than floors, growth that may be a leak is unknown.

    Args:
        points: floors by time.
        loads: by time.
        error: of one value, in bytes.
    """
    late = points[len(points) // 4 :]
    judged = [line for line in _LINES if len(late) >= line[0]]
    if not judged or points[-1].time - points[0].time < LEAST_SECONDS:
        return _too_early(points, error)
    unknown = None
    for number, least_ratio, alike in judged:
        growth = _line(block_floors(late, number), least_ratio, alike, error)
        if growth is not None and growth.kind == LEAK and _is_same_load(loads, growth):
            return growth
        unknown = unknown or growth
    return None if unknown is None else unknown._replace(kind=UNKNOWN)


def _line(floors: Sequence[Point], least_ratio: float, alike: float, error: float) -> GrowthShape | None:
    """Return the growth of the line of least squares through floors; `None`: no growth that matters.

    It is a leak if it is certain, its residuals show no other shape (both limits of `_LINES`), and it does not fade.
    """
    slope, residuals = _fitted(floors)
    start, end = floors[0], floors[-1]
    rise = slope * (end.position - start.position)
    if rise < max(least_rise(start.value, error), _LEAST_SHARE * start.value):
        return None
    rates = half_rates(floors)
    growth = GrowthShape(UNKNOWN, rise, slope, min(rates), max(rates), start, end)
    mean = sum(point.position for point in floors) / len(floors)
    spread = sum((point.position - mean) ** 2 for point in floors)
    squares = sum(residual**2 for residual in residuals)
    of_neighbours = sum(before * after for before, after in pairwise(residuals))
    first, second = (_fitted(part)[0] for part in (floors[: len(floors) // 2], floors[-(len(floors) // 2) :]))
    certain = slope**2 * spread * (len(floors) - 2) >= least_ratio**2 * squares
    small = len(floors) * max(error, _SMALL * rise) ** 2
    shapeless = of_neighbours <= alike * squares or squares <= small
    steady = min(first, second) >= STEADY * slope and second >= _LASTING * first
    return growth._replace(kind=LEAK) if certain and shapeless and steady else growth


def _fitted(points: Sequence[Point]) -> tuple[float, list[float]]:
    """Return the slope of the line of least squares, and the residuals."""
    number = len(points)
    middle = sum(point.position for point in points) / number
    level = sum(point.value for point in points) / number
    spread = sum((point.position - middle) ** 2 for point in points)
    slope = sum((point.position - middle) * (point.value - level) for point in points) / spread
    return slope, [point.value - level - slope * (point.position - middle) for point in points]


def _too_early(points: Sequence[Point], error: float) -> GrowthShape | None:
    """Return the growth between the second and the fourth quarter as unknown; `None`: none that matters."""
    if not points or points[-1].time - points[0].time < _EARLY_SECONDS:
        return None
    begin, quarter = points[0].time, (points[-1].time - points[0].time) / 4
    quarters = [
        [point for point in points if begin + n * quarter <= point.time <= begin + (n + 1) * quarter]
        for n in (1, 3)
    ]
    if not all(quarters):
        return None
    start, end = (min(part, key=lambda point: point.value) for part in quarters)
    rise = end.value - start.value
    if rise < least_rise(start.value, error):
        return None
    rate = rise / max(1.0, end.position - start.position)
    return GrowthShape(UNKNOWN, rise, rate, rate, rate, start, end)


def _is_same_load(loads: Sequence[ServiceLoad], growth: GrowthShape) -> bool:
    """Return whether neither CPU time nor processes grew in the judged part. Memory follows the load of many services."""
    middle = (growth.start.time + growth.end.time) / 2
    first = [one for one in loads if growth.start.time <= one.time <= middle]
    second = [one for one in loads if middle <= one.time <= growth.end.time]
    if len(first) < 2 or len(second) < 2:
        return False
    before, after = (
        (part[-1].cpu_seconds - part[0].cpu_seconds) / (part[-1].time - part[0].time)
        for part in (first, second)
    )
    processes = [sum(one.processes for one in part) / len(part) for part in (first, second)]
    if after > _SAME_LOAD * before + _IDLE or processes[1] > _SAME_LOAD * processes[0]:
        return False
    # Memory may grow as much as the load. The middles of two halves are half of the time apart.
    of_load = max((after - _IDLE) / before if before > 0 else 1.0, processes[1] / processes[0])
    return growth.rise > _BEYOND_LOAD * 2 * (of_load - 1) * growth.start.value
