"""Aggregate the operations of a run: totals by name, and the operations that needed most memory.

`OperationAggregator` adds closed operations one by one, while a run is recorded or when its record is read. Up to
`LIMIT` it keeps them all. Of more it keeps the parts of a digest, in memory that does not grow with their number.
"""

from __future__ import annotations

import heapq
from collections import deque
from functools import reduce
from itertools import repeat
from operator import add, sub

from otel_memwatch.model import RecordedOperation
from otel_memwatch.record.operation_index import ListedOperations, sizes
from otel_memwatch.record.operation_lines import peak_of
from otel_memwatch.record.plain_pairs import PlainPairs
from otel_memwatch.run.attribution import Candidate, RecordedCandidates
from otel_memwatch.run.gpu import allocator_figures
from otel_memwatch.run.operation_names import series_name
from otel_memwatch.run.operations import figures_of, position_of_peak, with_last_figures
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_memwatch.model import Peak
    from otel_memwatch.record.operation_lines import OpenOperation, OperationLines
    from otel_memwatch.run.attribution import CandidateStore
    from otel_memwatch.run.operations import OperationContext
    from otel_memwatch.run.results import OperationFigures, Peaks

LIMIT = 1000
"""Number of operations up to which every one is kept, and listed in every report."""

_LARGEST = 64
_NAMES = 1000
"""Names that have totals; the operations of others are counted."""
_OPEN = 1000
_RECENT = 512
"""Operations closed last: the peak may be found out a moment later."""
_HOLDERS, _HOLDERS_OF_MANY = 256, 8
"""Names, for each process, of operations that may hold its peak; the second limit applies above 16 marking processes."""
_TOGETHER = 8
"""Pairs that are examined one by one if one of them matters."""
_MANY = 16
_PROCESSES = 1000


class NameTotals(NamedTuple):
    """All closed operations of one name, the number at its end left out."""

    name: str
    number: int
    seconds: float
    longest: float
    mean_peak: float | None
    """Bytes, of their processes; `None`: none is known."""
    largest_peak: int | None
    cpu_seconds: float | None
    """CPU time of their processes, with the children that these waited for; `None`: not known."""
    failed: int


class OperationDigest(NamedTuple):
    """The operations of a run that has more than `LIMIT`."""

    number: int
    """Number of operations, including unclosed ones."""
    processes: int
    """Number of processes that marked operations."""
    names: tuple[NameTotals, ...]
    """Totals by name, the longest total time first."""
    unnamed: int
    """Operations with other names."""
    largest: tuple[OperationFigures, ...]
    """The operation of the run's peak, and the largest of each name; most needed first."""
    open: tuple[OperationFigures, ...]
    """Never closed, by their start, those within others after them."""
    on_devices: tuple[OperationFigures, ...]
    """The operation with the largest GPU allocator peak, for each device."""


