"""The samples of a run as arrays.

A day at ten samples a second is 30 million values. Lines are parsed a few thousand at a time, by `msgspec` in long
files. Only the requested columns are kept.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from bisect import bisect_right
from itertools import pairwise

from otel_memwatch.model import Column
from otel_memwatch.record.fields import FARTHEST, mapping, moment, number, text
from otel_memwatch.record.format import TICK_DECIMALS
from otel_memwatch.record.jsonl import (
    MAX_DAMAGED,
    MAX_LINE,
    Damage,
    GarbageGuard,
    line_blocks,
    open_regular,
    parse,
)
from otel_memwatch.record.schema import columns_of, sample_maker
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import io
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from otel_memwatch.model import Value
    from otel_memwatch.record.schema import Sample

    Array = NDArray[np.float64]

_SOUGHT = 1024 * 1024
"""Bytes searched at once for the beginnings of lines."""

_BLOCK = 256 * 1024
"""Bytes parsed at once: few enough that the resulting objects do not outlive a garbage collection."""

MAX_COLUMNS = 100_000
"""Columns that one file may declare; a header with more is damage."""

_VALUES = 16_000_000
_VALUES_PER_BYTE = 4
"""Limit of samples times columns in a file: a fixed number, plus a number for each byte of its samples.

A sample may omit unknown values, so a few megabytes could represent terabytes. Our files have a value for every five
bytes.
"""


_TOGETHER = 4096
"""Samples converted to Python numbers at a time."""

Row = list[float | None]


def column_name(metric: str, attributes: Iterable[tuple[str, str]]) -> str:
    """Return `name{key=value,...}`, or the name alone."""
    text = ",".join(f"{key}={value}" for key, value in attributes)
    return f"{metric}{{{text}}}" if text else metric


class SampleBlock(NamedTuple):
    """A few thousand samples with the same columns."""

    columns: tuple[Column, ...]
    rows: list[Row]
    """Time and values of each sample. A row may be shorter than the columns, never longer: the rest is unknown."""
    sound: bool
    """True if all rows are certainly samples. `is_tick`, which takes as long as parsing them, is then unnecessary."""


class Reduced(NamedTuple):
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
        return f"<Samples: {len(self)} ticks of {len(self.columns)} series>"

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
    ) -> Reduced:
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
            return Reduced(empty, empty, empty)
        time, values = self.known(column)
        first = 0 if start is None else int(np.searchsorted(time, start, "left"))
        last = len(time) if end is None else int(np.searchsorted(time, end, "right"))
        time, values = time[first:last], values[first:last]
        if len(time) <= bins:
            return Reduced(time, values, values)
        width = (time[-1] - time[0]) / bins
        if width <= 0:
            return Reduced(time[:1], values.min(keepdims=True), values.max(keepdims=True))
        edges = np.searchsorted(time, time[0] + width * np.arange(bins), "left")
        edges = np.unique(np.minimum(edges, len(time) - 1))
        ends = np.append(edges[1:], len(time)) - 1
        middle = (time[edges] + time[ends]) / 2
        return Reduced(middle, np.minimum.reduceat(values, edges), np.maximum.reduceat(values, edges))


def _known(array: Array) -> list[Value]:
    """Return the values as Python numbers, `None` if unknown."""
    values: list[Value] = array.tolist()
    for index in (array != array).nonzero()[0].tolist():  # noqa: PLR0124 - NaN
        values[index] = None
    return values


def parse_columns(declared: Any) -> tuple[Column, ...] | None:
    """Return the columns that a header line declares; `None` if the line is not a header."""
    listed = mapping(declared).get("columns")
    if not isinstance(listed, list) or len(listed) > MAX_COLUMNS:
        return None
    columns = []
    for entry in listed:
        fields = mapping(entry)
        metric = text(fields.get("metric"))
        if metric is None:
            return None
        attributes = sorted(
            (k, v) for k, v in mapping(fields.get("attributes")).items() if isinstance(v, str)
        )
        columns.append(Column(metric, tuple(attributes), number(fields.get("period")) or 0.0))
    return tuple(columns)


def declared_columns(path: Path) -> tuple[Column, ...]:
    """Return all columns that any header of `samples.jsonl` declares, in the order of their first declaration.

    A source that opens late adds a second header in the middle of the file. Costs a search for the beginnings of
    lines, about 1 s per GiB. Raises nothing: an unreadable file declares nothing.
    """
    found: dict[Column, None] = {}
    damaged = 0
    # Like `sample_blocks`: ignore a declaration that would exceed the limit of columns.
    with contextlib.suppress(OSError), os.fdopen(open_regular(path), "rb", buffering=0) as file:
        for line in _objects(file):
            declared = parse_columns(parse(line))
            fresh = {column: None for column in declared or () if column not in found}
            if declared is None or len(found) + len(fresh) > MAX_COLUMNS:
                damaged += 1
                if damaged > MAX_DAMAGED:
                    break
            else:
                found.update(fresh)
    return tuple(found)


def last_columns(path: Path, begin: int = 0) -> tuple[Column, ...] | None:
    """Return the columns in force at the end of the file; `None` if none are declared after `begin` bytes.

    Cost and errors are those of `declared_columns`.
    """
    last = None
    with contextlib.suppress(OSError), os.fdopen(open_regular(path), "rb", buffering=0) as file:
        file.seek(begin)
        for line in _objects(file):
            last = parse_columns(parse(line)) or last
    return last


def _objects(file: io.FileIO) -> Iterator[bytes]:
    """Yield the lines that are objects, from the file's position. It is read, not mapped: mapped pages count as our memory."""
    offset, before = file.tell(), b"\n"
    garbage = GarbageGuard()
    while (data := file.read(_SOUGHT)) and not garbage.exceeded(data):
        sought = before + data
        index = sought.find(b"\n{")
        while index >= 0:
            end = sought.find(b"\n", index + 1)
            if end >= 0:
                yield sought[index + 1 : end]
            else:
                beginning = offset - len(before) + index + 1
                yield os.pread(file.fileno(), MAX_LINE, beginning).partition(b"\n")[0]
            index = sought.find(b"\n{", index + 1)
        offset, before = offset + len(data), data[-1:]


