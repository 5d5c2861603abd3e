"""File pages that a program needs in memory at one moment for its full speed.

Inputs are bytes and seconds; nothing here reads the machine. A run without a limit does not show which pages are used again, so
each rule gives an upper bound.

| pages | needed |
| --- | --- |
| mapped by a process | while it maps them |
| read ahead by page faults | until the program maps no more of them (`read_ahead`), less those that it has time to read again |
| used by read calls | until calls read as many bytes again |
| written | until they are on disk, less those that it has time to wait for |
"""

from __future__ import annotations

from otel_memwatch.truth.stalls import SLOWEST_READ

_OTHER_PARTS = {1: 0.25, 8: 0.5}
"""Share added to the mapped files of the largest process if there are more processes: others map other parts of them."""
_ALL_MAPPED = 0.95
"""Share of the pages that a program maps, from which it needs no further pages that were read ahead."""
_READ_FOR_MAPPED = 8
"""Most bytes read ahead that a program needs for one that it maps later. rustc with its linker has 271 MiB read ahead before it maps
its last 36 MiB, and needs them. javac needs none of 72 MiB before its last 2."""
_LOST = 0.01
"""Share of the time that may pass with reading pages again. Under a limit, pages are read more than once, and more slowly than at the
largest rate: with 5 %, rustc was advised 291 MiB, where it needs 375 for 95 % of its speed."""
_UNWRITTEN_MARGIN = 0.15
"""Share added to unwritten pages, among which the kernel has to search for others: a copy of 256 MiB needs 275, although it has time to wait for 20."""
RECENTLY = 0.5
"""Seconds for which written data counts as unwritten: samples miss the most."""


def mapped_by_several(largest: int, processes: int | None) -> int:
    """Return the file pages that all processes map, from those of the largest one.

    The largest of a browser's 15 processes maps 170 MiB, all of them 220. Their speed needs 300, with pages that are read ahead.
    """
    more = max((share for number, share in _OTHER_PARTS.items() if (processes or 1) > number), default=0.0)
    return round(largest * (1 + more))


def read_ahead(read: float, mapped: float, newly: float, newly_in_all: float) -> float:
    """Return the bytes that page faults read and no process maps, among which may be pages that the program maps later.

    The kernel reads up to 8 MiB for one fault. ffmpeg maps 41 MiB in all. It reads 170 of 210 MiB before it maps the first 10,
    and needs most of them. The fewer pages the program still has to map, the fewer it needs.

    Args:
        read: so far.
        mapped: at this moment.
        newly: mapped for the first time, so far.
        newly_in_all: at the end.
    """
    if newly >= _ALL_MAPPED * newly_in_all:
        return 0.0
    return max(0.0, min(read - mapped, _READ_FOR_MAPPED * (newly_in_all - newly)))


def kept(ahead: float, unwritten: float, seconds: float, rate: float) -> float:
    """Return the pages read ahead and unwritten pages that full speed needs.

    A run of 6 s has 1 % of its time for 42 MiB of a disk with 700 MiB in a second. PyTorch reads 446 MiB of its libraries, and keeps
    its speed with a third of them; one run without a limit does not show that.

    Args:
        ahead: `read_ahead`.
        unwritten: bytes that wait for the disk.
        seconds: of the run.
        rate: bytes read in a second, at most; a run that read little shows no more than that.
    """
    allowed = _LOST * seconds * max(rate, SLOWEST_READ)
    return max(0.0, ahead + unwritten * (1 + _UNWRITTEN_MARGIN) - allowed)
