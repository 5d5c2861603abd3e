"""Summary as GitHub-flavoured Markdown, without arguments of commands, because other people read it."""

from __future__ import annotations

from otel_memwatch.reports import phrases
from otel_memwatch.reports.pages.markdown import MarkdownPage
from otel_memwatch.reports.sections import headline
from otel_memwatch.reports.sections.operations import largest_operations
from otel_memwatch.runtime.masking import public_name
from otel_memwatch.runtime.typed import TYPE_CHECKING, BinaryIO
from otel_memwatch.text import clean, shorten

if TYPE_CHECKING:
    from otel_memwatch.reports import Options
    from otel_memwatch.run import RecordedRun

_NAME = 80


def render(run: RecordedRun, out: BinaryIO, options: Options) -> None:  # noqa: ARG001 - the interface of reports
    """Write the summary as UTF-8."""
    out.write(markdown(run).encode("utf-8", "backslashreplace"))


def markdown(run: RecordedRun) -> str:
    """Return a heading, a table of figures and a table of the largest operations."""
    page = MarkdownPage()
    page.title(f"Memory of {shorten(clean(public_name(run.command)), _NAME)}")
    headline.peak_memory(run, page)
    headline.limit(run, page)
    headline.budgets(run, page)
    headline.result(run, page)
    headline.largest_process(run, page, public=True)
    headline.gpus(run, page)
    read, written = run.totals.get("read_bytes"), run.totals.get("write_bytes")
    page.fact("disk", phrases.io_pair(read, written) if read or written else "")
    page.fact("sampling", phrases.recording(run))
    if run.marked:
        largest_operations(run, page)
    texts = [text for _, text in run.marks] + list(run.damage)
    if texts:
        page.section("The record is incomplete")
        for text in texts:
            page.item(text)
    return page.text() + "\n"
