"""Attribute each peak to an operation.

The high-water marks of operations decide, since they cover the time between two moments of the operation's own work.
Samples are 100 ms apart, and two windows between samples may show nearly the same figure. The sample that first saw the
peak decides only if no high-water mark reaches it. Then several processes had the peak together.

High-water marks are those of one process. For the tree they decide if the run was one process; in the window of an exact
peak, if that was one; else only if an operation lasted throughout the window and alone reached the upper bound.

| operations that may have held it                       | operation of the peak                                           |
| ------------------------------------------------------ | --------------------------------------------------------------- |
| one operation has the highest mark                     | that operation                                                  |
| several, one around the others, all as high to the     | the innermost of them                                           |
| reading's error                                        |                                                                 |
| several side by side, as high to the reading's error   | the first of them, if none later was measured higher, or one of |
|                                                        | those of the same height that began before its end              |
|                                                        | else one of up to three names: "epoch 58 or 59"                 |
|                                                        | else the innermost operation around them all, if one exists     |
| none is as high as the peak                            | of the operations open between the sample before and this one,  |
|                                                        | the one in the process that had most; if it begins or ends in   |
|                                                        | between, it or the innermost of those that were open longest    |
| none, and the peak is a range wider than an exact figure | the same, as likely                                             |
| none, and the range's lower bound was seen at another  | the same, or the operation of that sample                       |
| sample than its best estimate                          |                                                                 |
"""

from __future__ import annotations

from itertools import islice
from math import inf, isinf

from otel_memwatch.model import Certainty, Evidence
from otel_memwatch.record.operation_lines import sizes
from otel_memwatch.runtime.exactness import is_exact
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from otel_memwatch.model import Peak, RecordedOperation
    from otel_memwatch.record.operation_index import Candidate, OperationTable
    from otel_memwatch.record.operation_lines import OperationRow
    from otel_memwatch.run.results import Peaks

    Alone = Callable[[float, float], bool]
    """Returns whether the tree was one process between two moments, in monotonic seconds."""

_NAMES = 3
"""Names that are listed if the operation is one of several."""

_TIES = 4096
"""Limit of the operations that are examined among all that may have held a peak."""


class Attribution(NamedTuple):
    """Result of an attribution."""

    operation: Candidate
    names: tuple[str, ...]
    """Names of the operations that may have held the peak, first that of `operation`: up to three, or four of more."""
    likely: bool = False
    """True if a sample of a wide range decided: the peak may have been between other samples."""

    @property
    def certain(self) -> bool:
        """True if no other operation may have held the peak."""
        return len(self.names) == 1


def most_at_moment(one: Candidate | OperationRow) -> tuple[int, float]:
    """Return the sort key of operations open at a moment: the latest of those that had most is the largest."""
    return one.low, one.start


def open_longest(one: Candidate | OperationRow, begin: float, end: float) -> tuple[float, float, float]:
    """Return the sort key of operations between two moments: the innermost of those open longest is the largest."""
    return min(one.end, end) - max(one.start, begin), one.start, -one.end


