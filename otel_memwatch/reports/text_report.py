"""The full report of a run as plain text."""

from __future__ import annotations

from otel_memwatch.reports.pages.terminal_page import TerminalPage
from otel_memwatch.reports.sections.basics import memory, processes, recording, totals, what_ran
from otel_memwatch.reports.sections.file_use import files
from otel_memwatch.reports.sections.made_of import made_of
from otel_memwatch.reports.sections.torch_snapshots import torch_snapshots
from otel_memwatch.runtime.terminal import FILE, Display
from otel_memwatch.runtime.typed import TYPE_CHECKING, BinaryIO
from otel_memwatch.text import clean

if TYPE_CHECKING:
    from otel_memwatch.reports import Options
    from otel_memwatch.run import RecordedRun

_WORTH_MARKING = 1.0
"""Shortest run in seconds for which operations are worth marking."""

_HOW_TO_MARK = (
    'No operations marked. Mark some to see where the peak occurred: `with operation("Load"):` in Python, '
    "`otel-memwatch mark Load` in a shell script, or OpenTelemetry spans."
)


def render(run: RecordedRun, out: BinaryIO, options: Options) -> None:
    """Write the report in `options["encoding"]`, default UTF-8. Escape characters that it cannot represent."""
    words = text(run, options.get("display") or FILE)
    out.write(words.encode(options.get("encoding") or "utf-8", "backslashreplace"))


def text(run: RecordedRun, display: Display = FILE) -> str:
    """Return the report, with a newline at its end."""
    page = TerminalPage(display)
    page.title(f"otel-memwatch: {clean(run.id)}")
    what_ran(run, page)
    memory(run, page)
    made_of(run, page)
    if run.heaps:
        from otel_memwatch.reports.sections.heaps import heaps

        heaps(run, page)
    if run.has_stacks:
        from otel_memwatch.reports.sections.stacks import stacks

        stacks(run, page)
    if run.marked:
        from otel_memwatch.reports.sections.operations import operations, uncovered

        operations(run, page)
        uncovered(run, page)
    elif run.seconds >= _WORTH_MARKING:
        page.gap()
        page.paragraph(_HOW_TO_MARK)
    if run.marked or run.fields.gpus:
        from otel_memwatch.reports.sections.gpus import gpus

        gpus(run, page)
    torch_snapshots(run, page)
    processes(run, page)
    totals(run, page)
    files(run, page)
    recording(run, page)
    return page.text()
