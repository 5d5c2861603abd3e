"""The samples of a run as arrays.

A day at ten samples a second is 30 million values. Only the requested columns are kept.
"""

from __future__ import annotations

import math
from bisect import bisect_right

from otel_memwatch.model import Column
from otel_memwatch.record.fields import FARTHEST
from otel_memwatch.record.format import TICK_DECIMALS
from otel_memwatch.record.jsonl import (
    Damage,
)
from otel_memwatch.record.sample_lines import is_sample, sample_blocks
from otel_memwatch.record.schema import columns_of, sample_maker
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from otel_memwatch.model import Value
    from otel_memwatch.record.jsonl import FilePath
    from otel_memwatch.record.sample_lines import Row
    from otel_memwatch.record.schema import Sample

    Array = NDArray[np.float64]

_TOGETHER = 4096
"""Samples converted to Python numbers at a time."""


def column_name(metric: str, attributes: Iterable[tuple[str, str]]) -> str:
    """Return `name{key=value,...}`, or the name alone."""
    text = ",".join(f"{key}={value}" for key, value in attributes)
    return f"{metric}{{{text}}}" if text else metric


class ReducedColumn(NamedTuple):
    """A column in few points: smallest and largest value of each bin, so no peak is lost."""

    time: Array
    """Seconds since the start of the run: the middle of each bin with a value."""
    low: Array
    high: Array


class Samples:
    """All samples of a run, column by column.

    Attributes:
        time: seconds since the start of the run, non-decreasing.
        columns: existing columns, in the order of the record.

    """

    def __init__(self, time: Array, columns: Sequence[Column], values: Mapping[Column, Array]) -> None:
        self.time = time
        self.columns = tuple(columns)
        self._values = values

    def __len__(self) -> int:
        return len(self.time)

    def __iter__(self) -> Iterator[dict[str, float]]:
        """Yield each sample as a dictionary: "seconds", and the value of each series by name, NaN if unknown.

        A `pandas.DataFrame` accepts the samples in this form; `Run.to_pandas` is faster for long runs.
        """
        names = ["seconds", *(column_name(column.metric, column.attributes) for column in self.columns)]
        for row in zip(self.time, *(self.values(column) for column in self.columns), strict=True):
            yield dict(zip(names, map(float, row), strict=True))

    def __repr__(self) -> str:
        return f"<Samples: {len(self)} samples of {len(self.columns)} series>"

    def find(
        self, metric: str, attributes: Mapping[str, str] | None = None, **more: str
    ) -> tuple[Column, ...]:
        """Return the columns of a metric with these attributes; without attributes, all of its columns."""
        wanted = {**(attributes or {}), **more}.items()
        return tuple(c for c in self.columns if c.metric == metric and wanted <= dict(c.attributes).items())

    def column(self, metric: str, attributes: Mapping[str, str] | None = None, **more: str) -> Array:
        """Return the values of the first column of `find`, NaN if unknown; all NaN if no column matches."""
        import numpy as np

        found = self.find(metric, attributes, **more)
        return self.values(found[0]) if found else np.full(len(self.time), math.nan)

    def field(self, name: str) -> Array:
        """Return a field of all samples (a key of `schema.FIELDS`), NaN if unknown."""
        import numpy as np

        found = [self.values(column) for column in columns_of(name, self.columns)]
        return sum(found[1:], found[0]) if found else np.full(len(self.time), math.nan)

    def each(self, started: float) -> Iterator[Sample]:
        """Yield the samples one by one; `started`: monotonic seconds of the start of the run."""
        import numpy as np

        make = sample_maker(self.columns)
        for begin in range(0, len(self.time), _TOGETHER):
            part = slice(begin, begin + _TOGETHER)
            times = np.round(self.time[part] + started, TICK_DECIMALS).tolist()
            values = (_known(self.values(column)[part]) for column in self.columns)
            yield from map(make, zip(times, *values, strict=True))

    def values(self, column: Column) -> Array:
        """Return the values of one of `columns`, one for each sample; NaN if unknown."""
        return self._values[column]

    def known(self, column: Column) -> tuple[Array, Array]:
        """Return times and values of the samples in which the column has a value."""
        import numpy as np

        values = self.values(column)
        there = ~np.isnan(values)
        return self.time[there], values[there]

    def between(self, start: float, end: float) -> Samples:
        """Return the samples from `start` to `end`, in seconds since the start of the run."""
        import numpy as np

        return self._part(
            slice(
                int(np.searchsorted(self.time, start, "left")), int(np.searchsorted(self.time, end, "right"))
            )
        )

    def last(self, number: int) -> Samples:
        """Return the last `number` samples."""
        return self._part(slice(max(0, len(self.time) - number), None))

    def _part(self, part: slice) -> Samples:
        values = {column: values[part] for column, values in self._values.items()}
        return Samples(self.time[part], self.columns, values)

    def reduced(
        self, column: Column | str, bins: int = 2000, start: float | None = None, end: float | None = None
    ) -> ReducedColumn:
        """Return the column between `start` and `end` in at most `bins` points.

        `start` and `end` are seconds since the start of the run. A bin's `low` and `high` are its smallest and largest
        value: every peak stays, to the byte. Bins without a value are omitted. With fewer values than bins, every value
        is a separate point.
        """
        import numpy as np

        if isinstance(column, str):
            column = next(iter(self.find(column)), Column(column))
        empty = np.empty(0)
        if column not in self._values or bins < 1:
            return ReducedColumn(empty, empty, empty)
        time, values = self.known(column)
        first = 0 if start is None else int(np.searchsorted(time, start, "left"))
        last = len(time) if end is None else int(np.searchsorted(time, end, "right"))
        time, values = time[first:last], values[first:last]
        if len(time) <= bins:
            return ReducedColumn(time, values, values)
        width = (time[-1] - time[0]) / bins
        if width <= 0:
            return ReducedColumn(time[:1], values.min(keepdims=True), values.max(keepdims=True))
        edges = np.searchsorted(time, time[0] + width * np.arange(bins), "left")
        edges = np.unique(np.minimum(edges, len(time) - 1))
        ends = np.append(edges[1:], len(time)) - 1
        middle = (time[edges] + time[ends]) / 2
        return ReducedColumn(middle, np.minimum.reduceat(values, edges), np.maximum.reduceat(values, edges))


