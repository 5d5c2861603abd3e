"""Shapes of growth: memory that each repeat of an operation keeps.

Inputs are positions and bytes; nothing here reads the machine. A curve shows what happened, not what
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

Known limits: a cache that is filled at a constant rate looks like a leak until it is full, and so does one tooth of a sawtooth
that is longer than the whole curve.
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
STEADY = 0.33
"""Least share of the mean rise that each block has in a leak: a block without growth is a step or a plateau."""
_LASTING = 0.75
"""Least share of the rise in the first half that the second half of a leak has."""
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


def least_rise(start: float, error: float, least: int = _LEAST_BYTES) -> float:
    """Return the least rise that matters, in bytes, and at least `least`."""
    return max(least, _LEAST_SHARE * start, _ERRORS * error)


def judge(points: Sequence[Point], error: float = 0.0) -> GrowthShape | None:
    """Return the shape of a curve; `None`: too few points, or no change that matters.

    Args:
        points: by position.
        error: of one value, in bytes.
    """
    if len(points) < LEAST_POINTS:
        return None
    late = points[len(points) // 4 :]
    floors = block_floors(late, _BLOCKS)
    rises = [after.value - before.value for before, after in pairwise(floors)]
    rates = half_rates(floors)
    start, end = floors[0], floors[-1]
    rise, whole, second = end.value - start.value, end.value - points[0].value, sum(rises[_BLOCKS // 2 :])
    least = least_rise(start.value, error)
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
    steady = min(rises) >= max(STEADY * rise / len(rises), error) and second >= _LASTING * (rise - second)
    leaks = steady and _largest_fall(late) < 0.5 * rise and _still_rises(late, growth.rate)
    return growth._replace(kind=LEAK) if leaks else growth


def block_floors(late: Sequence[Point], blocks: int) -> list[Point]:
    """Return the smallest value of each block, with its position."""
    number = len(late)
    parts = (late[number * n // blocks : number * (n + 1) // blocks] for n in range(blocks))
    return [min(part, key=lambda point: point.value) for part in parts if part]


def half_rates(floors: Sequence[Point]) -> list[float]:
    """Return the rates between floors that are half of the curve apart."""
    pairs = zip(floors, floors[len(floors) // 2 :], strict=False)
    return [(after.value - before.value) / (after.position - before.position) for before, after in pairs]


def _still_rises(late: Sequence[Point], rate: float) -> bool:
    """Return whether the values rise within the last block: otherwise a plateau may have just begun."""
    block = late[len(late) * (_BLOCKS - 1) // _BLOCKS :]
    half = (len(block) + 1) // 2
    before, after = (min(point.value for point in part) for part in (block[:half], block[-half:]))
    return after - before >= STEADY * rate * (block[-half].position - block[0].position)


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
