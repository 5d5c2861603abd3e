"""Free memory that an allocator keeps, from its statistics and the kernel's counters of the process.

Statistics count addresses, the kernel counts pages. Free memory may have been returned (`malloc_trim`) or never touched, so
its resident part is a range:

- It is at most the allocator's free bytes, and at most the anonymous memory of the process.
- Private addresses without a page are as many as the private size exceeds the anonymous memory. If all of them were free
  ones, the rest of the free bytes would still be resident.

Best estimate: anonymous memory beyond all bytes in use, which are assumed to be resident.

A JVM's figures are of its last garbage collection, and it has much memory in no figure. Its best estimate is the lower end:
resident memory of the old generation that held no object at the last collection. New objects need the young generation:
it counts as in use.
"""

from __future__ import annotations

from otel_memwatch.runtime.typed import NamedTuple

KEPT, FRAGMENTATION = "kept", "fragmentation"
JVM_HEAP = "JVM old generation"
"""Name of an allocator whose figures are of the last collection."""

_LEAST_BYTES, _LEAST_SHARE = 32 << 20, 0.5
"""Least free memory of a verdict, in bytes and as a share of the process's anonymous memory."""
_SCATTERED = 0.5
"""Share of the free bytes between blocks in use from which the verdict is fragmentation."""
_EXPLAINED = 0.6
"""Share of the growth of a process that free memory must explain: then it is no leak."""
_OBSERVED = 0.5
"""Share of a leak's growth that lies between the first and the last reading."""


class AllocatorBooks(NamedTuple):
    """Statistics of an allocator, in bytes."""

    name: str
    live: int
    free: int
    scattered: int
    """The part of `free` that lies between blocks in use, so the allocator cannot return it."""


class HeapReading(NamedTuple):
    """Statistics of a process's allocators at one moment. Sizes are bytes."""

    pid: int
    time: float
    """Monotonic seconds."""
    anonymous: int
    """RssAnon of the kernel."""
    private: int
    """VmData and VmStk: addresses of private writable mappings."""
    threads: int
    allocators: tuple[AllocatorBooks, ...]


class KeptMemory(NamedTuple):
    """Resident free memory of an allocator: best estimate and range, in bytes."""

    kind: str
    books: AllocatorBooks
    bytes: int
    low: int
    high: int


def free_memory(reading: HeapReading, books: AllocatorBooks) -> tuple[int, int, int]:
    """Return the resident free memory of an allocator: best estimate, lower and upper end of its range, in bytes."""
    high = min(books.free, reading.anonymous)
    low = min(high, max(0, books.free - max(0, reading.private - reading.anonymous)))
    if books.name == JVM_HEAP:
        return low, low, high
    in_use = sum(one.live for one in reading.allocators)
    return max(low, min(high, reading.anonymous - in_use)), low, high


def kept_memory(reading: HeapReading) -> KeptMemory | None:
    """Return the free memory of the allocator that keeps most, if it is half of the process's memory; else `None`."""
    found = [(free_memory(reading, books), books) for books in reading.allocators]
    if not found:
        return None
    (estimate, low, high), books = max(found, key=lambda one: one[0])
    if estimate < max(_LEAST_BYTES, _LEAST_SHARE * reading.anonymous):
        return None
    kind = FRAGMENTATION if books.scattered >= _SCATTERED * books.free else KEPT
    return KeptMemory(kind, books, estimate, low, high)


def explains_growth(first: HeapReading, last: HeapReading, grown: float) -> bool:
    """Return whether most of the growth between two readings of a process is free memory.

    `grown`: bytes of a leak, of which the readings must have seen enough.
    """
    between = last.anonymous - first.anonymous
    free = [sum(free_memory(one, books)[0] for books in one.allocators) for one in (first, last)]
    return between > 0 and between >= _OBSERVED * grown and free[1] - free[0] >= _EXPLAINED * between
