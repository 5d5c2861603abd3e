"""Figures of each operation, from the record of the whole tree."""

from __future__ import annotations

from itertools import count, islice, repeat
from math import floor, inf

from otel_memwatch.model import Certainty, Evidence, Peak, RecordedOperation
from otel_memwatch.run.attribution import Candidates, where
from otel_memwatch.run.results import OperationFigures, Peaks
from otel_memwatch.run.stalls import Stalls
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.truth.cgroup import tree_around_cgroup, tree_from_cgroup, tree_while_cgroup_was_read
from otel_memwatch.truth.estimates import largest_sample, likely_in_operation
from otel_memwatch.truth.operation import (
    no_more_than,
    part_of_tree,
    refuted_by_sample,
    tree_of_operation,
    unclosed_operation_peak,
)
from otel_memwatch.truth.partial_records import stopped
from otel_memwatch.truth.process import raised_by_sample
from otel_memwatch.truth.processes import was_alive
from otel_memwatch.truth.tree import tree_from_bounds, within_machine

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from otel_memwatch.record.operation_index import OperationTable
    from otel_memwatch.run.attribution import Alone
    from otel_memwatch.run.conditions import RunConditions
    from otel_memwatch.run.process_bounds import ProcessBounds
    from otel_memwatch.run.sample_history import HistoricSeries
    from otel_memwatch.run.sample_series import TreeSeries
    from otel_memwatch.run.tree_bounds import SumOverTime

    _ProcessCounters = Sequence[tuple[tuple[str, str], float]]
    """For each counter: its name, its name for the tree, and the amount used."""

_TOGETHER = 1024
"""Operations in one batch when computing the usage of the tree: a batch takes a third of the time."""


class OperationContext(NamedTuple):
    """The surroundings of a run's operations."""

    conditions: RunConditions
    series: TreeSeries | HistoricSeries
    processes: Mapping[int, Sequence[ProcessBounds]]
    """All processes by pid; the kernel may use a pid again."""
    sums: SumOverTime | None
    """Sum of the bounds of all processes over time; `None`: no bound can be certified."""
    have_left: bool
    """True if processes used memory outside the run's cgroup."""
    end: float
    """Monotonic seconds of the last thing recorded."""
    watched_until: float
    """Monotonic seconds up to which samples reach; an operation may have continued."""
    most_file: int = 0
    """Most file pages of one process at a sample, in bytes."""
    window: float = 0.0
    """The most seconds between two samples."""
    by_faults: bool = False
    """True if page faults bound the tree between samples."""
    alone_until: float = -inf
    """Monotonic seconds of the last sample that found the only process alive: no report about an earlier moment can be late."""
    alone: Alone = lambda _begin, _end: True
    """Returns whether the tree was one process between two moments."""
    stalls: Stalls = Stalls()
    """Time of the run without progress."""
    whole: bool = True
    """True if samples reach the end of the run: no open operation has continued."""


def operation_figures(
    operations: OperationTable, context: OperationContext, peaks: Peaks
) -> Iterator[OperationFigures]:
    """Yield the figures of all operations by their start: a run may have millions of them."""
    last = {n: with_last_figures(operations.operation(n), context).peak for n in operations.never_closed()}
    sized = Candidates(operations, {n: peak for n, peak in last.items() if peak is not None})
    with_peak = position_of_peak(sized, context, peaks)
    every = operations.nested()
    positions = count()
    while some := list(islice(every, _TOGETHER)):
        used = _used_meanwhile([one.operation for one in some], context)
        for one, used_by_tree in zip(some, used, strict=True):
            yield figures_of(
                one.operation,
                context,
                peaks,
                depth=one.depth,
                parent=one.parent,
                sets_run_peak=next(positions) == with_peak,
                used_by_tree=used_by_tree,
            )


