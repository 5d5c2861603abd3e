"""How far the clocks of several hosts may be apart: the rules, as functions on what each recorded of its own (`record.clock`).

Ticks are in monotonic seconds of one start of a machine. To compare machines, each clock is laid beside a common one, the
**reference**:

=====================  ==============================================================================================
reference              what bounds a clock's distance to it
=====================  ==============================================================================================
the same start         it is one clock: no error
UTC                    the kernel's own bound of the wall clock's error, where something corrects it (NTP, PTP)
a server               it stamped a file between two moments of the clock
a barrier              an operation that nobody leaves before all have entered it: when the last one entered, all were inside
a person's word        `--clock-error`: the wall clocks were within so much of each other
=====================  ==============================================================================================

Between two such moments a clock may drift, by no more than `DRIFT`. Where nothing bounds a clock, its error is infinite: a
wall clock by itself says nothing of its error.
"""

from __future__ import annotations

import math
from bisect import bisect_right

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DRIFT = 600e-6
"""Seconds a second by which two clocks may drift apart: 100 ppm of the quartz, and 500 that the kernel slews at most."""


class Distance(NamedTuple):
    """At a moment of a clock: by how much the reference is ahead, at least and at most."""

    moment: float
    """Monotonic seconds."""
    low: float
    high: float


class Alignment(NamedTuple):
    """A clock beside the reference: the reference's time is `moment + distance(moment)`, to the error."""

    moments: tuple[float, ...]
    distances: tuple[float, ...]
    error: float
    """Seconds to either side; infinite: nothing bounds it."""

    def distance(self, moment: float) -> float:
        """By how much the reference is ahead at a moment; between two known ones in proportion."""
        index = bisect_right(self.moments, moment)
        if index == 0 or index == len(self.moments):
            return self.distances[0 if index == 0 else -1]
        first, second = self.moments[index - 1], self.moments[index]
        share = (moment - first) / (second - first)
        return self.distances[index - 1] * (1 - share) + self.distances[index] * share


class ClockRecord(NamedTuple):
    """What one start of a machine recorded of its clock."""

    walls: Sequence[tuple[float, float, float | None]]
    """Monotonic seconds, the wall clock then, its error as the kernel has it."""
    stamps: Sequence[tuple[str, Distance]]
    """By whom, and how far its clock was ahead."""


def of_stamp(before: float, stamp: float, resolution: float, after: float) -> Distance:
    """How far a server's clock is ahead that said `stamp`, in steps of `resolution`, between two monotonic moments.

    Its time was from `stamp` to `stamp + resolution` (clocks of files are behind by up to a step), and ours between the two.
    """
    return Distance((before + after) / 2, stamp - resolution - after, stamp + resolution - before)


def to_utc(record: ClockRecord) -> list[Distance]:
    """The distances to UTC; none where nobody corrects the wall clock."""
    return [
        Distance(moment, wall - moment - error, wall - moment + error)
        for moment, wall, error in record.walls
        if error is not None
    ]


def aligned(distances: Sequence[Distance], begin: float, end: float) -> Alignment:
    """A clock beside a reference, from what is known at some moments; good from `begin` to `end`.

    At each moment the middle of what is possible is taken. In between it is what lies in proportion between the two next
    moments, which from either of them can be wrong by what was possible there, by the drift since, and by how far
    the middle has moved since: the smaller of both counts. Example: within 10 ms at two moments 60 s apart, and the same distance:
    10 ms and the drift of 30 s, 18 ms, in the middle.
    """
    if not distances:
        return Alignment((0.0,), (0.0,), math.inf)
    known = sorted(distances)
    moments = tuple(one.moment for one in known)
    middles = tuple((one.low + one.high) / 2 for one in known)
    halves = [(one.high - one.low) / 2 for one in known]
    error = max(
        *halves,
        halves[0] + DRIFT * max(0.0, moments[0] - begin),
        halves[-1] + DRIFT * max(0.0, end - moments[-1]),
    )
    for index in range(len(known) - 1):
        first, second = halves[index], halves[index + 1]
        moved = DRIFT * (moments[index + 1] - moments[index]) + abs(middles[index + 1] - middles[index])
        # Two lines, one rising from the first moment and one from the second: where they meet, or at an end.
        error = max(
            error, min(first, second) + moved if abs(first - second) > moved else (first + second + moved) / 2
        )
    return Alignment(moments, middles, error)


