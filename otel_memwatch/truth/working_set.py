"""File pages that a program needs in memory at one moment for its full speed.

Inputs are bytes; nothing here reads the machine. A run without a limit does not show which pages are used again, so each rule
gives an upper bound.

| pages | needed |
| --- | --- |
| mapped by a process | while it maps them |
| read ahead by page faults | until the program maps what was read (`awaited`) |
| used by read calls | until calls read as many bytes again |
| written | until they are on disk |
"""

from __future__ import annotations

_OTHER_PARTS = 0.25
"""Share added to the mapped files of the largest process if there are several: others map other parts of them."""
_OUT_OF_ORDER = 0.15
"""Share added to pages that were read ahead: the kernel does not drop them in the order in which the program maps them."""


def mapped_by_several(largest: int, processes: int | None) -> int:
    """Return the file pages that all processes map, from those of the largest one.

    A browser's largest process maps 170 MiB, and it needs 215.
    """
    return round(largest * (1 + _OTHER_PARTS * (processes is not None and processes > 1)))


def awaited(read: float, read_in_all: float, mapped: float, mapped_in_all: float) -> float:
    """Return the bytes that page faults read ahead, and among which are pages that the program maps later.

    The kernel reads up to 8 MiB for one fault. Programs map pages about in the order of reading. ffmpeg maps 41 MiB in all. It
    reads 170 of 210 MiB before it maps the first 10, and needs as much. Python reads one library after the other: 150 MiB for 50,
    and needs few of them at once.

    Args:
        read: so far.
        read_in_all: at the end of the run.
        mapped: newly mapped so far.
        mapped_in_all: at the end.
    """
    done = mapped / mapped_in_all if mapped_in_all else 1.0
    return max(0.0, read - read_in_all * done) * (1 + _OUT_OF_ORDER)