def figures_of(
    operation: RecordedOperation,
    context: OperationContext,
    peaks: Peaks,
    *,
    depth: int,
    parent: int | None,
    sets_run_peak: bool,
    used_by_tree: _ProcessCounters | None = None,
) -> OperationFigures:
    """Return the figures of one operation.

    Args:
        operation: as its process reported it.
        context: its surroundings.
        peaks: of the run.
        depth: number of operations around it.
        parent: position of the one around it.
        sets_run_peak: the run's peak was in it.
        used_by_tree: use by the tree meanwhile, if the caller has found it for many operations at once.
    """
    if operation.status == "open":
        operation = with_last_figures(operation, context)
    if used_by_tree is None:
        used_by_tree = next(_used_meanwhile([operation], context))
    end = _end(operation, context)
    delta = None
    if operation.start_bytes is not None and operation.end_bytes is not None:
        delta = operation.end_bytes - operation.start_bytes
    tree_peak = part_of_tree(
        _tree_peak(operation, end, context),
        peaks.tree,
        throughout=_had_run_peak(operation.start, end, context, peaks.tree),
    )
    if operation.end is None and not context.whole:
        tree_peak = stopped(tree_peak)
    peak = no_more_than(operation.peak, peaks.process)
    if operation.pid == context.conditions.root:
        resident = (context.series.main.largest(operation.start, end) or 0) - context.conditions.sum_error
        peak = refuted_by_sample(raised_by_sample(peak, resident), resident)
    totals = dict(operation.totals)
    for (name, name_of_tree), whole in used_by_tree:
        # The tree's use includes the process's.
        totals[name_of_tree] = max(whole, totals.get(name, 0))
    machine = context.conditions.machine_bytes
    tree_peak, peak = (within_machine(part, machine) for part in (tree_peak, peak))
    return OperationFigures(
        operation if peak is operation.peak else operation._replace(peak=peak),
        round(operation.start - context.conditions.started, 6),
        round(end - context.conditions.started, 6),
        tree_peak,
        delta,
        totals,
        depth,
        parent,
        sets_run_peak=sets_run_peak,
        stalled=context.stalls.between(
            operation.start - context.conditions.started, end - context.conditions.started
        ),
    )


def figures_between(
    start: float, end: float, name: str, context: OperationContext, peaks: Peaks
) -> OperationFigures:
    """Return the figures of the whole tree between two moments, in monotonic seconds, like those of an operation."""
    part = RecordedOperation(name, 0, 0, start, end, "ok", "", "", None, None)
    return figures_of(part, context, peaks, depth=0, parent=None, sets_run_peak=False)


def position_of_peak(operations: Candidates, context: OperationContext, peaks: Peaks) -> int | None:
    """Return the position of the innermost operation of the run's peak; `None`: in none, or in one of several."""
    for peak in (peaks.tree, peaks.process, peaks.main):
        if peak is None:
            continue
        found = where(
            peak,
            operations,
            context.conditions.started,
            context.window,
            context.series.longest_reading,
            alone=context.alone,
        )
        if found is not None:
            return found.operation.position if found.certain and not found.likely else None
        if peak.at is not None:
            return None  # no operation was open then: the one of a smaller peak did not have the run's
    return None


def _had_run_peak(start: float, end: float, context: OperationContext, whole: Peak | None) -> bool:
    """Return whether an operation lasted throughout the window of the run's peak, though the record lacks its samples."""
    if whole is None or whole.at is None or end <= context.watched_until:
        return False
    at = whole.at + context.conditions.started
    return start <= at - context.window and end >= at + context.series.longest_reading


def _end(operation: RecordedOperation, context: OperationContext) -> float:
    return max(operation.start, context.end) if operation.end is None else operation.end


def _process_of(operation: RecordedOperation, context: OperationContext) -> ProcessBounds | None:
    for process in context.processes.get(operation.pid, ()):
        if was_alive(process.start, process.end, operation.start):
            return process
    return None


def with_last_figures(operation: RecordedOperation, context: OperationContext) -> RecordedOperation:
    """Return an unclosed operation with the figures of its process after its last boundary."""
    process = _process_of(operation, context)
    low = (operation.peak.low or 0) if operation.peak is not None else 0
    if operation.pid == context.conditions.root:
        low = max(low, context.series.main.largest(operation.start, _end(operation, context)) or 0)
    high = None if process is None else process.bound
    peak = unclosed_operation_peak(low, high, context.conditions.rss_error, operation.pid)
    return operation if peak is None else operation._replace(peak=peak)


