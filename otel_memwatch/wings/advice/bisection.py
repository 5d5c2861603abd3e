"""Bisection for the smallest memory limit that suffices."""

from __future__ import annotations

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_memwatch.wings.index.indexed_run import IndexedRun

_MOST = 7
"""Runs without the first one."""
_FINE = 1.06
"""Ratio of two limits between which no further one is tried."""


_FREE = 0.98
"""Share of a limit below which the kernel has reclaimed nothing: it charges in batches."""


class Trial(NamedTuple):
    """One run under a limit."""

    limit: int
    """MiB; 0: none."""
    row: IndexedRun | None
    """`None`: it did not start."""
    hung: bool = False
    contention: float = 0.0
    """Least share of the time for which it waited for processors that other programs used."""
    disk_rate: int | None = None
    """Bytes that the disk moves in a second."""
    pressure: float | None = None
    """Seconds in which tasks waited for memory, perhaps those of other programs; `None`: unknown."""

    @property
    def seconds(self) -> float | None:
        """Duration."""
        return None if self.row is None else self.row.seconds

    @property
    def own_seconds(self) -> float | None:
        """Duration without the waiting for processors that other programs used."""
        return None if self.seconds is None else self.seconds * (1 - self.contention)

    @property
    def is_free(self) -> bool:
        """True if the charge did not reach the limit: the kernel reclaimed nothing, so the limit cannot make it slow."""
        row = self.row
        return row is not None and bool(row.own_cgroup) and 0 < (row.cgroup or 0) < _FREE * (row.limit or 0)

    @property
    def ended(self) -> bool:
        """True if the run ended by itself: its time is that of the whole job."""
        return self.row is not None and not self.hung and not self.row.killed_for_memory


class Knee(NamedTuple):
    """Result of a bisection, in MiB."""

    enough: int | None
    """Smallest limit that sufficed; `None`: none did."""
    less: int | None
    """Largest limit below it that did not; `None`: all sufficed."""


def bisect(least: int, enough: int, suffices: Callable[[int], bool], fine: float = _FINE) -> Knee:
    """Return the limits around the smallest one that suffices.

    Args:
        least: first limit to try, in MiB; the job may be killed there.
        enough: expected to suffice.
        suffices: tries a limit.
        fine: ratio of two limits between which no further one is tried.

    """
    tries, high, low = 0, enough, None
    while not suffices(high):
        low, high, tries = high, high * 2, tries + 1
        if tries > 2:
            return Knee(None, low)
    if low is None and least < high:
        tries += 1
        if suffices(least):
            return Knee(least, None)
        low = least
    while low is not None and high > low * fine and high - low > 1 and tries < _MOST:
        middle, tries = (low + high) // 2, tries + 1
        if suffices(middle):
            high = middle
        else:
            low = middle
    return Knee(high, low)
