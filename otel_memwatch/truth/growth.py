"""Growth that does not end: memory that each repeat of an operation keeps, or that a service gains over hours.

Inputs are positions (repeats or seconds) and bytes; nothing here reads the machine. A curve shows what happened, not what
will: a verdict is a judgement with a stated rate of errors (`tests/bench/growth.py`), never a bound. A false leak is worse
than a missing one, so whatever fits several shapes is `unknown`.

The first quarter is left out, as most programs warm up there. The rest is divided into blocks of equal length. The floor
of a block is its smallest value: memory that garbage collection, `malloc_trim` or the end of a worker gives back is not in it.

| verdict | floors |
| --- | --- |
| leak | rise in every block, in none less than a third of the mean, at the end as fast as at the beginning |
| filling cache | rise, and at the end less than half as fast |
| warm-up | have risen before, and rise no longer |
| sawtooth | do not rise, while the values rise and fall again and again |
| unknown | rise in any other way |

Memory of a service is judged over time (`judge_service`). Workers that are replaced, two generations during a deployment,
collections and trims leave the floors level. They still scatter by a part of each cycle, so single floors fall during a leak.
A leak is a line through the floors that rises by many standard errors, and at the end about as fast as at the beginning. Its
load must not have grown as much.

Known limits: a cache that is filled at a constant rate looks like a leak until it is full, and so does one tooth of a sawtooth
that is longer than the whole curve. The time that a leak takes to be found follows from the scatter of the floors: the standard
error of a slope falls with the 1.5th power of the time.
"""

from __future__ import annotations

from itertools import pairwise

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

LEAK, FILLING, WARM_UP, SAWTOOTH, UNKNOWN = "leak", "filling_cache", "warm_up", "sawtooth", "unknown"

LEAST_POINTS = 24
"""Fewer points show no shape."""
_BLOCKS = 7
_STEADY = 0.33
"""Least share of the mean rise that each block has in a leak: a block without growth is a step or a plateau."""
_LASTING = 0.75
"""Least share of the rise in the first half that the second half of a leak has."""
_LASTING_OF_SERVICE = 0.7
"""Likewise of the slopes of a service: caches fill over hours."""
_LINES = ((14, 10.2, 0.0), (21, 8.4, 0.1))
"""Numbers of floors of a service, each with two limits for a leak:

- the least ratio of the rise to its standard error: 1.5 times that of one chance in 100 000 by Student's distribution, because
  floors are not independent
- the largest correlation of neighbouring residuals: above it, the floors have steps, follow a curve, or wander

Few floors are of longer periods, with whole cycles of a garbage collector in each. Many show a leak in little noise.
"""
_SMALL = 0.03
"""Share of the rise below which residuals have no shape that matters."""
_LEAST_SHARE_OF_SERVICE = 0.04
"""Likewise for a service."""
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
_FADING = 0.5
"""Below this share, growth fades."""
_SETTLED = 0.05
"""Below this share of all growth, the second half no longer grows."""
_LEAST_SHARE = 0.03
"""Least rise, as a share of the first floor: smaller changes are of no consequence."""
_LEAST_BYTES = 4 << 20
_ERRORS = 2
"""Least rise in errors of the counter."""
_TEETH, _TOOTH = 3, 2
"""Number of falls of a sawtooth, and their size in least rises."""


class Point(NamedTuple):
    """The smallest value of one or more neighbours."""

    position: float
    """Number of the repeat, or seconds."""
    value: float
    """Bytes."""
    time: float
    """Monotonic seconds."""