def sample_blocks(
    path: Path,
    damage: Damage,
    begin: int = 0,
    columns: tuple[Column, ...] | None = None,
    *,
    plain: bool = False,
) -> Iterator[SampleBlock]:
    """Yield the samples of `samples.jsonl`, a few thousand at a time, with their columns.

    Samples before the first header are damage: their columns are unknown.

    Args:
        path: the file.
        damage: counter of unreadable lines.
        begin: bytes of the file to skip.
        columns: columns in force at `begin`, see `last_columns`.
        plain: use the standard library only, as in the watched program.
    """
    known = set(columns or ())
    values, size = 0, 0
    decode = None if plain else _typed_decoder(path)
    for stretch in _stretches(path, damage, begin):
        if damage.lines > MAX_DAMAGED:
            continue  # the next block is not read
        fresh: set[Column] = set()
        lines = stretch
        if stretch and stretch[0][:1] == b"{":
            declared = parse_columns(parse(stretch[0]))
            fresh = {column for column in declared or () if column not in known}
            if declared is None or len(known) + len(fresh) > MAX_COLUMNS:
                damage.lines += 1
            else:
                columns = declared
                known |= fresh
            lines = stretch[1:]
        if columns is None:
            damage.lines += len(lines)
            continue
        rows, sound = _rows(lines, len(columns), damage, decode)
        values += len(rows) * len(columns)
        size += sum(map(len, lines))
        if values > _VALUES + _VALUES_PER_BYTE * size:
            damage.give_up(f"its ticks leave out most of the {len(columns)} columns that it declares")
            return
        if rows or fresh:
            yield SampleBlock(columns, rows, sound)


_LONG = 2 << 20
"""Size of the samples in bytes above which `msgspec` saves more time than its import takes (25 ms)."""


def _typed_decoder(path: Path) -> Callable[[bytes], list[Row] | None] | None:
    """Return a decoder of an array of rows that checks all values, in a third of the time of `json`.

    `None`: the file is short, or `msgspec` is not installed. The decoder returns `None` unless all values are numbers.
    """
    try:
        if os.stat(path).st_size <= _LONG:
            return None
        from typing import Annotated

        from msgspec import DecodeError, Meta
        from msgspec.json import Decoder
    except (OSError, ImportError):
        return None
    whole: Any = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
    decoder: Any = Decoder(list[list[whole | float | None]])

    def decode(text: bytes) -> list[Row] | None:
        try:
            rows: list[Row] = decoder.decode(text)
        except (DecodeError, RecursionError):
            return None
        return rows

    return decode


def _stretches(path: Path, damage: Damage, begin: int) -> Iterator[list[bytes]]:
    """Yield the lines, a few thousand at a time; a header is always the first of its stretch."""
    for lines in line_blocks(path, damage, _BLOCK, begin):
        begins = [index for index, line in enumerate(lines) if index and line[:1] == b"{"]
        for first, end in pairwise((0, *begins, len(lines))):
            yield lines[first:end]


