"""Kernel memory of processes that /proc shows to every user: page tables and kernel stacks.

A cgroup is charged for both, so they are memory needed. No user can read the rest, for example pipes, sockets and
dentries. A figure without a cgroup names that rest as excluded (`EXCLUDED`).
"""

from __future__ import annotations

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

EXCLUDED = "kernel"
"""Mark of a peak that lacks kernel memory which only a cgroup counts."""


class KernelReading(NamedTuple):
    """Kernel memory of one process at one sample. Sizes are bytes."""

    page_tables: int
    stacks: int
    steady: bool
    """Nothing changed in the process during the sample, so it had this memory all the time."""
    apart: bool
    """Its address space certainly belongs to no other process of its family."""


def kernel_there(families: Iterable[Collection[KernelReading]]) -> int:
    """Return the bytes of page tables and kernel stacks that certainly existed at one moment of a sample.

    Processes are read one after another. A steady process has its memory at every moment of the sample, a changing one
    only at the moment of its reading. So the steady ones count, and the changing one that adds most.

    Two processes may share an address space (CLONE_VM without CLONE_THREAD). Its page tables count once.

    Example: two steady processes of different programs with 1 MiB each, and changing ones with 2 and 3 MiB: 5 MiB.

    Args:
        families: readings of the processes that descend from each other by fork without an exec, family by family.
    """
    steady_sum = most_moving = 0
    for family in families:
        if all(one.steady and one.apart for one in family):  # the usual case, without its cost
            steady_sum += sum(one.page_tables + one.stacks for one in family)
            continue
        steady = [one for one in family if one.steady]
        tables = _tables(steady)
        steady_sum += tables + sum(one.stacks for one in steady)
        for one in family:
            if not one.steady:
                added = _tables([*steady, one]) - tables
                most_moving = max(most_moving, added + one.stacks)
    return steady_sum + most_moving


def _tables(readings: Collection[KernelReading]) -> int:
    """Return the bytes of page tables that one family certainly has."""
    return max(
        sum(one.page_tables for one in readings if one.apart),
        max((one.page_tables for one in readings), default=0),
    )