class GrowthShape(NamedTuple):
    """Shape of a curve of memory, judged after its first quarter. Rates are in bytes for each position."""

    kind: str
    rise: float
    """Bytes between the first and the last floor; of a warm-up, those gained before."""
    rate: float
    low: float
    high: float
    """Slowest and fastest rate between two floors that are half of the curve apart."""
    start: Point
    end: Point
    """The first and the last floor."""


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
        growth = _line(_floors(late, number), least_ratio, alike, error)
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
    if rise < max(_least(start.value, error), _LEAST_SHARE_OF_SERVICE * start.value):
        return None
    rates = _rates(floors)
    growth = GrowthShape(UNKNOWN, rise, slope, min(rates), max(rates), start, end)
    mean = sum(point.position for point in floors) / len(floors)
    spread = sum((point.position - mean) ** 2 for point in floors)
    squares = sum(residual**2 for residual in residuals)
    of_neighbours = sum(before * after for before, after in pairwise(residuals))
    first, second = (_fitted(part)[0] for part in (floors[: len(floors) // 2], floors[-(len(floors) // 2) :]))
    certain = slope**2 * spread * (len(floors) - 2) >= least_ratio**2 * squares
    small = len(floors) * max(error, _SMALL * rise) ** 2
    shapeless = of_neighbours <= alike * squares or squares <= small
    steady = min(first, second) >= _STEADY * slope and second >= _LASTING_OF_SERVICE * first
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
    if rise < _least(start.value, error):
        return None
    rate = rise / max(1.0, end.position - start.position)
    return GrowthShape(UNKNOWN, rise, rate, rate, rate, start, end)


def _least(start: float, error: float) -> float:
    """Return the least rise that matters, in bytes."""
    return max(_LEAST_BYTES, _LEAST_SHARE * start, _ERRORS * error)


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


def judge(points: Sequence[Point], error: float = 0.0) -> GrowthShape | None:
    """Return the shape of a curve; `None`: too few points, or no change that matters.

    Args:
        points: by position.
        error: of one value, in bytes.
    """
    if len(points) < LEAST_POINTS:
        return None
    late = points[len(points) // 4 :]
    floors = _floors(late, _BLOCKS)
    rises = [after.value - before.value for before, after in pairwise(floors)]
    rates = _rates(floors)
    start, end = floors[0], floors[-1]
    rise, whole, second = end.value - start.value, end.value - points[0].value, sum(rises[_BLOCKS // 2 :])
    least = _least(start.value, error)
    growth = GrowthShape(
        UNKNOWN, rise, rise / (end.position - start.position), min(rates), max(rates), start, end
    )
    if rise < least and _teeth(late, _TOOTH * least) >= _TEETH:
        return growth._replace(kind=SAWTOOTH)
    if max(rise, whole) < least:
        return None
    if rise < least or second < _SETTLED * whole:
        return growth._replace(kind=WARM_UP, rise=whole)
    if second < _FADING * (rise - second):
        return growth._replace(kind=FILLING)
    steady = min(rises) >= max(_STEADY * rise / len(rises), error) and second >= _LASTING * (rise - second)
    leaks = steady and _largest_fall(late) < 0.5 * rise and _still_rises(late, growth.rate)
    return growth._replace(kind=LEAK) if leaks else growth


def _floors(late: Sequence[Point], blocks: int) -> list[Point]:
    """Return the smallest value of each block, with its position."""
    number = len(late)
    parts = (late[number * n // blocks : number * (n + 1) // blocks] for n in range(blocks))
    return [min(part, key=lambda point: point.value) for part in parts if part]


def _rates(floors: Sequence[Point]) -> list[float]:
    """Return the rates between floors that are half of the curve apart."""
    pairs = zip(floors, floors[len(floors) // 2 :], strict=False)
    return [(after.value - before.value) / (after.position - before.position) for before, after in pairs]


def _still_rises(late: Sequence[Point], rate: float) -> bool:
    """Return whether the values rise within the last block: otherwise a plateau may have just begun."""
    block = late[len(late) * (_BLOCKS - 1) // _BLOCKS :]
    half = (len(block) + 1) // 2
    before, after = (min(point.value for point in part) for part in (block[:half], block[-half:]))
    return after - before >= _STEADY * rate * (block[-half].position - block[0].position)


def _largest_fall(late: Sequence[Point]) -> float:
    """Return the most bytes by which the values fell below an earlier one."""
    top, most = late[0].value, 0.0
    for value in (point.value for point in late):
        top = max(top, value)
        most = max(most, top - value)
    return most


def _teeth(late: Sequence[Point], least: float) -> int:
    """Return how often the values fell by `least` after they had risen by as much."""
    number, falling, turn = 0, False, late[0].value
    for value in (point.value for point in late):
        turn = min(turn, value) if falling else max(turn, value)
        if abs(value - turn) >= least:
            number += not falling
            falling, turn = not falling, value
    return number
