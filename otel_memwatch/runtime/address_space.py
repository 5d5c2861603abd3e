"""Address space below a limit (`ulimit -v`). A library that reaches the limit may end or hang its process silently."""

from __future__ import annotations

import contextlib
import resource

from otel_memwatch.errors import Unavailable

_M_ARENA_MAX = -8
"""mallopt(3)."""


def limited() -> bool:
    """Return whether there is a limit."""
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def need(room: int) -> None:
    """Raise `Unavailable` if the limit leaves less than `room` bytes. Costs a microsecond without a limit."""
    if room <= 0 or not limited():
        return
    import mmap

    try:
        mmap.mmap(-1, room).close()
    except (OSError, MemoryError):
        raise Unavailable(f"ulimit -v leaves less than {room >> 20} MiB of address space.") from None


def keep_to_one_heap() -> None:
    """Under a limit, keep glibc from reserving a heap of 64 MiB of address space for each thread.

    Only for processes of this package: it would slow down a program with busy threads.
    """
    if not limited():
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError, MemoryError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
