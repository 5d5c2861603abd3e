"""Memory for full speed over time, from samples."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from otel_memwatch.record.schema import Sample
from otel_memwatch.run.working_set import WorkingSet

MIB = 1 << 20
FIELDS = "needed", "mapped", "file", "read", "chars", "unwritten", "written", "once"
"""Columns of the tables, in MiB at successive samples: memory beside page cache, mapped file pages, page cache charged, bytes
read from storage, by read calls, waiting to be written, written; then mapped pages that processes share, counted once."""

READ_AHEAD_AT_START = [(2, 2, 50, 50), (3, 8, 170, 170), (11, 35, 210, 210), (22, 41, 210, 210)]
"""ffmpeg: needs 160 to 200 MiB of files, most of them before it maps them."""
EARLY = [(20, 14, 100, 100), (50, 55, 150, 150), (50, 55, 150, 150), (120, 55, 150, 150), (176, 55, 150, 150)]
"""pandas: imports with a small memory, computes with a large one."""

TWO_PROGRAMS = [
    (8, 26, 187, 181),
    (14, 71, 312, 309),
    (25, 97, 356, 355),
    (32, 66, 367, 367),
    (32, 87, 394, 389),
]
"""rustc: its linker maps other files after rustc's. It needs 340 MiB of them."""

FEW_PAGES_LEFT = [
    (19, 22, 75, 75),
    (28, 26, 91, 91),
    (34, 28, 103, 103),
    (48, 29.3, 103, 103),
    (54, 31, 103, 103),
]
"""javac: most of its files are mapped before it needs most of its memory. It needs 35 MiB beside that."""

CASES = {
    "mapped at the peak": ([(10, 40, 40, 40), (100, 40, 40, 40)], 40, 0.1, 40),
    "mapped before the peak": ([(10, 40, 40, 40), (100, 2, 40, 40)], 40, 0.1, 2),
    "in memory before the run": ([(10, 40, 1, 1), (100, 40, 1, 1)], 40, 0.1, 40),
    "read ahead before the peak": (EARLY, 55, 0.4, 55),
    "read ahead until little is mapped": (READ_AHEAD_AT_START, 41, 0.3, 169),
    "read ahead, with time to read it again": (READ_AHEAD_AT_START, 41, 15, 41),
    "read ahead by one program after another": (TWO_PROGRAMS, 97, 0.9, 266),
    "read ahead of the last pages": (FEW_PAGES_LEFT, 31, 0.2, 49),
    "read again before the peak": (
        [(10, 0, 90, 90, 90), (10, 0, 90, 90, 180), (100, 0, 90, 90, 180)], 0, 0.2, 0),
    "read again after the peak": (
        [(10, 0, 90, 90, 90), (100, 0, 90, 90, 90), (10, 0, 90, 90, 180)], 0, 0.2, 90),
    "on disk before the peak": (
        [(10, 0, 0), (10, 0, 100, 0, 0, 100, 100), *[(10, 0, 100, 0, 0, 0, 100)] * 5, (150, 0, 100, 0, 0, 0, 100)], 0, 0.7, 0),
    "unwritten at the peak": (
        [(10, 0, 0), (10, 0, 90, 0, 0, 90, 90), *[(150, 0, 140, 0, 0, 90, 90)] * 8], 0, 0.9, 85 * 1.45 - 2),
    "written while the program computes": (
        [(10, 0, 0), *[(150, 0, 10 * at, 0, 0, 10 * at, 10 * at) for at in range(1, 9)]], 0, 0.9, (80 - 7 * 4.8) * 1.45 - 2),
    "forked with the pages of the parent": (
        [(10, 10, 200, 200), (20, 40, 200, 200), *[(200, 120, 200, 200, 0, 0, 0, 40)] * 3], 40, 0.4, 50),
    "children map the pages of the parent one by one": (
        [(10, 40, 200, 200), *[(200, mapped, 200, 200, 0, 0, 0, 40) for mapped in (80, 90, 100)]], 40, 0.4, 50),
    "a copy by one call": (
        [(2, 2, 100, 50, 0, 50, 50), (2, 2, 512, 256, 0, 150, 256), (2, 2, 512, 256, 256, 20, 256)], 2, 0.2, 2 + 256 * 1.45 - 0.5),
}  # fmt: skip
"""Samples, most file pages of one process, duration, and the files beside the peak."""


def working_set(
    rows: Sequence[tuple[float, ...]],
    disk_rate: int | None = None,
    cpu_seconds: float = 60.0,
    pace: float = 0.1,
) -> WorkingSet:
    """The samples of a table; `pace`: seconds in user mode between two of them."""
    found = WorkingSet(disk_rate)
    for at, row in enumerate(rows):
        values = dict(zip(FIELDS, (*row, *(0,) * 8), strict=False))
        sizes = {name: value * MIB for name, value in values.items()}
        found.add(
            Sample(
                100.0 + at / 10, usage=sizes["needed"] + sizes["file"], file=sizes["file"], anon=sizes["needed"],
                rss=sizes["needed"] + sizes["mapped"], read_bytes=sizes["read"], read_chars=sizes["chars"],
                unwritten=sizes["unwritten"], write_bytes=sizes["written"], write_chars=0,
                mapped=sizes["once"] or sizes["mapped"],
                user_seconds=at * pace,
                cpu_seconds=cpu_seconds,
            ),
            None,
        )  # fmt: skip
    return found


