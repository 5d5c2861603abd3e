"""Free memory that an allocator keeps."""

from __future__ import annotations

import pytest

from otel_memwatch.truth.heap import (
    AllocatorBooks,
    HeapReading,
    explains_growth,
    free_memory,
    kept_memory,
)

MIB = 1 << 20


def _reading(
    anonymous: int, live: int, free: int, *, private: int = 0, scattered: int = 0, pymalloc: int = 0
) -> HeapReading:
    books = [AllocatorBooks("glibc", live * MIB, free * MIB, scattered * MIB)]
    if pymalloc:
        books.append(AllocatorBooks("pymalloc", pymalloc * MIB, 0, 0))
    return HeapReading(7, 1.0, anonymous * MIB, (private or anonymous) * MIB, 1, tuple(books))


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        (_reading(245, 10, 230), (230, 230, 230)),
        # 30 MiB of the private addresses have no page: perhaps all of them are free ones
        (_reading(245, 10, 230, private=275), (230, 200, 230)),
        # malloc_trim: most free addresses have no page
        (_reading(17, 10, 230, private=260), (7, 0, 17)),
        # memory in use by Python's own allocator is not free
        (_reading(100, 10, 80, private=200, pymalloc=60), (30, 0, 80)),
        # blocks in use that were never touched
        (_reading(100, 500, 80, private=600), (0, 0, 80)),
    ],
)
def test_free_memory(reading: HeapReading, expected: tuple[int, int, int]) -> None:
    assert free_memory(reading, reading.allocators[0]) == tuple(value * MIB for value in expected)


@pytest.mark.parametrize(
    ("reading", "kind"),
    [
        (_reading(245, 10, 230), "kept"),
        (_reading(245, 10, 230, scattered=200), "fragmentation"),
        (_reading(245, 140, 100), None),
        (_reading(40, 10, 25), None),  # too small to matter
        (HeapReading(7, 1.0, 245 * MIB, 245 * MIB, 1, ()), None),
    ],
)
def test_verdict(reading: HeapReading, kind: str | None) -> None:
    found = kept_memory(reading)
    assert (None if found is None else found.kind) == kind


@pytest.mark.parametrize(
    ("last", "explained"),
    [
        (_reading(200, 20, 170), True),
        (_reading(200, 190, 5), False),
        (_reading(120, 20, 90), False),  # the readings saw too little of the growth
    ],
)
def test_growth_that_is_free_memory(last: HeapReading, *, explained: bool) -> None:
    assert explains_growth(_reading(100, 20, 70), last, 100 * MIB) == explained
