"""All operations of a run by their start, to read any number of them one by one.

A run may have millions of operations. Up to `_FEW` stay in memory. Of more, the numbers that are searched are rows of a
temporary database on disk, and an operation is built from its two lines on request: memory does not grow with their number.
"""

from __future__ import annotations

import os
from itertools import chain, islice
from math import inf

from otel_memwatch.model import RecordedOperation
from otel_memwatch.record.format import OPERATIONS_PREFIX, OPERATIONS_SUFFIX
from otel_memwatch.record.jsonl import line_at, located_blocks
from otel_memwatch.record.operation_line import OperationLine, decode
from otel_memwatch.record.operation_lines import OperationLines, row_of
from otel_memwatch.runtime.light import OrderedDict
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from otel_memwatch.record.jsonl import Damage, FilePath
    from otel_memwatch.record.operation_lines import OperationRow

_FEW = 1000
"""Operations that stay in memory, with their lines."""
_BLOCK = 64 * 1024
_BLOCKS = 64
"""Cached blocks of the files: operations are read nearly in the order of their lines."""
_TOGETHER = 256
"""Operations whose lines are parsed at once, in half the time."""


class Candidate(NamedTuple):
    """Numbers of an operation by which it is searched."""

    position: int
    """Number of the operation in its table."""
    pid: int
    start: float
    """Monotonic seconds."""
    end: float
    """Infinity: never closed."""
    low: int
    """Bytes that its process certainly had in it; -1: not known."""
    high: int
    """Bytes that its process did not exceed in it; -1: not known."""


class NestedOperation(NamedTuple):
    """An operation with its place among the others."""

    operation: RecordedOperation
    parent: int | None
    """Position of the enclosing operation, which comes earlier; `None`: none in this run."""
    depth: int
    """Number of enclosing operations."""


class OperationTable:
    """Operations of a run by their start; if several start together, the longest first."""

    def __len__(self) -> int:
        raise NotImplementedError

    def __iter__(self) -> Iterator[RecordedOperation]:
        """Yield all operations, one by one."""
        return (one.operation for one in self.nested())

    def nested(self) -> Iterator[NestedOperation]:
        """Yield all operations with their places, one by one. A later parent, or a cycle, counts as none."""
        raise NotImplementedError

    def row(self, position: int) -> OperationRow:
        """Return the row of the operation at a position."""
        raise NotImplementedError

    def operation(self, position: int) -> RecordedOperation:
        """Return the operation at a position."""
        return self.row(position).operation()

    def reaching(self, size: int) -> Iterator[Candidate]:
        """Yield the operations with a bound of at least `size` bytes, and those that were never closed."""
        raise NotImplementedError

    def open_between(self, begin: float, end: float) -> Iterator[Candidate]:
        """Yield the operations that were open at some time between two moments, in monotonic seconds."""
        raise NotImplementedError

    def never_closed(self) -> list[int]:
        """Return the positions of the operations that were never closed."""
        return [one.position for one in self.open_between(inf, inf)]

    def with_gpu(self) -> Iterator[RecordedOperation]:
        """Yield the operations with values of a GPU's allocator."""
        raise NotImplementedError


class OperationRows(OperationTable):
    """Operations from their rows, which stay in memory."""

    def __init__(self, rows: Iterable[OperationRow]) -> None:
        self._rows = sorted(rows, key=lambda row: (row.start, -row.end))
        self._places: list[tuple[int | None, int]] = []
        """Parent and depth of each."""
        positions: dict[str | None, int] = {}
        for position, row in enumerate(self._rows):
            span, around = row.ids()
            parent = positions.get(around) if around else None
            self._places.append((parent, 0 if parent is None else self._places[parent][1] + 1))
            positions.setdefault(span, position)

    def __len__(self) -> int:
        return len(self._rows)

    def nested(self) -> Iterator[NestedOperation]:
        """Yield all operations with their places."""
        for row, place in zip(self._rows, self._places, strict=True):
            yield NestedOperation(row.operation(), *place)

    def row(self, position: int) -> OperationRow:
        """Return the row of the operation at a position."""
        return self._rows[position]

    def reaching(self, size: int) -> Iterator[Candidate]:
        """Yield the operations with a bound of at least `size` bytes, and those that were never closed."""
        for position, row in enumerate(self._rows):
            if row.high >= size or row.low >= size or row.end == inf:
                yield Candidate(position, row.pid, row.start, row.end, row.low, row.high)

    def open_between(self, begin: float, end: float) -> Iterator[Candidate]:
        """Yield the operations that were open at some time between two moments."""
        for position, row in enumerate(self._rows):
            if row.start <= end and row.end >= begin:
                yield Candidate(position, row.pid, row.start, row.end, row.low, row.high)

    def with_gpu(self) -> Iterator[RecordedOperation]:
        """Yield the operations with values of a GPU's allocator."""
        return (row.operation() for row in self._rows if row.has_gpu)


