"""The file of the kinds of memory: written whole, read with bounds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from otel_memwatch.record.format import MADE_OF_FILE, is_run_file
from otel_memwatch.record.made_of import (
    KINDS,
    MOST_PARTS,
    MadeOf,
    MemoryPart,
    ProcessParts,
    read_made_of,
    write_made_of,
)
from otel_memwatch.runtime.procfs import mappings

PARTS = (MemoryPart("heap", "", 500), MemoryPart("file", "/usr/lib/libc.so.6", 40))
FOUND = MadeOf(5001.5, 700, PARTS, (ProcessParts(7, PARTS), ProcessParts(8, PARTS[:1])), 2)


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_made_of(tmp_path, FOUND)
    write_made_of(tmp_path, FOUND)
    assert read_made_of(tmp_path) == FOUND
    assert [path.name for path in tmp_path.iterdir()] == [MADE_OF_FILE]
    assert (tmp_path / MADE_OF_FILE).stat().st_mode & 0o777 == 0o600
    assert is_run_file(MADE_OF_FILE)
    assert is_run_file(f".{MADE_OF_FILE}.4711")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"time": "x", "level": 5, "tree": [["heap", "", 5]]}',
        b'{"time": 1, "level": -5, "tree": [["heap", "", 5]]}',
        b'{"time": 1, "level": 5, "tree": [["heap", 5]]}',
        b'{"time": 1, "level": 5, "tree": 7}',
        b"[" * 100_000,
    ],
)
def test_damage_is_no_reading(tmp_path: Path, content: bytes) -> None:
    (tmp_path / MADE_OF_FILE).write_bytes(content)
    assert read_made_of(tmp_path) is None


def test_fields_of_a_wrong_type_are_left_out(tmp_path: Path) -> None:
    many = ",".join('["heap", 5, 5]' for _ in range(100))
    (tmp_path / MADE_OF_FILE).write_text(
        f'{{"time": 1, "level": 5, "tree": [{many}], "processes": [5, {{"pid": "x"}}, {{"pid": 7, "parts": 5}}], "unread": "x"}}'
    )
    found = read_made_of(tmp_path)
    assert found is not None
    assert found.tree == (MemoryPart("heap", "", 5),) * MOST_PARTS
    assert (found.processes, found.unread) == ((ProcessParts(7, ()),), 0)


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / MADE_OF_FILE)
    assert read_made_of(tmp_path) is None


def test_all_kinds_of_mappings_are_known() -> None:
    assert {
        mappings.HEAP,
        mappings.ANONYMOUS,
        mappings.STACKS,
        mappings.FILE,
        mappings.COPIED,
        mappings.SHARED,
    } <= KINDS
