"""Index of the lines of every operation, to read any number of operations one by one, by their start.

A run may have millions of operations. Each takes a row of numbers (60 bytes) in memory. The operation itself is built from
its two lines on request, and is not kept.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict

from otel_memwatch.model import RecordedOperation
from otel_memwatch.record.format import OPERATIONS_PREFIX, OPERATIONS_SUFFIX
from otel_memwatch.record.jsonl import line_at, located_blocks
from otel_memwatch.record.operation_line import OperationLine, decode
from otel_memwatch.record.operation_lines import OperationLines, row_of
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from otel_memwatch.record.jsonl import Damage
    from otel_memwatch.record.operation_lines import OperationRow

_BLOCK = 64 * 1024
_BLOCKS = 64
"""Cached blocks of the files: operations are read nearly in the order of their lines."""
_NO_CLOSING = -1


class OperationTable:
    """Operations of a run by their start; if several start together, the longest first.

    Attributes:
        starts, ends: monotonic seconds. An infinite end means never closed.
        lows, highs: bounds of the process's peak during the operation, in bytes. -1: unknown.
        pids: process of each.
        parents: position of the enclosing operation, which comes earlier; -1: none in this run.
        depths: number of enclosing operations.
        with_gpu: positions of the operations with values of a GPU's allocator.

    """

    def __init__(self) -> None:
        self.with_gpu: list[int] = []
        self.starts, self.ends = array("d"), array("d")
        self.lows, self.highs, self.pids = array("q"), array("q"), array("q")
        self.parents, self.depths = array("q"), array("q")

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[RecordedOperation]:
        """Yield all operations, one by one."""
        return map(self.operation, range(len(self)))

    def operation(self, position: int) -> RecordedOperation:
        """Return the operation at a position."""
        return self.row(position).operation()

    def row(self, position: int) -> OperationRow:
        """Return the row of the operation at a position."""
        raise NotImplementedError

    def _nest(self, spans: Sequence[int], around: Sequence[int]) -> None:
        """Find the parents, by numbers that represent span ids (0: none). A later parent, or a cycle, counts as none."""
        wanted = set(around)
        wanted.discard(0)
        positions: dict[int, int] = {}
        for position, (span, parent) in enumerate(zip(spans, around, strict=True)):
            found = positions.get(parent, -1) if parent else -1
            self.parents.append(found)
            self.depths.append(0 if found < 0 else self.depths[found] + 1)
            if span in wanted:
                positions.setdefault(span, position)


class OperationRows(OperationTable):
    """Operations from their rows, which stay in memory."""

    def __init__(self, rows: Iterable[OperationRow]) -> None:
        super().__init__()
        self._rows = sorted(rows, key=lambda row: (row.start, -row.end))
        self.with_gpu = [position for position, row in enumerate(self._rows) if row.has_gpu]
        for row in self._rows:
            self.starts.append(row.start)
            self.ends.append(row.end)
            self.lows.append(row.low)
            self.highs.append(row.high)
            self.pids.append(row.pid)
        ids = [row.ids() for row in self._rows]
        self._nest([_number(span) for span, _ in ids], [_number(parent) for _, parent in ids])

    def row(self, position: int) -> OperationRow:
        """Return the row of the operation at a position."""
        return self._rows[position]


class ListedOperations(OperationRows):
    """Operations from a list, for example the spans that a program exported."""

    def __init__(self, operations: Iterable[RecordedOperation]) -> None:
        super().__init__(map(row_of, operations))


class OperationIndex(OperationTable):
    """Operations of a run directory.

    Args:
        directory: run directory.
        names: files of operations in it.
        damage_of: returns the `Damage` of a file.

    Attributes:
        lines: lines of each file.

    """

    def __init__(self, directory: Path, names: Sequence[str], damage_of: Callable[[str], Damage]) -> None:
        super().__init__()
        self._paths = [directory / name for name in names]
        self._blocks: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self.lines: list[OperationLines] = []
        rows = _Rows()
        self._open: dict[int, OperationRow] = {}
        for number, name in enumerate(names):
            lines = lines_of(name)
            self.lines.append(lines)
            for row in read_rows(self._paths[number], lines, damage_of(name)):
                rows.add(number, row)
            for operation, opening in zip(lines.still_open(), lines.open_lines(), strict=True):
                self._open[len(rows.starts)] = row = row_of(operation)
                rows.add(number, row, opening.offset)
        order = sorted(range(len(rows.starts)), key=rows.ends.__getitem__, reverse=True)
        order.sort(key=rows.starts.__getitem__)
        self._numbers = array("q", order)
        del order
        self.with_gpu = [place for place, number in enumerate(self._numbers) if number in rows.with_gpu]
        self._files, self._openings, self._closings = rows.files, rows.openings, rows.closings
        pids = array("q", [lines.pid for lines in self.lines])
        self.pids = array("q", (pids[rows.files[number]] for number in self._numbers))
        # Release each column of the rows before the next one is ordered.
        self.starts, rows.starts = self._ordered(rows.starts), array("d")
        self.ends, rows.ends = self._ordered(rows.ends), array("d")
        self.lows, rows.lows = self._ordered(rows.lows), array("q")
        self.highs, rows.highs = self._ordered(rows.highs), array("q")
        spans, rows.spans = self._ordered(rows.spans), array("q")
        self._nest(spans, self._ordered(rows.parents))

    def _ordered(self, column: array[Any]) -> array[Any]:
        return array(column.typecode, map(column.__getitem__, self._numbers))

    def row(self, position: int) -> OperationRow:
        """Read the lines of an operation again. If they no longer exist, return the values known here."""
        number = self._numbers[position]
        still_open = self._open.get(number)
        if still_open is not None:
            return still_open
        file = self._files[number]
        lines = self.lines[file]
        opening = self._line(file, self._openings[number])
        closing = self._line(file, self._closings[number])
        opening.time, closing.time = self.starts[position], self.ends[position]
        return lines.row(opening, closing)

    def _line(self, file: int, offset: int) -> OperationLine:
        """Return the line that begins at an offset; empty if it no longer exists."""
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
        (line,) = decode([text.strip(b"\0 \r\t") or b"{}"])
        return OperationLine() if line is None else line


def lines_of(name: str) -> OperationLines:
    """Return the still empty lines of a file of operations; the last digits of its name are the pid."""
    digits = name.removeprefix(OPERATIONS_PREFIX).removesuffix(OPERATIONS_SUFFIX).rpartition("-")[2]
    return OperationLines(int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 12 else 0)


def read_rows(path: Path, lines: OperationLines, damage: Damage) -> Iterator[OperationRow]:
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


class _Rows:
    """Rows during reading, in the order of the operations' ends."""

    def __init__(self) -> None:
        self.files, self.openings, self.closings = array("l"), array("q"), array("q")
        self.starts, self.ends = array("d"), array("d")
        self.lows, self.highs = array("q"), array("q")
        self.spans, self.parents = array("q"), array("q")
        self.with_gpu: set[int] = set()

    def add(self, file: int, row: OperationRow, opening: int | None = None) -> None:
        """Add an operation; `opening`: offset of the opening of one that was never closed."""
        if row.has_gpu:
            self.with_gpu.add(len(self.starts))
        self.files.append(file)
        if isinstance(row.source, RecordedOperation):
            self.openings.append(opening or 0)
            self.closings.append(_NO_CLOSING)
        else:
            self.openings.append(row.source[1].offset)
            self.closings.append(row.source[2].offset)
        self.starts.append(row.start)
        self.ends.append(row.end)
        self.lows.append(row.low)
        self.highs.append(row.high)
        span, parent = row.ids()
        self.spans.append(_number(span))
        self.parents.append(_number(parent))


def _number(span_id: str | None) -> int:
    """Return a number that represents a span id in this process only; 0: none."""
    return hash(span_id) if span_id else 0
