"""Notebook view of a run: memory curve, figures and largest operations, in HTML without scripts.

Sites that show notebooks drop scripts and style sheets, so the picture is inline SVG with attributes only. Its
background is light, because a transparent one is illegible in either the light or the dark theme.
"""

from __future__ import annotations

from html import escape

from otel_memwatch.reports import phrases
from otel_memwatch.reports.html.data import page_data
from otel_memwatch.reports.html.picture import picture
from otel_memwatch.run.operation_digest import needed_most
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import (
    certainty,
    clean,
    command_line,
    duration,
    peak_figure,
    peak_sentence,
    shorten,
)

if TYPE_CHECKING:
    from otel_memwatch.run import OperationFigures, RecordedRun

_INK, _SOFT, _FAINT, _BAD = "#1f2328", "#667079", "#d8dde2", "#c8500a"
_OPERATIONS = 8
_NAME = 80


def card(run: RecordedRun) -> str:
    """Return the HTML of the card."""
    bad = phrases.ended_badly(run)
    peak = run.peaks.tree
    where = phrases.when_and_where(run, peak)
    so_far = " so far" if run.state == "running" else ""
    headline = f"{peak_sentence(peak, source=False)}{so_far}" + (f", {where}" if where else "")
    parts = [
        f'<div style="background:#ffffff;color:{_INK};padding:8px 12px;border:1px solid {_FAINT};max-width:760px">',
        f"<div><code>{_text(command_line(run.command, 100))}</code></div>",
        f"<div><b>memory {_text(headline)}</b></div>",
        f'<div style="color:{_BAD if bad else _SOFT}">{_text(phrases.ending(run))}</div>',
        picture(run, page_data(run)),
        _operations(run),
        f'<div style="color:{_SOFT}">{_text(str(run.path))}</div>',
        "</div>",
    ]
    return "".join(parts)


def _text(text: str) -> str:
    return escape(clean(text))


def _operations(run: RecordedRun) -> str:
    """Return a table of the largest operations; empty if none was marked."""
    largest: dict[str, OperationFigures] = {}
    candidates = run.operation_digest.largest if run.too_many_operations else run.operations
    for figures in sorted(candidates, key=needed_most, reverse=True):
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
