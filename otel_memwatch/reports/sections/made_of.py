"""Section about the kinds of memory at a peak, of the tree and of each large process."""

from __future__ import annotations

import os

from otel_memwatch.reports.pages import Columns
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import clean, count, duration, shorten, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from otel_memwatch.record.made_of import MemoryPart
    from otel_memwatch.reports.pages import Page
    from otel_memwatch.run import RecordedRun

_KINDS = (
    ("heap", "heap"),
    ("anonymous mappings", "anonymous"),
    ("private copies of file pages", "copied"),
    ("file", "files"),
    ("shared memory", "shared"),
    ("stacks", "stacks"),
    ("page tables", "page tables"),
    ("kernel stacks", "kernel stacks"),
)
_PROCESSES, _FILES, _SMALL = 8, 6, 0.01
"""Rows of processes, named files, and the share of all memory from which a file is named."""
_NAME, _PROCESS = 40, 40


def made_of(run: RecordedRun, page: Page) -> None:
    """Write the kinds of memory; nothing for a run without a reading."""
    found = run.made_of
    if found is None:
        return
    page.section(f"Kinds of memory (at {duration(max(0.0, found.time - run.started))})")
    shown = [(kind, words) for kind, words in _KINDS if any(one.kind == kind for one in found.tree)]
    columns = Columns(("pid", "all", *(words for _, words in shown), "process"), "r" * (len(shown) + 2) + "l")
    programs = {process.pid: process.command for process in run.processes}
    rows = [("", *_row(found.tree, shown), "processes that were read" if found.unread else "all processes")]
    if len(found.processes) > 1 or found.unread:
        for one in found.processes[:_PROCESSES]:
            program = shorten(clean(programs.get(one.pid) or ""), _PROCESS)
            rows.append((str(one.pid), *_row(one.parts, shown), program))
    page.table(rows, columns)
    page.gap()
    least = _SMALL * sum(part.bytes for part in found.tree)
    large = [part for part in found.tree if part.name and part.bytes >= least][:_FILES]
    named = ", ".join(
        f"{shorten(clean(os.path.basename(one.name)), _NAME)} {size(one.bytes)}" for one in large
    )
    if named:
        page.paragraph(f"Largest files and shared memory: {named}.")
    words = [f"Resident memory was {size(found.level)} at this sample, the last new peak that was read."]
    page_of_several = "page that several processes map, of any program, is divided among them."
    words.append(f"In the first row, a {page_of_several}" if len(rows) > 1 else f"A {page_of_several}")
    if found.unread:
        verb = "was" if found.unread == 1 else "were"
        words.append(
            f"{count(found.unread, 'process', 'processes')} {verb} not read: small, new, or of another user."
        )
    page.paragraph(" ".join(words))


def _row(parts: Iterable[MemoryPart], shown: Iterable[tuple[str, str]]) -> Iterator[str]:
    sums: dict[str, int] = {}
    for part in parts:
        sums[part.kind] = sums.get(part.kind, 0) + part.bytes
    yield size(sum(sums.values()))
    for kind, _ in shown:
        yield size(sums[kind]) if kind in sums else "-"
