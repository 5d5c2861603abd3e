"""The section about kinds of memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from otel_memwatch.record.made_of import MadeOf, MemoryPart, ProcessParts
from otel_memwatch.reports.pages.terminal_page import TerminalPage
from otel_memwatch.reports.sections.made_of import made_of
from otel_memwatch.runtime.terminal import FILE

MIB = 1 << 20
PARTS = (
    MemoryPart("heap", "", 80 * MIB),
    MemoryPart("file", "/m/model\x1b.bin", 20 * MIB),
    MemoryPart("file", "", MIB),
)


def _text(found: MadeOf | None) -> str:
    processes = [SimpleNamespace(pid=7, command="python a.py"), SimpleNamespace(pid=8, command="sort")]
    run: Any = SimpleNamespace(made_of=found, started=100.0, processes=processes)
    page = TerminalPage(FILE)
    made_of(run, page)
    return page.text()


def test_one_process_is_one_row() -> None:
    text = _text(MadeOf(102.5, 110 * MIB, PARTS, (ProcessParts(7, PARTS),), 0))
    assert "Kinds of memory (at 2.50 s)" in text
    (row,) = [line for line in text.splitlines() if "all processes" in line]
    assert row.split()[:6] == ["101.0", "MiB", "80.0", "MiB", "21.0", "MiB"]
    assert "python a.py" not in text
    assert "Resident memory was 110.0 MiB at this sample" in text
    assert "A page that several processes map, of any program, is divided among them." in " ".join(
        text.split()
    )
    assert "\x1b" not in text
    assert "20.0 MiB" in text
    assert "shared" not in text.splitlines()[2]


def test_several_processes_have_rows_and_unread_ones_are_named() -> None:
    both = (ProcessParts(7, PARTS), ProcessParts(8, PARTS[:1]))
    text = _text(MadeOf(102.5, 190 * MIB, PARTS, both, 1))
    assert "processes that were read" in text
    (sort,) = [line for line in text.splitlines() if line.endswith("sort")]
    assert sort.split()[-2] == "-"
    assert "1 process was not read: small, new, or of another user." in " ".join(text.split())


def test_without_a_reading_there_is_no_section() -> None:
    assert not _text(None).strip()
