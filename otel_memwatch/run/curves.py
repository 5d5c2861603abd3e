"""A run's figures over time in few points that keep every peak, made while the ticks come in: a page needs no more.

Ticks are put into buckets. Up to `POINTS` ticks each has a bucket of its own. Then neighbours are joined: a bucket holds all
ticks of a stretch of time, and whenever there are too many again, the stretches become twice as long. So a day takes as
little memory as a minute, nothing is left to be computed at the end, and what is read again from the record is the same.

A bucket reaches from the last tick of the one before it, exclusive, to its own last tick. So the window between two ticks
lies in exactly one bucket, and the largest value of a bucket is the largest of the ticks and windows in it, however often
neighbours were joined. A mean would lower peaks, and a choice of points could leave them out.
"""

from __future__ import annotations

import math
from array import array
from itertools import pairwise
from operator import itemgetter

from otel_memwatch import catalog
from otel_memwatch.record.format import TICK_DECIMALS
from otel_memwatch.run.cgroup_bounds import CgroupBounds, CgroupTick, CgroupWindow
from otel_memwatch.run.conditions import RunConditions
from otel_memwatch.run.process_curves import ProcessLives
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from otel_memwatch.model import Column, Value
    from otel_memwatch.record.reader import Record
    from otel_memwatch.record.samples import Array, Samples

    Places = NDArray[np.intp]

POINTS = 4096
"""Buckets at most; at least half as many once a run has had more ticks."""

GAUGES = {
    catalog.MEMWATCH_TREE_MEMORY_USAGE,
    catalog.PROCESS_MEMORY_USAGE,
    catalog.MEMWATCH_TREE_MEMORY_PSS,
    catalog.MEMWATCH_CGROUP_MEMORY_USAGE,
    catalog.MEMWATCH_TREE_PROCESS_COUNT,
    catalog.HW_GPU_MEMORY_USAGE,
    catalog.HW_GPU_MEMORY_LIMIT,
    catalog.HW_GPU_UTILIZATION,
    catalog.MEMWATCH_TREE_GPU_MEMORY_USAGE,
}
"""Metrics of which a bucket keeps the smallest and the largest value."""

COUNTERS = {
    catalog.MEMWATCH_TREE_CPU_TIME,
    catalog.MEMWATCH_TREE_DISK_IO,
    catalog.MEMWATCH_TREE_SYSCALL_IO,
    catalog.MEMWATCH_CGROUP_MEMORY_EVENTS,
}
"""Metrics of which a bucket keeps the last value."""

NEEDED = "needed"
"""Memory charged to the run's own control group less page cache, at ticks."""
LEAST, MOST = "least", "most"
"""Bounds of what was needed in the windows between ticks, where the group's watermark tells them."""

_CGROUP_TICK = (
    catalog.MEMWATCH_CGROUP_MEMORY_USAGE,
    catalog.MEMWATCH_CGROUP_MEMORY_WINDOW,
    catalog.MEMWATCH_CGROUP_MEMORY_WINDOW_GAP,
    catalog.MEMWATCH_CGROUP_MEMORY_PEAK,
    catalog.MEMWATCH_CGROUP_MEMORY_FILE,
    catalog.MEMWATCH_CGROUP_MEMORY_UNEVICTABLE,
)
"""The columns of which a `CgroupTick` is made, in the order of its fields."""

Key = tuple[str, tuple[tuple[str, str], ...]]
"""What a curve shows: a metric or one of the names above, with attributes."""

_UNKNOWN = math.nan

_TOGETHER = 8192
"""Ticks that are taken from arrays at a time."""

_WAITING = 512
"""Ticks that wait at most to be taken into a bucket: one of a month has some ten thousand."""


class Curve(NamedTuple):
    """One figure over time; a value for each bucket, NaN where it is not known."""

    low: Sequence[float]
    """The smallest value at a tick; of a counter the same as `high`."""
    high: Sequence[float]
    """The largest value; of a counter the last one."""