class ListedOperations(OperationRows):
    """Operations from a list, for example the spans that a program exported."""

    def __init__(self, operations: Iterable[RecordedOperation]) -> None:
        super().__init__(map(row_of, operations))


_NO_CLOSING = -1
_PREPARE = """
PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -2000;
CREATE TABLE read (start REAL, end REAL, low, high, pid, file, opening, closing, span, parent, gpu);
CREATE TABLE operations (position INTEGER PRIMARY KEY, start REAL, end REAL, low, high, pid, file, opening, closing,
    span, parent, gpu, around, depth);
BEGIN
"""
_ORDER = """
BEGIN;
INSERT INTO operations SELECT row_number() OVER () - 1, *, NULL, 0 FROM (SELECT * FROM read ORDER BY start, end DESC, rowid);
DROP TABLE read
"""
_NEST = """
BEGIN;
CREATE INDEX spans ON operations (span) WHERE span != 0;
UPDATE operations SET around = (SELECT min(position) FROM operations AS other WHERE other.span = operations.parent
    AND other.span != 0 AND other.position < operations.position) WHERE parent != 0
"""
_NUMBERS = "SELECT position, pid, start, end, low, high FROM operations WHERE"
_LINES = "SELECT position, start, end, file, opening, closing, around, depth FROM operations"
_DEPTHS = 10_000
"""Depths of parents that stay in memory."""


class OperationIndex(OperationTable):
    """Operations of files, which are read again on request.

    Args:
        paths: files of operations.
        lines: lines of each file; more may be added while `rows` are read.
        rows: number of its file and row of each operation, in any order.
        place: file of the database; empty: a temporary one, which no directory lists. Raises `sqlite3.Error` if it is full.
    """

    def __init__(
        self,
        paths: Sequence[FilePath],
        lines: Sequence[OperationLines],
        rows: Iterable[tuple[int, OperationRow]],
        place: str,
    ) -> None:
        import sqlite3

        self._paths, self._lines = paths, lines
        self._blocks: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._open: list[OperationRow] = []
        self._database = sqlite3.connect(place, isolation_level=None, check_same_thread=False)
        self._database.executescript(_PREPARE)
        self._database.executemany(
            "INSERT INTO read VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (self._numbers(*row) for row in rows)
        )
        self._database.executescript(_ORDER)
        self._length: int
        self._length, nested = self._one("SELECT count(*), total(parent != 0) FROM operations")
        if nested:
            self._database.executescript(_NEST)
            self._count_depths()

    def _numbers(self, file: int, row: OperationRow) -> tuple[float, ...]:
        if isinstance(row.source, RecordedOperation):
            self._open.append(row)
            opening, closing = len(self._open) - 1, _NO_CLOSING
        else:
            opening, closing = row.source[1].offset, row.source[2].offset
        span, parent = map(_number, row.ids())
        return (
            row.start, row.end, row.low, row.high, row.pid, file, opening, closing, span, parent, row.has_gpu,
        )  # fmt: skip

    def _one(self, query: str, *values: float) -> tuple[Any, ...]:
        found: tuple[Any, ...] = self._database.execute(query, values).fetchone()
        return found

    def _count_depths(self) -> None:
        depths: dict[int, int] = {}
        """Depths of the latest operations; those of others are in the database."""
        cursor = self._database.execute(
            "SELECT position, around FROM operations WHERE around >= 0 ORDER BY position"
        )
        while some := cursor.fetchmany(_DEPTHS):
            for position, around in some:
                depth = depths.get(around)
                if depth is None:
                    (depth,) = self._one("SELECT depth FROM operations WHERE position = ?", around)
                    depths[around] = depth
                depths[position] = depth + 1
            self._database.executemany(
                "UPDATE operations SET depth = ? WHERE position = ?",
                [(depths[position], position) for position, _ in some],
            )
            depths.clear()

    def __len__(self) -> int:
        return self._length

    def nested(self) -> Iterator[NestedOperation]:
        """Yield all operations with their places, read from the files."""
        cursor = self._database.execute(f"{_LINES} ORDER BY position")
        while some := cursor.fetchmany(_TOGETHER):
            for row, (*_, around, depth) in zip(self._read(some), some, strict=True):
                yield NestedOperation(row.operation(), around, depth)

    def row(self, position: int) -> OperationRow:
        """Read the lines of an operation again. If they no longer exist, return the values known here."""
        (row,) = self._read([self._one(f"{_LINES} WHERE position = ?", position)])
        return row

    def reaching(self, size: int) -> Iterator[Candidate]:
        """Yield the operations with a bound of at least `size` bytes, and those that were never closed."""
        return self._candidates("high >= ? OR low >= ? OR end = ?", size, size, inf)

    def open_between(self, begin: float, end: float) -> Iterator[Candidate]:
        """Yield the operations that were open at some time between two moments."""
        return self._candidates("start <= ? AND end >= ?", end, begin)

    def _candidates(self, condition: str, *values: float) -> Iterator[Candidate]:
        found = self._database.execute(f"{_NUMBERS} {condition} ORDER BY position", values)
        return map(Candidate._make, found)

    def with_gpu(self) -> Iterator[RecordedOperation]:
        """Yield the operations with values of a GPU's allocator."""
        cursor = self._database.execute(f"{_LINES} WHERE gpu ORDER BY position")
        while some := cursor.fetchmany(_TOGETHER):
            yield from (row.operation() for row in self._read(some))

    def _read(self, rows: Sequence[tuple[Any, ...]]) -> Iterator[OperationRow]:
        """Yield the operations of some rows of `_LINES`."""
        places = [
            (file, offset)
            for _, _, _, file, opening, closing, *_ in rows
            if closing != _NO_CLOSING
            for offset in (opening, closing)
        ]
        lines = iter(decode([self._text(*place) for place in places]))
        for _, start, end, file, opening, closing, *_ in rows:
            if closing == _NO_CLOSING:
                yield self._open[opening]
                continue
            first, last = (OperationLine() if line is None else line for line in islice(lines, 2))
            first.time, last.time = start, end
            yield self._lines[file].row(first, last)

    def _text(self, file: int, offset: int) -> bytes:
        """Return the line that begins at an offset; an empty object if it no longer exists."""
        block, begin = divmod(offset, _BLOCK)
        data = self._blocks.get((file, block))
        if data is None:
            data = line_at(self._paths[file], block * _BLOCK, _BLOCK)[:_BLOCK]
            self._blocks[file, block] = data
            if len(self._blocks) > _BLOCKS:
                self._blocks.popitem(last=False)
        end = data.find(b"\n", begin)
        # A line that continues in the next block is read separately.
        text = line_at(self._paths[file], offset, 4096).partition(b"\n")[0] if end < 0 else data[begin:end]
        return text.strip(b"\0 \r\t") or b"{}"


