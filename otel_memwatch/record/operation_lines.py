"""Operations from the lines of one `operations-<pid>.jsonl`, added while the file grows or afterwards."""

from __future__ import annotations

from math import inf

from otel_memwatch.model import Certainty, Peak, RecordedOperation
from otel_memwatch.record.operation_line import OperationLine
from otel_memwatch.record.segments import Segments
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple
from otel_memwatch.truth.operation import operation_peak, operation_peak_so_far

if TYPE_CHECKING:
    from collections.abc import Iterable

_CERTAINTIES = {certainty.value: certainty for certainty in Certainty}
_TOTALS = ("minor_faults", "major_faults", "read_bytes", "write_bytes", "read_chars", "write_chars")
_UNKNOWN = -1
_new_tuple = tuple.__new__
_MOST = 1 << 62
"""Upper limit of a size in bytes: an OTLP file may contain a larger number."""


class OperationRow(NamedTuple):
    """Searched and summed figures of an operation; the operation itself is built on request."""

    pid: int
    identity: int
    """Number in its process."""
    name: str
    start: float
    """Monotonic seconds."""
    end: float
    """Monotonic seconds; infinity: never closed."""
    low: int
    """Bytes that its process certainly had in it; -1: not known."""
    high: int
    """Bytes that its process did not exceed in it; -1: not known."""
    peak: int | None
    """Bytes."""
    cpu: float | None
    """CPU seconds of its process."""
    failed: bool
    exported: bool
    """True if the program exports the operation itself."""
    has_gpu: bool
    """True if it has values of a GPU's allocator."""
    source: RecordedOperation | tuple[OperationLines, OperationLine, OperationLine]
    """The operation, or the lines of its process with its opening and its closing."""

    def operation(self) -> RecordedOperation:
        """Return the operation."""
        if isinstance(self.source, RecordedOperation):
            return self.source
        lines, opening, closing = self.source
        return lines.operation(opening, closing)

    def levels(self) -> tuple[int | None, int | None]:
        """Return the resident memory of its process at its start and at its end, in bytes."""
        source = self.source
        if isinstance(source, RecordedOperation):
            return source.start_bytes, source.end_bytes
        return source[1].rss, source[2].rss

    def ids(self) -> tuple[str | None, str | None]:
        """Return the ids of its span and of the enclosing one."""
        source = self.source
        if isinstance(source, RecordedOperation):
            return source.span_id, source.parent_span_id
        return source[1].span, source[1].parent


def row_of(operation: RecordedOperation) -> OperationRow:
    """Return the row of an operation that has no lines, or that is still open."""
    low, high = sizes(operation.peak)
    return OperationRow(
        operation.pid,
        operation.id,
        operation.name,
        operation.start,
        inf if operation.end is None else operation.end,
        low,
        high,
        None if operation.peak is None else operation.peak.bytes,
        operation.totals.get("cpu_seconds"),
        operation.status == "error",
        operation.exported,
        bool(operation.gpu),
        operation,
    )


def sizes(peak: Peak | None) -> tuple[int, int]:
    """Return lower and upper bound of a peak; -1: not known."""
    if peak is None:
        return _UNKNOWN, _UNKNOWN
    low, high = ((_UNKNOWN if bound is None else min(bound, _MOST)) for bound in (peak.low, peak.high))
    return low, high


