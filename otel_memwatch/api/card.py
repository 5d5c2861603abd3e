"""Notebook view of a run: memory curve, figures and largest operations, in HTML without scripts.

Sites that show notebooks drop scripts and style sheets, so the picture is inline SVG with attributes only. Its
background is light, because a transparent one is illegible in either the light or the dark theme.
"""

from __future__ import annotations

from otel_memwatch.reports import phrases
from otel_memwatch.reports.html.data import page_data
from otel_memwatch.reports.html.picture import picture
from otel_memwatch.reports.pages.html import HtmlPage
from otel_memwatch.reports.pages.markup import escaped
from otel_memwatch.reports.sections.operations import largest_operations
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import command_line

if TYPE_CHECKING:
    from otel_memwatch.run import RecordedRun

_INK, _SOFT, _FAINT, _BAD = "#1f2328", "#667079", "#d8dde2", "#c8500a"


def card(run: RecordedRun) -> str:
    """Return the HTML of the card."""
    bad = run.ending.bad
    so_far = " so far" if run.state == "running" else ""
    operations = HtmlPage()
    if run.marked:
        largest_operations(run, operations)
    parts = [
        f'<div style="background:#ffffff;color:{_INK};padding:8px 12px;border:1px solid {_FAINT};max-width:760px">',
        f"<div><code>{escaped(command_line(run.command, 100))}</code></div>",
        f"<div><b>peak memory {escaped(phrases.peak_at(run, run.peaks.tree) + so_far)}</b></div>",
        f'<div style="color:{_BAD if bad else _SOFT}">{escaped(phrases.ending(run))}</div>',
        picture(run, page_data(run)),
        operations.text(),
        f'<div style="color:{_SOFT}">{escaped(str(run.path))}</div>',
        "</div>",
    ]
    return "".join(parts)
