"""Operations of a run: timeline as a tree, totals of repeated names, operations that were open at the end."""

from __future__ import annotations

from otel_memwatch.model import Certainty, Evidence
from otel_memwatch.reports import phrases
from otel_memwatch.reports.pages import Columns
from otel_memwatch.reports.sections.folding import Shown, rows
from otel_memwatch.reports.sections.stacks import running
from otel_memwatch.reports.sections.stalls import of_operation
from otel_memwatch.runtime.light import defaultdict
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import (
    certainty,
    change,
    count,
    duration,
    peak_figure,
    peak_sentence,
    shorten,
    size,
)
from otel_memwatch.truth.exact import at_least
from otel_memwatch.truth.operation import together

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_memwatch.model import Peak
    from otel_memwatch.reports.pages import Page
    from otel_memwatch.run import OperationFigures, RecordedRun
    from otel_memwatch.run.operation_digest import OperationDigest

FIRST, LAST = 100, 20
"""Operations that are shown of a run with more, besides the one of its peak."""

_NAME = 200
_ERROR = 200
_MAX_DEPTH = 8
_NAMES = 40

_GAPS = 5
"""Stretches without an operation in the table."""
_LARGEST = 12
"""Operations in the short list."""

_COLUMNS = Columns(
    (
        "start",
        "duration",
        "operation",
        "pid",
        "needed",
        "",
        "resident",
        "",
        "change",
        "CPU",
        "read",
        "written",
        "",
    ),
    "rrlrrlrlrrrrl",
    first_to_go=("read", "written", "CPU", "change", "start", "duration", "pid"),
    names="operation",
)
_WIDE = 1.25
"""Ratio of the bounds of a range above which its best estimate is listed."""
_LEGEND = "needed: all processes together. resident: the operation's own process, with shared and file pages."
_BY_NAME = Columns(
    ("operation", "times", "total", "mean", "longest", "mean needed", "largest needed", "CPU"),
    "lrrrrrrr",
    first_to_go=("mean", "longest", "mean needed", "mean resident"),
    names="operation",
)
_BY_NAME_RESIDENT = _BY_NAME._replace(
    header=(*_BY_NAME.header[:5], "mean resident", "largest resident", "CPU")
)
"""Columns for runs without needed memory for each operation, for example with too many operations."""
_USED = tuple(f"{of}{name}" for name in ("cpu_seconds", "read_bytes", "write_bytes") for of in ("", "tree_"))
_NEEDED, _RESIDENT = _COLUMNS.header.index("needed"), _COLUMNS.header.index("resident")


def operations(run: RecordedRun, page: Page) -> None:
    """Write the section; nothing if the program marked no operation."""
    if run.too_many_operations:
        _digest(run, run.operation_digest, page)
        return
    listed = run.operations
    if not listed:
        return
    page.section(f"Operations ({len(listed)})")
    several = len({figures.operation.pid for figures in listed}) > 1
    shown = rows(listed)
    timeline: list[tuple[str, ...]] = []
    left_out = 0
    for index, row in enumerate(shown):
        peaked = len(row.members) == 1 and row.members[0].sets_run_peak
        if FIRST <= index < len(shown) - LAST and not peaked:
            left_out += len(row.members)
            continue
        if left_out:
            more = f"... {count(left_out, 'more operation')} (all: --json)"
            timeline.append(("", "", more, *[""] * (len(_COLUMNS.header) - 3)))
            left_out = 0
        timeline.append(_folded(row, several=several) if len(row.members) > 1 else _row(row, several=several))
    _table(timeline, page)
    _totals_by_name(listed, page)
    still_open = [figures for figures in listed if figures.operation.status == "open"]
    _open(run, [(figures, _path(listed, figures)) for figures in still_open], page)


def uncovered(run: RecordedRun, page: Page) -> None:
    """Write the time that no operation covers, the longest stretches, with the code that was captured in it."""
    gaps = run.uncovered
    if not gaps:
        return
    longest = sorted(gaps, key=lambda gap: gap.start - gap.end)[:_GAPS]
    rows = []
    for gap in sorted(longest, key=lambda gap: gap.start):
        captured = [one for one in run.stacks.captures if gap.start <= one.time - run.started <= gap.end]
        most = max(captured, key=lambda one: one.grown, default=None)
        rows.append(
            (
                duration(gap.start),
                duration(gap.end - gap.start),
                shorten(gap.place, _NAME),
                "-" if gap.change is None else change(gap.change),
                "" if most is None else running(most),
            )
        )
    page.section("Outside operations")
    page.table(rows, Columns(("start", "duration", "place", "change", "running"), "rrlrl", names="place"))
    if len(gaps) > len(longest):
        rest = sum(gap.end - gap.start for gap in gaps) - sum(gap.end - gap.start for gap in longest)
        page.paragraph(
            f"... and {count(len(gaps) - len(longest), 'shorter stretch', 'shorter stretches')}, {duration(rest)}."
        )


