"""Files that a run mapped or read, by name."""

from __future__ import annotations

import os

from otel_memwatch.reports.pages import Columns
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import clean, count, digits, share, shorten, size

if TYPE_CHECKING:
    from otel_memwatch.record.run_info_schema import FileFields
    from otel_memwatch.reports.pages import Page
    from otel_memwatch.run import RecordedRun

_LEAST = 64 << 20
"""Bytes of the smallest file that the summary names."""
_MAIN = 0.9
"""Share of all files' bytes from which reads from disk are compared with one file."""
_NAME, _PATH = 40, 90


def largest_file(run: RecordedRun, page: Page) -> None:
    """Name the largest data file that was mapped, if it is large."""
    found = [one for one in run.fields.files.largest if one.path and (one.mapped or 0) >= _LEAST]
    data = [one for one in found if not _is_library(one)]
    if data:
        first = max(data, key=lambda one: one.mapped or 0)
        words = (
            f"{size(first.mapped)} mapped from {shorten(clean(os.path.basename(first.path or '')), _NAME)}"
        )
        words += f" ({size(first.resident)} of it in memory)" if first.resident is not None else ""
        words += f", {count(len(data) - 1, 'more file')}" if len(data) > 1 else ""
        page.fact("files", words + _often_read(run, first))


def _often_read(run: RecordedRun, file: FileFields) -> str:
    """Return an upper bound of how often the run read a file from disk; empty if other files may have been read."""
    read, total = run.totals.get("read_bytes"), run.fields.files.bytes
    if read is None or not file.bytes or not total or file.bytes < _MAIN * total:
        return ""
    if not read:
        return "; not read from disk"
    times = digits(read / file.bytes, 2)
    if read < file.bytes and times != "1":
        return f"; at most {share(max(read, file.bytes / 1000), file.bytes)} of it read from disk"
    return "; read at most once" if times == "1" else f"; read at most {times} times"


def _is_library(file: FileFields) -> bool:
    """Return whether a file is a shared library, which a job maps and hardly reads."""
    name = os.path.basename(file.path or "")
    return ".so" in name or name.endswith((".dylib", ".pak", "locale-archive"))


def files(run: RecordedRun, page: Page) -> None:
    """Write the largest files with their bytes mapped and in memory; nothing if none was seen."""
    found = run.fields.files
    if not found.largest:
        return
    page.section(f"Files ({found.number})")
    rows = [
        (
            size(one.bytes),
            size(one.mapped) if one.mapped else "-",
            "-" if one.resident is None else size(one.resident),
            shorten(clean(one.path or ""), _PATH),
        )
        for one in found.largest
    ]
    page.table(rows, Columns(("size", "mapped", "in memory", "file"), "rrrl"))
    page.gap()
    page.paragraph(
        "Files of 1 MiB and more that samples found mapped or open for reading. In memory: the most of any process, where it "
        "was read."
    )
