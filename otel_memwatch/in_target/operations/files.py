"""Descriptors that are kept open in somebody else's program."""

from __future__ import annotations

import os

try:
    import fcntl
except ImportError:  # not a Unix
    fcntl = None  # type: ignore[assignment]

RESET, SIZE, STATUS, IO, JOURNAL = range(512, 832, 64)
"""Numbers from which on the descriptors of each use are placed: when a program has closed them all, none that is
opened again takes the number under which another one is still remembered."""


UNTRUSTED = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""For a file whose directory others may write to: no link is followed, no named pipe is waited for."""


def keep_open(path: str, flags: int, place: int, mode: int = 0o600) -> int:
    """Open a file on a high descriptor that no program started from here inherits.

    High, so that a program which closes every descriptor it does not know (daemons do) and then opens its own
    never gets our number: a write by us then fails instead of reaching the program's file. Raises `OSError`.
    """
    descriptor = os.open(path, flags | getattr(os, "O_CLOEXEC", 0), mode)
    if fcntl is None:
        return descriptor
    try:
        high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, place)
    except (OSError, ValueError):  # a low limit on descriptors
        return descriptor
    os.close(descriptor)
    return high


def close_quietly(descriptor: int | None) -> None:
    """Close it if it is one and still open."""
    if descriptor is not None:
        try:
            os.close(descriptor)
        except OSError:
            pass


def read_quietly(path: str, size: int = 8192) -> bytes:
    """The beginning of a small file; nothing where it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return b""
    try:
        return os.read(descriptor, size)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
