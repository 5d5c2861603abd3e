"""Memory that no page fault of the tree brought."""

from __future__ import annotations

import pytest

from otel_memwatch.truth.outside_faults import (
    beyond_files,
    excludes_memory_files,
    is_outside_ledger,
    shared_at_tick,
    shared_most,
)
from tests.support.run_directory import MIB

FLOOR = 10


@pytest.mark.parametrize(
    ("attained", "file", "faults", "beyond"),
    [
        (200, 6, 0, 136),
        (200, 150, 0, 50),
        (200, None, 0, 0),
        (60, 6, 0, 0),
        (FLOOR / MIB, 0, 0, 0),
        # one fault maps 64 KiB of a cached file: ripgrep with a log file of 250 MiB
        (250, 6, 500, 186),
        (250, 6, 4000, 0),
    ],
)
def test_a_size_is_a_sign_only_beyond_what_files_explain(
    attained: float, file: int | None, faults: int, beyond: int
) -> None:
    files, most = None if file is None else file * MIB, int(attained * MIB)
    assert beyond_files(most, files, FLOOR, faults) == beyond * MIB


@pytest.mark.parametrize(
    ("written", "high", "lacks"),
    [(200 * MIB, 61 * MIB, True), (30_000, 300_000, False), (3 * MIB, 900 * MIB, False)],
)
def test_files_in_memory_may_be_missing(written: int, high: int, lacks: bool) -> None:
    assert excludes_memory_files(written, high) is lacks


def test_pages_that_no_fault_brought_are_noticed() -> None:
    assert is_outside_ledger(10 * MIB, 80 * MIB, MIB, MIB // 4)
    assert not is_outside_ledger(10 * MIB, 80 * MIB, 70 * MIB, MIB // 4)


@pytest.mark.parametrize(
    ("mapped", "machine", "rise", "had"), [(320, 88, 80, 88), (20, 500, 120, 120), (0, 500, 0, 0)]
)
def test_shared_memory_counts_once_and_unmapped_files_too(
    mapped: int, machine: int, rise: int, had: int
) -> None:
    assert shared_at_tick(mapped, machine, rise) == had


def test_shared_memory_that_faults_brought_is_not_added_twice() -> None:
    assert shared_most(20, 120, 30) == 90
    assert shared_most(20, 50, 30) == 20
