"""The operations section: timeline and tree in one, totals of names that occur again, what was open at the end."""

from __future__ import annotations

from collections import defaultdict

from otel_memwatch.reports import phrases
from otel_memwatch.reports.text.folding import Shown, rows
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import (
    certainty,
    change,
    clean,
    count,
    duration,
    peak_figure,
    peak_sentence,
    shorten,
    size,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_memwatch.model import Peak
    from otel_memwatch.reports.text.page import Page
    from otel_memwatch.run import OperationFigures, RecordedRun
    from otel_memwatch.run.operation_digest import NameTotals, OperationDigest

FIRST, LAST = 100, 20
"""Operations shown of a run that has more: its first, its last, and the one of its peak."""

_NAME = 44
_MAX_DEPTH = 8
_NAMES = 40

_HEADER = (
    "start",
    "duration",
    "operation",
    "change",
    "peak",
    "",
    "all processes",
    "",
    "CPU",
    "read",
    "written",
    "",
)
_ALIGNED = "rrlrrlrlrrrl"
_FIRST_TO_GO = ("read", "written", "CPU", "change", "start", "duration")
_BY_NAME = ("operation", "times", "in all", "mean", "longest", "mean peak", "largest peak", "CPU in all")
_BY_NAME_FIRST_TO_GO = ("mean", "longest", "mean peak")
_USED = tuple(f"{of}{name}" for name in ("cpu_seconds", "read_bytes", "write_bytes") for of in ("", "tree_"))
_PEAK, _TREE = _HEADER.index("peak"), _HEADER.index("all processes")


def operations(run: RecordedRun, page: Page) -> None:
    """Writes the section; nothing when the program marked no operation."""
    if run.too_many_operations:
        _digest(run, run.operation_digest, page)
        return
    listed = run.operations
    if not listed:
        return
    page.section(f"Operations ({len(listed)})")
    several = len({figures.operation.pid for figures in listed}) > 1
    _table(_timeline(listed, several=several), page)
    _totals_by_name(listed, page)
    _open_at_the_end(run, page)


def _digest(run: RecordedRun, digest: OperationDigest, page: Page) -> None:
    """The section of a run that has more operations than anybody reads: by name, and those that needed most."""
    page.section(f"Operations ({digest.number})")
    page.table(
        [_named(totals) for totals in digest.names[:_NAMES]],
        _BY_NAME,
        "lrrrrrrr",
        _BY_NAME_FIRST_TO_GO,
        "operation",
    )
    rest = sum(totals.number for totals in digest.names[_NAMES:]) + digest.unnamed
    if rest:
        page.paragraph(f"... and {count(rest, 'operation')} of other names.")
    page.gap()
    page.paragraph("Those that needed most, one of each name:")
    several = digest.processes > 1
    _table([_row(Shown(0, (figures,)), several=several) for figures in digest.largest[:LAST]], page)
    page.paragraph("--json lists them all.")
    _open(run, [(figures, shorten(figures.operation.name, _NAME)) for figures in digest.open], page)


def _named(totals: NameTotals) -> tuple[str, ...]:
    return (
        shorten(totals.name, _NAME) + (f" ({totals.failed} failed)" if totals.failed else ""),
        str(totals.number),
        duration(totals.seconds),
        duration(totals.seconds / totals.number),
        duration(totals.longest),
        "-" if totals.mean_peak is None else size(totals.mean_peak),
        "-" if totals.largest_peak is None else size(totals.largest_peak),
        "-" if totals.cpu_seconds is None else duration(totals.cpu_seconds),
    )


def _table(timeline: list[tuple[str, ...]], page: Page) -> None:
    alone = all(row[_TREE] == row[_PEAK] for row in timeline)
    if alone:
        # A program of one process: what it needed is what all needed.
        timeline = [(*row[:_TREE], "", "", *row[_TREE + 2 :]) for row in timeline]
    page.table(timeline, _HEADER, _ALIGNED, _FIRST_TO_GO, "operation")
    if not alone:
        page.gap()
        page.paragraph(
            "Peak is that of the process that the operation ran in, all processes that of the whole tree meanwhile."
        )


def _timeline(listed: Sequence[OperationFigures], *, several: bool) -> list[tuple[str, ...]]:
    shown = rows(listed)
    table: list[tuple[str, ...]] = []
    left_out = 0
    for index, row in enumerate(shown):
        peaked = len(row.members) == 1 and row.members[0].sets_run_peak
        if FIRST <= index < len(shown) - LAST and not peaked:
            left_out += len(row.members)
            continue
        if left_out:
            table.append(_left_out(left_out))
            left_out = 0
        table.append(_folded(row) if len(row.members) > 1 else _row(row, several=several))
    return table


def _left_out(number: int) -> tuple[str, ...]:
    return (
        "",
        "",
        f"... {count(number, 'more operation')}: --json lists them all",
        *[""] * (len(_HEADER) - 3),
    )


def _row(row: Shown, *, several: bool) -> tuple[str, ...]:
    (figures,) = row.members
    operation = figures.operation
    indent = "  " * min(row.depth, _MAX_DEPTH)
    name = (
        indent + shorten(operation.name, _NAME - len(indent)) + (f" (pid {operation.pid})" if several else "")
    )
    if row.inside:
        name += f" in {shorten(row.inside, _NAME)}"
    return (
        duration(figures.start),
        duration(figures.seconds),
        name,
        "-" if figures.delta_bytes is None else change(figures.delta_bytes),
        peak_figure(operation.peak),
        certainty(operation.peak),
        peak_figure(figures.tree_peak),
        certainty(figures.tree_peak),
        *_use(figures.totals),
        _remark(figures),
    )


def _folded(row: Shown) -> tuple[str, ...]:
    """Several of one name: how long they took in all, their largest peaks, what they used together."""
    members = row.members
    names = (members[0].operation.name, members[-1].operation.name)
    indent = "  " * min(row.depth, _MAX_DEPTH)
    if names[0] == names[1]:
        name = shorten(names[0], _NAME - len(indent))
    else:
        name = " ... ".join(shorten(name, _NAME // 2) for name in names)
    peak = max((f.operation.peak for f in members if f.operation.peak), key=_bytes, default=None)
    tree = max((f.tree_peak for f in members if f.tree_peak), key=_bytes, default=None)
    deltas = [f.delta_bytes for f in members if f.delta_bytes is not None]
    seconds = [f.seconds for f in members]
    used: dict[str, float] = {}
    for figures in members:
        for key in _USED:
            if key in figures.totals:
                used[key] = used.get(key, 0) + figures.totals[key]
    return (
        duration(members[0].start),
        duration(sum(seconds)),
        f"{indent}{name} ({len(members)} times)",
        change(sum(deltas)) if deltas else "-",
        peak_figure(peak),
        certainty(peak),
        peak_figure(tree),
        certainty(tree),
        *_use(used),
        f"{duration(sum(seconds) / len(seconds))} each, at most {duration(max(seconds))}",
    )


def _bytes(peak: Peak) -> int:
    return peak.bytes


def _use(totals: Mapping[str, float]) -> tuple[str, str, str]:
    """CPU, read and written: of the whole tree where that is known, else of the operation's process."""
    cpu, read, written = (_either(totals, name) for name in ("cpu_seconds", "read_bytes", "write_bytes"))
    return (
        "-" if cpu is None else duration(cpu),
        "-" if read is None else size(read),
        "-" if written is None else size(written),
    )


def _either(totals: Mapping[str, float], name: str) -> float | None:
    value = totals.get(f"tree_{name}")
    return totals.get(name) if value is None else value


def _remark(figures: OperationFigures) -> str:
    remarks = []
    if figures.sets_run_peak:
        remarks.append("<- the run's peak")
    if figures.operation.status == "error":
        remarks.append(f"failed: {clean(figures.operation.error or 'error')}")
    if figures.operation.status == "open":
        remarks.append("open at the end")
    return ", ".join(remarks)


def _totals_by_name(listed: Iterable[OperationFigures], page: Page) -> None:
    groups: dict[str, list[OperationFigures]] = defaultdict(list)
    for figures in listed:
        groups[figures.operation.name].append(figures)
    repeated = [(name, group) for name, group in groups.items() if len(group) > 1]
    if not repeated:
        return
    repeated.sort(key=lambda item: -sum(figures.seconds for figures in item[1]))
    page.gap()
    page.paragraph("Names that occur more than once:")
    page.table(
        [_group(name, group) for name, group in repeated[:_NAMES]],
        _BY_NAME,
        "lrrrrrrr",
        _BY_NAME_FIRST_TO_GO,
        "operation",
    )
    if len(repeated) > _NAMES:
        page.paragraph(f"... and {count(len(repeated) - _NAMES, 'more name')}.")


def _group(name: str, group: Sequence[OperationFigures]) -> tuple[str, ...]:
    seconds = [figures.seconds for figures in group]
    peaks = [figures.operation.peak.bytes for figures in group if figures.operation.peak]
    cpu = [
        value for value in (_either(figures.totals, "cpu_seconds") for figures in group) if value is not None
    ]
    return (
        shorten(name, _NAME),
        str(len(group)),
        duration(sum(seconds)),
        duration(sum(seconds) / len(seconds)),
        duration(max(seconds)),
        size(sum(peaks) / len(peaks)) if peaks else "-",
        size(max(peaks)) if peaks else "-",
        duration(sum(cpu)) if cpu else "-",
    )


def _open_at_the_end(run: RecordedRun, page: Page) -> None:
    listed = run.operations
    still_open = [figures for figures in listed if figures.operation.status == "open"]
    _open(run, [(figures, _path(listed, figures)) for figures in still_open], page)


def _open(run: RecordedRun, still_open: Sequence[tuple[OperationFigures, str]], page: Page) -> None:
    if not still_open:
        return
    page.gap()
    when = (
        "now"
        if run.state == "running"
        else "when it ended"
        if not phrases.ended_badly(run)
        else "at its death"
    )
    page.paragraph(f"Open {when}:")
    for figures, path in still_open[:LAST]:
        operation = figures.operation
        page.item(
            f"{path} (pid {operation.pid}), for {duration(figures.seconds)}, "
            f"peak so far {peak_sentence(operation.peak or figures.tree_peak)}"
        )
    if len(still_open) > LAST:
        page.item(f"and {count(len(still_open) - LAST, 'more operation')}")


def _path(listed: Sequence[OperationFigures], figures: OperationFigures) -> str:
    """The names from the outermost operation inwards."""
    names = [figures.operation.name]
    parent = figures.parent
    while parent is not None and len(names) < _MAX_DEPTH:
        names.append(listed[parent].operation.name)
        parent = listed[parent].parent
    return " > ".join(shorten(name, _NAME) for name in reversed(names))
