"""Page cache of a job: reclaimable beside the request, in files in memory, or in memory before a run began."""

from __future__ import annotations

from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import size
from otel_memwatch.wings.advice.prediction import median_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.wings.index.indexed_run import IndexedRun

CACHE_WORTH_NAMING = 0.2
"""Page cache is mentioned from this share of the memory needed."""
LEAST_CACHE = 8 << 20
"""Bytes below which page cache is not mentioned."""


def reclaimable(rows: Sequence[IndexedRun], files: int) -> list[str]:
    """Return a note on page cache beside the request. Only a dedicated cgroup separates the run's cache from other programs'."""
    pairs = [
        (row.memory, row.cgroup - row.memory - files)
        for row in rows
        if row.own_cgroup and row.memory and row.cgroup is not None
    ]
    if not pairs:
        return []
    typical, needed = median_of([beside for _, beside in pairs]), median_of([memory for memory, _ in pairs])
    if typical < max(CACHE_WORTH_NAMING * needed, LEAST_CACHE):
        return []
    return [
        f"{size(typical)} of reclaimable page cache are not in it; with less memory the job may read some files again"
    ]


def in_memory(rows: Sequence[IndexedRun]) -> list[str]:
    """Return a note on files in memory and pipes that no upper bound includes."""
    most = max((row.excluded for row in rows), default=0)
    if not most:
        return []
    held = f"at most {size(most)} in files in memory (/dev/shm) and pipes between two samples is not in it"
    return [f"{held}; a run in a dedicated cgroup measures it"]


def there_before(row: IndexedRun) -> int:
    """Return bytes of the run's file pages that were in memory before it, as far as its cgroup shows them."""
    if not row.own_cgroup or row.cgroup is None or row.memory is None:
        return 0
    return max(0, row.library_bytes - max(0, row.cgroup - row.memory))