def _digest(run: RecordedRun, digest: OperationDigest, page: Page) -> None:
    """Write the section of a run with too many operations to list: totals by name, and the largest."""
    page.section(f"Operations ({digest.number})")
    by_name = [
        (
            shorten(totals.name, _NAME) + (f" ({totals.failed} failed)" if totals.failed else ""),
            str(totals.number),
            duration(totals.seconds),
            duration(totals.seconds / totals.number),
            duration(totals.longest),
            "-" if totals.mean_peak is None else size(totals.mean_peak),
            "-" if totals.largest_peak is None else size(totals.largest_peak),
            "-" if totals.cpu_seconds is None else duration(totals.cpu_seconds),
        )
        for totals in digest.names[:_NAMES]
    ]
    page.table(by_name, _BY_NAME_RESIDENT)
    rest = sum(totals.number for totals in digest.names[_NAMES:]) + digest.unnamed
    if rest:
        page.paragraph(f"... and {count(rest, 'operation')} with other names.")
    page.gap()
    page.paragraph("Largest operation of each name:")
    several = digest.processes > 1
    _table([_row(Shown(0, (figures,)), several=several) for figures in digest.largest[:LAST]], page)
    page.paragraph("All operations: --json.")
    _open(run, [(figures, shorten(figures.operation.name, _NAME)) for figures in digest.open], page)


def _table(timeline: list[tuple[str, ...]], page: Page) -> None:
    alone = all(row[_NEEDED] == row[_RESIDENT] for row in timeline)
    if alone:
        # A program of one process: both figures are the same.
        timeline = [(*row[:_RESIDENT], "", "", *row[_RESIDENT + 2 :]) for row in timeline]
    page.table(timeline, _COLUMNS)
    if not alone:
        page.gap()
        page.paragraph(_LEGEND)


def largest_operations(run: RecordedRun, page: Page) -> None:
    """Write a short table of the largest operation of each name, the one of the run's peak first."""
    number = run.operation_digest.number if run.too_many_operations else len(run.operations)
    shown = phrases.largest_by_name(run)[:_LARGEST]
    needed = any(figures.tree_peak for figures in shown)
    rows = []
    for figures in shown:
        peak = figures.tree_peak if needed else figures.operation.peak
        remark = _remark(figures)
        rows.append(
            (
                shorten(figures.operation.name, _NAME),
                peak_figure(peak),
                certainty(peak),
                duration(figures.seconds),
                remark,
            )
        )
    size_of = "needed" if needed else "resident"
    page.table(rows, Columns(("operation", size_of, "", "duration", ""), "lrlrl", strong=_IS_PEAK))
    if number > len(shown):
        page.paragraph(f"{count(number - len(shown), 'more operation')}.")


def _row(row: Shown, *, several: bool) -> tuple[str, ...]:
    (figures,) = row.members
    operation = figures.operation
    indent = "  " * min(row.depth, _MAX_DEPTH)
    name = indent + shorten(operation.name, _NAME - len(indent))
    if row.inside:
        name += f" in {shorten(row.inside, _NAME)}"
    return (
        duration(figures.start),
        duration(figures.seconds),
        name,
        str(operation.pid) if several else "",
        peak_figure(figures.tree_peak),
        certainty(figures.tree_peak),
        peak_figure(operation.peak),
        certainty(operation.peak),
        "-" if figures.delta_bytes is None else change(figures.delta_bytes),
        *_use(figures.totals),
        _remark(figures),
    )