class _Name:
    """Totals of the operations of one name, and the largest of them."""

    __slots__ = (
        "count", "cpu", "cpu_known", "failed", "largest", "largest_low", "longest", "peak_sum", "peaks", "seconds",
    )  # fmt: skip

    def __init__(self) -> None:
        self.count = self.peaks = self.failed = 0
        self.seconds = self.longest = self.peak_sum = self.cpu = 0.0
        self.cpu_known = False
        self.largest: RecordedOperation | None = None
        self.largest_low = float("-inf")
        """Bytes that it certainly had."""

    def add(self, operation: RecordedOperation, seconds: float, low: int) -> None:
        self.count += 1
        self.seconds += seconds
        self.longest = max(self.longest, seconds)
        if operation.peak is not None:
            self.peaks += 1
            self.peak_sum += operation.peak.bytes
        cpu = operation.totals.get("cpu_seconds")
        if cpu is not None:
            self.cpu += cpu
            self.cpu_known = True
        self.failed += operation.status == "error"
        if low > self.largest_low:
            self.largest, self.largest_low = operation, low

    def count_one(self, seconds: float, peak: int, cpu: float, failed: bool) -> None:
        """Count an operation that cannot be the largest of its name."""
        self.count += 1
        self.seconds += seconds
        self.longest = max(self.longest, seconds)
        self.peaks += 1
        self.peak_sum += peak
        self.cpu += cpu
        self.cpu_known = True
        self.failed += failed

    def count_all(
        self, seconds: Sequence[float], peaks: Iterable[int], cpu: Iterable[float], failed: int
    ) -> None:
        """Count several such operations, one after the other: `sum` of some Pythons rounds otherwise."""
        self.count += len(seconds)
        self.seconds = reduce(add, seconds, self.seconds)
        self.longest = max(self.longest, *seconds)
        self.peaks += len(seconds)
        self.peak_sum = reduce(add, peaks, self.peak_sum)
        self.cpu = reduce(add, cpu, self.cpu)
        self.cpu_known = True
        self.failed += failed

    def totals(self, name: str) -> NameTotals:
        largest = None if self.largest is None or self.largest.peak is None else self.largest.peak.bytes
        return NameTotals(
            name,
            self.count,
            self.seconds,
            self.longest,
            self.peak_sum / self.peaks if self.peaks else None,
            largest,
            self.cpu if self.cpu_known else None,
            self.failed,
        )


class _UnparsedOperation(NamedTuple):
    """An operation of which only the lines were read."""

    lines: OperationLines
    opened: OpenOperation
    closing: Mapping[str, Any]


if TYPE_CHECKING:
    _Source = RecordedOperation | _UnparsedOperation | tuple[OperationLines, str, str, str]
    """Source of an operation, parsed on request. The tuple holds a pair of lines: number, upper bound, both lines."""
    _Closed = tuple[int, float, float, _Source]
    """Bytes that it certainly had, start, end. A named tuple would double the cost of most operations."""


def _made(source: _Source) -> RecordedOperation:
    if isinstance(source, RecordedOperation):
        return source
    if isinstance(source, _UnparsedOperation):
        return source.lines.operation(source.opened, source.closing)
    lines, _, _, both = source
    return lines.operation(*lines.opened_and_closing(both))


def _closed(operation: RecordedOperation) -> _Closed:
    return _need(operation)[0], operation.start, _end(operation), operation


def _bounded(closed: _Closed) -> tuple[int, int, int, int]:
    """Return its process and number, and the sizes of its peak in a table's form."""
    source = closed[-1]
    if isinstance(source, RecordedOperation):
        return source.pid, source.id, *sizes(source.peak)
    if isinstance(source, _UnparsedOperation):
        pid = source.lines.pid
        return pid, source.opened.identity, *sizes(peak_of(source.closing, pid))
    lines, identity, high, _ = source
    return lines.pid, int(identity), closed[0], int(high)


class _OperationExtremes(NamedTuple):
    """Extremes over a group of operations of one process."""

    low: int
    """The most bytes that one of them certainly had."""
    high: int
    """The largest upper bound of one of them, in bytes."""
    seconds: float
    """Duration of the longest."""
    start: float
    """Start of the first that began."""
    end: float
    """End of the first that ended."""


class _OperationColumns(NamedTuple):
    """Some operations of one process, by column. Fields that are read more than once are numbers."""

    starts: Sequence[float]
    ends: Sequence[float]
    seconds: Sequence[float]
    lows: Sequence[int]
    highs: Sequence[str]
    peaks: Sequence[str]
    cpu_user: Sequence[str]
    cpu_system: Sequence[str]
    statuses: Sequence[str]

    def at(self, positions: Sequence[int]) -> _OperationColumns:
        """Return the operations at these positions."""
        columns: Iterable[Sequence[Any]] = self
        return _OperationColumns(*([column[position] for position in positions] for column in columns))


