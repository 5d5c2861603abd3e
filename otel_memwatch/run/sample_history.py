"""Samples of a run in little memory while it is recorded, for the figures of its operations.

The figures of an operation follow from the samples between its two boundaries and next to these. So only the largest values
of all samples between two boundaries are kept:

    samples      .  .  .  .  .  .  .  .  .  .  .  .  .
    boundaries         |                    |
    kept         [   ] .  .  [          ] . .  [   ]

Figures at the boundaries are the same as from all samples. Figures at other moments are unavailable.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from operator import attrgetter

from otel_memwatch.run.aggregate import TOTALS
from otel_memwatch.run.cgroup_bounds import CgroupBounds, CgroupWindow
from otel_memwatch.run.faults_elsewhere import FaultsElsewhere
from otel_memwatch.run.ledger_bounds import LedgerWindows
from otel_memwatch.run.sample_series import CgroupHistory, SampleSeries
from otel_memwatch.run.tree_bounds import Span
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from otel_memwatch.model import Value
    from otel_memwatch.record.schema import Sample
    from otel_memwatch.run.conditions import RunConditions
    from otel_memwatch.truth.cgroup import UncountedFaults

_ABOVE = 2048
"""Samples up to which nothing is merged; merging so many takes a few milliseconds."""

_NEIGHBOURS = 2
"""Samples to keep on each side of a boundary: a window is known one sample later, and reading takes a moment."""

_MAXIMA = ("main", "rss", "pss", "needed", "unmapped", "certain", "likely", "left")

_totals_of = attrgetter(*TOTALS)
_figures_of = attrgetter(
    "main", "rss", "pss", "usage", "file", "shmem", "kernel", "needed_low", "needed", "needed_left", *TOTALS
)

_UNTIL = -4
"""Place in a row of the moment by which its sample was read."""


class HistoricSeries(NamedTuple):
    """Series for the figures of operations, equal to those of `TreeSeries` for a record."""

    main: SampleSeries
    rss: SampleSeries
    pss: SampleSeries
    needed: SampleSeries
    unmapped: SampleSeries
    certain: SampleSeries
    likely: SampleSeries
    left: SampleSeries
    watermark: SampleSeries
    windows: CgroupHistory
    most_charged: int
    uncounted: UncountedFaults
    faults: int
    mapped: int
    counters: Mapping[str, SampleSeries]
    unseen: tuple[Span, ...]
    longest_reading: float

    def unseen_spans(self) -> list[Span]:
        """Return the processes that no sample saw: their number, and the two intervals between samples they lived in."""
        return list(self.unseen)


class SampleHistory:
    """Add samples one by one, and return the series for the figures of operations.

    Args:
        conditions: of the run.
    """

    def __init__(self, conditions: RunConditions) -> None:
        self._conditions = conditions
        self._rows: list[tuple[float, ...]] = []
        """Monotonic seconds, the `_MAXIMA`, the `TOTALS`, then four numbers; -1: not known.

        The four numbers are the moment by which the sample was read and, for short-lived processes, start, largest number
        in one window, and 1 if several windows are merged."""
        self._figures: tuple[Value, ...] = ()
        self._row: tuple[float, ...] = ()
        """Figures of the last sample, and their part of its row."""
        self._bounds = CgroupBounds(conditions)
        self._ledger = LedgerWindows(conditions)
        self._windows: list[CgroupWindow] = []
        self._unseen_level = 0.0
        self._counted = conditions.started, conditions.started
        """Moments of the last two samples that counted short-lived processes."""
        self._faults_elsewhere = FaultsElsewhere(conditions.faults_before)
        self._most_charged: tuple[float, int] | None = None
        self._most_mapped = 0
        self._merge_above = _ABOVE

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, sample: Sample) -> None:
        """Add a sample."""
        time = sample.time
        since, new, level = time, 0.0, sample.unseen
        if level is not None:
            # Short-lived processes. One may be reported a sample late, so it began after the sample before the last.
            since, self._counted = self._counted[0], (self._counted[1], time)
            new, self._unseen_level = max(0, level - self._unseen_level), max(level, self._unseen_level)
        figures = _figures_of(sample)
        if figures != self._figures:
            self._figures, self._row = figures, _row_of(sample)
        until = self._conditions.read_until(time, sample.reading)
        self._rows.append((time, *self._row, until, since, new, 0))
        watermark = sample.watermark
        if watermark is not None and (self._most_charged is None or watermark > self._most_charged[1]):
            self._most_charged = time, int(watermark)
        if sample.faults is not None and sample.cgroup_faults is not None:
            self._faults_elsewhere.add(time, int(sample.faults), int(sample.cgroup_faults))
        self._most_mapped = max(self._most_mapped, int(sample.main_file or 0))
        window = self._bounds.add(sample) if self._conditions.own_cgroup else self._ledger.add(sample)
        if window is not None:
            self._windows.append(window)

    def merge(self, boundaries: Callable[[], Iterable[float]], horizon: float) -> None:
        """Merge old samples to release memory.

        Args:
            boundaries: yields the moments of later questions, in monotonic seconds.
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

    def series(self, *, all_ended: bool) -> HistoricSeries:
        """Return the series so far. `all_ended`: none of the tree's processes outlived the last sample."""
        known = self._most_charged is not None
        windows = list(self._windows)
        if not self._conditions.own_cgroup:
            windows += self._ledger.rest(all_ended=all_ended)
        elif known:
            windows += self._bounds.rest(all_ended=all_ended)
        else:
            windows = []
        marks = () if self._most_charged is None else (self._most_charged,)
        counters = {
            name: series
            for place, name in enumerate(TOTALS, 1 + len(_MAXIMA))
            if (series := self._series(place)).known
        }
        main, rss, pss, needed, unmapped, certain, likely, left = map(
            self._series, range(1, 1 + len(_MAXIMA))
        )
        return HistoricSeries(
            main,
            rss,
            pss,
            needed,
            unmapped,
            certain,
            likely,
            left,
            watermark=SampleSeries(
                array("d", [time for time, _ in marks]), array("d", [float(mark) for _, mark in marks])
            ),
            windows=CgroupHistory.of(windows),
            most_charged=marks[0][1] if marks else 0,
            uncounted=self._faults_elsewhere.uncounted,
            faults=self._faults_elsewhere.of_tree,
            mapped=self._most_mapped,
            counters=counters,
            # Each lasts for two intervals. So three of them share a moment: the processes of all count at it.
            unseen=tuple(
                Span(since, until, 0, int(most * (3 if several else 1)))
                for *_, until, since, most, several in self._rows
                if most
            ),
            longest_reading=max((row[_UNTIL] - row[0] for row in self._rows), default=0.0),
        )

    def _series(self, place: int) -> SampleSeries:
        known = [(row[0], row[place], row[_UNTIL]) for row in self._rows if row[place] >= 0]
        return SampleSeries(
            *(array("d", values) for values in (zip(*known, strict=True) if known else [()] * 3))
        )


