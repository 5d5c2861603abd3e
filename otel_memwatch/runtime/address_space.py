"""How much address space a limit (`ulimit -v`) leaves: a library that runs into it may end or hang its process without a word."""

from __future__ import annotations

import contextlib
import resource

from otel_memwatch.errors import Unavailable

_M_ARENA_MAX = -8
"""mallopt(3)."""


def limited() -> bool:
    """Whether there is a limit."""
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def need(room: int) -> None:
    """Raises `Unavailable` where the limit leaves less than `room` bytes. Costs a microsecond without a limit."""
    if room <= 0 or not limited():
        return
    import mmap

    try:
        mmap.mmap(-1, room).close()
    except (OSError, MemoryError):
        raise Unavailable(f"ulimit -v leaves less than {room >> 20} MiB of address space.") from None


def keep_to_one_heap() -> None:
    """Where there is a limit, keeps glibc from giving each thread a heap of its own, of 64 MiB of address space.

    For processes of our own only: in a program with busy threads it would cost time.
    """
    if not limited():
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError, MemoryError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