class DrawnCurves(NamedTuple):
    """What a page draws. Times are seconds since the start of the run."""

    first: Sequence[float]
    """Time of each bucket's first tick."""
    last: Sequence[float]
    """Time of each bucket's last tick."""
    step: float
    """Seconds that a bucket stands for; 0: each is one tick."""
    curves: Mapping[Key, Curve]
    lives: ProcessLives
    """Memory of the largest processes."""

    def find(self, metric: str, **attributes: str) -> Curve | None:
        """The first curve of a metric with these attributes (dots as underscores); `None` where nothing is known of it."""
        wanted = {(name.replace("_", "."), value) for name, value in attributes.items()}
        return next(
            (c for (name, more), c in self.curves.items() if name == metric and wanted <= set(more)), None
        )


class _Extremes:
    """The smallest and the largest value of one figure in each bucket."""

    def __init__(self, buckets: int) -> None:
        self.low = array("d", [_UNKNOWN]) * buckets
        self.high = array("d", [_UNKNOWN]) * buckets
        self.known = False
        """Whether any value ever was."""

    def take(self, low: float, high: float, *, counter: bool = False) -> None:
        """Takes the smallest and the largest of some values into the last bucket; of a counter the last one stands."""
        self.known = True
        # "not at most" is true of an unknown value too.
        if counter or not self.low[-1] <= low:
            self.low[-1] = low
        if counter or not self.high[-1] >= high:
            self.high[-1] = high

    def take_all(self, column: Array, in_last: int, begins: Places, *, counter: bool) -> None:
        """Takes the first `in_last` values of a column into the last bucket, and makes one more at each place of `begins`."""
        import numpy as np

        known = ~np.isnan(column)
        if not known.any():
            return
        if counter:
            latest = np.maximum.accumulate(np.where(known, np.arange(len(column)), -1))
        if known[:in_last].any():
            if counter:
                value = float(column[latest[in_last - 1]])
                self.take(value, value, counter=True)
            else:
                self.take(float(np.fmin.reduce(column[:in_last])), float(np.fmax.reduce(column[:in_last])))
        self.known = True
        if not len(begins):
            return
        if counter:
            last = latest[[*(begins[1:] - 1), len(column) - 1]]
            high = low = np.where(last >= begins, column[last], _UNKNOWN)
        else:
            low, high = np.fmin.reduceat(column, begins), np.fmax.reduceat(column, begins)
        self.low.frombytes(low.tobytes())
        self.high.frombytes(high.tobytes())

    def extend_to(self, buckets: int) -> None:
        """Makes so many buckets of it; what has come is not known."""
        for bounds in (self.low, self.high):
            bounds.extend([_UNKNOWN] * (buckets - len(bounds)))