def _folded(row: Shown, *, several: bool) -> tuple[str, ...]:
    """Return one row for several operations of a name: total duration and use, largest peaks and change."""
    members = row.members
    names = (members[0].operation.name, members[-1].operation.name)
    indent = "  " * min(row.depth, _MAX_DEPTH)
    if names[0] == names[1]:
        name = shorten(names[0], _NAME - len(indent))
    else:
        name = " ... ".join(shorten(name, _NAME // 2) for name in names)
    peak, tree = _largest([f.operation.peak for f in members]), _largest([f.tree_peak for f in members])
    deltas = [f.delta_bytes for f in members if f.delta_bytes is not None]
    seconds, pids = [f.seconds for f in members], {f.operation.pid for f in members}
    used: dict[str, float] = {}
    for figures in members:
        for key in _USED:
            if key in figures.totals:
                used[key] = used.get(key, 0) + figures.totals[key]
    return (
        duration(members[0].start),
        duration(sum(seconds)),
        f"{indent}{name} ({len(members)} times)",
        str(members[0].operation.pid) if several and len(pids) == 1 else "",
        peak_figure(tree),
        certainty(tree),
        peak_figure(peak),
        certainty(peak),
        change(max(deltas)) if deltas else "-",
        *_use(used),
        f"{duration(sum(seconds) / len(seconds))} each, longest {duration(max(seconds))}",
    )


def _largest(peaks: Sequence[Peak | None]) -> Peak | None:
    """Return the largest peak with bounds that hold for all; "at least" if some are unknown."""
    if not any(peaks):
        return None
    return together(peak or at_least(0, Evidence.SAMPLES) for peak in peaks)


def _use(totals: Mapping[str, float]) -> tuple[str, str, str]:
    """Return CPU, read and written: of all processes if known, else of the operation's process."""
    cpu, read, written = (_either(totals, name) for name in ("cpu_seconds", "read_bytes", "write_bytes"))
    return (
        "-" if cpu is None else duration(cpu),
        "-" if read is None else size(read),
        "-" if written is None else size(written),
    )


def _either(totals: Mapping[str, float], name: str) -> float | None:
    value = totals.get(f"tree_{name}")
    return totals.get(name) if value is None else value


_IS_PEAK = "the run's peak"


def _remark(figures: OperationFigures) -> str:
    remarks = []
    if figures.sets_run_peak:
        remarks.append(_IS_PEAK)
    if figures.operation.status == "error":
        remarks.append(f"failed: {shorten(figures.operation.error or 'error', _ERROR)}")
    if figures.operation.status == "open":
        remarks.append("open at the end")
    slow = of_operation(figures.stalled)
    if slow:
        remarks.append(slow)
    peak = figures.tree_peak
    if peak is not None and peak.estimate is not None and (peak.high or 0) > _WIDE * (peak.low or 0):
        remarks.append(f"best estimate {size(peak.estimate)}")
    return ", ".join(remarks)


def _totals_by_name(listed: Iterable[OperationFigures], page: Page) -> None:
    groups: dict[str, list[OperationFigures]] = defaultdict(list)
    for figures in listed:
        groups[figures.operation.name].append(figures)
    repeated = [(name, group) for name, group in groups.items() if len(group) > 1]
    if not repeated:
        return
    repeated.sort(key=lambda item: -sum(figures.seconds for figures in item[1]))
    needed = any(figures.tree_peak for _, group in repeated for figures in group)
    rows = []
    for name, group in repeated[:_NAMES]:
        seconds = [figures.seconds for figures in group]
        known = [
            peak for figures in group if (peak := figures.tree_peak if needed else figures.operation.peak)
        ]
        peaks = [peak.bytes if peak.estimate is None else peak.estimate for peak in known]
        unbounded = any(peak.certainty is Certainty.INTERVAL and peak.high is None for peak in known)
        at_least = ">= " if unbounded else ""
        used = [_either(figures.totals, "cpu_seconds") for figures in group]
        cpu = [value for value in used if value is not None]
        rows.append(
            (
                shorten(name, _NAME),
                str(len(group)),
                duration(sum(seconds)),
                duration(sum(seconds) / len(seconds)),
                duration(max(seconds)),
                f"{at_least}{size(sum(peaks) / len(peaks))}" if peaks else "-",
                f"{at_least}{size(max(peaks))}" if peaks else "-",
                duration(sum(cpu)) if cpu else "-",
            )
        )
    page.gap()
    page.paragraph("Repeated names:")
    page.table(rows, _BY_NAME if needed else _BY_NAME_RESIDENT)
    if len(repeated) > _NAMES:
        page.paragraph(f"... and {count(len(repeated) - _NAMES, 'more name')}.")


def _open(run: RecordedRun, still_open: Sequence[tuple[OperationFigures, str]], page: Page) -> None:
    if not still_open:
        return
    page.gap()
    killed = run.ending.signal or run.ending.oom_kills
    ended = "when the run was killed" if killed else "at the end"
    page.paragraph(f"Open {'now' if run.state == 'running' else ended}:")
    for figures, path in still_open[:LAST]:
        operation = figures.operation
        page.item(
            f"{path} (pid {operation.pid}), open for {duration(figures.seconds)}, "
            f"peak so far {peak_sentence(figures.tree_peak or operation.peak)}"
        )
    if len(still_open) > LAST:
        page.item(f"and {count(len(still_open) - LAST, 'more operation')}")


def _path(listed: Sequence[OperationFigures], figures: OperationFigures) -> str:
    """Return the names from the outermost operation inwards."""
    names = [figures.operation.name]
    parent = figures.parent
    while parent is not None and len(names) < _MAX_DEPTH:
        names.append(listed[parent].operation.name)
        parent = listed[parent].parent
    return " > ".join(shorten(name, _NAME) for name in reversed(names))
