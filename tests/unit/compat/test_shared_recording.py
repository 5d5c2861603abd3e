"""Ticks of a run that goes on, read back by the tools that share its recording."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from otel_memwatch import catalog
from otel_memwatch.compat.shared_recording import ProgramTick, TickReader, regular_samples

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


@pytest.mark.parametrize(
    ("interval", "times", "kept"),
    [
        (0.1, [5.0, 5.1, 5.2004, 5.3], [5.0, 5.1, 5.2004, 5.3]),
        # early samples, of which one is 6 ms before a regular one
        (0.1, [5.0, 5.03, 5.06, 5.094, 5.1001, 5.12, 5.2], [5.0, 5.1001, 5.2]),
        # a regular sample that the record rounds down
        (0.1, [5.0, 5.0999, 5.15, 5.2], [5.0, 5.0999, 5.2]),
        # a late one, and one that was missed
        (0.1, [5.0, 5.19, 5.2, 5.25, 5.4], [5.0, 5.19, 5.2, 5.4]),
        # of unknown interval
        (None, [5.0, 5.03, 5.1], [5.0, 5.03, 5.1]),
    ],
)
def test_early_samples_are_left_out(
    tmp_path: Path, interval: float | None, times: list[float], kept: list[float]
) -> None:
    add(tmp_path, header(TREE), *([time, 10] for time in times))
    ticks = list(TickReader(tmp_path).regular(interval, lambda _: True))
    assert [tick.time for tick in ticks] == kept
    chosen = regular_samples(np.array(times), np.full(len(times), 10.0), interval)
    assert [time for time, there in zip(times, chosen, strict=True) if there] == kept


def test_an_early_sample_with_the_largest_value_stays(tmp_path: Path) -> None:
    rows = [(1.0, 1, 9), (1.02, 5, 8), (1.04, 7, 9), (1.1, 2, 9), (1.12, 9, 1), (1.14, 2, 99), (1.2, 3, 9)]
    add(tmp_path, header(TREE, USED), *(list(row) for row in rows))
    reader = TickReader(tmp_path)
    kept = [tick.time for tick in reader.regular(0.1, lambda tick: tick.time < 1.11)]
    assert kept == [1.0, 1.04, 1.1], "the largest of the wanted ones"
    assert [tick.time for tick in reader.regular(0.1, lambda _: True)] == [1.0, 1.1, 1.12, 1.2]
    assert [tick.time for tick in reader.regular(0.1, lambda _: True, "system")] == [1.0, 1.1, 1.14, 1.2]
    times, rss = np.array([row[0] for row in rows]), np.array([float(row[1]) for row in rows])
    assert times[regular_samples(times, rss, 0.1)].tolist() == [1.0, 1.1, 1.12, 1.2]
    rss[:] = np.nan
    assert times[regular_samples(times, rss, 0.1)].tolist() == [1.0, 1.1, 1.2]
    assert len(regular_samples(times[:0], rss[:0], 0.1)) == 0


def test_an_ended_recording_includes_its_last_sample(tmp_path: Path) -> None:
    """The last sample comes at any time, here within the interval of the regular one before it."""
    rows = [(1.0, 5), (1.1, 2), (1.13, 3), (1.15, 4), (1.17, 0)]
    add(tmp_path, header(TREE), *(list(row) for row in rows))
    reader = TickReader(tmp_path)
    expected = {False: [1.0, 1.1], True: [1.0, 1.1, 1.15]}
    times, rss = np.array([time for time, _ in rows]), np.array([float(size) or np.nan for _, size in rows])
    for ended, kept in expected.items():
        assert [tick.time for tick in reader.regular(0.1, lambda tick: bool(tick.rss), ended=ended)] == kept
        assert times[regular_samples(times, rss, 0.1, ended=ended)].tolist() == kept