class Candidates:
    """Search the operations of a run.

    Args:
        table: all operations, or of many those that may hold a peak.
        last: peaks of unclosed operations, by position, if more is known of them than their lines contain.
        has_all_devices: false if the largest operation of some process on some GPU is missing.
    """

    def __init__(
        self, table: OperationTable, last: Mapping[int, Peak] | None = None, *, has_all_devices: bool = True
    ) -> None:
        self._table = table
        self.has_all_devices = has_all_devices
        self._last = {position: sizes(peak) for position, peak in (last or {}).items()}
        self.attributed: dict[tuple[Candidate, ...], Attribution] = {}
        """Attributions so far, by the operations that may have held a peak."""

    def holding(self, low: int, pid: int | None, begin: float, end: float) -> Sequence[Candidate]:
        """Return the operations, of one process or of all, with a peak that can be `low` bytes, open between two moments.

        An operation that certainly had less than another one of these is omitted.
        """
        sought = low, pid, begin, end
        best = max((one.low for one in self._reaching(*sought)), default=0)
        # Searched again instead of kept: a million operations may reach it.
        ties = (one for one in self._reaching(*sought) if one.high >= best or one.low == best)
        return tuple(islice(ties, _TIES))

    def _reaching(self, low: int, pid: int | None, begin: float, end: float) -> Iterator[Candidate]:
        for one in self._with_last(self._table.reaching(low)):
            reached = one.low if one.high < 0 else one.high
            in_time = one.start <= end and one.end >= begin
            if one.low > 0 and reached >= low and in_time and pid in (None, one.pid):
                yield one

    def open_between(self, begin: float, end: float) -> Iterable[Candidate]:
        """Return the operations that were open at some time between two moments."""
        return self._with_last(self._table.open_between(begin, end))

    def name(self, operation: Candidate) -> str:
        """Return the name of an operation."""
        return self._table.row(operation.position).name

    def operation(self, position: int) -> RecordedOperation:
        """Return the operation at a position of the table."""
        return self._table.operation(position)

    def with_allocators(self) -> Iterator[RecordedOperation]:
        """Yield operations with figures of GPU allocators: all, or of many the largest of each device and process."""
        return self._table.with_gpu()

    def _with_last(self, found: Iterator[Candidate]) -> Iterator[Candidate]:
        for one in found:
            last = self._last.get(one.position)
            yield one if last is None else one._replace(low=last[0], high=last[1])


def attribute_peaks(
    peaks: Peaks,
    operations: Candidates,
    started: float,
    window: float = 0.0,
    reading: float = 0.0,
    *,
    alone: Alone,
) -> Peaks:
    """Return the peaks with `operation` filled in.

    Args:
        peaks: of the run.
        operations: of the run.
        started: start of the run in monotonic seconds.
        window: the most seconds between two samples, the delay with which a peak is first seen.
        reading: the most seconds that reading a sample took: its window is over only then.
        alone: returns whether the tree was one process between two moments.
    """
    from otel_memwatch.run.gpu import raised_by_allocators, used_by_libraries

    attributed: dict[str, Peak] = {}
    for name in ("main", "process", "tree", "cgroup"):
        peak: Peak | None = getattr(peaks, name)
        found = None if peak is None else where(peak, operations, started, window, reading, alone=alone)
        if peak is None or found is None:
            continue
        if not found.certain:
            attributed[name] = peak._replace(
                operation=found.names[0], operations=found.names, operation_likely=found.likely
            )
            continue
        # A sample sees the peak late, possibly after the operation's end: move its moment into the operation.
        begin, end = found.operation.start - started, found.operation.end - started
        at = end if peak.at is None else min(max(peak.at, begin), end)
        at_in_it = None if isinf(at) else round(at, 4)
        attributed[name] = peak._replace(operation=found.names[0], at=at_in_it, operation_likely=found.likely)
    gpu, gpu_tree = (
        {device: _attributed_by_time(peak, operations, started) for device, peak in found.items()}
        for found in (peaks.gpu, peaks.gpu_tree)
    )
    with_allocators = list(operations.with_allocators())
    raised = raised_by_allocators(gpu, with_allocators, started)
    of_tree = raised_by_allocators(gpu_tree, with_allocators, started)
    used = used_by_libraries(gpu, with_allocators, complete=operations.has_all_devices)
    # Of a device without lists of processes, an allocator reports only a part of what the run holds.
    runs_own = {device: of_tree[device] for device in gpu_tree}
    return peaks._replace(**attributed, gpu=raised, gpu_tree=runs_own, gpu_used=used)


def _attributed_by_time(peak: Peak, operations: Candidates, started: float) -> Peak:
    """Attribute a GPU's peak by its moment alone: sizes of operations are those of another memory."""
    if peak.at is None:
        return peak
    time = peak.at + started
    latest = max(operations.open_between(time, time), key=lambda one: one.start, default=None)
    return peak if latest is None else peak._replace(operation=operations.name(latest))