class _PeakHolder(NamedTuple):
    """The first and the largest operation of one name that may hold the peak."""

    first: RecordedOperation
    largest: RecordedOperation
    low: int
    """Bytes that the largest certainly had."""


class _PeakHolders:
    """The operations of one process that may hold its peak: of each name the first and the largest; none certainly had more.

    Attributes:
        best: the most that one of them certainly had, in bytes.
        names: the first and the largest by name.

    """

    __slots__ = ("_by_high", "best", "names")

    def __init__(self) -> None:
        self.best = 0
        self.names: dict[str, _PeakHolder] = {}
        self._by_high: list[tuple[float, str]] = []
        """A heap: each of a thousand growing steps finds the holders that it replaces without examining the others."""

    def add(self, operation: RecordedOperation, low: int, room: int) -> None:
        """Add an operation that certainly had `low` bytes if it may hold the peak; beyond `room` names, keep the first."""
        high = _high(operation)
        if high < self.best:
            return
        if low > self.best:
            self.best = low
            self._leave_out()
        name = operation.name
        before = self.names.get(name)
        if before is None and len(self.names) >= room:
            return
        first, largest, most = before or (operation, operation, low)
        inside = operation.start >= largest.start and _end(operation) <= _end(largest)
        if low > most or (low == most and inside):
            largest, most = operation, low
        if operation.start < first.start and not (_end(operation) >= _end(first)):
            first = operation
        if before is not None and first is before.first and largest is before.largest:
            return
        self.names[name] = _PeakHolder(first, largest, most)
        heapq.heappush(self._by_high, (high, name))
        if len(self._by_high) > 64 + 4 * len(self.names):
            self._by_high = [
                (_high(one), name) for name, held in self.names.items() for one in (held.first, held.largest)
            ]
            heapq.heapify(self._by_high)

    def may_keep(self, name: str, low: int, start: float, end: float, room: int) -> bool:
        """Return whether `add` may keep an operation of at most `low` bytes that began at `start` and ended at `end` or later."""
        held = self.names.get(name)
        if held is None:
            return len(self.names) < room
        return low > held.low or start < held.first.start or end <= _end(held.largest)

    def _leave_out(self) -> None:
        """Drop the operations that certainly had less."""
        while self._by_high and self._by_high[0][0] < self.best:
            _, name = heapq.heappop(self._by_high)
            held = self.names.pop(name, None)
            left = [] if held is None else [one for one in held[:2] if _high(one) >= self.best]
            if left:
                self.names[name] = _PeakHolder(left[0], left[-1], _need(left[-1])[0])


