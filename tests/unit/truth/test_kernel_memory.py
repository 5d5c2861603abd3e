"""Kernel memory of processes that certainly existed at one moment."""

from __future__ import annotations

import pytest

from otel_memwatch.truth.kernel_memory import KernelReading, kernel_there

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
