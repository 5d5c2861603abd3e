"""Page of a comparison: one HTML file that works offline, with both memory curves on one time axis, and paired tables.

The static page has every figure and a picture of the curves. The script replaces the picture with a chart in which the
runs are aligned at their start or at an operation. Base and head are the runs with median memory of their side.
"""

from __future__ import annotations

import math
from collections import defaultdict

from otel_memwatch import catalog
from otel_memwatch.reports.html import document
from otel_memwatch.reports.html.flame import flame
from otel_memwatch.reports.pages import Columns
from otel_memwatch.reports.pages.html import HtmlPage
from otel_memwatch.reports.pages.markup import escaped, tag
from otel_memwatch.run.curves import LEAST, NEEDED
from otel_memwatch.run.figures import OPERATION, OPERATION_PROCESS
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.text import clean, command_line, count, duration, peak_figure, shorten, size, size_beside
from otel_memwatch.wings.gate.causes import role_of
from otel_memwatch.wings.gate.comparison_formats import (
    ALIGNED,
    HEADER,
    causes,
    compared_runs,
    figure_rows,
    headline,
    missing_runs,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from otel_memwatch.model import Peak
    from otel_memwatch.run import RecordedRun
    from otel_memwatch.wings.gate.comparison import Comparison
    from otel_memwatch.wings.gate.group_causes import Side
    from otel_memwatch.wings.ranks.rank_group import RankGroup

_ROWS, _NAME, _COMMAND = 100, 90, 160
_POINTS = 2000
"""Points of a curve; of more, the largest of each stretch of time stays."""
_ALIGNABLE = 50
"""Operations at which the curves can be aligned."""
_LEAST = 64 << 10
"""Smallest difference or size in a table of kinds and files, in bytes."""
_WIDTH, _HEIGHT = 960, 260
_COLOURS = {"base": "#2f7fb8", "head": "#00795c"}


def html(comparison: Comparison, base: Side, head: Side, *, redacted: bool) -> bytes:
    """Return the page; each side has at least one run with a memory figure, or the page has no curves."""
    sides = {"base": base, "head": head}
    runs = {name: run for name, side in sides.items() if (run := side.run) is not None}
    page = HtmlPage()
    data: dict[str, Any] = {}
    if len(runs) == len(sides):
        data = _data(base, head)
        words = _in_words(sides)
        page.section("Memory over time")
        page.raw('<div id="charts"></div>')
        page.raw(tag("figure", _picture(data), class_="paper", role="img", aria_label=words))
        page.paragraph(words)
        _drawn(base, head, page)
    else:
        page.paragraph("No curves: the runs of a side have no memory figure.")
    if comparison.explanation is not None:
        page.section("Why memory differs")
        for line in causes(comparison.explanation):
            page.item(line)
    others = [one for one in comparison.figures if not one.name.startswith((OPERATION, OPERATION_PROCESS))]
    page.section(f"Figures ({len(others)})")
    missing = missing_runs(comparison)
    page.table(figure_rows(others, lacks_runs=not missing), Columns(HEADER, ALIGNED, strong="regressed"))
    if missing:
        page.paragraph(missing)
    if len(runs) == len(sides):
        _pairs(runs["base"], runs["head"], page)
        found = flame(runs["head"], runs["base"])
        if found:
            page.section("Calls that grew")
            page.raw(found)
            page.paragraph(
                "Width: growth in the head. Orange: more than in the base; blue: less; grey: alike. Calls of the base alone are not drawn."
            )
    page.section("Runs")
    for line in compared_runs(comparison, lambda argv: command_line(argv, _COMMAND)):
        page.item(line)
    for left_out in comparison.left_out:
        page.item(f"excluded: {clean(left_out.name)}: {clean(left_out.why)}")
    head_line = tag("h1", escaped(_title(sides))) + tag("p", escaped(headline(comparison)), class_="second")
    if redacted:
        head_line += tag("p", "Redacted: texts are placeholders, figures are unchanged.", class_="second")
    foot = tag("footer", tag("p", "This page loads nothing and sends nothing."))
    body = f'<main id="page">\n<header>{head_line}</header>\n{page.text()}{foot}</main>\n'
    return document("comparison", body, data, "compare.js")


def _drawn(base: Side, head: Side, page: HtmlPage) -> None:
    """Name what is drawn of groups, and of sides with several runs."""
    if base.group is not None or head.group is not None:
        page.paragraph(
            "Curve and figures of a group are those of all its ranks. The tables below the figures have the rank with most memory."
        )
    named = [
        f"{clean(str(_drawn_name(side)))} of {count(len(side.runs) + len(side.groups), 'run')}"
        for side in (base, head)
    ]
    if any(len(side.runs) + len(side.groups) > 1 for side in (base, head)):
        page.paragraph(f"Drawn are the runs with median memory: {', '.join(named)}.")


def _drawn_name(side: Side) -> str:
    if side.group is not None:
        return side.group.name
    return side.run.path.name if side.run is not None else ""


def _peak(side: Side) -> Peak | None:
    if side.group is not None:
        return side.group.together.peak
    return side.run.peaks.tree if side.run is not None else None


def _title(sides: Mapping[str, Side]) -> str:
    peaks = [peak for side in sides.values() if (peak := _peak(side)) is not None]
    if len(peaks) < len(_COLOURS):
        return "Two sides compared"
    return "Memory {} to {}".format(*map(peak_figure, peaks))


def _in_words(sides: Mapping[str, Side]) -> str:
    words = []
    for name, side in sides.items():
        peak, long = _peak(side), side.group or side.run
        if peak is not None and long is not None:
            at = f" at {duration(peak.at)}" if peak.at is not None else ""
            words.append(f"{name}: {peak_figure(peak)}{at}, {duration(long.seconds)} long")
    return "; ".join(words) + "."


# -- curves


def _data(base: Side, head: Side) -> dict[str, Any]:
    sides = (base, head)
    runs = [side.run for side in sides if side.run is not None]
    needed = all(run.curves.curves.get((NEEDED, ())) is not None for run in runs)
    label = "memory needed" if needed else "resident sizes added up"
    if all(side.group is not None for side in sides):
        label = "memory of all ranks"
    starts = [_starts(side) for side in sides]
    shared = [name for name in starts[0] if name in starts[1]][:_ALIGNABLE]
    return {
        "label": label,
        "sides": [
            _curve(run, needed=needed) if side.group is None else _group_curve(side.group)
            for side, run in zip(sides, runs, strict=True)
        ],
        "align": [[shorten(clean(name), _NAME), starts[0][name], starts[1][name]] for name in shared],
    }


def _group_curve(group: RankGroup) -> dict[str, Any]:
    """Return times in seconds and bytes of all ranks together."""
    times, _, values = group.sum_curve(_POINTS)
    return {
        "seconds": round(group.seconds, 4),
        "times": [round(min(max(0.0, time), group.seconds), 4) for time in times.tolist()],
        "bytes": [round(value) for value in values.tolist()],
    }


def _curve(run: RecordedRun, *, needed: bool) -> dict[str, Any]:
    """Return times in seconds and bytes, the largest of each stretch of time."""
    curves = run.curves
    curve = curves.curves.get((NEEDED, ())) if needed else curves.find(catalog.MEMWATCH_TREE_MEMORY_USAGE)
    values = [] if curve is None else list(curve.high)
    least = curves.curves.get((LEAST, ())) if needed else None
    if least is not None:  # high-water marks cover the time between samples
        values = [max(value, low) for value, low in zip(values, least.high, strict=True)]
    largest: dict[int, tuple[float, float]] = {}
    for time, value in zip(curves.last, values, strict=False):
        place = int(_POINTS * time / (run.seconds or 1.0))
        if not math.isnan(value) and (place not in largest or value > largest[place][1]):
            largest[place] = min(time, run.seconds), value
    points = list(largest.values())
    return {
        "seconds": round(run.seconds, 4),
        "times": [round(time, 4) for time, _ in points],
        "bytes": [round(value) for _, value in points],
    }


def _starts(side: Side) -> dict[str, float]:
    """Return the first start of each operation; of a group, in its largest rank."""
    found: dict[str, float] = {}
    run, later = side.run, 0.0
    if side.group is not None:
        largest = side.group.by_memory()[0][0]
        later = max(0.0, side.group.end_of(largest) - largest.run.seconds)
    if run is not None and run.marked and not run.too_many_operations:
        for figures in run.iterate_operations():
            found.setdefault(figures.operation.name, round(later + figures.start, 4))
    return found


def _picture(data: Mapping[str, Any]) -> str:
    """Return both curves as SVG."""
    sides = dict(zip(_COLOURS, data["sides"], strict=True))
    longest = max([side["seconds"] for side in sides.values()], default=1) or 1
    top = max([value for side in sides.values() for value in side["bytes"]], default=1) or 1
    parts = []
    for number, (name, side) in enumerate(sides.items()):
        points = [
            f"{50 + (_WIDTH - 60) * time / longest:.1f} {_HEIGHT - 24 - (_HEIGHT - 50) * value / top:.1f}"
            for time, value in zip(side["times"], side["bytes"], strict=True)
        ]
        colour = _COLOURS[name]
        if points:
            parts.append(
                tag(
                    "path",
                    "",
                    d="M" + "L".join(points),
                    fill="none",
                    stroke=colour,
                    stroke_width=1.8,
                    stroke_dasharray=None if number else "7 3",
                )
            )
        parts.append(tag("text", name, x=60 + 60 * number, y=14, fill=colour))
    parts.append(tag("text", escaped(size(top)), x=_WIDTH - 10, y=14, text_anchor="end", fill="#667079"))
    parts.append(tag("text", "0 s", x=50, y=_HEIGHT - 6, fill="#667079"))
    parts.append(
        tag("text", duration(longest), x=_WIDTH - 10, y=_HEIGHT - 6, text_anchor="end", fill="#667079")
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="100%" font-family="system-ui, sans-serif" font-size="12" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )


# -- pairs


def _pairs(base: RecordedRun, head: RecordedRun, page: HtmlPage) -> None:
    """Write the tables in which each row has both runs."""
    operations = [_operations(run) for run in (base, head)]
    _table(page, "Operations", ("operation", "times", "longest", "memory"), *operations)
    processes = [_processes(run) for run in (base, head)]
    _table(page, "Processes", ("process", "number", "CPU time", "resident size"), *processes)
    for title, first, files in (
        ("Kinds of memory", "kind", False),
        ("Mapped files", "file", True),
    ):
        parts = [_parts(run, files=files) for run in (base, head)]
        _table(page, title, (first, "", "", "memory"), *parts)
    if base.made_of is None or head.made_of is None:
        page.paragraph("Kinds of memory were not recorded for both runs.")
        return
    readings = [
        f"{name}: {size(run.made_of.level)} resident at {duration(max(0.0, run.made_of.time - run.started))}"
        for name, run in (("base", base), ("head", head))
        if run.made_of is not None
    ]
    page.paragraph(f"Kinds and files are those of the last new peak that was read ({'; '.join(readings)}).")


_Row = tuple[str, str, float]
"""Two cells, and the bytes by which rows are compared."""


def _table(
    page: HtmlPage,
    title: str,
    header: tuple[str, str, str, str],
    base: Mapping[str, _Row],
    head: Mapping[str, _Row],
) -> None:
    names = {*base, *head}
    none: _Row = ("-", "-", 0)
    change = {name: head.get(name, none)[2] - base.get(name, none)[2] for name in names}
    shown = sorted(
        (name for name in names if base.get(name) != head.get(name)),
        key=lambda name: (-abs(change[name]), name),
    )
    if not names:
        return
    page.section(f"{title} ({len(names)})")
    rows = []
    for name in shown[:_ROWS]:
        before, after = base.get(name), head.get(name)
        cells = [name]
        for place in (0, 1):
            texts = ["-" if side is None else side[:2][place] for side in (before, after)]
            cells += texts if header[place + 1] else ["", ""]
        larger = max(side[2] for side in (before, after) if side is not None)
        cells += ["-" if side is None else size_beside(side[2], larger) for side in (before, after)]
        sign = "-" if change[name] < 0 else "+"
        cells.append(sign + size_beside(abs(change[name]), larger) if change[name] else "0")
        rows.append(cells)
    columns = [header[0], *(f"{words}, {side}" if words else "" for words in header[1:] for side in _COLOURS)]
    if rows:
        page.table(rows, Columns((*columns, "change"), "l" + "r" * 7, wide=columns[1:5]))
    if len(shown) > _ROWS:
        page.paragraph(f"{count(len(shown) - _ROWS, 'further row')} with smaller differences.")
    if len(shown) < len(names):
        page.paragraph(f"{count(len(names) - len(shown), 'row')} without a difference left out.")


def _operations(run: RecordedRun) -> dict[str, _Row]:
    """Return the operations by name: how often, the longest, the largest memory of the tree or else of the process."""
    if not run.marked:
        return {}
    if run.too_many_operations:
        return {}
    times: dict[str, int] = defaultdict(int)
    longest: dict[str, float] = defaultdict(float)
    largest: dict[str, int] = defaultdict(int)
    for figures in run.iterate_operations():
        name = shorten(clean(figures.operation.name), _NAME)
        peak = figures.tree_peak or figures.operation.peak
        times[name] += 1
        longest[name] = max(longest[name], figures.seconds)
        if peak is not None:
            largest[name] = max(largest[name], peak.bytes if peak.estimate is None else peak.estimate)
    return {name: (str(times[name]), duration(longest[name]), largest[name]) for name in times}


def _processes(run: RecordedRun) -> dict[str, _Row]:
    """Return the processes by role: number, CPU time, the largest."""
    found: dict[str, tuple[int, float, int]] = {}
    for process in run.processes:
        role = "main process" if process.pid == run.fields.target.pid else role_of(run, process)
        number, cpu, largest = found.get(role, (0, 0.0, 0))
        resident = process.peak.bytes if process.peak is not None else 0
        found[role] = number + 1, cpu + (process.cpu_seconds or 0.0), max(largest, resident)
    return {role: (str(number), duration(cpu), largest) for role, (number, cpu, largest) in found.items()}


def _parts(run: RecordedRun, *, files: bool) -> dict[str, _Row]:
    """Return memory at the peak by kind, or by mapped file."""
    found: dict[str, int] = defaultdict(int)
    parts: Iterable[Any] = () if run.made_of is None else run.made_of.tree
    for part in parts:
        if not files or part.kind == "file":
            found[shorten(clean(part.name or "other files"), _NAME) if files else part.kind] += part.bytes
    return {name: ("", "", value) for name, value in found.items() if value >= _LEAST}