class OperationAggregator:
    """Bounded aggregate of operations, updated as they are closed. Not thread-safe."""

    def __init__(self) -> None:
        self.closed = self.to_export = 0
        """Number of closed operations, and number of these that the program does not export itself."""
        self._all: list[RecordedOperation] | None = []
        """`None`: there were too many."""
        self._table: ListedOperations | None = None
        """Table of all operations, once requested."""
        self._names: dict[str, _Name] = {}
        self._unnamed = 0
        self._pids: set[int] = set()
        self._largest: list[tuple[tuple[int, float], int, RecordedOperation]] = []
        self._holders: dict[int, _PeakHolders] = {}
        """By process."""
        self._recent: deque[_Closed] = deque(maxlen=_RECENT)
        self._moments: dict[float, _Closed | None] = {}
        """Moments at which the peaks so far were first seen, with the open operation of the largest process."""
        self._first_moment = self._last_moment = 0.0
        self._interval = 0.0
        self._on_devices: dict[str, RecordedOperation] = {}

    @property
    def too_many(self) -> bool:
        """True once some operations are no longer kept."""
        return self._all is None

    def close(self, operation: RecordedOperation) -> None:
        """Add a closed operation. Costs some microseconds."""
        self.closed += 1
        self.to_export += not operation.exported
        if self._all is not None:
            self._all.append(operation)
            if len(self._all) > LIMIT:
                everything, self._all = self._all, None
                for one in everything:
                    self._add(one)
            return
        self._add(operation)

    def close_lines(self, lines: OperationLines, opened: OpenOperation, closing: Mapping[str, Any]) -> None:
        """Add a closed operation from its two lines. Among many, most need no operation object: that takes half the time."""
        if self._all is not None or not self._is_one_of_many(lines, opened, closing):
            self.close(lines.operation(opened, closing))

    def close_pairs(self, lines: OperationLines, pairs: PlainPairs) -> int:
        """Add each of the pairs, together if no single one matters: a microsecond for each.

        Return the number of pairs that were added together.
        """
        number = len(pairs.lines)
        if self._all is None and self._count_together(lines, pairs):
            return number
        if number > _TOGETHER:
            halves = slice(number // 2), slice(number // 2, None)
            return sum(
                self.close_pairs(lines, PlainPairs(*(column[half] for column in pairs))) for half in halves
            )
        for both in pairs.lines:
            self.close_lines(lines, *lines.opened_and_closing(both))
        return 0

    def _count_together(self, lines: OperationLines, pairs: PlainPairs) -> bool:
        """Add all pairs to the totals; add none if one may change more than totals."""
        starts, ends = list(map(float, pairs.starts)), list(map(float, pairs.ends))
        every = _OperationColumns(
            starts,
            ends,
            list(map(sub, ends, starts)),
            list(map(int, pairs.lows)),
            pairs.highs,
            pairs.peaks,
            pairs.cpu_user,
            pairs.cpu_system,
            pairs.statuses,
        )
        found: list[tuple[_Name | None, _OperationColumns]] = []
        for known, names, some in self._by_series(pairs.names, every):
            # If the extremes of all change nothing, no single operation does.
            most = _OperationExtremes(
                max(some.lows),
                max(map(int, set(some.highs))),
                max(some.seconds),
                min(some.starts),
                min(some.ends),
            )
            if any(self._matters(lines.pid, name, known, most) for name in names):
                return False
            found.append((known, some))
        for known, some in found:
            if known is None:
                self._unnamed += len(some.seconds)
                continue
            used = list(zip(some.cpu_user, some.cpu_system, strict=True))
            # Short operations have the same few values.
            cpu = {both: round(float(both[0]) + float(both[1]), 6) for both in set(used)}
            failed = some.statuses.count('"error"')
            known.count_all(some.seconds, map(int, some.peaks), map(cpu.__getitem__, used), failed)
        self.closed += len(pairs.lines)
        self.to_export += len(pairs.lines)
        sources = zip(repeat(lines), pairs.identities, pairs.highs, pairs.lines)
        closed: list[_Closed] = list(zip(every.lows, starts, ends, sources, strict=True))
        self._recent.extend(closed)
        if self._may_have_been_open(min(starts), max(ends)):
            self._look_for_open(closed)
        return True

    def _by_series(
        self, names: Sequence[str], every: _OperationColumns
    ) -> Iterable[tuple[_Name | None, list[str], _OperationColumns]]:
        """Group operations by series; yield each series (`None`: unknown), its names, and the operations.

        Args:
            names: in quotation marks, one for each operation.
            every: the operations.
        """
        known = {name: self._names.get(series_name(name[1:-1])) for name in set(names)}
        names_of: dict[_Name | None, list[str]] = {}
        for name, series in known.items():
            names_of.setdefault(series, []).append(name[1:-1])
        if len(names_of) == 1:
            yield series, names_of[series], every
            return
        positions: dict[_Name | None, list[int]] = {series: [] for series in names_of}
        for position, name in enumerate(names):
            positions[known[name]].append(position)
        for series, found in positions.items():
            yield series, names_of[series], every.at(found)

    def _is_one_of_many(
        self, lines: OperationLines, opened: OpenOperation, closing: Mapping[str, Any]
    ) -> bool:
        """Return whether the operation changes totals alone; if so, add it to them."""
        opening, name = opened.line, opened.line.get("name")
        low, high, peak = closing.get("low"), closing.get("high"), closing.get("peak")
        start, end = opened.time, closing.get("time")
        user, system = closing.get("cpu_user"), closing.get("cpu_system")
        if (
            type(name) is not str
            or type(low) is not int
            or type(high) is not int
            or type(peak) is not int
            or type(end) is not float
            or type(user) is not float
            or type(system) is not float
            or closing.get("gpu")
        ):
            return False
        seconds, known = end - start, self._names.get(series_name(name))
        if self._matters(lines.pid, name, known, _OperationExtremes(low, high, seconds, start, end)):
            return False
        self.closed += 1
        self.to_export += opening.get("exported") is not True
        if known is None:
            self._unnamed += 1
        else:
            known.count_one(seconds, peak, round(user + system, 6), closing.get("status") == "error")
        closed: _Closed = low, start, end, _UnparsedOperation(lines, opened, closing)
        self._recent.append(closed)
        if self._may_have_been_open(start, end):
            self._look_for_open([closed])
        return True

    def _matters(self, pid: int, name: str, known: _Name | None, most: _OperationExtremes) -> bool:
        """Return whether one of these operations may change more than totals.

        It does if its name is new, if it is one of the largest, or if it may hold its process's peak.
        """
        low, high, seconds, start, end = most
        holders = self._holders.get(pid)
        if holders is None or (low > known.largest_low if known is not None else len(self._names) < _NAMES):
            return True
        if len(self._largest) < _LARGEST or (low, seconds) > self._largest[0][0]:
            return True
        return high >= holders.best and (
            low > holders.best or holders.may_keep(name, low, start, end, self._room())
        )

    def _room(self) -> int:
        """Return the number of names, for each process, that may hold its peak."""
        return _HOLDERS if len(self._holders) <= _MANY else _HOLDERS_OF_MANY

    def _may_have_been_open(self, start: float, end: float) -> bool:
        """Return whether an operation was open at one of the moments; the first and the last moment exclude most."""
        if not self._moments or start > self._last_moment or end < self._first_moment - self._interval:
            return False
        return any(start <= moment and end >= moment - self._interval for moment in self._moments)

    def _look_for_open(self, closed: Iterable[_Closed]) -> None:
        """Find operations that were open at the moments and needed more there than the others."""
        for moment, best in self._moments.items():
            self._moments[moment] = self._largest_at(moment, closed, best)

    def _largest_at(self, moment: float, closed: Iterable[_Closed], best: _Closed | None) -> _Closed | None:
        """Return the operation with the most memory that was open at a moment, the latest of equal ones; else `best`."""
        earliest_end = moment - self._interval
        for one in closed:
            low, start, end, _ = one
            if start <= moment and end >= earliest_end and (best is None or (low, start) > best[:2]):
                best = one
        return best

    def _add(self, operation: RecordedOperation) -> None:
        need = _need(operation)
        name = series_name(operation.name)
        known = self._names.get(name)
        if known is None and len(self._names) < _NAMES:
            known = self._names[name] = _Name()
        if known is None:
            self._unnamed += 1
        else:
            known.add(operation, need[1], need[0])
        if len(self._pids) < _PROCESSES:
            self._pids.add(operation.pid)
        if len(self._largest) < _LARGEST:
            heapq.heappush(self._largest, (need, self.closed, operation))
        elif need > self._largest[0][0]:
            heapq.heapreplace(self._largest, (need, self.closed, operation))
        if need[0] > 0 and (operation.pid in self._holders or len(self._holders) < _PROCESSES):
            holders = self._holders.setdefault(operation.pid, _PeakHolders())
            holders.add(operation, need[0], self._room())
        closed = _closed(operation)
        self._recent.append(closed)
        self._look_for_open([closed])
        if operation.gpu:
            self._add_devices(operation)

    def _add_devices(self, operation: RecordedOperation) -> None:
        for figures in allocator_figures(operation):
            held = max(figures.peak.bytes, figures.reserved_peak or 0)
            known = self._on_devices.get(figures.device)
            most = max(
                (
                    max(one.peak.bytes, one.reserved_peak or 0)
                    for one in (allocator_figures(known) if known is not None else ())
                    if one.device == figures.device
                ),
                default=-1,
            )
            if held > most and (known is not None or len(self._on_devices) < _LARGEST):
                self._on_devices[figures.device] = operation

    def look_at(
        self, moments: Iterable[float], interval: float, still_open: Sequence[RecordedOperation]
    ) -> None:
        """Set the moments (monotonic seconds) at which samples `interval` seconds apart first saw the peaks so far."""
        self._interval = interval
        if self._all is not None:
            return
        there = [*self._recent, *map(_closed, still_open)]
        self._moments = {
            moment: self._moments[moment]
            if moment in self._moments
            else self._largest_at(moment, there, None)
            for moment in set(moments)
        }
        self._first_moment = min(self._moments, default=0.0)
        self._last_moment = max(self._moments, default=0.0)

    def boundaries(self, still_open: Sequence[RecordedOperation]) -> Iterable[float]:
        """Yield the boundaries of kept and of open operations."""
        for operation in (*self._kept(), *still_open):
            yield operation.start
            if operation.end is not None:
                yield operation.end

    def _kept(self) -> list[RecordedOperation]:
        if self._all is not None:
            return self._all
        return [
            *(one for *_, one in self._largest),
            *(name.largest for name in self._names.values() if name.largest is not None),
            *(
                one
                for holders in self._holders.values()
                for held in holders.names.values()
                for one in held[:2]
            ),
            *(_made(one[-1]) for one in self._moments.values() if one is not None),
            *self._on_devices.values(),
        ]

    def table(self, still_open: Sequence[RecordedOperation]) -> ListedOperations | None:
        """Return all operations; `None` if they are too many."""
        if self._all is None or len(self._all) + len(still_open) > LIMIT:
            return None
        return self._listed(self._all, still_open)

    def _listed(
        self, closed: list[RecordedOperation], still_open: Sequence[RecordedOperation]
    ) -> ListedOperations:
        """Return all operations in their order; if all are closed, the order is computed once."""
        if still_open:
            return ListedOperations([*closed, *still_open])
        if self._table is None or len(self._table) != len(closed):
            self._table = ListedOperations(closed)
        return self._table

    def sized(self, still_open: Sequence[RecordedOperation]) -> CandidateStore:
        """Return the candidates for the attribution of peaks."""
        if self._all is not None:
            return RecordedCandidates(self._listed(self._all, still_open))
        closed = [*map(_closed, self._kept()), *self._recent, *map(_closed, still_open)]
        return _LiveCandidates(closed, list(self._on_devices.values()))

    def digest(
        self, still_open: Sequence[RecordedOperation], context: OperationContext, peaks: Peaks
    ) -> OperationDigest:
        """The digest of all of them."""
        if self._all is not None:  # few were closed, many are open
            everything, self._all = self._all, None
            for one in everything:
                self._add(one)
        number, still_open = len(still_open), [with_last_figures(one, context) for one in still_open[:_OPEN]]
        sized = self.sized(still_open)
        assert isinstance(sized, _LiveCandidates)
        position = position_of_peak(sized, context.conditions, peaks)
        holder = None if position is None else sized.operation(position)

        def figures(operation: RecordedOperation, depth: int = 0) -> OperationFigures:
            is_holder = holder is not None and _identity(operation) == _identity(holder)
            return figures_of(operation, context, peaks, depth=depth, parent=None, sets_run_peak=is_holder)

        shown = {_identity(one): one for one in ((holder,) if holder is not None else ())}
        by_name = [name.largest for name in self._names.values() if name.largest is not None]
        for one in sorted((*by_name, *still_open), key=_need, reverse=True)[:_LARGEST]:
            shown.setdefault(_identity(one), one)
        ranked = sorted(map(figures, shown.values()), key=needed_most, reverse=True)
        opened = ListedOperations(still_open)
        return OperationDigest(
            self.closed + number,
            len(self._pids | {one.pid for one in still_open}),
            tuple(
                sorted(
                    (known.totals(name) for name, known in self._names.items()),
                    key=lambda totals: -totals.seconds,
                )
            ),
            self._unnamed,
            tuple(ranked),
            tuple(figures(one, depth) for one, depth in zip(opened, opened.depths, strict=True)),
            tuple(map(figures, self._on_devices.values())),
        )


class _LiveCandidates:
    """Candidates of a run that is being recorded."""

    def __init__(self, closed: Iterable[_Closed], on_devices: Sequence[RecordedOperation]) -> None:
        self._on_devices = on_devices
        bounded: dict[tuple[int, int, float], tuple[_Closed, int, int]] = {}
        for one in closed:  # one that was open when it was looked at may come again, closed
            pid, identity, low, high = _bounded(one)
            bounded[pid, identity, one[1]] = one, low, high
        self._sources = [one[-1] for one, *_ in bounded.values()]
        self._sized = [
            Candidate(position, pid, start, one[2], low, high)
            for position, ((pid, _, start), (one, low, high)) in enumerate(bounded.items())
        ]

    def holding(self, low: int, pid: int | None) -> Sequence[Candidate]:
        """See `CandidateStore`."""
        there = [one for one in self._sized if pid is None or one.pid == pid]
        return ties(there, low)

    def open_between(self, begin: float, end: float) -> Iterable[Candidate]:
        """See `CandidateStore`."""
        return [one for one in self._sized if one.start <= end and one.end >= begin]

    def name(self, operation: Candidate) -> str:
        """See `CandidateStore`."""
        return self.operation(operation.position).name

    def operation(self, position: int) -> RecordedOperation:
        """One of them."""
        return _made(self._sources[position])

    def with_allocators(self) -> Sequence[RecordedOperation]:
        """See `CandidateStore`."""
        return self._on_devices


def ties(sized: Iterable[Candidate], low: int) -> list[Candidate]:
    """Return the candidates with a peak that can be `low` bytes; omit those that certainly had less than another."""
    found = [one for one in sized if one.low > 0 and (one.high >= low or (one.high < 0 and one.low >= low))]
    best = max((one.low for one in found), default=0)
    return [one for one in found if one.high >= best or one.low == best]


def needed_most(figures: OperationFigures) -> tuple[bool, int, float]:
    """Return the sort key of operations: the one of the run's peak, then those that needed most, then the longest."""
    peak = figures.tree_peak or figures.operation.peak
    return figures.sets_run_peak, peak.bytes if peak else -1, figures.seconds


def moments_of(peaks: Peaks, started: float) -> list[float]:
    """Return when the peaks were first seen, in monotonic seconds."""
    gpu: Mapping[str, Peak] = peaks.gpu
    every = (peaks.main, peaks.process, peaks.tree, peaks.cgroup, *gpu.values())
    return [peak.at + started for peak in every if peak is not None and peak.at is not None]


def _identity(operation: RecordedOperation) -> tuple[int, int, float]:
    return operation.pid, operation.id, operation.start


def _need(operation: RecordedOperation) -> tuple[int, float]:
    low = (operation.peak.low or 0) if operation.peak is not None else 0
    return low, 0.0 if operation.end is None else operation.end - operation.start


def _high(operation: RecordedOperation) -> float:
    return float("inf") if operation.peak is None or operation.peak.high is None else operation.peak.high


def _end(operation: RecordedOperation) -> float:
    return float("inf") if operation.end is None else operation.end
