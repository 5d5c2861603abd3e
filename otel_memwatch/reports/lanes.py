"""Operations as bars in lanes: nested ones below the enclosing operation, concurrent ones below each other."""

from __future__ import annotations

import math

from otel_memwatch.run.operation_names import series_name
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_memwatch.run import OperationFigures

_NAMES = 2
"""Most names of a joined bar: one name is common to all, two show that they differ."""

LANES = 6
"""Most lanes of a picture; deeper operations are counted."""


class Bar(NamedTuple):
    """One operation, or several that are too short for separate bars."""

    lane: int
    start: float
    end: float
    names: tuple[str, ...]
    """Different names in the bar, in order of appearance."""
    number: int = 1
    """Operations in the bar."""
    failed: bool = False
    open: bool = False
    sets_peak: bool = False
    pid: int = 0
    first: int = 0
    """Position of the first operation among all."""

    @property
    def label(self) -> str:
        """Text on the bar."""
        if self.number == 1:
            return self.names[0]
        return f"{self.series} x {self.number}" if len(self.names) == 1 else f"{self.number} operations"

    @property
    def series(self) -> str:
        """Name without a number at the end: "epoch 1" and "epoch 2" are one series."""
        return series_name(self.names[0])


class Lanes(NamedTuple):
    """All bars, and the number of operations without a lane."""

    bars: tuple[Bar, ...]
    lanes: int
    hidden: int
    owners: tuple[int, ...] = ()
    """Pid of the process of each lane."""


def lay_out(
    operations: Sequence[OperationFigures],
    shortest: float,
    ranks: Mapping[int, int] | None = None,
    *,
    most: int = LANES,
    longest: float = math.inf,
) -> Lanes:
    """Assign operations to lanes.

    Args:
        operations: by start, each after the enclosing one.
        shortest: shortest visible duration in seconds; consecutive shorter operations become one bar.
        ranks: ranks of processes by pid; these come first, in order of rank.
        most: largest number of lanes.
        longest: duration in seconds from which a joined bar is not extended.
    """
    busy_until: list[float] = []
    owners: list[int] = []
    lane_of: list[int | None] = []
    in_lanes: list[list[Bar]] = []
    for index, figures in enumerate(operations):
        around = None if figures.parent is None else lane_of[figures.parent]
        lane, owner = None, figures.operation.pid
        if figures.parent is None or around is not None:
            first = 0 if around is None else around + 1
            # A lane belongs to one process.
            for place in range(first, min(len(busy_until) + 1, most)):
                new = place == len(busy_until)
                if new or (busy_until[place] <= figures.start and owners[place] == owner):
                    lane = place
                    break
        lane_of.append(lane)
        if lane is None:
            continue
        if lane == len(busy_until):
            busy_until.append(figures.end)
            owners.append(owner)
            in_lanes.append([])
        busy_until[lane] = max(figures.end, figures.start)
        status, peaked = figures.operation.status, figures.sets_run_peak
        in_lanes[lane].append(
            Bar(
                lane, figures.start, figures.end, (figures.operation.name,), failed=status == "error",
                open=status == "open", sets_peak=peaked, pid=owner, first=index,
            )
        )  # fmt: skip
    # Lanes of a process are adjacent; processes are in the order of their first operations.
    known, first_of = ranks or {}, owners.index
    places = [(known.get(owner, math.inf), first_of(owner), lane) for lane, owner in enumerate(owners)]
    order = [lane for *_, lane in sorted(places)]
    bars = [
        bar._replace(lane=place)
        for place, lane in enumerate(order)
        for bar in _joined(in_lanes[lane], shortest, longest)
    ]
    hidden = sum(lane is None for lane in lane_of)
    return Lanes(tuple(bars), len(in_lanes), hidden, tuple(owners[lane] for lane in order))


def _joined(bars: Iterable[Bar], shortest: float, longest: float) -> list[Bar]:
    """Return the bars of one lane. Consecutive short bars are joined, except for the one with the run's peak."""
    joined: list[Bar] = []
    run_is_short = False
    for bar in bars:
        short = bar.end - bar.start < shortest and not bar.sets_peak
        last = joined[-1] if short and run_is_short else None
        if last is not None and bar.start - last.end < shortest and last.end - last.start < longest:
            names = last.names
            if len(names) < _NAMES and bar.series not in map(series_name, names):
                names = (*names, bar.names[0])
            joined[-1] = last._replace(
                end=max(last.end, bar.end),
                names=names,
                number=last.number + 1,
                failed=last.failed or bar.failed,
                open=last.open or bar.open,
            )
        else:
            joined.append(bar)
        run_is_short = short
    return joined