def _tree_peak(operation: RecordedOperation, end: float, context: OperationContext) -> Peak | None:
    """Return the tree's memory while the operation was open, within the tightest bounds.

    Each rule that raises or removes the run's upper bound holds for its operations too. Without a cgroup:

    | the run | its operations |
    | --- | --- |
    | faults reported at the next sample count in a window too | the same (`LedgerWindows`) |
    | a sample's bound may be that of the window before | the next window counts, unless the run is one process seen later |
    | a window without a bound has that of its processes | no bound by faults |
    | one process had more than its files and the faults of any known window (`with_unseen_fill`) | no bound by faults |
    | memory that no fault brought, processes that were not watched | no bound by faults |
    | after the last sample only an ended tree has a bound | none, if it continued or began after it |
    | parts of huge pages that no process maps | beside the processes (`_held`); the faults include them |
    | files in memory that came and went between samples | excluded likewise (`part_of_tree`) |
    """
    series, conditions = context.series, context.conditions
    if conditions.portable:
        seen = series.rss.largest(operation.start, end)
        return None if seen is None else largest_sample(seen, Evidence.RSS_SUM)
    if conditions.own_cgroup and series.watermark.known:
        return _by_cgroup(operation, end, context)
    held = by_faults = None
    if end <= context.watched_until:
        held = _held(operation, end, context)
        if context.by_faults:
            by_faults = series.windows.most(
                operation.start, end, later=0 if end <= context.alone_until else 1
            )
    if series.certain.known and not conditions.own_cgroup:
        low = series.certain.largest(operation.start, end) or 0
        seen = series.likely.largest(operation.start, end)
        if seen is None:
            # A short operation between two samples: other processes probably had what they have beside it.
            seen = series.likely.least_beside(operation.start, end) or 0
        own_low = 0 if operation.peak is None else operation.peak.low or 0
        likely = likely_in_operation(max(low, seen), own_low, context.most_file)
        return tree_of_operation(low, held, by_faults, likely, conditions.sum_error)
    # An older record has resident sizes only.
    own, low = operation.peak, series.pss.largest(operation.start, end) or 0
    single = None
    if own is not None:
        low = max(low, own.low or 0)
        single = own.bytes if own.certainty is Certainty.EXACT else None
    return tree_from_bounds(low, held, conditions.rss_error, single)


def _held(operation: RecordedOperation, end: float, context: OperationContext) -> int | None:
    """Return the sum of the bounds of the processes alive, with the operation's own peak for its process.

    It includes parts of huge pages that are charged beside, at the samples in and around the operation.
    """
    if context.sums is None:
        return None
    total = context.sums.largest(operation.start, end)
    process = _process_of(operation, context)
    bound = None if process is None else process.bound
    high = None if operation.peak is None else operation.peak.high
    if bound is not None and high is not None and high < bound:
        total -= bound - high
    around = operation.start - context.window, end + context.window
    return total + (context.series.left.largest(*around) or 0)


def _by_cgroup(operation: RecordedOperation, end: float, context: OperationContext) -> Peak | None:
    """Return the peak from the windows of the run's cgroup: windows inside bound it from below, overlapping ones from above."""
    start, series, conditions = operation.start, context.series, context.conditions
    high = series.windows.most(start, end)
    low = max(series.needed.largest(start, end) or 0, series.windows.least(start, end) or 0)
    likely = None
    if operation.pid == conditions.root and operation.peak is not None:
        # File pages were not read at the maximum: the most of all samples is an estimate, and no bound.
        likely = likely_in_operation(low, operation.peak.low or 0, series.mapped)
    if context.have_left and end <= context.watched_until:
        held = _held(operation, end, context)
        return tree_around_cgroup(low, held, series.unmapped.largest(start, end))
    if high is None or end > context.watched_until:
        return tree_while_cgroup_was_read(low)
    return tree_from_cgroup(low, high, likely=likely)


def _used_meanwhile(
    operations: Sequence[RecordedOperation], context: OperationContext
) -> Iterator[_ProcessCounters]:
    """Yield the tree's use during each operation. Between two samples it is proportional to time."""
    starts = [operation.start for operation in operations]
    ends = [_end(operation, context) for operation in operations]
    names, columns = [], []
    for name, counter in context.series.counters.items():
        used = counter.growths(starts, ends)
        if used is not None:
            names.append((name, f"tree_{name}"))
            whole = (
                [round(one, 6) for one in used]
                if name == "cpu_seconds"
                else [floor(one + 0.5) for one in used]
            )
            columns.append(whole)
    rows: Iterable[tuple[float, ...]] = zip(*columns, strict=True) if columns else repeat((), len(operations))
    return (tuple(zip(names, row, strict=True)) for row in rows)
