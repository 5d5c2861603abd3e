"""Kernel memory of processes that certainly existed at one moment."""

from __future__ import annotations

import pytest

from otel_memwatch.truth.kernel_memory import KernelReading, kernel_there, likely_of_ended, likely_of_tasks
from tests.support.run_directory import MIB

STACK = 16


def reading(tables: int, *, steady: bool = True, apart: bool = True) -> KernelReading:
    return KernelReading(tables, STACK, steady, apart)


@pytest.mark.parametrize(
    ("families", "there"),
    [
        ([], 0),
        ([[reading(100)]], 116),
        # a process that changes during the sample had it at the moment of its reading
        ([[reading(100, steady=False)]], 116),
        # two changing ones may not have had it at the same moment
        ([[reading(100, steady=False)], [reading(300, steady=False)]], 316),
        ([[reading(100)], [reading(300, steady=False)], [reading(200, steady=False)]], 116 + 316),
        # an address space that two processes may share counts once, their stacks count twice
        ([[reading(100, apart=False), reading(100, apart=False)]], 132),
        ([[reading(100), reading(90)]], 222),
        # the changing one may run in the address space of the steady one
        ([[reading(100, apart=False), reading(100, steady=False, apart=False)]], 132),
        ([[reading(100), reading(90), reading(120, apart=False)]], 190 + 3 * STACK),
    ],
)
def test_kernel_memory_counts_once_and_at_one_moment(families: list[list[KernelReading]], there: int) -> None:
    assert kernel_there(families) == there


@pytest.mark.parametrize(("processes", "threads", "mib"), [(1, 2000, 13.7), (150, 150, 4.8)])
def test_the_kernels_structures_of_tasks(processes: int, threads: int, mib: float) -> None:
    assert likely_of_tasks(processes, threads) / MIB == pytest.approx(mib, abs=0.1)


@pytest.mark.parametrize(
    ("ended", "unseen", "faults", "seconds", "unfreed"),
    [
        (0, 0, 0, 0.1, 0),
        (0, 60, 6000, 0.1, 18),
        (10, 50, 6000, 0.1, 18),
        (0, 60, 6000, 0.02, 60),  # all of them ended a moment ago
        (0, 35_000, 160, 0.03, 5),  # the others belong to other programs
        (1, 0, 0, 600.0, 0),
        (0, 60, 6000, float("inf"), 0),  # the first sample
    ],
)
def test_ended_processes_occupy_kernel_memory_for_a_moment(
    ended: int, unseen: int, faults: int, seconds: float, unfreed: int
) -> None:
    assert likely_of_ended(ended, unseen, faults, seconds) == unfreed * 72 << 10
