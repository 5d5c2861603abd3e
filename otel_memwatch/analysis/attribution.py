"""Which operation a peak belongs to."""

from __future__ import annotations

from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.analysis.results import Peaks
    from otel_memwatch.model import Peak, RecordedOperation


def attribute_peaks(
    peaks: Peaks, operations: Sequence[RecordedOperation], started: float, interval: float = 0.0
) -> Peaks:
    """The peaks with `operation` filled in.

    Args:
        peaks: of the run.
        operations: of the run.
        started: start of the run in monotonic seconds.
        interval: seconds between ticks: a peak is first seen by so much late.
    """
    if not operations:
        return peaks
    from otel_memwatch.analysis.gpu import raised_by_allocators

    attributed = {
        name: _attributed(getattr(peaks, name), operations, started, interval)
        for name in ("main", "process", "tree", "cgroup")
    }
    gpu = {device: _attributed_by_time(peak, operations, started) for device, peak in peaks.gpu.items()}
    return peaks._replace(**attributed, gpu=raised_by_allocators(gpu, operations, started))


def _attributed_by_time(peak: Peak, operations: Sequence[RecordedOperation], started: float) -> Peak:
    """A GPU's peak, attributed by its moment alone: sizes of operations are those of another memory."""
    if peak.at is None:
        return peak
    time = peak.at + started
    there = [o for o in operations if o.start <= time and (o.end is None or time <= o.end)]
    return peak._replace(operation=max(there, key=lambda o: o.start).name) if there else peak


def _attributed(
    peak: Peak | None, operations: Sequence[RecordedOperation], started: float, interval: float
) -> Peak | None:
    found = None if peak is None else operation_of(peak, operations, started, interval)
    if peak is None or found is None:
        return peak
    operation = operations[found]
    return peak._replace(operation=operation.name, at=_within(peak, operation, started))


def _within(peak: Peak, operation: RecordedOperation, started: float) -> float | None:
    """The moment of the peak, moved into the operation: it is first seen at a tick, which may come after its end."""
    if peak.at is None:
        return None if operation.end is None else round(operation.end - started, 4)
    at = max(peak.at, operation.start - started)
    return round(at if operation.end is None else min(at, operation.end - started), 4)


def operation_of(
    peak: Peak, operations: Sequence[RecordedOperation], started: float, interval: float = 0.0
) -> int | None:
    """Index of the innermost operation in which the peak was reached; `None`: in none.

    First choice is one whose own exact peak is the peak. A process's size has pages of its files, which the tree's need
    has not, so that several may reach it: of these the largest count, as far as the peak's own error can tell them apart,
    and of those the shortest: an operation holds all that is inside it. Else, of those open between the tick at which it was first seen and the one before, the one whose process
    had most; the one that began last, where they are equal.
    """
    holders = [i for i, operation in enumerate(operations) if _holds(operation, peak)]
    if holders:
        error = (peak.high or peak.bytes) - (peak.low or 0)
        least = max(_largest_size(operations[i]) for i in holders) - error
        holders = [i for i in holders if _largest_size(operations[i]) >= least]
        return min(holders, key=lambda i: (_length(operations[i]), -operations[i].start))
    if peak.at is None:
        return None
    time = peak.at + started
    there = [
        i for i, o in enumerate(operations) if o.start <= time and (o.end is None or time - interval <= o.end)
    ]
    if peak.pid is not None:
        there = [i for i in there if operations[i].pid == peak.pid] or there
    return max(there, key=lambda i: (_largest_size(operations[i]), operations[i].start), default=None)


def _largest_size(operation: RecordedOperation) -> int:
    return (operation.peak.low or 0) if operation.peak is not None else 0


def _holds(operation: RecordedOperation, peak: Peak) -> bool:
    own = operation.peak
    if own is None or own.low is None or peak.low is None:
        return False
    return (peak.pid is None or operation.pid == peak.pid) and own.low >= peak.low > 0


def _length(operation: RecordedOperation) -> float:
    return float("inf") if operation.end is None else operation.end - operation.start
