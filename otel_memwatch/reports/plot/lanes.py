"""Operations as bars in lanes: nested ones below the one around them, concurrent ones below each other."""

from __future__ import annotations

import math

from otel_memwatch.run.operation_names import series_name
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_memwatch.run import OperationFigures

LANES = 6
"""Lanes that are drawn; what lies deeper is counted."""


class Bar(NamedTuple):
    """One operation, or several that are too short to be told apart."""

    lane: int
    start: float
    end: float
    names: tuple[str, ...]
    """Different names in it, in the order of their appearance."""
    number: int = 1
    """Operations that it stands for."""
    failed: bool = False
    open: bool = False
    sets_peak: bool = False
    pid: int = 0

    @property
    def label(self) -> str:
        """What stands on it."""
        if self.number == 1:
            return self.names[0]
        return f"{self.series} x {self.number}" if len(self.names) == 1 else f"{self.number} operations"

    @property
    def series(self) -> str:
        """Its name, without a number at the end: "epoch 1" and "epoch 2" are one series."""
        return series_name(self.names[0])


class Lanes(NamedTuple):
    """All bars, and how many operations found no lane."""

    bars: tuple[Bar, ...]
    lanes: int
    hidden: int
    owners: tuple[int, ...] = ()
    """Of each lane the process whose operations are in it."""


def lay_out(
    operations: Sequence[OperationFigures], shortest: float, ranks: Mapping[int, int] | None = None
) -> Lanes:
    """Puts operations into lanes.

    Args:
        operations: by their start, each after the one around it.
        shortest: seconds that can just be seen; shorter ones that follow each other become one bar.
        ranks: of processes, by pid: these come first, in their order.
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
    # The lanes of a process stand together, in the order in which the processes began something.
    told = ranks or {}
    order = sorted(
        range(len(owners)),
        key=lambda lane: (told.get(owners[lane], math.inf), owners.index(owners[lane]), lane),
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
    """The first lane from `first` on that is free, or new; a lane belongs to one process as long as there is room."""
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
    """The bars of one lane; runs of those that are too short become one each, but for that of the run's peak."""
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
"""Names that a joined bar keeps: one says what all are, two that they differ."""


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