class OperationLines:
    """Operations in the lines of one process.

    Attributes:
        pid: PID from the header, otherwise from the file's name.
        start: start of the process in monotonic seconds; `None`: the header is missing.
        exact: true if the process resets its high-water mark at each boundary.
        rank: number among the processes of a launcher (torchrun, mpirun, srun); `None`: unknown.
        largest: (bytes, monotonic seconds) of the largest segment so far. With resets, it is the process's lifetime
            peak up to its last boundary; `None` before the first.
        last_time: monotonic seconds of the last boundary.
        opened: number of operations that have begun.
        damaged: number of invalid lines.
        first_heap: the first reading of its allocators, as written; `None`: none.
        last_heap: the last one.

    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.start: float | None = None
        self.exact = False
        self.rank: int | None = None
        self.largest: tuple[int, float] | None = None
        self.last_time: float | None = None
        self.opened = self.damaged = 0
        self.first_heap: dict[str, Any] | None = None
        self.last_heap: dict[str, Any] | None = None
        self._segments = Segments()
        self._boundaries = 0
        self._open: dict[int, OperationLine] = {}

    def add(self, lines: Iterable[OperationLine | None]) -> list[OperationRow]:
        """Add lines; return the rows of the operations that they close."""
        # In one loop with local names: a program may write a hundred thousand operations a second.
        closed: list[OperationRow] = []
        segments: list[int] = []
        open_now = self._open
        most = -1 if self.largest is None else self.largest[0]
        first = number = self._boundaries
        for line in lines:
            if line is None:
                self.damaged += 1
                continue
            time, opened = line.time, line.open
            if time is None or (opened is None and line.close is None):
                self._add_header(line)
                continue
            number += 1
            self.last_time = time
            segment = line.segment
            if segment is None:
                segment = -1
            segments.append(segment)
            if segment > most:
                most = segment
                self.largest = segment, time
            if opened is not None:
                line.boundary = number
                open_now[opened] = line
                self.opened += 1
                continue
            opening = open_now.pop(line.close, None)  # type: ignore[arg-type]
            if opening is None:
                self.damaged += 1
            else:
                closed.append(self.row(opening, line))
        self._segments.push_all(first + 1, segments)
        self._boundaries = number
        return closed

    def _add_header(self, line: OperationLine) -> None:
        if line.schema is None or line.open is not None or line.close is not None:
            self.damaged += 1
            return
        self.pid = line.pid or self.pid
        self.start, self.exact, self.rank = line.start, line.exact is True, line.rank
        if line.heap is not None:
            self.first_heap, self.last_heap = self.first_heap or line.heap, line.heap

    def row(self, opening: OperationLine, closing: OperationLine) -> OperationRow:
        """Return the row of two lines."""
        low, high, peak = closing.low, closing.high, closing.peak
        user, system = closing.cpu_user, closing.cpu_system
        if peak is None or low is None or high is None:
            low, high = sizes(peak_of(closing, self.pid))
        # Without the constructor of the class, in two thirds of the time.
        return _new_tuple(
            OperationRow,
            (
                self.pid,
                opening.open,
                opening.name or "",
                opening.time,
                closing.time,
                low,
                high,
                peak,
                None if user is None or system is None else user + system,
                closing.status == "error",
                opening.exported is True,
                bool(closing.gpu),
                (self, opening, closing),
            ),
        )

    def still_open(self) -> list[RecordedOperation]:
        """Return the operations open after the last line, in opening order, with their peak so far."""
        return [self.operation(opening, None) for opening in self._open.values()]

    def operation(self, opening: OperationLine, closing: OperationLine | None) -> RecordedOperation:
        """Return the operation of an opening and its closing line; without the closing, it is still open."""
        closed = closing is not None
        closing = closing or _NO_LINE
        return RecordedOperation(
            name=opening.name or "",
            pid=self.pid,
            id=opening.open or 0,
            start=opening.time or 0.0,
            end=closing.time,
            status=(closing.status or "ok") if closed else "open",
            trace_id=opening.trace or "",
            span_id=opening.span or "",
            parent_span_id=opening.parent,
            peak=peak_of(closing, self.pid) if closed else self._peak_so_far(opening),
            start_bytes=opening.rss,
            end_bytes=closing.rss,
            error=closing.error or None,
            thread=opening.thread,
            attributes={**(opening.attributes or {}), **(closing.attributes or {})},
            totals=_totals(closing),
            gpu=closing.gpu or {},
            exported=opening.exported is True,
        )

    def _peak_so_far(self, opening: OperationLine) -> Peak | None:
        """Return the peak so far: the largest segment since the opening if the process resets, else the opening size."""
        low = opening.rss or 0
        if self.exact:
            low = max(low, self._segments.since(opening.boundary or 0) or 0)
        return operation_peak_so_far(low, self.pid)


_NO_LINE = OperationLine()


def peak_of(closing: OperationLine, pid: int) -> Peak | None:
    """Return the peak in a closing line; `None`: none."""
    if closing.peak is None:
        return None
    certainty = _CERTAINTIES.get(closing.certainty or "", Certainty.SAMPLED)
    return operation_peak(closing.peak, certainty, closing.low, closing.high, pid)


def _totals(closing: OperationLine) -> dict[str, float]:
    totals: dict[str, float] = {}
    if closing.cpu_user is not None and closing.cpu_system is not None:
        totals["cpu_seconds"] = round(closing.cpu_user + closing.cpu_system, 6)
    for name in _TOTALS:
        value = getattr(closing, name)
        if value is not None:
            totals[name] = value
    return totals