def _known(array: Array) -> list[Value]:
    """Return the values as Python numbers, `None` if unknown."""
    values: list[Value] = array.tolist()
    for index in (array != array).nonzero()[0].tolist():  # noqa: PLR0124 - NaN
        values[index] = None
    return values


def read_samples(
    path: FilePath, damage: Damage, started: float, wanted: Iterable[str] | None = None
) -> Samples:
    """Read the samples of `samples.jsonl`; `wanted` names the metrics to keep, all if `None`.

    The result includes declared columns without a value. `started` is the start of the run in monotonic seconds.
    Samples with a decreasing time (damage) are skipped.
    """
    import numpy as np

    names = None if wanted is None else frozenset(wanted)
    times = _GrowingColumn(0.0)
    growing: dict[Column, _GrowingColumn] = {}
    for columns, rows, _ in sample_blocks(path, damage):
        for column in columns:
            if column not in growing and (names is None or column.metric in names):
                growing[column] = _GrowingColumn(math.nan)
        table = _table(rows, len(columns) + 1, damage)
        begin = times.length
        times.put(begin, table[:, 0] - started)
        for index, column in enumerate(columns, 1):
            if column in growing:
                growing[column].put(begin, table[:, index])
    time = times.whole(times.length)
    values = {column: grown.whole(times.length) for column, grown in growing.items()}
    if len(time) and bool(np.any(np.diff(time) < 0)):
        kept = np.array(_longest_rise(time.tolist()))
        damage.lines += len(time) - len(kept)
        time, values = time[kept], {column: array[kept] for column, array in values.items()}
    return Samples(time, list(values), values)


class _GrowingColumn:
    """Column that grows in place, so memory never holds it twice.

    Args:
        missing: default for places without a value.

    """

    def __init__(self, missing: float) -> None:
        import numpy as np

        self.length = 0
        self._missing = missing
        self._values: Array = np.empty(0)

    def put(self, begin: int, values: Array) -> None:
        """Store values at the places from `begin` on, which is at least `length`."""
        self.length = begin + len(values)
        if self.length > len(self._values):
            self._resize(max(self.length, len(self._values) * 9 // 8))
        self._values[begin : self.length] = values

    def whole(self, length: int) -> Array:
        """Return the whole column, `length` values long."""
        self._resize(length)
        return self._values

    def _resize(self, length: int) -> None:
        before = len(self._values)
        self._values.resize(length, refcheck=False)  # no other reference exists
        self._values[before:] = self._missing


def _table(rows: list[Row], width: int, damage: Damage) -> Array:
    """Return rows of different lengths as one array; NaN for unknown values."""
    import numpy as np

    fillings: dict[int, Row] = {}
    for index, row in enumerate(rows):
        missing = width - len(row)
        if missing:
            rows[index] = row + fillings.setdefault(missing, [None] * missing)
    try:
        table = np.array(rows, dtype=np.float64).reshape(-1, width)
    except (ValueError, TypeError, OverflowError):
        sound = [row for row in rows if is_sample(row)]
        damage.lines += len(rows) - len(sound)
        table = np.array(sound, dtype=np.float64).reshape(-1, width)
    table[np.isinf(table)] = math.nan
    timed = np.abs(table[:, 0]) <= FARTHEST
    if not bool(timed.all()):
        damage.lines += int((~timed).sum())
        table = table[timed]
    return table


def _longest_rise(times: list[float]) -> list[int]:
    """Return the indexes of a longest non-decreasing subsequence: the samples without misread times."""
    tails: list[float] = []
    indexes: list[int] = []
    before: list[int] = []
    for index, time in enumerate(times):
        rank = bisect_right(tails, time)
        if rank == len(tails):
            tails.append(time)
            indexes.append(index)
        else:
            tails[rank], indexes[rank] = time, index
        before.append(indexes[rank - 1] if rank else -1)
    kept = []
    index = indexes[-1]
    while index >= 0:
        kept.append(index)
        index = before[index]
    return kept[::-1]