class _Buckets:
    """The buckets and what is in them. Args: points: most of them; step: seconds that the first longer ones stand for."""

    def __init__(self, points: int, step: float) -> None:
        self.first, self.last = array("d"), array("d")
        self.width = 0.0
        """Seconds that a bucket stands for; 0: each is one tick."""
        self.figures: dict[Key, _Extremes] = {}
        self._points = points
        self._step = step
        self._keys: Sequence[Key] = ()
        self._row: list[tuple[_Extremes, bool]] = []
        """What the values of a tick with these keys belong to, and whether each is a counter."""
        self._place: int | None = None
        """Number of the stretch of time that the last bucket stands for."""
        self._waiting: list[Sequence[Value]] = []
        self._windows: list[CgroupWindow] = []
        """Ticks and windows of the last bucket that are not in its figures yet: some hundreds at once take a tenth of the time."""

    def add(
        self, time: float, keys: Sequence[Key], values: Sequence[Value], window: CgroupWindow | None
    ) -> None:
        """Takes in a tick with the window that it ended."""
        if self.width and self._place == math.floor(time / self.width):
            self.last[-1] = time
        else:
            self.fold()
            self._open(time)
        if keys is not self._keys:
            self.fold()
            self._keys, self._row = keys, [(self._figure(key), key[0] in COUNTERS) for key in keys]
        self._waiting.append(values)
        if window is not None:
            self._windows.append(window)
        if len(self._waiting) >= _WAITING:
            self.fold()

    def add_ticks(self, times: Array, keys: Sequence[Key], table: Array, low: Array, high: Array) -> None:
        """As `add` of each tick: a column of `table` for each of `keys`, and bounds of the window that each ended; NaN: not known."""
        import numpy as np

        self.fold()
        self._keys, self._row = keys, [(self._figure(key), key[0] in COUNTERS) for key in keys]
        columns = [(figure, counter, table[:, i]) for i, (figure, counter) in enumerate(self._row)]
        columns += [
            (self._figure((name, ())), False, bounds)
            for name, bounds in ((LEAST, low), (MOST, high))
            if not np.isnan(bounds).all()
        ]
        done = 0
        while done < len(times):
            # As many as need no longer stretches: the rest of the last bucket, and new ones up to the most that there may be.
            new = np.arange(done, len(times))
            places = np.floor(times[done:] / self.width) if self.width else new
            in_last = int(np.searchsorted(places, self._place, "right")) if self._place is not None else 0
            begins = np.flatnonzero(np.diff(places[in_last:], prepend=_UNKNOWN)) + in_last
            room = self._points - len(self.last)
            stop = len(places) if len(begins) <= room else int(begins[room])
            begins = begins[:room]
            if stop == 0:
                self._join_neighbours()
                continue
            part = times[done : done + stop]
            if in_last:
                self.last[-1] = part[in_last - 1]
            self.first.frombytes(part[begins].tobytes())
            self.last.frombytes(part[[*(begins[1:] - 1), stop - 1]].tobytes() if len(begins) else b"")
            for figure, counter, column in columns:
                figure.take_all(column[done : done + stop], in_last, begins, counter=counter)
            for figure in self.figures.values():
                figure.extend_to(len(self.last))
            self._place = int(places[stop - 1]) if self.width else None
            done += stop

    def fold(self) -> None:
        """Brings the figures of the last bucket up to date."""
        if len(self._waiting) == 1:
            for (figure, counter), value in zip(self._row, self._waiting[0], strict=True):
                if value is not None and value == value:  # noqa: PLR0124 - not NaN
                    figure.take(value, value, counter=counter)
        elif self._waiting:
            columns = zip(*self._waiting, strict=True)
            for (figure, counter), column in zip(self._row, columns, strict=True):
                known = [value for value in column if value is not None and value == value]  # noqa: PLR0124
                if known and counter:
                    figure.take(known[-1], known[-1], counter=True)
                elif known:
                    figure.take(min(known), max(known))
        for name, bounds in (
            (LEAST, [window.low for window in self._windows if window.low is not None]),
            (MOST, [window.high for window in self._windows if window.high is not None]),
        ):
            if bounds:
                self._figure((name, ())).take(min(bounds), max(bounds))
        self._waiting.clear()
        self._windows.clear()

    def _figure(self, key: Key) -> _Extremes:
        figure = self.figures.get(key)
        if figure is None:
            figure = self.figures[key] = _Extremes(len(self.last))
        return figure

    def _open(self, time: float) -> None:
        """Makes the last bucket the one of a tick at `time`, which is none of those of the last one as it is."""
        place = math.floor(time / self.width) if self.width else None
        if place is not None and place == self._place:  # since neighbours were joined
            self.last[-1] = time
            return
        if len(self.last) >= self._points:
            self._join_neighbours()
            self._open(time)
            return
        self._place = place
        self.first.append(time)
        self.last.append(time)
        for figure in self.figures.values():
            figure.low.append(_UNKNOWN)
            figure.high.append(_UNKNOWN)

    def copy(self) -> _Buckets:
        """A twin that can be changed."""
        self.fold()
        twin = _Buckets(self._points, self._step)
        twin.first, twin.last, twin.width, twin._place = self.first[:], self.last[:], self.width, self._place
        for key, figure in self.figures.items():
            copied = twin.figures[key] = _Extremes(0)
            copied.low, copied.high, copied.known = figure.low[:], figure.high[:], figure.known
        return twin

    def _join_neighbours(self) -> None:
        """Makes the stretches of time longer, until half as many are enough."""
        while len(self.last) > self._points // 2:
            self.width = self.width * 2 or 2 * self._step
            # A bucket's last tick tells its stretch: both ends of a longer one are ends of shorter ones.
            places = [math.floor(time / self.width) for time in self.last]
            begins = [i for i, place in enumerate(places) if i == 0 or place != places[i - 1]]
            parts = [slice(*pair) for pair in pairwise((*begins, len(places)))]
            for (name, _), figure in self.figures.items():
                counter = name in COUNTERS
                figure.low = array(
                    "d", [_one_of(figure.low[part], _latest if counter else min) for part in parts]
                )
                figure.high = array(
                    "d", [_one_of(figure.high[part], _latest if counter else max) for part in parts]
                )
            self.first = array("d", [self.first[part.start] for part in parts])
            self.last = array("d", [self.last[part.stop - 1] for part in parts])
            self._place = places[-1]


