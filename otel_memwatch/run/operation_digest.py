"""Digest of the operations of a run: totals by name, and the operations that needed most memory."""

from __future__ import annotations

from otel_memwatch.record.operation_index import ListedOperations
from otel_memwatch.run.operation_aggregator import LARGEST
from otel_memwatch.run.operations import figures_of, position_of_peak, with_last_figures
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_memwatch.model import Peak, RecordedOperation
    from otel_memwatch.run.operation_aggregator import NameTotals, OperationAggregator
    from otel_memwatch.run.operations import OperationContext
    from otel_memwatch.run.results import OperationFigures, Peaks

_OPEN = 1000


class OperationDigest(NamedTuple):
    """The operations of a run with too many for every report."""

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


def digest(
    so_far: OperationAggregator,
    still_open: Sequence[RecordedOperation],
    context: OperationContext,
    peaks: Peaks,
) -> OperationDigest:
    """Return the digest of closed and open operations. The aggregator keeps only its parts from now on."""
    if not so_far.too_many:  # few were closed, many are open
        so_far.keep_few()
    number, still_open = len(still_open), [with_last_figures(one, context) for one in still_open[:_OPEN]]
    candidates = so_far.candidates(still_open)
    position = position_of_peak(candidates, context, peaks)
    holder = None if position is None else candidates.operation(position)

    def figures(operation: RecordedOperation, depth: int = 0) -> OperationFigures:
        is_holder = holder is not None and _identity(operation) == _identity(holder)
        return figures_of(operation, context, peaks, depth=depth, parent=None, sets_run_peak=is_holder)

    shown = {_identity(one): one for one in ((holder,) if holder is not None else ())}
    by_name = [row.operation() for row in so_far.largest_of_names()]
    for one in sorted((*by_name, *still_open), key=_need, reverse=True)[:LARGEST]:
        shown.setdefault(_identity(one), one)
    opened = ListedOperations(still_open)
    return OperationDigest(
        so_far.closed + number,
        len(so_far.pids | {one.pid for one in still_open}),
        tuple(so_far.totals()),
        so_far.unnamed,
        tuple(sorted(map(figures, shown.values()), key=needed_most, reverse=True)),
        tuple(figures(one.operation, one.depth) for one in opened.nested()),
        tuple(figures(row.operation()) for row in so_far.on_devices()),
    )


def needed_most(figures: OperationFigures) -> tuple[bool, int, int, float]:
    """Return the sort key: the operation of the run's peak, then those that needed most, were largest, and lasted longest."""
    needed, resident = (
        -1 if peak is None else peak.bytes if peak.estimate is None else peak.estimate
        for peak in (figures.tree_peak, figures.operation.peak)
    )
    return figures.sets_run_peak, needed, resident, figures.seconds


def moments_of(peaks: Peaks, started: float) -> list[float]:
    """Return when the peaks were first seen, in monotonic seconds."""
    gpu: Mapping[str, Peak] = peaks.gpu_of_run
    every = (peaks.main, peaks.process, peaks.tree, peaks.cgroup, *gpu.values())
    return [peak.at + started for peak in every if peak is not None and peak.at is not None]


def _identity(operation: RecordedOperation) -> tuple[int, int, float]:
    return operation.pid, operation.id, operation.start


def _need(operation: RecordedOperation) -> tuple[int, float]:
    low = (operation.peak.low or 0) if operation.peak is not None else 0
    return low, 0.0 if operation.end is None else operation.end - operation.start
