"""Growth of a service over hours: a leak, or memory that follows load, generations of workers and collections.

Inputs are seconds and bytes; nothing here reads the machine. A verdict is a judgement with a stated rate of errors
(`tests/bench/growth.py`), never a bound.

Workers that are replaced, two generations during a deployment, collections and trims leave the floors level. They still
scatter by a part of each cycle, so single floors fall during a leak. In a leak, nearly every floor is above all earlier ones,
and the floors rise at the end about as fast as at the beginning. Its load must not have grown as much.

The first condition compares ranks (Kendall's test), so a floor far above the others, of a period without a collection, counts no
more than one that is a little above them. No distribution of the scatter is assumed.
"""

from __future__ import annotations

from itertools import combinations, pairwise

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
_FLOORS = ((9, 0), (11, 3), (14, 10), (17, 20), (21, 38), (26, 70))
"""Numbers of floors of a service, and the most pairs of them in which the later one is not above the earlier one.

If floors are in random order, one in 100 000 has so few. Few floors are of longer periods, with whole cycles of a garbage
collector in each. Many show a leak in little noise.
"""
_AGREE = 2
"""Numbers of floors that must show a leak: noise mostly shows it in one."""
_ABOVE = 0.6
"""Least share of the rise by which the line ends above all floors of the first quarter: memory that fell and rises again is no leak."""
_LEAST_POINTS = 14
"""Least points after the first quarter: single samples an hour apart are no floors."""
_ALIKE = 0.1
"""Largest correlation of neighbouring residuals: above it, the floors have steps, follow a curve, or wander."""
_SMALL = 0.03
"""Share of the rise below which residuals have no shape that matters."""
_LEAST_SHARE, _LEAST_BYTES = 0.04, 2 << 20
"""Least rise, as a share of the first floor, and in bytes: a service runs for weeks, so half of that of a job."""
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
    judged = [counts for counts in _FLOORS if len(late) >= max(_LEAST_POINTS, counts[0])]
    if not judged or points[-1].time - points[0].time < LEAST_SECONDS:
        return _too_early(points, error)
    early = points[: len(points) // 4]
    lines = [
        _line(
            block_floors(late, number),
            most_falling,
            max(point.value for point in block_floors(early, number // 3)),
            error,
        )
        for number, most_falling in judged
    ]
    grown = [line for line in lines if line is not None]
    leaks = [line for line in grown if line.kind == LEAK and _is_same_load(loads, line)]
    if len(leaks) >= _AGREE:
        return leaks[len(leaks) // 2]
    return grown[0]._replace(kind=UNKNOWN) if grown else None


def _line(
    floors: Sequence[Point], most_falling: int, highest_before: float, error: float
) -> GrowthShape | None:
    """Return the growth of the line of least squares through floors; `None`: no growth that matters.

    It is a leak if at most `most_falling` pairs of floors do not rise, its residuals show no other shape, it does not fade, and it
    ends far above the highest floor before.
    """
    slope, residuals = _fitted(floors)
    start, end = floors[0], floors[-1]
    rise = slope * (end.position - start.position)
    if rise < max(least_rise(start.value, error, _LEAST_BYTES), _LEAST_SHARE * start.value):
        return None
    rates = half_rates(floors)
    growth = GrowthShape(UNKNOWN, rise, slope, min(rates), max(rates), start, end)
    squares = sum(residual**2 for residual in residuals)
    of_neighbours = sum(before * after for before, after in pairwise(residuals))
    first, second = (_fitted(part)[0] for part in (floors[: len(floors) // 2], floors[-(len(floors) // 2) :]))
    small = len(floors) * max(error, _SMALL * rise) ** 2
    shapeless = of_neighbours <= _ALIKE * squares or squares <= small
    steady = min(first, second) >= STEADY * slope and second >= _LASTING * first
    above = end.value - residuals[-1] - highest_before >= _ABOVE * rise
    falling = sum(after.value <= before.value for before, after in combinations(floors, 2))
    if shapeless and steady and above and falling <= most_falling:
        return growth._replace(kind=LEAK)
    return growth


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
