"""What is told of a run's operations where there are too many to list: totals by name, and those that needed most.

`OperationsSoFar` takes in operations one by one as they are closed, while a run is recorded or when its record is read. Up
to `LIMIT` it keeps them all; of more it keeps what a digest is made of, in memory that does not grow with their number.
"""

from __future__ import annotations

import heapq
from collections import deque

from otel_memwatch.analysis.attribution import Sized, TabledOperations
from otel_memwatch.analysis.gpu import allocator_figures
from otel_memwatch.analysis.operation_names import series_name
from otel_memwatch.analysis.operations import figures_of, position_of_peak, with_last_figures
from otel_memwatch.record.operation_index import ListedOperations, sizes
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from otel_memwatch.analysis.attribution import SizedOperations
    from otel_memwatch.analysis.operations import OperationContext
    from otel_memwatch.analysis.results import OperationFigures, Peaks
    from otel_memwatch.model import Peak, RecordedOperation
    from otel_memwatch.record.operation_lines import OpenOperation, OperationLines

LIMIT = 1000
"""Operations up to which every one is kept, and has its place in every report."""

_LARGEST = 64
_NAMES = 1000
"""Names that have totals of their own; the operations of others are counted."""
_OPEN = 1000
_RECENT = 512
"""Operations closed last: the peak may be found out a moment later."""
_HOLDERS, _HOLDERS_OF_MANY = 256, 8
"""Names, for each process, of operations that may hold its peak; where more than 16 processes mark operations."""
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
    """Of their processes, with the children that these waited for; `None`: not known."""
    failed: int


class OperationDigest(NamedTuple):
    """The operations of a run that has more than `LIMIT`."""

    number: int
    """All, those that were never closed included."""
    processes: int
    """Those that marked operations."""
    names: tuple[NameTotals, ...]
    """Those that took most time in all first."""
    unnamed: int
    """Operations whose names are none of these."""
    largest: tuple[OperationFigures, ...]
    """The one of the run's peak, and of each name the one that needed most; most needed first."""
    open: tuple[OperationFigures, ...]
    """Never closed, by their start, those within others after them."""
    on_devices: tuple[OperationFigures, ...]
    """Those whose GPU allocators held most, one for each device."""


class _Name:
    """What is known of the operations of one name."""

    __slots__ = ("count", "cpu", "cpu_known", "failed", "largest", "longest", "peak_sum", "peaks", "seconds")

    def __init__(self) -> None:
        self.count = self.peaks = self.failed = 0
        self.seconds = self.longest = self.peak_sum = self.cpu = 0.0
        self.cpu_known = False
        self.largest: RecordedOperation | None = None

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
        if self.largest is None or low > _need(self.largest)[0]:
            self.largest = operation

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


class _TwoLines(NamedTuple):
    """An operation of which only the lines were read."""

    lines: OperationLines
    opened: OpenOperation
    closing: Mapping[str, Any]


class _Holders:
    """The operations of one process that may hold its peak: of each name the first and the largest; none certainly had more.

    Attributes:
        best: the most that one of them certainly had, in bytes.
        names: the first and the largest by name.

    """

    __slots__ = ("_by_high", "best", "names")

    def __init__(self) -> None:
        self.best = 0
        self.names: dict[str, tuple[RecordedOperation, RecordedOperation]] = {}
        self._by_high: list[tuple[float, str]] = []
        """A heap, so that each of a thousand growing steps finds those which it leaves behind without a look at the others."""

    def add(self, operation: RecordedOperation, low: int, room: int) -> None:
        """Takes one in that certainly had `low` bytes, where it may hold the peak; of more than `room` names those that come first."""
        high = _high(operation)
        if high < self.best:
            return
        if low > self.best:
            self.best = low
            self._leave_out()
        name = operation.name
        first, largest = before = self.names.get(name) or (operation, operation)
        if name not in self.names and len(self.names) >= room:
            return
        inside = operation.start >= largest.start and _end(operation) <= _end(largest)
        if low > _need(largest)[0] or (low == _need(largest)[0] and inside):
            largest = operation
        if operation.start < first.start and not (_end(operation) >= _end(first)):
            first = operation
        if name in self.names and first is before[0] and largest is before[1]:
            return
        self.names[name] = first, largest
        heapq.heappush(self._by_high, (high, name))
        if len(self._by_high) > 64 + 4 * len(self.names):
            self._by_high = [(_high(one), name) for name, pair in self.names.items() for one in pair]
            heapq.heapify(self._by_high)

    def _leave_out(self) -> None:
        """What certainly had less."""
        while self._by_high and self._by_high[0][0] < self.best:
            _, name = heapq.heappop(self._by_high)
            left = [one for one in self.names.pop(name, ()) if _high(one) >= self.best]
            if left:
                self.names[name] = left[0], left[-1]