def read_operations(
    directory: FilePath, names: Sequence[str], damage_of: Callable[[str], Damage]
) -> tuple[OperationTable, Sequence[OperationLines]]:
    """Return the operations of a run directory, and the lines of each file.

    Args:
        directory: run directory.
        names: files of operations in it.
        damage_of: returns the `Damage` of a file.
    """
    paths = [os.path.join(directory, name) for name in names]
    files: list[OperationLines] = []
    every = _rows_of(paths, files, damage_of)
    few = list(islice(every, _FEW + 1))
    if len(few) <= _FEW:
        return OperationRows(row for _, row in few), files
    from sqlite3 import Error

    try:
        return OperationIndex(paths, files, chain(few, every), ""), files
    except Error:  # no room for temporary files
        files.clear()
        return OperationIndex(paths, files, _rows_of(paths, files, damage_of), ":memory:"), files


def _rows_of(
    paths: Sequence[FilePath], files: list[OperationLines], damage_of: Callable[[str], Damage]
) -> Iterator[tuple[int, OperationRow]]:
    """Yield all rows, each with the number of its file; fill `files` meanwhile."""
    for number, path in enumerate(paths):
        name = os.path.basename(path)
        lines = lines_of(name)
        files.append(lines)
        for row in read_rows(path, lines, damage_of(name)):
            yield number, row
        for operation in lines.still_open():
            yield number, row_of(operation)


def lines_of(name: str) -> OperationLines:
    """Return the still empty lines of a file of operations; the last digits of its name are the pid."""
    digits = name.removeprefix(OPERATIONS_PREFIX).removesuffix(OPERATIONS_SUFFIX).rpartition("-")[2]
    return OperationLines(int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 12 else 0)


def read_rows(path: FilePath, lines: OperationLines, damage: Damage) -> Iterator[OperationRow]:
    """Add the lines of a file, each with its offset; yield the rows of the operations that they close."""
    size = 0
    for texts, offsets in located_blocks(path, damage):
        size += sum(map(len, texts))
        found = decode(texts, size)
        for line, offset in zip(found, offsets, strict=True):
            if line is not None:
                line.offset = offset
        yield from lines.add(found)
        damage.lines += lines.damaged
        lines.damaged = 0


def _number(span_id: str | None) -> int:
    """Return a number that represents a span id in this process only; 0: none."""
    return hash(span_id) if span_id else 0