def where(
    peak: Peak,
    operations: Candidates,
    started: float,
    window: float = 0.0,
    reading: float = 0.0,
    *,
    alone: Alone,
) -> Attribution | None:
    """Return the operation in which a peak was reached; `None`: in none. See the table at the beginning of this module."""
    by_process = peak.pid is not None or Evidence.LARGEST_PROCESS in peak.evidence or alone(-inf, inf)
    wide = peak.certainty is Certainty.INTERVAL and peak.high is not None
    wide = wide and not is_exact(peak.bytes, peak.low or 0, peak.high or 0)
    begin, end = -inf, inf
    if not by_process and peak.at is not None:
        begin, end = peak.at + started - window, peak.at + started + reading
        by_process = not wide and bool(peak.low) and alone(begin, end)
    # Several processes can have reached the peak together: one of them alone must reach the upper bound.
    reached = peak.low if by_process else peak.high or peak.bytes
    ties = tuple(operations.holding(reached, peak.pid, begin, end)) if reached else ()
    if not by_process and peak.at is not None:
        # Resident size includes files, which the tree's figure excludes: of two in the window, neither is certain.
        ties = tuple(one for one in ties if one.start <= begin and one.end >= end)
    if ties:
        if ties not in operations.attributed:
            operations.attributed[ties] = _of_ties(ties, operations)
        return operations.attributed[ties]
    moments = (
        _at_moment(peak, moment + started, operations, window, reading)
        for moment in ((peak.at,) if peak.low_at is None else (peak.at, peak.low_at))
        if moment is not None and peak.at is not None
    )
    found = [one for one in moments if one is not None]
    if not found:
        return None
    names = dict.fromkeys(name for one in found for name in one.names)
    return Attribution(found[0].operation, tuple(names)[: _NAMES + 1], wide)


def _at_moment(
    peak: Peak, time: float, operations: Candidates, window: float, reading: float
) -> Attribution | None:
    """Return the operation in which a sample at `time` (monotonic seconds) saw a peak; `None`: in none."""
    begin, end = time - window, time + reading
    there = list(operations.open_between(begin, end))
    if peak.pid is not None:
        there = [one for one in there if one.pid == peak.pid] or there
    if not there:
        return None
    likely = around = max(there, key=most_at_moment)
    if likely.start > begin or likely.end < end:  # not open all the time
        around = max(there, key=lambda one: open_longest(one, begin, end))
    names = dict.fromkeys((operations.name(likely), operations.name(around)))
    return Attribution(likely, tuple(names))


def _of_ties(ties: Sequence[Candidate], operations: Candidates) -> Attribution:
    """Attribute a peak that each of the `ties` may have held."""
    ordered = sorted(ties, key=lambda one: (one.start, -one.end, one.position))
    # Leave out an operation that the peak may belong to if it also may belong to one inside it.
    left_out: set[int] = set()
    open_now: list[Candidate] = []
    for one in ordered:
        if open_now:
            open_now = [other for other in open_now if other.end >= one.start]
        for other in open_now:
            if _contains(other, one):
                left_out.add(other.position)
        open_now.append(one)
    innermost = [one for one in ordered if one.position not in left_out]
    most = max(innermost, key=lambda one: one.low)
    first = innermost[0]
    if first.low == most.low:
        at_once = (one for one in innermost if one.low == first.low and one.start < first.end)
        reached = dict.fromkeys(map(operations.name, (first, *at_once)))
        return Attribution(first, tuple(islice(reached, _NAMES + 1)))
    names = tuple(dict.fromkeys(operations.name(one) for one in innermost))
    if 1 < len(names) <= _NAMES:
        return Attribution(first, names)
    around = [one for one in ordered if all(_contains(one, other) for other in innermost)]
    if len(names) > 1 and around:
        closest = min(around, key=lambda one: one.end - one.start)
        return Attribution(closest, (operations.name(closest),))
    return Attribution(most, tuple(dict.fromkeys((operations.name(most), *names)))[: _NAMES + 1])


def _contains(outer: Candidate, inner: Candidate) -> bool:
    return outer.pid == inner.pid and outer.start <= inner.start and inner.end <= outer.end