def _one_of(values: array[float], choose: Callable[[list[float]], float]) -> float:
    known = [value for value in values if value == value]  # noqa: PLR0124 - NaN
    return choose(known) if known else _UNKNOWN


def _latest(values: list[float]) -> float:
    return values[-1]


class Curves:
    """Takes in ticks and keeps their curves; costs some 10 us a tick, 1 MiB in all.

    Args:
        info: `run.json` as it is at the start: what `RunConditions.of` reads has to be in it.
        points: buckets at most.

    """

    def __init__(self, info: Mapping[str, Any], points: int = POINTS) -> None:
        self._conditions = conditions = RunConditions.of(info)
        self._buckets = _Buckets(points, conditions.interval or 0.1)
        self._bounds = CgroupBounds(conditions.started, conditions.charge_error, conditions.cpus)
        self._held: tuple[float, Sequence[Key], Sequence[Value]] | None = None
        """The last tick: what its window can have needed is known with the next one."""
        self._columns: Sequence[Column] | None = None
        self.lives = ProcessLives(conditions.started)

    def add(self, columns: Sequence[Column], time: float, values: Sequence[Value]) -> None:
        """Takes in a tick; `time` is monotonic seconds, `values` has one for each column. A tick out of order is left out."""
        self.add_rows(columns, ((time, *values),))

    def add_rows(self, columns: Sequence[Column], rows: Iterable[Sequence[Value]]) -> None:
        """Takes in ticks: rows of monotonic seconds and values, at most one for each column; the rest is not known."""
        if columns is not self._columns:
            self._columns = columns
            self._find(columns)
        started, buckets, keys, width = self._conditions.started, self._buckets, self._keys, self._width
        kept, group, moved_of = self._kept, self._of_group, self._moved
        for row in rows:
            tick = row if len(row) == width else (*row, *[None] * (width - len(row)))
            time = tick[0] or 0.0
            since_start = time - started
            if self._held is not None and since_start < self._held[0]:
                continue
            values, window = kept(tick), None
            if group is not None:
                usage, top, gap, peak, file, locked = group(tick)
                needed = None if usage is None or file is None else max(0, usage - file)
                values = (*values, needed)
                moved = moved_of(tick)
                known = None if None in moved or not moved else int(sum(moved))
                window = self._bounds.add_tick(
                    CgroupTick(time, usage, top, gap, peak, file, known, locked or 0)
                )
            if self._held is not None:
                buckets.add(*self._held, window)
            self._held = since_start, keys, values

    def add_table(self, columns: Sequence[Column], table: Array) -> None:
        """As `add_rows`, of an array of times and values, NaN where not known: a tenth of the time. Numbers are below 2**53."""
        import numpy as np

        while len(table) and (
            self._held is None or columns is not self._columns or self._held[1] is not self._keys
        ):
            first, table = table[0].tolist(), table[1:]
            self.add_rows(columns, [[None if v != v else v for v in first]])  # noqa: PLR0124 - NaN
        held = self._held
        since = table[:, 0] - self._conditions.started
        newest = np.maximum.accumulate(np.append(-math.inf if held is None else held[0], since))
        in_order = since >= newest[:-1]
        table, since = table[in_order], since[in_order]
        if held is None or not len(table):
            return
        # What is not recorded is a column behind all others.
        table = np.column_stack([table, np.full(len(table), _UNKNOWN)])
        values, low = table[:, self._places], np.full(len(table), _UNKNOWN)
        high = low
        if self._of_group is not None:
            _, usage, *_, file, _ = ticks = table[:, self._group_places].T
            values = np.column_stack([values, np.maximum(0, usage - file)])
            moved = (
                table[:, self._moved_places].sum(axis=1)
                if self._moved_places
                else np.full(len(table), _UNKNOWN)
            )
            ticks = np.column_stack([*ticks[:-1], moved, ticks[-1]])
            _, _, low, high = self._bounds.add_ticks(ticks)
        before = np.array([held[2]], np.float64).reshape(1, -1)
        self._buckets.add_ticks(
            np.append(held[0], since[:-1]), self._keys, np.concatenate([before, values[:-1]]), low, high
        )
        self._held = float(since[-1]), self._keys, [None if v != v else v for v in values[-1].tolist()]  # noqa: PLR0124

    def _find(self, columns: Sequence[Column]) -> None:
        kept = [
            (index, (column.metric, column.attributes))
            for index, column in enumerate(columns)
            if column.metric in GAUGES or column.metric in COUNTERS
        ]
        # Of a tick the time stands first; where a column is missing, the value behind all is taken, which is not known.
        self._places = [1 + index for index, _ in kept]
        self._kept = _getter(self._places)
        self._keys: list[Key] = [key for _, key in kept]
        self._width = len(columns) + 1
        places = {column.metric: 1 + index for index, column in reversed(list(enumerate(columns)))}
        self._of_group: Callable[[Sequence[Value]], tuple[Any, ...]] | None = None
        split = {catalog.MEMWATCH_CGROUP_MEMORY_USAGE, catalog.MEMWATCH_CGROUP_MEMORY_FILE} <= places.keys()
        if self._conditions.own_cgroup and split:
            self._keys.append((NEEDED, ()))
            if not all(metric in places for metric in _CGROUP_TICK):
                self._width += 1
            group = [places.get(metric, len(columns) + 1) for metric in _CGROUP_TICK]
            self._of_group, self._group_places = _getter(group), [0, *group]
        self._moved_places = [
            1 + i for i, column in enumerate(columns) if column.metric == catalog.MEMWATCH_TREE_DISK_IO
        ]
        self._moved = _getter(self._moved_places)

    def drawn(self, *, all_ended: bool) -> DrawnCurves:
        """The curves so far; more ticks may follow. `all_ended`: no process of the tree was alive at the last tick."""
        buckets = self._buckets.copy()
        if self._held is not None:
            in_group = self._of_group is not None
            window = next(self._bounds.rest(all_ended=all_ended), None) if in_group else None
            buckets.add(*self._held, window)
            buckets.fold()
        curves = {
            key: Curve(figure.low, figure.high) for key, figure in buckets.figures.items() if figure.known
        }
        return DrawnCurves(buckets.first, buckets.last, buckets.width, curves, self.lives)


