"""Kernel memory of processes that /proc shows to every user: page tables and kernel stacks.

A cgroup is charged for both, so they are memory needed. No user can read the rest, for example pipes, sockets and
dentries. A figure without a cgroup names that rest as excluded (`EXCLUDED`). The best estimate includes what processes and
threads probably take of it.
"""

from __future__ import annotations

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

EXCLUDED = "kernel"
"""Mark of a peak that lacks kernel memory which only a cgroup counts."""

_PER_PROCESS, _PER_THREAD = 26 << 10, 7 << 10
"""Bytes of kernel memory of a process and of a thread, beyond page tables and stacks: structures of the task, its files and
mappings. Measured with a cgroup of version 1 on Linux 6.18."""
_ENDED, _GRACE_SECONDS = 72 << 10, 0.03
"""Bytes of page tables, stack and structures that an ended process leaves, and seconds until the kernel frees them: it waits
until no processor can use them any more (an RCU grace period, then callbacks in batches). Measured likewise."""
_LEAST_FAULTS = 32
"""Page faults of a process that only starts and ends: a shell's fork has 33, `true` 46."""


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


def likely_of_tasks(processes: int, threads: int) -> int:
    """Return the best estimate of the kernel's structures for processes and threads, in bytes; no user can read them.

    Example: 2 000 threads of one process: 13.7 MiB.
    """
    return processes * _PER_PROCESS + threads * _PER_THREAD


def likely_of_ended(ended: int, unseen: int, faults: int, seconds: float) -> int:
    """Return the best estimate of the kernel memory that ended processes still occupy, in bytes.

    Other programs' processes may be among the unseen ones, so the tree's page faults limit their number.

    Example: a script runs 60 commands between two samples, 0.1 s apart. At any moment 18 of them are not freed: 1.3 MiB.

    Args:
        ended: processes that samples saw and that ended since the previous one.
        unseen: the most processes that no sample saw.
        faults: page faults of unseen processes of the tree.
        seconds: time since the previous sample.
    """
    count = ended + min(unseen, faults // _LEAST_FAULTS)
    return round(count * min(1.0, _GRACE_SECONDS / max(seconds, 1e-6))) * _ENDED


def _tables(readings: Collection[KernelReading]) -> int:
    """Return the bytes of page tables that one family certainly has."""
    return max(
        sum(one.page_tables for one in readings if one.apart),
        max((one.page_tables for one in readings), default=0),
    )