class Reference(NamedTuple):
    """The clock that all were laid beside, and each one's place."""

    name: str
    """In words; "" where nothing bounds the clocks."""
    alignments: Mapping[str, Alignment]
    """By the id of each start of a machine."""

    @property
    def error(self) -> float:
        """The largest error."""
        return max((alignment.error for alignment in self.alignments.values()), default=0.0)


def common_reference(
    clocks: Mapping[str, ClockRecord],
    spans: Mapping[str, tuple[float, float]],
    barriers: Mapping[str, Sequence[tuple[float, float]]] | None = None,
    wall_error: float | None = None,
) -> Reference:
    """The reference that bounds most clocks, and of those the one that bounds them best.

    Args:
        clocks: by id.
        spans: from when to when each is needed, in its own time.
        barriers: when each entered and left the same barriers, in their order; for those that did.
        wall_error: seconds that the wall clocks are apart at most, where somebody knows.

    """
    ids = list(clocks)
    if len(ids) == 1:
        return Reference("one machine", {ids[0]: Alignment((0.0,), (_wall_distance(clocks[ids[0]]),), 0.0)})
    candidates: list[Reference] = []

    def candidate(name: str, distances: Mapping[str, Sequence[Distance]], itself: str | None = None) -> None:
        placed = {}
        for one in ids:
            alignment = aligned(distances.get(one, ()), *spans[one])
            if one == itself:
                alignment = alignment._replace(error=0.0)
            if math.isinf(alignment.error):
                alignment = Alignment((0.0,), (_wall_distance(clocks[one]),), math.inf)
            placed[one] = alignment
        candidates.append(Reference(name, placed))

    if wall_error is not None:
        half = wall_error / 2
        walls = {
            one: [Distance(m, w - m - half, w - m + half) for m, w, _ in record.walls]
            for one, record in clocks.items()
        }
        candidate("the wall clocks, as told", walls)
    candidate("clocks set by NTP", {one: to_utc(record) for one, record in clocks.items()})
    for server in sorted({by for record in clocks.values() for by, _ in record.stamps}):
        of_server = {
            one: [distance for by, distance in record.stamps if by == server]
            for one, record in clocks.items()
        }
        candidate(f"time stamps of {server}", of_server)
    passed = barriers or {}
    first = next((one for one in ids if passed.get(one)), None)
    if first is not None:
        candidate("barriers", _of_barriers(first, clocks, spans, passed), first)
    best = min(
        candidates, key=lambda one: (sum(math.isinf(a.error) for a in one.alignments.values()), one.error)
    )
    if all(math.isinf(alignment.error) for alignment in best.alignments.values()):
        # One clock is always right about itself.
        first = ids[0]
        placed = dict(best.alignments)
        placed[first] = placed[first]._replace(error=0.0)
        return Reference("", placed)
    return best


def _of_barriers(
    first: str,
    clocks: Mapping[str, ClockRecord],
    spans: Mapping[str, tuple[float, float]],
    barriers: Mapping[str, Sequence[tuple[float, float]]],
) -> dict[str, list[Distance]]:
    """Distances to the wall clock of the first one that passed barriers, by the barriers that others passed with it.

    When the last one entered, all were inside: a moment between entering and leaving in each clock. So by the clock of
    the first it was between its own two, and by another one's between that one's.
    """
    ahead = _wall_distance(clocks[first])
    begin, end = spans[first]
    found = {first: [Distance(begin, ahead, ahead), Distance(end, ahead, ahead)]}
    for one, passed in barriers.items():
        if one != first:
            found[one] = [
                Distance((entered + left) / 2, ahead + mine[0] - left, ahead + mine[1] - entered)
                for (entered, left), mine in zip(passed, barriers[first], strict=False)
            ]
    return found


def _wall_distance(record: ClockRecord) -> float:
    """The wall clock as it was seen last: where nothing is certain, the most likely."""
    return record.walls[-1][1] - record.walls[-1][0] if record.walls else 0.0
