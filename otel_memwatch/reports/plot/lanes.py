"""Operations as bars in lanes: nested ones below the enclosing operation, concurrent ones below each other."""

from __future__ import annotations

import math

from otel_memwatch.run.operation_names import series_name
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_memwatch.run import OperationFigures

LANES = 6
"""Most lanes to draw; deeper operations are counted."""


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
    operations: Sequence[OperationFigures], shortest: float, ranks: Mapping[int, int] | None = None
) -> Lanes:
    """Assign operations to lanes.

    Args:
        operations: by start, each after the enclosing one.
        shortest: shortest visible duration in seconds; consecutive shorter operations become one bar.
        ranks: ranks of processes by pid; these come first, in order of rank.
    """
    busy_until: list[float] = []
    owners: list[int] = []
    lane_of: list[int | None] = []
    in_lanes: list[list[Bar]] = []
    for figures in operations:
        around = None if figures.parent is None else lane_of[figures.parent]
        lane = None
        if figures.parent is None or around is not None:
            owner = figures.operation.pid
            lane = _free_lane(busy_until, owners, 0 if around is None else around + 1, figures.start, owner)
        lane_of.append(lane)
        if lane is None:
            continue
        if lane == len(busy_until):
            busy_until.append(figures.end)
            owners.append(figures.operation.pid)
            in_lanes.append([])
        busy_until[lane] = max(figures.end, figures.start)
        in_lanes[lane].append(_bar(lane, figures))
    # Lanes of a process are adjacent; processes are in the order of their first operations.
    known = ranks or {}
    order = sorted(
        range(len(owners)),
        key=lambda lane: (known.get(owners[lane], math.inf), owners.index(owners[lane]), lane),
    )
    bars = [
        bar._replace(lane=place)
        for place, lane in enumerate(order)
        for bar in _joined(in_lanes[lane], shortest)
    ]
    hidden = sum(lane is None for lane in lane_of)
    return Lanes(tuple(bars), len(in_lanes), hidden, tuple(owners[lane] for lane in order))


def _free_lane(
    busy_until: Sequence[float], owners: Sequence[int], first: int, start: float, owner: int
) -> int | None:
    """Return the first free or new lane from `first` on; `None` if none is left. A lane belongs to one process."""
    for lane in range(first, min(len(busy_until) + 1, LANES)):
        if lane == len(busy_until) or (busy_until[lane] <= start and owners[lane] == owner):
            return lane
    return None


def _bar(lane: int, figures: OperationFigures) -> Bar:
    status = figures.operation.status
    return Bar(
        lane,
        figures.start,
        figures.end,
        (figures.operation.name,),
        failed=status == "error",
        open=status == "open",
        sets_peak=figures.sets_run_peak,
        pid=figures.operation.pid,
    )


def _joined(bars: Iterable[Bar], shortest: float) -> list[Bar]:
    """Return the bars of one lane. Consecutive short bars are joined, except for the one with the run's peak."""
    joined: list[Bar] = []
    run_is_short = False
    for bar in bars:
        short = bar.end - bar.start < shortest and not bar.sets_peak
        if short and run_is_short and bar.start - joined[-1].end < shortest:
            joined[-1] = _both(joined[-1], bar)
        else:
            joined.append(bar)
        run_is_short = short
    return joined


_NAMES = 2
"""Most names of a joined bar: one name is common to all, two show that they differ."""


def _both(first: Bar, second: Bar) -> Bar:
    names = first.names
    if len(names) < _NAMES and second.series not in map(series_name, names):
        names = (*names, second.names[0])
    return first._replace(
        end=max(first.end, second.end),
        names=names,
        number=first.number + second.number,
        failed=first.failed or second.failed,
        open=first.open or second.open,
    )
