"""What the record of the whole tree says about each operation."""

from __future__ import annotations

import math

from otel_memwatch.analysis.attribution import operation_of
from otel_memwatch.analysis.process_bounds import CLOCK_TICK, HEEDLESS
from otel_memwatch.analysis.processes import LivedProcess, bound_of_the_untold
from otel_memwatch.analysis.results import TOTALS, OperationFigures, Peaks
from otel_memwatch.analysis.tree_bounds import Steps, steps
from otel_memwatch.analysis.verdicts import at_least, near, one_figure
from otel_memwatch.model import Certainty, Operation, Peak
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_memwatch.analysis.life import Life
    from otel_memwatch.analysis.run_conditions import Basis
    from otel_memwatch.analysis.ticks import TreeTicks


class Surroundings(NamedTuple):
    """What the operations happened in."""

    basis: Basis
    ticks: TreeTicks
    lives: Mapping[int, Sequence[Life]]
    """All processes by their pid, which may be used again."""
    sums: Steps | None
    """Sum of the bounds of all processes over time; `None` where no bound can be certified."""
    end: float
    """Monotonic seconds of the last thing recorded."""
    watched_until: float
    """Monotonic seconds up to which ticks tell of the whole tree: an operation may have gone on."""


def sum_of_bounds(lived: Sequence[LivedProcess], ticks: TreeTicks, basis: Basis, end: float) -> Steps | None:
    """Upper bound of the tree's memory over time; `None` where none can be certified.

    Args:
        lived: all processes that were seen.
        ticks: of the run.
        basis: of the run.
        end: of the record, in monotonic seconds: where the lives of processes without an end are cut.

    """
    lives = [entry.life for entry in lived]
    unit = bound_of_the_untold(lived)
    unseen = ticks.unobserved.rises(basis.started)
    heedless = any(entry.fields.get("note") == HEEDLESS for entry in lived)
    if not lives or (unseen and (unit is None or heedless)):
        return None
    weighted = []
    for life in lives:
        bound = life.bound
        if bound is None:
            if unit is None or life.end is None:
                return None
            bound = unit
        stop = end if life.end is None else life.end
        weighted.append((life.start - CLOCK_TICK, max(stop, life.start), bound + basis.rss_error))
    weighted += [(start, stop, int(rise) * ((unit or 0) + basis.rss_error)) for start, stop, rise in unseen]
    return steps(weighted)


def operation_figures(
    operations: Sequence[Operation], around: Surroundings, peaks: Peaks
) -> tuple[OperationFigures, ...]:
    """The figures of all operations, by their start."""
    ordered = sorted(operations, key=lambda o: (o.start, -_end(o, around)))
    ordered = [_with_last_words(o, around) if o.status == "open" else o for o in ordered]
    parents = _parents(ordered)
    setter = _setter(ordered, peaks, around.basis.started, around.basis.interval)
    depths: list[int] = []
    figures = []
    for index, operation in enumerate(ordered):
        parent = parents[index]
        depths.append(0 if parent is None else depths[parent] + 1)
        end = _end(operation, around)
        delta = None
        if operation.start_bytes is not None and operation.end_bytes is not None:
            delta = operation.end_bytes - operation.start_bytes
        figures.append(
            OperationFigures(
                operation,
                round(operation.start - around.basis.started, 6),
                round(end - around.basis.started, 6),
                _tree_peak(operation, end, around),
                delta,
                _totals(operation, end, around),
                depths[index],
                parent,
                sets_run_peak=index == setter,
            )
        )
    return tuple(figures)


def _end(operation: Operation, around: Surroundings) -> float:
    return max(operation.start, around.end) if operation.end is None else operation.end


def _parents(ordered: Sequence[Operation]) -> list[int | None]:
    """Index of the operation around each: by span ids. A parent that comes later, or a circle, is none."""
    by_span = {
        operation.span_id: index
        for index, operation in reversed(list(enumerate(ordered)))
        if operation.span_id
    }
    parents: list[int | None] = []
    for index, operation in enumerate(ordered):
        parent = by_span.get(operation.parent_span_id or "")
        parents.append(parent if parent is not None and parent < index else None)
    return parents


def _setter(ordered: Sequence[Operation], peaks: Peaks, started: float, interval: float) -> int | None:
    """Index of the innermost operation in which the run's peak was reached."""
    for peak in (peaks.tree, peaks.process, peaks.main):
        found = None if peak is None else operation_of(peak, ordered, started, interval)
        if found is not None:
            return found
    return None