def _getter(places: Sequence[int]) -> Callable[[Sequence[Value]], tuple[Any, ...]]:
    """What gives the values at these places."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda tick: tuple(tick[place] for place in places)


def curves_of(record: Record, samples: Samples | None = None) -> Curves:
    """The curves of a record: the same that its monitor had at the end. Reads all ticks and lines of processes once.

    `samples`: its ticks with all that is drawn, where they have been read and nothing of them is damaged.
    """
    curves = Curves(record.info)
    if samples is not None:
        for begin in range(0, len(samples), _TOGETHER):
            curves.add_table(samples.columns, _table_of(samples, begin, record.started))
    elif record.is_long:
        columns = record.columns
        for table in record.tick_tables():
            curves.add_table(columns, table)
    else:
        columns = record.columns
        for rows in record.tick_rows():
            curves.add_rows(columns, rows)
    for process in record.process_records():
        curves.lives.add(process)
    return curves


def _table_of(samples: Samples, begin: int, started: float) -> Array:
    """Some ticks as rows of the time that was recorded, and values."""
    import numpy as np

    part = slice(begin, begin + _TOGETHER)
    times = np.round(samples.time[part] + started, TICK_DECIMALS)
    return np.column_stack([times, *(samples.values(column)[part] for column in samples.columns)])