class OperationsSoFar:
    """Operations as they are closed; for one thread."""

    def __init__(self) -> None:
        self.closed = self.to_export = 0
        """How many were closed; how many of these the program does not export itself."""
        self._all: list[RecordedOperation] | None = []
        """`None`: there were too many."""
        self._names: dict[str, _Name] = {}
        self._unnamed = 0
        self._pids: set[int] = set()
        self._largest: list[tuple[tuple[int, float], int, RecordedOperation]] = []
        self._holders: dict[int, _Holders] = {}
        """By process."""
        self._recent: deque[RecordedOperation | _TwoLines] = deque(maxlen=_RECENT)
        self._moments: dict[float, RecordedOperation | None] = {}
        """By the moments at which the peaks so far were first seen: of those that were open then, whose process had most."""
        self._first_moment = self._last_moment = 0.0
        self._interval = 0.0
        self._on_devices: dict[str, RecordedOperation] = {}

    def close(self, operation: RecordedOperation) -> None:
        """Takes in one that was closed. Costs some microseconds."""
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
        """As `close`, of its two lines. Of most that are too many, no operation has to be made: that takes half the time."""
        if self._all is not None or not self._is_one_of_many(lines, opened, closing):
            self.close(lines.operation(opened, closing))

    def _is_one_of_many(
        self, lines: OperationLines, opened: OpenOperation, closing: Mapping[str, Any]
    ) -> bool:
        """Whether it changes totals alone, which then have it."""
        opening = opened.line
        text, low, high, peak = (
            opening.get("name"),
            closing.get("low"),
            closing.get("high"),
            closing.get("peak"),
        )
        start, end, user, system = (
            opened.time,
            closing.get("time"),
            closing.get("cpu_user"),
            closing.get("cpu_system"),
        )
        known = self._names.get(series_name(text)) if type(text) is str else None
        holders = self._holders.get(lines.pid)
        held = None if holders is None or type(text) is not str else holders.names.get(text)
        if (
            known is None
            or holders is None
            or held is None
            or known.largest is None
            or not (type(low) is type(high) is type(peak) is int)
            or not (type(end) is type(user) is type(system) is float)
            or closing.get("gpu")
        ):
            return False
        first, largest = held
        seconds = end - start
        if (
            (low, seconds) > self._largest[0][0]
            or len(self._largest) < _LARGEST
            or low > _need(known.largest)[0]
            or (
                high >= holders.best
                and (low > _need(largest)[0] or start < first.start or end <= _end(largest))
            )
            or self._may_have_been_open(start, end)
        ):
            return False
        self.closed += 1
        self.to_export += opening.get("exported") is not True
        known.count += 1
        known.seconds += seconds
        known.longest = max(known.longest, seconds)
        known.peaks += 1
        known.peak_sum += peak
        known.cpu += round(user + system, 6)
        known.cpu_known = True
        known.failed += closing.get("status") == "error"
        self._recent.append(_TwoLines(lines, opened, closing))
        return True

    def _may_have_been_open(self, start: float, end: float) -> bool:
        """Whether something was open at one of the moments; of most a look at the first and the last of these says no."""
        if not self._moments or start > self._last_moment or end < self._first_moment - self._interval:
            return False
        return any(start <= moment and end >= moment - self._interval for moment in self._moments)

    def _lately(self) -> Iterator[RecordedOperation]:
        """Those that were closed last."""
        for one in self._recent:
            yield one.lines.operation(one.opened, one.closing) if isinstance(one, _TwoLines) else one

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
            holders = self._holders.setdefault(operation.pid, _Holders())
            holders.add(operation, need[0], _HOLDERS if len(self._holders) <= _MANY else _HOLDERS_OF_MANY)
        self._recent.append(operation)
        for moment, best in self._moments.items():
            if self._was_open(operation, moment) and (best is None or _goes_before(operation, best)):
                self._moments[moment] = operation
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
        """Tells at which moments (monotonic seconds) the peaks so far were first seen, at ticks `interval` seconds apart."""
        self._interval = interval
        if self._all is not None:
            return
        for moment in set(moments):
            if moment not in self._moments:
                there = [one for one in (*self._lately(), *still_open) if self._was_open(one, moment)]
                best = None
                for one in there:
                    if best is None or _goes_before(one, best):
                        best = one
                self._moments[moment] = best
        self._moments = {moment: self._moments[moment] for moment in set(moments)}
        self._first_moment = min(self._moments, default=0.0)
        self._last_moment = max(self._moments, default=0.0)

    def _was_open(self, operation: RecordedOperation, moment: float) -> bool:
        return operation.start <= moment and _end(operation) >= moment - self._interval

    def boundaries(self, still_open: Sequence[RecordedOperation]) -> Iterable[float]:
        """The moments that matter to those that are kept, and to those that are open."""
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
            *(one for holders in self._holders.values() for pair in holders.names.values() for one in pair),
            *(one for one in self._moments.values() if one is not None),
            *self._on_devices.values(),
        ]

    def table(self, still_open: Sequence[RecordedOperation]) -> ListedOperations | None:
        """All of them; `None` where there were too many."""
        if self._all is None or len(self._all) + len(still_open) > LIMIT:
            return None
        return ListedOperations([*self._all, *still_open])

    def sized(self, still_open: Sequence[RecordedOperation]) -> SizedOperations:
        """What peaks are attributed by."""
        if self._all is not None:
            return TabledOperations(ListedOperations([*self._all, *still_open]))
        return _SizedSoFar([*self._kept(), *self._lately(), *still_open], list(self._on_devices.values()))

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
        assert isinstance(sized, _SizedSoFar)
        position = position_of_peak(sized, context.conditions, peaks)
        holder = None if position is None else sized.operations[position]

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