def _rows(
    lines: list[bytes], width: int, damage: Damage, decode: Callable[[bytes], list[Row] | None] | None
) -> tuple[list[Row], bool]:
    """Return the rows of lines that are arrays, and whether all are certainly samples.

    Valid lines are parsed all at once, otherwise one by one.
    """
    text = b"[" + b",".join(lines) + b"]"
    rows = None if decode is None else decode(text)
    are_numbers = rows is not None
    if rows is None:
        try:
            rows = json.loads(text, parse_constant=_not_known)
        except (ValueError, RecursionError):
            rows = None
    if rows is not None and len(rows) == len(lines) and all(_fits(row, width) for row in rows):
        sound = bool(rows) and (are_numbers or _are_numbers(text, len(rows)))
        return rows, sound and _are_moments([row[0] for row in rows])
    kept = []
    for line in lines:
        row = parse(line)
        if _fits(row, width):
            kept.append(row)
        else:
            damage.lines += 1
    return kept, False


_DIGITS = 300
"""Number of consecutive digits up to which every number without an exponent is finite."""
_KINDS = bytes(48 if 48 <= byte <= 57 else 32 if byte in b",.-[] \tnul" else 33 for byte in range(256))
"""Class of each byte: digit (48), other character of arrays of numbers and nulls (32), anything else (33)."""


def _are_numbers(text: bytes, rows: int) -> bool:
    """Return whether an array of `rows` arrays contains only finite numbers and nulls.

    It checks the text: a check of each of a day's thirty million values would take as long as parsing them.
    """
    kinds = text.translate(_KINDS)
    return b"!" not in kinds and b"0" * _DIGITS not in kinds and text.count(b"[") == rows + 1


def _are_moments(times: list[Any]) -> bool:
    return bool(min(times) >= -FARTHEST and max(times) <= FARTHEST)


def _not_known(_: str) -> None:
    """Return `None` for `NaN` and `Infinity`: they are not JSON, and their values are unknown."""


def _fits(row: Any, width: int) -> bool:
    return type(row) is list and 1 <= len(row) <= width + 1 and row[0] is not None


def is_tick(row: Sequence[Any]) -> bool:
    """Return whether a row is a time followed by numbers or nulls, all finite."""
    if moment(row[0]) is None:
        return False
    # All at once, because a day has thirty million values; one by one only if a value is unusual.
    if _NUMBERS.issuperset(map(type, row)):
        known = [value for value in row if value is not None]
        if min(known) > -_SURELY_FINITE and max(known) < _SURELY_FINITE:
            return True
    return all(value is None or number(value) is not None for value in row)


_NUMBERS = frozenset((int, float, type(None)))
_SURELY_FINITE = 1e300


def read_samples(path: Path, damage: Damage, started: float, wanted: Iterable[str] | None = None) -> Samples:
    """Read the samples of `samples.jsonl`; `wanted` names the metrics to keep, all if `None`.

    The result includes declared columns without a value. `started` is the start of the run in monotonic seconds.
    Samples with a decreasing time (damage) are skipped.
    """
    names = None if wanted is None else frozenset(wanted)
    time = _Growing(0.0)
    growing: dict[Column, _Growing] = {}
    for columns, rows, _ in sample_blocks(path, damage):
        for column in columns:
            if column not in growing and (names is None or column.metric in names):
                growing[column] = _Growing(math.nan)
        table = _table(rows, len(columns) + 1, damage)
        begin = time.length
        time.put(begin, table[:, 0] - started)
        for index, column in enumerate(columns, 1):
            if column in growing:
                growing[column].put(begin, table[:, index])
    return _sorted(time.whole(time.length), {c: g.whole(time.length) for c, g in growing.items()}, damage)


class _Growing:
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


def _sorted(time: Array, values: dict[Column, Array], damage: Damage) -> Samples:
    """Return the samples without those outside a longest non-decreasing subsequence of times."""
    import numpy as np

    if len(time) and bool(np.any(np.diff(time) < 0)):
        kept = np.array(_longest_rise(time.tolist()))
        damage.lines += len(time) - len(kept)
        time, values = time[kept], {column: array[kept] for column, array in values.items()}
    return Samples(time, list(values), values)


def _table(rows: list[Row], width: int, damage: Damage) -> Array:
    """Return rows of different lengths as one array; NaN for unknown values."""
    import numpy as np

    padded = _padded(rows, width)
    try:
        table = np.array(padded, dtype=np.float64).reshape(-1, width)
    except (ValueError, TypeError, OverflowError):
        sound = [row for row in padded if is_tick(row)]
        damage.lines += len(padded) - len(sound)
        table = np.array(sound, dtype=np.float64).reshape(-1, width)
    table[np.isinf(table)] = math.nan
    timed = np.abs(table[:, 0]) <= FARTHEST
    if not bool(timed.all()):
        damage.lines += int((~timed).sum())
        table = table[timed]
    return table


def _padded(rows: list[Row], width: int) -> list[Row]:
    fillings: dict[int, Row] = {}
    for index, row in enumerate(rows):
        missing = width - len(row)
        if missing:
            rows[index] = row + fillings.setdefault(missing, [None] * missing)
    return rows


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