def _thinned(
    items: list[Any],
    starts: Sequence[float],
    ends: Sequence[float],
    borders: Sequence[float],
    merged: Callable[[list[Any]], object],
) -> list[Any]:
    """Keep the items next to a border and after the last border; merge the others between two borders into one."""
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
    # Counters never fall: their largest value is their last known one. So is the moment by which a sample was read.
    return (times[-1], *map(max, columns), min(since), max(most), 1)


def _merged_windows(windows: list[CgroupWindow]) -> CgroupWindow:
    lows = [window.low for window in windows if window.low is not None]
    highs = [window.high for window in windows]
    high = None if None in highs else max(high for high in highs if high is not None)
    return CgroupWindow(windows[0].start, windows[-1].end, windows[-1].until, max(lows, default=None), high)


def _row_of(sample: Sample) -> tuple[float, ...]:
    """Return the `_MAXIMA` and the `TOTALS` of a sample."""
    usage, file, shmem, kernel = sample.usage, sample.file, sample.shmem, sample.kernel
    return (
        _known(sample.main),
        _known(sample.rss),
        _known(sample.pss),
        -1 if usage is None or file is None else max(0, usage - file),
        -1 if shmem is None or kernel is None else shmem + kernel,
        _known(sample.needed_low),
        _known(sample.needed),
        _known(sample.needed_left),
        *map(_known, _totals_of(sample)),
    )


def _known(value: Value) -> float:
    return -1 if value is None else value
