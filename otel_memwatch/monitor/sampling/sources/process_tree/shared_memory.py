"""Shared memory of the tree: mapped by its processes, or in files in memory that no process maps.

The machine counts its shared memory and no owner. What the tree's processes map is theirs; the rest of the machine's rise
may belong to other programs, unless the tree's write calls match it.
"""

from __future__ import annotations

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.truth.outside_faults import shared_at_tick, shared_most
from otel_memwatch.truth.tree_estimates import files_with_deleted, likely_files, likely_shared

if TYPE_CHECKING:
    from collections.abc import Collection

    from otel_memwatch.monitor.sampling.sources.process_tree.allocations import Allocations
    from otel_memwatch.monitor.sampling.sources.process_tree.member import Member


class SharedNow(NamedTuple):
    """Shared memory of one scan, in bytes."""

    high: int
    """To add to the upper bound since the previous scan."""
    low: int
    """Certainly resident."""


class SharedMemory:
    """Shared memory of one tree, scan by scan.

    Args:
        machine: counts of the machine.
        joined: the tree existed before the run, so the machine's rise is not that of the run.

    Attributes:
        most: upper bound at the end of the last scan, in bytes.
        in_objects: best estimate of the tree's shared memory.
        files: best estimate of the tree's files in memory, unmapped: the most since the previous scan.
    """

    def __init__(self, machine: Allocations, *, joined: bool) -> None:
        self._machine = machine
        self._joined = joined
        self.most = self.in_objects = self.files = 0
        self._mapped = self._mapped_most = 0
        """Sum of the shared memory that processes map at the last scan, and its maximum."""
        self._files_now = 0
        """Best estimate of the tree's unmapped files at the last scan."""
        self._written = None if joined else 0
        """Bytes that the tree wrote to memory by the last scan; `None`: the tree is older, and there was none."""
        self._unclaimed = 0, 0
        """Rise and written bytes of the last scan that did not match."""
        self._unmapped = 0
        """Rise of the machine's shared memory beyond the tree's, at the last scan."""

    def scan(self, members: Collection[Member], new: int, written: int) -> SharedNow:
        """Add a scan.

        Args:
            members: all processes.
            new: gains since the previous scan that are already counted, in bytes.
            written: bytes of the tree's write calls so far, less the bytes that went to disk.
        """
        before, files_before = self.most, self._files_now
        mapped = [member.shmem for member in members if not member.zombie]
        secret = sum(member.secret for member in members if not member.zombie)
        rise = self._machine.shared_rise
        new = min(new, max(0, sum(mapped) - self._mapped))
        self._mapped = sum(mapped)
        self._mapped_most = max(self._mapped, self._mapped_most)
        self.most = shared_at_tick(self._mapped, self._machine.shared, rise, secret)
        self.in_objects = likely_shared(
            self.most, self._mapped, None if self._joined else rise, self._mapped_most
        )
        self.files = self._likely_files(written)
        high = max(shared_most(before, self.most, new), before + self.files - files_before)
        return SharedNow(high, min(max(mapped, default=0), rise))

    def _likely_files(self, written: int) -> int:
        """Return the most bytes of the tree's files in memory since the previous scan, and note those at this one."""
        new = 0 if self._written is None else written - self._written
        unmapped = self._machine.shared_rise - self.in_objects
        risen, self._unmapped, self._written = unmapped - self._unmapped, unmapped, written
        # The machine is read after the write calls: a sample may have the rise, and the next one the call.
        early_rise, early_calls = self._unclaimed if risen > 0 else (0, 0)
        before = self._files_now
        self._files_now = now = likely_files(before, risen + early_rise, new + early_calls)
        self._unclaimed = (
            max(0, min(risen, risen + early_rise - now + before)),
            max(0, min(new, new + early_calls - now + before)),
        )
        return files_with_deleted(before, now, new)
