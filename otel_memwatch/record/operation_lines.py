"""Operations from the lines of one `operations-<pid>.jsonl`, added one by one while the file grows or afterwards."""

from __future__ import annotations

from otel_memwatch.model import Certainty, Peak, RecordedOperation
from otel_memwatch.record.fields import FARTHEST, mapping, moment, number, text, whole
from otel_memwatch.record.jsonl import parse
from otel_memwatch.record.segments import Segments
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple
from otel_memwatch.truth.operation import operation_peak, operation_peak_so_far

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_memwatch.record.plain_pairs import PlainPairs

_MOST = 1 << 62
_CERTAINTIES = {certainty.value: certainty for certainty in Certainty}
_TOTALS = ("minor_faults", "major_faults", "read_bytes", "write_bytes", "read_chars", "write_chars")


class OpenOperation(NamedTuple):
    """Operation that is open, or that a line has just closed."""

    identity: int
    """Number in its process."""

    line: Mapping[str, Any]
    time: float
    boundary: int
    """Number of the boundary at its opening."""


class OperationLines:
    """Operations in the lines of one process.

    Attributes:
        pid: PID from the header, otherwise from the file's name.
        start: start of the process in monotonic seconds; `None`: the header is missing.
        exact: true if the process resets its high-water mark at each boundary.
        rank: number among the processes of a launcher (torchrun, mpirun, srun); `None`: unknown.
        largest: (bytes, monotonic seconds) of the largest segment so far. With resets, it is the process's lifetime
            peak up to its last boundary; `None` before the first.

    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.start: float | None = None
        self.exact = False
        self.rank: int | None = None
        self.largest: tuple[int, float] | None = None
        self.last_time: float | None = None
        """Monotonic seconds of the last boundary."""
        self._segments = Segments()
        self._boundaries = 0
        self._open: dict[int, OpenOperation] = {}

    def add(self, line: Mapping[str, Any]) -> RecordedOperation | None:
        """Add a line; return the operation that it closes. Raises `ValueError` for an invalid line."""
        opened = self.match(line)
        return None if opened is None else self.operation(opened, line)

    def match(self, line: Mapping[str, Any]) -> OpenOperation | None:
        """Add a line, without building an operation; return the opening that the line closes."""
        if "open" in line:
            self._add_opening(line)
            return None
        if "close" in line:
            return self._add_closing(line)
        if "schema" in line:
            self.pid = whole(line.get("pid")) or self.pid
            self.start = moment(line.get("start"))
            self.exact = line.get("exact") is True
            self.rank = whole(line.get("rank"))
            return None
        raise ValueError("neither header nor boundary")

    def match_pairs(self, pairs: PlainPairs) -> None:
        """Add the two lines of each pair, with the effect of `match`."""
        both = zip(pairs.start_segments, pairs.end_segments, strict=True)
        segments = [int(segment) for pair in both for segment in pair]
        largest = max(segments)
        if self.largest is None or largest > self.largest[0]:
            index, at_end = divmod(segments.index(largest), 2)
            self.largest = largest, float((pairs.ends if at_end else pairs.starts)[index])
        self._segments.push_all(self._boundaries + 1, segments)
        self._boundaries += len(segments)
        self.last_time = float(pairs.ends[-1])
        if self._open:
            for identity in pairs.identities:
                # If the number is already open, which our programs never do, the pair replaces that opening.
                self._open.pop(int(identity), None)

    @staticmethod
    def opened_and_closing(lines: str) -> tuple[OpenOperation, Mapping[str, Any]]:
        """Return the result of `match` for the second line of a pair, and this line."""
        opening, closing, _ = map(parse, lines.split("\n"))
        return OpenOperation(opening["open"], opening, opening["time"], 0), closing

    def still_open(self) -> list[RecordedOperation]:
        """Return the operations open after the last line, with their peak so far."""
        return [self.operation(opened, {}) for opened in self._open.values()]

    def open_operations(self) -> list[OpenOperation]:
        """Return the open operations in opening order, unparsed."""
        return list(self._open.values())

    def _add_boundary(self, line: Mapping[str, Any]) -> float:
        # Our programs write valid values, up to a hundred thousand a second; `moment` and `whole` check unusual ones.
        time, segment = line.get("time"), line.get("segment")
        if type(time) is not float or not 0 <= time <= FARTHEST:
            time = moment(time)
        if time is None:
            raise ValueError("a boundary without a time")
        if type(segment) is not int or not 0 <= segment < _MOST:
            segment = whole(segment)
        self._boundaries += 1
        if segment is not None:
            self._segments.push(self._boundaries, segment)
            if self.largest is None or segment > self.largest[0]:
                self.largest = segment, time
        self.last_time = time
        return time

    def _add_opening(self, line: Mapping[str, Any]) -> None:
        identity = line["open"]
        if type(identity) is not int or not 0 <= identity < _MOST:
            identity = whole(identity)
        if identity is None:
            raise ValueError("an opening without a number")
        time = self._add_boundary(line)
        self._open[identity] = OpenOperation(identity, line, time, self._boundaries)

    def _add_closing(self, line: Mapping[str, Any]) -> OpenOperation:
        identity = line["close"]
        if type(identity) is not int or not 0 <= identity < _MOST:
            identity = whole(identity)
        self._add_boundary(line)
        if identity is None or identity not in self._open:
            raise ValueError("the closing of an operation that is not open")
        return self._open.pop(identity)

    def operation(self, opened: OpenOperation, closing: Mapping[str, Any]) -> RecordedOperation:
        """Return the operation of an opening and its closing line; if `closing` is empty, it is still open."""
        opening = opened.line
        closed = bool(closing)
        status = text(closing.get("status")) or "ok"
        return RecordedOperation(
            name=text(opening.get("name")) or "",
            pid=self.pid,
            id=opened.identity,
            start=opened.time,
            end=moment(closing.get("time")),
            status=status if closed else "open",
            trace_id=text(opening.get("trace")) or "",
            span_id=text(opening.get("span")) or "",
            parent_span_id=text(opening.get("parent")),
            peak=peak_of(closing, self.pid) if closed else self._peak_so_far(opened),
            start_bytes=whole(opening.get("rss")),
            end_bytes=whole(closing.get("rss")),
            error=text(closing.get("error")) or None,
            thread=whole(opening.get("thread")),
            attributes={**mapping(opening.get("attributes")), **mapping(closing.get("attributes"))},
            totals=_totals(closing),
            gpu=mapping(closing.get("gpu")),
            exported=opening.get("exported") is True,
        )

    def _peak_so_far(self, opened: OpenOperation) -> Peak | None:
        """Return the peak so far: the largest segment since the opening if the process resets, else the opening size."""
        low = whole(opened.line.get("rss")) or 0
        if self.exact:
            low = max(low, self._segments.since(opened.boundary) or 0)
        return operation_peak_so_far(low, self.pid)


def peak_of(closing: Mapping[str, Any], pid: int) -> Peak | None:
    """Return the peak in a closing line; `None`: none."""
    value = whole(closing.get("peak"))
    if value is None:
        return None
    certainty = _CERTAINTIES.get(text(closing.get("certainty")) or "", Certainty.SAMPLED)
    return operation_peak(value, certainty, whole(closing.get("low")), whole(closing.get("high")), pid)


def _totals(closing: Mapping[str, Any]) -> dict[str, float]:
    totals: dict[str, float] = {}
    user, system = number(closing.get("cpu_user")), number(closing.get("cpu_system"))
    if user is not None and system is not None:
        totals["cpu_seconds"] = round(user + system, 6)
    for name in _TOTALS:
        value = whole(closing.get(name))
        if value is not None:
            totals[name] = value
    return totals
