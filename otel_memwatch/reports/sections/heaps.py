"""Section about anonymous memory: in use, free in an allocator, the rest."""

from __future__ import annotations

from otel_memwatch.reports.pages import Columns
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import clean, duration, size, size_range
from otel_memwatch.truth.heap import JVM_HEAP, free_memory

if TYPE_CHECKING:
    from otel_memwatch.reports.pages import Page
    from otel_memwatch.run import RecordedRun

_LEAST = 16 << 20
"""Anonymous bytes of a process from which it is shown."""


def heaps(run: RecordedRun, page: Page) -> None:
    """Write the last reading of each large process; nothing for a run without readings."""
    shown = [one for one in run.heaps if one.anonymous >= _LEAST]
    if not shown:
        return
    page.section("Anonymous memory")
    columns = Columns(
        ("pid", "at", "all", "in use", "free", "between blocks", "allocator", "other"), "rrrrrrlr"
    )
    rows: list[tuple[str, ...]] = []
    for one in shown:
        free = [free_memory(one, books) for books in one.allocators]
        other = (
            one.anonymous
            - sum(resident for resident, _, _ in free)
            - sum(books.live for books in one.allocators)
        )
        rest = size(max(0, other))
        head = str(one.pid), duration(max(0.0, one.time - run.started)), size(one.anonymous)
        for books, (resident, low, high) in zip(one.allocators, free, strict=True):
            java = books.name == JVM_HEAP
            between = "-" if java else size(min(resident, books.scattered))
            known = size_range(low, high, "-") if java else size(resident)
            rows.append((*head, size(books.live), known, between, clean(books.name), rest))
            head, rest = ("", "", ""), ""
    page.table(rows, columns)
    page.gap()
    page.paragraph(
        "By the allocators' statistics. Free memory between blocks in use cannot be returned. Other memory: stacks, data of "
        "programs, other allocators."
    )
    if any(books.name == JVM_HEAP for one in shown for books in one.allocators):
        page.paragraph(
            "A JVM publishes its heap as of the last collection. New objects need all of the young generation. Compiled code "
            "and buffers are other memory."
        )