@pytest.mark.parametrize(("rows", "largest", "seconds", "expected"), CASES.values(), ids=CASES)
def test_files_count_at_the_time_of_their_use(
    rows: list[tuple[float, ...]], largest: int, seconds: float, expected: float
) -> None:
    processes = 3 if any(len(row) == len(FIELDS) for row in rows) else 1
    files = working_set(rows).beside_peak(largest * MIB, processes, seconds)
    assert files is not None
    assert files / MIB == pytest.approx(expected, abs=1)


@pytest.mark.parametrize(
    ("disk_rate", "waits", "missing"),
    [(None, 350 - 6 * 4.8, 1), (100_000_000, 350 - 6 * 9.5, 1.9), (10**9, 50, 19 / 6)],
)
def test_a_quick_disk_writes_more_while_the_program_computes(
    disk_rate: int | None, waits: float, missing: float
) -> None:
    rows = [(150, 0, 1000, 0, 0, 50 * at, 50 * at) for at in range(8)]
    files = working_set(rows, disk_rate).beside_peak(0, 1, 0.4)
    assert files is not None
    assert files / MIB == pytest.approx((waits - missing) * 1.45, abs=1)


MANY_PROCESSES = [
    (88, 277, 322, 314, 0, 0, 0, 114),
    (117, 437, 398, 389, 0, 0, 0, 118),
    (124, 380, 414, 404, 0, 0, 0, 124),
    (137, 320, 414, 404, 0, 0, 0, 129),
]
"""Firefox: its processes map what others have read. It needs 340 MiB of files at 760 MB in a second."""


@pytest.mark.parametrize(("processes", "largest", "expected"), [(17, 126, 317), (8, 151, 206)])
def test_many_processes_need_what_was_read_ahead_until_the_end(
    processes: int, largest: int, expected: float
) -> None:
    found = working_set(MANY_PROCESSES, 760 * MIB, cpu_seconds=1.38)
    files = found.beside_peak(largest * MIB, processes, 5.0)
    assert files is not None
    assert files / MIB == pytest.approx(expected, abs=2)


def test_pages_mapped_at_the_exit_leave_no_more_to_map() -> None:
    """PyTorch: one of three records has a sample of its exit."""
    until_exit = [(1, 93, 450, 450), (150, 96, 456, 456), *[(150, 113, 470, 470)] * 22]
    without, seen = (
        working_set([*until_exit, *end], 750 * MIB, cpu_seconds=1.6).beside_peak(113 * MIB, 3, 2.3)
        for end in ([(117, 113, 470, 470)], [(117, 121, 476, 476)])
    )
    assert without is not None
    assert seen == pytest.approx(without, abs=4 * MIB)


def test_data_that_the_program_has_synced_does_not_wait() -> None:
    """PostgreSQL syncs its log: the kernel's counter says less than all that was written in the last half second."""
    rows = [(50, 0, 60 * at, 0, 0, 64, 60 * at) for at in range(1, 6)]
    files = working_set(rows, pace=0.01).beside_peak(0, 1, 0.5)
    assert files is not None
    assert files / MIB == pytest.approx((64 + 60) * 1.45, abs=3)


def test_more_samples_of_the_same_work_leave_as_much_unwritten() -> None:
    quiet = working_set([(150, 0, 1000, 0, 0, 50 * at, 50 * at) for at in range(8)], 10**9)
    busy = working_set([(150, 0, 1000, 0, 0, 10 * at, 10 * at) for at in range(40)], 10**9, pace=0.02)
    assert busy.beside_peak(0, 1, 0.4) == pytest.approx(quiet.beside_peak(0, 1, 0.4), rel=0.5)


def test_a_busy_machine_leaves_no_more_time_to_read_pages_again() -> None:
    busy = working_set(READ_AHEAD_AT_START, cpu_seconds=0.1)
    assert busy.beside_peak(41 * MIB, 1, 15) == pytest.approx(171 * MIB, abs=MIB)


def test_a_quick_disk_reads_pages_again_in_time() -> None:
    slow, quick = (
        working_set(READ_AHEAD_AT_START, rate).beside_peak(41 * MIB, 1, 0.3) for rate in (None, 4 * 10**9)
    )
    assert slow is not None
    assert quick == pytest.approx(slow - 39 * MIB, abs=MIB)


def test_many_samples_keep_few_points_and_no_less_memory() -> None:
    growing = [(at, min(at, 30), 40, 40, 40 + at) for at in range(2000)]
    few = working_set(growing)
    assert len(few._points) < 256
    assert len(few._ending) < 30
    files = few.beside_peak(30 * MIB, 1, 2000)
    assert files is not None
    assert 30 * MIB <= files <= 40 * MIB


def test_without_a_cgroup_the_files_are_unknown() -> None:
    found = WorkingSet()
    found.add(Sample(100.0, rss=50 * MIB, read_bytes=0), None)
    assert found.beside_peak(MIB, 1, 1) is None
