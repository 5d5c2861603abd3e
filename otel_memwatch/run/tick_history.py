"""The ticks of a run while it is recorded, as far as its operations will be asked about them, in little memory.

The figures of an operation follow from the ticks between its two boundaries and those next to these. So of all ticks
between two boundaries only their largest values have to stay:

    ticks        .  .  .  .  .  .  .  .  .  .  .  .  .
    boundaries         |                    |
    kept         [   ] .  .  [          ] . .  [   ]

Questions about any of the boundaries are answered as if every tick were there; about other moments they are not answered.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from otel_memwatch import catalog
from otel_memwatch.record.format import TICK_DECIMALS
from otel_memwatch.run.aggregate import columns_for_total
from otel_memwatch.run.cgroup_bounds import CgroupBounds, CgroupTick, CgroupWindow
from otel_memwatch.run.faults_elsewhere import FaultsElsewhere
from otel_memwatch.run.ticks import COUNTERS, CgroupHistory, TickSeries
from otel_memwatch.run.tree_bounds import Span
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from otel_memwatch.model import Column, Snapshot, Value
    from otel_memwatch.run.conditions import RunConditions

_ABOVE = 2048
"""Ticks that are kept as they are: merging so many takes a few milliseconds."""

_NEIGHBOURS = 2
"""Ticks on each side of a boundary that stay: windows are known one tick later, and reading a tick takes a moment."""

_MAXIMA = ("main", "rss", "pss", "needed", "unmapped")


class HistoricTicks(NamedTuple):
    """What the figures of operations are made of; the same as `TreeTicks` has of a record that is read."""

    main: TickSeries
    rss: TickSeries
    pss: TickSeries
    needed: TickSeries
    unmapped: TickSeries
    watermark: TickSeries
    windows: CgroupHistory
    most_charged: int
    faults_elsewhere: int
    faults: int
    mapped: int
    counters: Mapping[str, TickSeries]
    unseen: tuple[Span, ...]

    def unseen_spans(self) -> list[Span]:
        """The processes that no tick saw: how many, between which ticks."""
        return list(self.unseen)


class TickHistory:
    """Takes ticks in, one by one, and gives the series of operations' figures.

    Args:
        columns: of the snapshots.
        conditions: of the run.

    """

    def __init__(self, columns: Sequence[Column], conditions: RunConditions) -> None:
        indices = {column.metric: index for index, column in reversed(list(enumerate(columns)))}
        find = indices.get
        self._main = find(catalog.PROCESS_MEMORY_USAGE)
        self._rss = find(catalog.MEMWATCH_TREE_MEMORY_USAGE)
        self._pss = find(catalog.MEMWATCH_TREE_MEMORY_PSS)
        self._usage = find(catalog.MEMWATCH_CGROUP_MEMORY_USAGE)
        self._file = find(catalog.MEMWATCH_CGROUP_MEMORY_FILE)
        self._shmem = find(catalog.MEMWATCH_CGROUP_MEMORY_SHMEM)
        self._kernel = find(catalog.MEMWATCH_CGROUP_MEMORY_KERNEL)
        self._window = find(catalog.MEMWATCH_CGROUP_MEMORY_WINDOW)
        self._gap = find(catalog.MEMWATCH_CGROUP_MEMORY_WINDOW_GAP)
        self._watermark = find(catalog.MEMWATCH_CGROUP_MEMORY_PEAK)
        self._unobserved = find(catalog.MEMWATCH_TREE_UNOBSERVED)
        self._locked = find(catalog.MEMWATCH_CGROUP_MEMORY_UNEVICTABLE)
        self._faults = find(catalog.MEMWATCH_TREE_PAGING_FAULTS)
        self._charged_faults = find(catalog.MEMWATCH_CGROUP_PAGING_FAULTS)
        self._faults_elsewhere = FaultsElsewhere()
        self._mapped = find(catalog.MEMWATCH_PROCESS_MEMORY_LINUX_FILE)
        self._counters: dict[str, list[int]] = {}
        for name in COUNTERS:
            summed = set(columns_for_total(columns, name))
            self._counters[name] = [index for index, column in enumerate(columns) if column in summed]
        self._conditions = conditions
        self._rows: list[tuple[float, ...]] = []
        """Monotonic seconds, the `_MAXIMA`, the counters, then of the processes that no tick saw: since when, how many at most
        in one window, and whether several windows are told as one. -1: not known."""
        self._bounds = CgroupBounds(conditions.started, conditions.charge_error, conditions.cpus)
        self._windows: list[CgroupWindow] = []
        self._unseen_level = 0.0
        self._unseen_before = conditions.started
        self._most_charged: tuple[float, int] | None = None
        self._most_mapped = 0
        self._merge_above = _ABOVE

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, snapshot: Snapshot) -> None:
        """Takes a tick in."""
        time, values = round(snapshot.time, TICK_DECIMALS), snapshot.values
        usage, file = _at(values, self._usage), _at(values, self._file)
        shmem, kernel = _at(values, self._shmem), _at(values, self._kernel)
        totals = [_sum(values, indices) for indices in self._counters.values()]
        self._rows.append(
            (
                time,
                _known(_at(values, self._main)),
                _known(_at(values, self._rss)),
                _known(_at(values, self._pss)),
                -1 if usage is None or file is None else max(0, usage - file),
                -1 if shmem is None or kernel is None else shmem + kernel,
                *map(_known, totals),
                *self._new_unseen(time, _at(values, self._unobserved)),
            )
        )
        watermark = _at(values, self._watermark)
        if watermark is not None and (self._most_charged is None or watermark > self._most_charged[1]):
            self._most_charged = time, int(watermark)
        faults, charged = _at(values, self._faults), _at(values, self._charged_faults)
        if faults is not None and charged is not None:
            self._faults_elsewhere.add(time, int(faults), int(charged))
        self._most_mapped = max(self._most_mapped, int(_at(values, self._mapped) or 0))
        if self._conditions.own_cgroup:
            moved = _sum(values, self._counters["read_bytes"] + self._counters["write_bytes"])
            whole = [_whole(v) for v in (usage, _at(values, self._window), watermark, file, moved)]
            locked = _whole(_at(values, self._locked)) or 0
            tick = CgroupTick(
                time, whole[0], whole[1], _at(values, self._gap), whole[2], whole[3], whole[4], locked
            )
            window = self._bounds.add_tick(tick)
            if window is not None:
                self._windows.append(window)

    def _new_unseen(self, time: float, level: float | None) -> tuple[float, float, float]:
        """The processes that no tick saw since the last tick that tells of them: since when, how many, 0 (one window)."""
        if level is None:
            return time, 0, 0
        since, self._unseen_before = self._unseen_before, time
        new, self._unseen_level = max(0, level - self._unseen_level), max(level, self._unseen_level)
        return since, new, 0

    def merge(self, boundaries: Callable[[], Iterable[float]], horizon: float) -> None:
        """Gives memory back, once there are many ticks.

        Args:
            boundaries: gives the moments that will be asked about, in monotonic seconds.
            horizon: monotonic seconds up to which all boundaries are known.

        """
        if len(self._rows) <= self._merge_above or self._rows[self._merge_above // 2][0] > horizon:
            return
        borders = sorted({*boundaries(), horizon})
        times = [row[0] for row in self._rows]
        self._rows = _thinned(self._rows, times, times, borders, _merged_rows)
        starts, ends = [window.start for window in self._windows], [window.end for window in self._windows]
        self._windows = _thinned(self._windows, starts, ends, borders, _merged_windows)
        self._merge_above = max(_ABOVE, 2 * len(self._rows))

    def ticks(self, *, all_ended: bool) -> HistoricTicks:
        """The series so far. `all_ended`: none of the tree's processes outlived the last tick."""
        known = self._most_charged is not None
        windows = list(self._windows)
        if self._conditions.own_cgroup and known:
            windows += self._bounds.rest(all_ended=all_ended)
        marks = () if self._most_charged is None else (self._most_charged,)
        counters = {
            name: series
            for place, (name, columns) in enumerate(self._counters.items(), 1 + len(_MAXIMA))
            if columns and (series := self._series(place)).known
        }
        main, rss, pss, needed, unmapped = map(self._series, range(1, 1 + len(_MAXIMA)))
        return HistoricTicks(
            main,
            rss,
            pss,
            needed,
            unmapped,
            watermark=TickSeries(
                array("d", [time for time, _ in marks]), array("d", [float(mark) for _, mark in marks])
            ),
            windows=CgroupHistory.of(windows if known else ()),
            most_charged=marks[0][1] if marks else 0,
            faults_elsewhere=self._faults_elsewhere.most,
            faults=self._faults_elsewhere.of_tree,
            mapped=self._most_mapped,
            counters=counters,
            unseen=tuple(self._unseen()),
        )

    def _unseen(self) -> Iterator[Span]:
        for time, *_, since, most, several in self._rows:
            if most:
                # Two windows that follow each other share a moment: those of both count at it.
                yield Span(since, time, 0, int(most * (2 if several else 1)))

    def _series(self, place: int) -> TickSeries:
        known = [(row[0], row[place]) for row in self._rows if row[place] >= 0]
        return TickSeries(array("d", [time for time, _ in known]), array("d", [value for _, value in known]))