def _life_of(operation: Operation, around: Surroundings) -> Life | None:
    return next(
        (
            life
            for life in around.lives.get(operation.pid, ())
            if life.start <= operation.start + 1.0 and (life.end is None or operation.start <= life.end)
        ),
        None,
    )


def _with_last_words(operation: Operation, around: Surroundings) -> Operation:
    """An operation that was never closed, with what the record says of its process after its last boundary."""
    life = _life_of(operation, around)
    low = (operation.peak.low or 0) if operation.peak is not None else 0
    if operation.pid == around.basis.root:
        low = max(low, around.ticks.main.largest(operation.start, _end(operation, around)) or 0)
    high = None if life is None or life.bound is None else max(life.bound, low)
    if not low and high is None:
        return operation
    how = "VmHWM up to its last boundary, ticks"
    if high is not None and high <= low + around.basis.rss_error:
        return operation._replace(
            peak=Peak.exact(high, around.basis.rss_error, pid=operation.pid, how="VmHWM")
        )
    return operation._replace(peak=Peak.interval(low, high, pid=operation.pid, how=how))


def _tree_peak(operation: Operation, end: float, around: Surroundings) -> Peak | None:
    """Memory of the tree while the operation was open: the tightest bounds that hold.

    Of one that went on after the last tick there is no upper bound: other processes may have grown unseen.
    """
    start, ticks, basis = operation.start, around.ticks, around.basis
    watched = end <= around.watched_until
    if basis.portable:
        seen = ticks.rss.largest(start, end)
        return None if seen is None else Peak.sampled(seen, how="sum of resident sizes at ticks")
    own = (operation.peak.low or 0) if operation.peak is not None else 0
    held = _held(operation, end, around) if watched else None
    if basis.own_cgroup and ticks.watermark.known:
        return _by_cgroup(operation, held, end, around)
    low = max(own, ticks.pss.largest(start, end) or 0)
    if held is not None and held <= low + 2 * basis.rss_error:
        single = operation.peak is not None and operation.peak.certainty is Certainty.EXACT
        value = (
            operation.peak.bytes
            if single and operation.peak is not None
            else max(low, held - basis.rss_error)
        )
        return Peak.exact(value, basis.rss_error, how="VmHWM")
    if not low and held is None:
        return None
    return Peak.interval(low, held, how="largest process or sum of PSS, sum of VmHWM")


def _held(operation: Operation, end: float, around: Surroundings) -> int | None:
    """Upper bound of what the processes had together: the bounds of those alive, its own process with its own peak."""
    if around.sums is None:
        return None
    total = around.sums.largest(operation.start, end)
    life = _life_of(operation, around)
    high = None if operation.peak is None else operation.peak.high
    if life is not None and life.bound is not None and high is not None and high < life.bound:
        total -= life.bound - high
    return total


def _by_cgroup(operation: Operation, held: int | None, end: float, around: Surroundings) -> Peak | None:
    """From the windows of the run's own group: those inside bound it from below, all that touch it from above."""
    start, ticks, basis = operation.start, around.ticks, around.basis
    high = ticks.windows.most(start, end)
    low = max(ticks.needed.largest(start, end) or 0, ticks.windows.least(start, end) or 0)
    if operation.pid == basis.root and operation.peak is not None:
        low = max(low, (operation.peak.low or 0) - ticks.mapped - basis.rss_error)
    if high is None or end > around.watched_until:
        return at_least(Peak.interval(low, None, how="cgroup watermark while it was read, VmHWM"))
    unmapped, how = ticks.unmapped.largest(start, end), "cgroup watermark"
    if held is not None and unmapped is not None and held + unmapped < high:
        high, how = held + unmapped, "sum of VmHWM and cgroup"
    low = min(low, high)
    if high - low <= near(high, basis):
        return one_figure(low, high)._replace(how=how)
    return Peak.interval(low, high, how=f"{how} less page cache")


def _totals(operation: Operation, end: float, around: Surroundings) -> Mapping[str, float]:
    totals = dict(operation.totals)
    for name in TOTALS:
        counter = around.ticks.counters.get(name)
        used = None if counter is None else counter.between(operation.start, end)
        if used is not None:
            totals[f"tree_{name}"] = round(used, 6) if name == "cpu_seconds" else math.floor(used + 0.5)
    return totals