class _SizedSoFar:
    """Some operations, as attribution wants them."""

    def __init__(
        self, operations: Iterable[RecordedOperation], on_devices: Sequence[RecordedOperation]
    ) -> None:
        self.operations = list({_identity(one): one for one in operations}.values())
        self._on_devices = on_devices
        self._sized = [
            Sized(position, one.pid, one.start, _end(one), *sizes(one.peak))
            for position, one in enumerate(self.operations)
        ]

    def holding(self, low: int, pid: int | None) -> Sequence[Sized]:
        """See `SizedOperations`."""
        there = [one for one in self._sized if pid is None or one.pid == pid]
        return ties(there, low)

    def open_between(self, begin: float, end: float) -> Iterable[Sized]:
        """See `SizedOperations`."""
        return [one for one in self._sized if one.start <= end and one.end >= begin]

    def name(self, operation: Sized) -> str:
        """See `SizedOperations`."""
        return self.operations[operation.position].name

    def with_allocators(self) -> Sequence[RecordedOperation]:
        """See `SizedOperations`."""
        return self._on_devices


def ties(sized: Iterable[Sized], low: int) -> list[Sized]:
    """Of some operations those that may have had `low` bytes, but for those that certainly had less than another."""
    found = [one for one in sized if one.low > 0 and (one.high >= low or (one.high < 0 and one.low >= low))]
    best = max((one.low for one in found), default=0)
    return [one for one in found if one.high >= best or one.low == best]


def needed_most(figures: OperationFigures) -> tuple[bool, int, float]:
    """By what operations are ranked: the one of the run's peak, then those that needed most, then the longest."""
    peak = figures.tree_peak or figures.operation.peak
    return figures.sets_run_peak, peak.bytes if peak else -1, figures.seconds


def moments_of(peaks: Peaks, started: float) -> list[float]:
    """When the peaks were first seen, in monotonic seconds."""
    gpu: Mapping[str, Peak] = peaks.gpu
    every = (peaks.main, peaks.process, peaks.tree, peaks.cgroup, *gpu.values())
    return [peak.at + started for peak in every if peak is not None and peak.at is not None]


def _identity(operation: RecordedOperation) -> tuple[int, int, float]:
    return operation.pid, operation.id, operation.start


def _need(operation: RecordedOperation) -> tuple[int, float]:
    low = (operation.peak.low or 0) if operation.peak is not None else 0
    return low, 0.0 if operation.end is None else operation.end - operation.start


def _goes_before(one: RecordedOperation, other: RecordedOperation) -> bool:
    return (_need(one)[0], one.start) > (_need(other)[0], other.start)


def _high(operation: RecordedOperation) -> float:
    return float("inf") if operation.peak is None or operation.peak.high is None else operation.peak.high


def _end(operation: RecordedOperation) -> float:
    return float("inf") if operation.end is None else operation.end
