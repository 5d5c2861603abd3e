"""A run as a notebook shows it: the curve, the figures and the largest operations, in HTML that needs no script.

Sites that show notebooks drop scripts and style sheets: the picture is inline SVG with attributes alone, on light paper of
its own, since transparent paper is illegible in either the light or the dark theme.
"""

from __future__ import annotations

import math
from html import escape

from otel_memwatch import catalog
from otel_memwatch.analysis.operation_digest import needed_most
from otel_memwatch.reports import phrases
from otel_memwatch.reports.formatting import (
    certainty,
    clean,
    command_line,
    duration,
    peak_figure,
    peak_sentence,
    shorten,
    size,
    size_in,
    size_scale,
)
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_memwatch.analysis import OperationFigures, RecordedRun

_WIDTH, _HEIGHT = 720, 180
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 8, 18, 20
_PARTS = 360
_NEAR = 3.0
"""Times the largest value up to which a limit is drawn."""
_INK, _SOFT, _FAINT, _NEEDED, _LIMIT = "#222222", "#666666", "#dddddd", "#009e73", "#d55e00"
_OPERATIONS = 8
_NAME = 80


def card(run: RecordedRun) -> str:
    """The HTML of the card."""
    bad = phrases.ended_badly(run)
    peak = run.peaks.tree
    where = phrases.when_and_where(run, peak)
    so_far = " so far" if run.state == "running" else ""
    headline = f"{peak_sentence(peak, source=False)}{so_far}" + (f", {where}" if where else "")
    parts = [
        f'<div style="background:#ffffff;color:{_INK};padding:8px 12px;border:1px solid {_FAINT};max-width:760px">',
        f"<div><code>{_text(command_line(run.command, 100))}</code></div>",
        f"<div><b>memory {_text(headline)}</b></div>",
        f'<div style="color:{_LIMIT if bad else _SOFT}">{_text(phrases.ending(run))}</div>',
        _curve(run),
        _operations(run),
        f'<div style="color:{_SOFT}">{_text(str(run.path))}</div>',
        "</div>",
    ]
    return "".join(parts)


def _text(text: str) -> str:
    return escape(clean(text))


def _curve(run: RecordedRun) -> str:
    """What was needed over time, with the peak and a limit that is near."""
    points, what = _points(run)
    if len(points) < 2:
        return ""
    peak, limit = run.peaks.tree, phrases.limit(run)
    top = max([value for _, value in points] + ([peak.high or peak.bytes] if peak else []))
    near = limit is not None and limit.bytes <= _NEAR * top
    if limit is not None and near:
        top = max(top, limit.bytes)
    end = max(run.seconds, points[-1][0], 1e-9)
    scale, unit = size_scale(top)

    def x(time: float) -> str:
        return f"{_LEFT + (_WIDTH - _LEFT - _RIGHT) * min(max(time, 0.0), end) / end:.1f}"

    def y(value: float) -> str:
        return f"{_HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / top:.1f}"

    line = " ".join(f"{x(time)},{y(value)}" for time, value in points)
    marks = [
        _line(y(0)),
        _line(y(top)),
        _words(_LEFT - 6, y(0), "0", "end"),
        _words(_LEFT - 6, y(top), size_in(top, scale, unit), "end"),
        _words(_LEFT, str(_HEIGHT - 4), "0 s", "start"),
        _words(_WIDTH - _RIGHT, str(_HEIGHT - 4), duration(end), "end"),
        _words(_LEFT, "12", what, "start", _NEEDED),
        f'<polyline points="{line}" fill="none" stroke="{_NEEDED}" stroke-width="1.8"/>',
    ]
    if limit is not None and near:
        marks.append(_line(y(limit.bytes), _LIMIT, 'stroke-dasharray="6 4"'))
        marks.append(_words(_WIDTH - _RIGHT, "12", f"limit {size(limit.bytes)}", "end", _LIMIT))
    if peak is not None and peak.at is not None:
        marks.append(
            f'<circle cx="{x(peak.at)}" cy="{y(peak.high or peak.bytes)}" r="4" fill="{_INK}" stroke="none"/>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="11" role="img">{"".join(marks)}</svg>'
    )


def _points(run: RecordedRun) -> tuple[list[tuple[float, float]], str]:
    """Largest values of parts of the time, and what they are."""
    charged, file, resident = (
        catalog.MEMWATCH_CGROUP_MEMORY_USAGE,
        catalog.MEMWATCH_CGROUP_MEMORY_FILE,
        catalog.MEMWATCH_TREE_MEMORY_USAGE,
    )
    samples = run.samples([charged, file, resident])
    values, what = samples.column(resident), "resident sizes of all processes"
    if run.info.get("own_cgroup"):
        needed = samples.column(charged) - samples.column(file)
        if any(value == value for value in needed.tolist()):  # noqa: PLR0124 - NaN
            values, what = needed, "needed"
    end = max(run.seconds, 1e-9)
    largest: dict[int, tuple[float, float]] = {}
    for time, value in zip(samples.time.tolist(), values.tolist(), strict=True):
        part = int(_PARTS * time / end)
        if not math.isnan(value) and (part not in largest or value > largest[part][1]):
            largest[part] = time, value
    return list(largest.values()), what


def _line(y: str, colour: str = _FAINT, more: str = "") -> str:
    return f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}" stroke="{colour}" {more}/>'


def _words(x: float, y: str, text: str, anchor: str, colour: str = _SOFT) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}">{_text(text)}</text>'


def _operations(run: RecordedRun) -> str:
    """The operations that needed most; nothing where none was marked."""
    largest: dict[str, OperationFigures] = {}
    told = run.operation_digest.largest if run.too_many_operations else run.operations
    for figures in sorted(told, key=needed_most, reverse=True):
        largest.setdefault(figures.operation.name, figures)
    if not largest:
        return ""
    rows = []
    for figures in list(largest.values())[:_OPERATIONS]:
        peak = figures.tree_peak or figures.operation.peak
        name = _text(shorten(figures.operation.name, _NAME))
        remark = "the peak" if figures.sets_run_peak else _status(figures.operation.status)
        cells = (
            f'<td style="text-align:left">{name}</td>',
            f"<td>{_text(peak_figure(peak))}</td>",
            f"<td>{certainty(peak)}</td>",
            f"<td>{_text(duration(figures.seconds))}</td>",
            f"<td>{remark}</td>",
        )
        rows.append(f"<tr>{''.join(cells)}</tr>")
    more = f"<div>and {len(largest) - _OPERATIONS} more names</div>" if len(largest) > _OPERATIONS else ""
    head = '<tr><th style="text-align:left">operation</th><th>memory of all</th><th></th><th>time</th><th></th></tr>'
    return f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>{more}"


def _status(status: str) -> str:
    return {"error": "failed", "open": "open"}.get(status, "")