def _thinned(
    items: list[Any],
    starts: Sequence[float],
    ends: Sequence[float],
    borders: Sequence[float],
    merged: Callable[[list[Any]], object],
) -> list[Any]:
    """The items next to a border as they are, and of those between two borders one for all; those after the last stay."""
    kept = set(range(bisect_right(starts, borders[-1]), len(items)))
    for border in borders:
        first, last = bisect_left(ends, border), bisect_right(starts, border)
        kept.update(range(max(0, first - _NEIGHBOURS), min(len(items), last + _NEIGHBOURS)))
    result: list[Any] = []
    between: list[Any] = []
    for index, item in enumerate(items):
        if index not in kept:
            between.append(item)
            continue
        if between:
            result.append(merged(between))
            between = []
        result.append(item)
    return result + ([merged(between)] if between else [])


def _merged_rows(rows: list[tuple[float, ...]]) -> tuple[float, ...]:
    times, *columns, since, most, _ = zip(*rows, strict=True)
    # Counters never fall, so that their largest value is their last one that is known.
    return (times[-1], *map(max, columns), min(since), max(most), 1)


def _merged_windows(windows: list[CgroupWindow]) -> CgroupWindow:
    lows = [window.low for window in windows if window.low is not None]
    highs = [window.high for window in windows]
    high = None if None in highs else max(high for high in highs if high is not None)
    return CgroupWindow(windows[0].start, windows[-1].end, max(lows, default=None), high)


def _at(values: Sequence[Value], index: int | None) -> float | None:
    return None if index is None else values[index]


def _known(value: float | None) -> float:
    return -1 if value is None else value


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _sum(values: Sequence[Value], indices: Sequence[int]) -> float | None:
    known = [value for value in (values[index] for index in indices) if value is not None]
    return sum(known) if known and len(known) == len(indices) else None
