"""Ticks of a run that goes on, read back by the tools that share its recording."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from otel_memwatch import catalog
from otel_memwatch.compat.recording import ProgramTick, TickReader

if TYPE_CHECKING:
    from pathlib import Path

OWN = (catalog.PROCESS_MEMORY_USAGE, {})
TREE = (catalog.MEMWATCH_TREE_MEMORY_USAGE, {})
USER = (catalog.MEMWATCH_TREE_CPU_TIME, {"cpu.mode": "user"})
SYSTEM = (catalog.MEMWATCH_TREE_CPU_TIME, {"cpu.mode": "system"})
FREE = (catalog.SYSTEM_MEMORY_USAGE, {"system.memory.state": "free"})
USED = (catalog.SYSTEM_MEMORY_USAGE, {"system.memory.state": "used"})
GPU = (catalog.HW_GPU_MEMORY_USAGE, {"hw.id": "GPU-1"})


def add(run: Path, *lines: object) -> None:
    with (run / "samples.jsonl").open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def header(*columns: tuple[str, dict[str, str]]) -> dict[str, object]:
    return {"schema": 1, "columns": [{"metric": m, "unit": "", "attributes": a} for m, a in columns]}


def test_a_tick_has_what_is_known_by_meaning(tmp_path: Path) -> None:
    add(
        tmp_path, header(OWN, TREE, USER, SYSTEM, FREE, USED), [1.5, 10, 30, 0.25, 0.5, 7, 9], [2.0, None, 31]
    )
    assert list(TickReader(tmp_path).read()) == [
        ProgramTick(1.5, rss=30, own=10, cpu=0.75, system=9),
        ProgramTick(2.0, rss=31),
    ]


def test_a_line_that_is_being_written_is_left_for_the_next_time(tmp_path: Path) -> None:
    reader = TickReader(tmp_path)
    assert list(reader.read()) == []
    add(tmp_path, header(TREE), [1.0, 5])
    with (tmp_path / "samples.jsonl").open("a") as file:
        file.write("[2.0, 6")
        file.flush()
        assert [tick.time for tick in reader.read()] == [1.0]
        file.write("]\n")
    assert [tick.time for tick in reader.read()] == [1.0, 2.0]


def test_what_was_recorded_before_is_skipped_but_not_the_columns(tmp_path: Path) -> None:
    add(tmp_path, header(OWN, TREE), [1.0, 1, 5])
    reader = TickReader(tmp_path)
    reader.skip()
    assert list(reader.read()) == []
    add(tmp_path, [2.0, 2, 6])
    assert list(reader.read()) == [ProgramTick(2.0, own=2, rss=6)]
    reader.skip()
    reader.skip()
    add(tmp_path, [3.0, 3, 7])
    assert list(reader.read()) == [ProgramTick(3.0, own=3, rss=7)]


def test_columns_that_came_late_are_known_after_a_skip(tmp_path: Path) -> None:
    """The driver of a GPU opens after the first ticks: all later ones have more values."""
    add(tmp_path, header(TREE), [1.0, 5])
    reader = TickReader(tmp_path)
    reader.skip()
    add(tmp_path, header(TREE, GPU, USED), [2.0, 6, 100, 50])
    reader.skip()
    add(tmp_path, [3.0, 7, 100, 51])
    assert list(reader.read()) == [ProgramTick(3.0, rss=7, system=51)]


def test_skipping_in_the_middle_of_a_line_leaves_out_its_rest(tmp_path: Path) -> None:
    add(tmp_path, header(TREE), [1.0, 5])
    reader = TickReader(tmp_path)
    with (tmp_path / "samples.jsonl").open("a") as file:
        file.write("[2.0, ")
        file.flush()
        reader.skip()
        file.write("6]\n[3.0, 7]\n")
    assert [tick.time for tick in reader.read()] == [3.0]
