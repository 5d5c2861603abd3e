"""Index of the lines of every operation, to read any number of operations one by one, by their start.

A run may have millions of operations. Each takes a row of numbers (60 bytes) in memory. The operation itself is built from
its two lines on request, and is not kept.
"""

from __future__ import annotations

import math
from array import array
from collections import OrderedDict

from otel_memwatch.record.fields import moment, text, whole
from otel_memwatch.record.format import OPERATIONS_PREFIX, OPERATIONS_SUFFIX
from otel_memwatch.record.jsonl import line_at, located_lines, parse
from otel_memwatch.record.operation_lines import OpenOperation, OperationLines, peak_of
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from otel_memwatch.model import Peak, RecordedOperation
    from otel_memwatch.record.jsonl import Damage

_BLOCK = 64 * 1024
_BLOCKS = 64
"""Cached blocks of the files: operations are read nearly in the order of their lines."""
_NO_CLOSING = -1
_UNKNOWN = -1
_MOST = 1 << 62
"""Upper limit of a size in bytes: a file may contain a larger number."""


class OperationTable:
    """Operations of a run by their start; if several start together, the longest first.

    Attributes:
        starts, ends: monotonic seconds; an infinite end means never closed.
        lows, highs: lower and upper bound of the process's peak during the operation, in bytes; -1: unknown.
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


class ListedOperations(OperationTable):
    """Operations from a list, for example the spans that a program exported."""

    def __init__(self, operations: Sequence[RecordedOperation]) -> None:
        super().__init__()
        self._operations = sorted(operations, key=lambda one: (one.start, -_end(one.end)))
        self.with_gpu = [position for position, one in enumerate(self._operations) if one.gpu]
        for one in self._operations:
            self.starts.append(one.start)
            self.ends.append(_end(one.end))
            low, high = sizes(one.peak)
            self.lows.append(low)
            self.highs.append(high)
            self.pids.append(one.pid)
        self._nest(
            [_number(one.span_id) for one in self._operations],
            [_number(one.parent_span_id) for one in self._operations],
        )

    def operation(self, position: int) -> RecordedOperation:
        """Return the operation at a position."""
        return self._operations[position]


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
        self._open: dict[int, RecordedOperation] = {}
        for number, name in enumerate(names):
            digits = name.removeprefix(OPERATIONS_PREFIX).removesuffix(OPERATIONS_SUFFIX).rpartition("-")[2]
            lines = OperationLines(
                int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 12 else 0
            )
            self.lines.append(lines)
            self._read(number, lines, damage_of(name), rows)
        order = sorted(range(len(rows.starts)), key=rows.ends.__getitem__, reverse=True)
        order.sort(key=rows.starts.__getitem__)
        self._numbers = array("q", order)
        self._files = rows.files
        self._openings, self._closings = rows.openings, rows.closings
        self.with_gpu = [position for position, number in enumerate(order) if number in rows.with_gpu]
        for position in order:
            self.starts.append(rows.starts[position])
            self.ends.append(rows.ends[position])
            self.lows.append(rows.lows[position])
            self.highs.append(rows.highs[position])
            self.pids.append(self.lines[rows.files[position]].pid)
        self._nest([rows.spans[n] for n in order], [rows.parents[n] for n in order])

    def _read(self, number: int, lines: OperationLines, damage: Damage, rows: _Rows) -> None:
        offsets: dict[int, int] = {}
        for offset, data in located_lines(self._paths[number], damage):
            line = parse(data)
            if not isinstance(line, dict):
                damage.lines += 1
                continue
            try:
                opened = lines.match(line)
            except ValueError:
                damage.lines += 1
                continue
            if opened is not None:
                known = sizes(peak_of(line, lines.pid))
                places = offsets.pop(opened.identity), offset
                rows.add(number, opened, _end(moment(line.get("time"))), known, places)
                if line.get("gpu"):
                    rows.with_gpu.add(len(rows.starts) - 1)
            elif "open" in line:
                offsets[whole(line["open"]) or 0] = offset
        for opened, operation in zip(lines.open_operations(), lines.still_open(), strict=True):
            self._open[len(rows.starts)] = operation
            known = sizes(operation.peak)
            rows.add(number, opened, math.inf, known, (offsets[opened.identity], _NO_CLOSING))

    def operation(self, position: int) -> RecordedOperation:
        """Read an operation again. If its lines no longer exist, return the values known here."""
        number = self._numbers[position]
        still_open = self._open.get(number)
        if still_open is not None:
            return still_open
        file = self._files[number]
        lines = self.lines[file]
        opening = self._line(file, self._openings[number])
        closing = self._line(file, self._closings[number])
        opened = OpenOperation(whole(opening.get("open")) or 0, opening, self.starts[position], 0)
        return lines.operation(opened, closing)

    def _line(self, file: int, offset: int) -> Mapping[str, Any]:
        """Return the object that begins at an offset; empty if it no longer exists."""
        block, begin = divmod(offset, _BLOCK)
        data = self._blocks.get((file, block))
        if data is None:
            data = line_at(self._paths[file], block * _BLOCK, _BLOCK)[:_BLOCK]
            self._blocks[file, block] = data
            if len(self._blocks) > _BLOCKS:
                self._blocks.popitem(last=False)
        end = data.find(b"\n", begin)
        # A line that continues in the next block is read separately.
        line = line_at(self._paths[file], offset, 4096).partition(b"\n")[0] if end < 0 else data[begin:end]
        found = parse(line.strip(b"\0 \r\t"))
        return found if isinstance(found, dict) else {}


class _Rows:
    """Rows during reading, in the order of the operations' ends."""

    def __init__(self) -> None:
        self.files, self.openings, self.closings = array("l"), array("q"), array("q")
        self.starts, self.ends = array("d"), array("d")
        self.lows, self.highs = array("q"), array("q")
        self.spans, self.parents = array("q"), array("q")
        self.with_gpu: set[int] = set()

    def add(
        self,
        file: int,
        opened: OpenOperation,
        end: float,
        known: tuple[int, int],
        places: tuple[int, int],
    ) -> None:
        """Add an operation; `known` are its `sizes`, `places` the offsets of its two lines."""
        self.files.append(file)
        self.openings.append(places[0])
        self.closings.append(places[1])
        self.starts.append(opened.time)
        self.ends.append(end)
        self.lows.append(known[0])
        self.highs.append(known[1])
        self.spans.append(_number(text(opened.line.get("span"))))
        self.parents.append(_number(text(opened.line.get("parent"))))


def sizes(peak: Peak | None) -> tuple[int, int]:
    """Return lower and upper bound of a peak, as stored in the table."""
    if peak is None:
        return _UNKNOWN, _UNKNOWN
    low, high = ((_UNKNOWN if bound is None else min(bound, _MOST)) for bound in (peak.low, peak.high))
    return low, high


def _end(end: float | None) -> float:
    return math.inf if end is None else end


def _number(span_id: str | None) -> int:
    """Return a number that represents a span id in this process only; 0: none."""
    return hash(span_id) if span_id else 0
