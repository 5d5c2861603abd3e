"""A process that is the whole tree, with one thread: the evidence for `truth.tree.lone_process_bound`."""

from __future__ import annotations

import os

from otel_memwatch.runtime.kernel import counter_error, has_thread_counters, processors, sum_known
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.truth.process import lone_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.monitor.sampling.sources.process_tree.allocations import Allocations
    from otel_memwatch.monitor.sampling.sources.process_tree.memory_scan import AddressSpace, MemberReading


class LoneEnd(NamedTuple):
    """The end of such a process."""

    beside: int
    """Most memory beside its resident size, in bytes."""
    error: int
    """Bytes by which its maximum may be too low."""


class LoneProcess:
    """Notes what the only process of a tree had beside it, until it has company, a thread, or executes again.

    Args:
        joined: the process existed before the run.
    """

    def __init__(self, *, joined: bool) -> None:
        self._beside: int | None = None if joined else 0
        self._space: AddressSpace | None = None

    def scanned(self, readings: Sequence[MemberReading], beside: int) -> None:
        """Add a scan.

        Args:
            readings: of all processes in address spaces of the tree.
            beside: bytes of shared memory, page tables and kernel stacks since the scan before.
        """
        for reading in readings:
            if self._space not in (None, reading.space) or reading.member.stat.threads > 1:
                self._beside = None
            self._space = reading.space
        if self._beside is not None:
            self._beside = max(self._beside, beside)

    def ended(self, machine: Allocations, migrations: int) -> LoneEnd | None:
        """Return its end; `None`: it was not alone, or no scan read it.

        Args:
            machine: the machine's counts, read after its end.
            migrations: changes of processor of its only thread.
        """
        beside = sum_known((self._beside, machine.partly_freed()))
        if beside is None or self._space is None or machine.swaps:
            return None
        per_thread = has_thread_counters(os.uname().release)
        error = counter_error(1, processors(), per_thread=per_thread)
        known = None if per_thread or machine.collapses else migrations
        return LoneEnd(beside, lone_error(error, processors(), known))
