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


opened: list[int] | None = None
"""Descriptors that have been opened for the recorder that is being made; `None`: none is."""

UNTRUSTED = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""For a file whose directory others may write to: no link is followed, no named pipe is waited for."""


def keep_open(path: str, flags: int, place: int, mode: int = 0o600) -> int:
    """Open a file on a high descriptor that no program started from here inherits.

    High, so that a program which closes every descriptor it does not know (daemons do) and then opens its own
    never gets our number: a write by us then fails instead of reaching the program's file. Raises `OSError`.
    """
    descriptor = os.open(path, flags | getattr(os, "O_CLOEXEC", 0), mode)
    if fcntl is not None:
        try:
            high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, place)
        except (OSError, ValueError):  # a low limit on descriptors
            pass
        else:
            os.close(descriptor)
            descriptor = high
    if opened is not None:
        opened.append(descriptor)
    return descriptor


def claim() -> tuple[int, bool]:
    """A descriptor to be kept, and whether nobody else in this process has claimed what only one may have.

    Interpreters know nothing of each other, but the locks of files do: this one is of a file that each process has of
    its own, so that nobody else's lock is ever met. Where locks do not work there is one interpreter, as far as is known.
    """
    try:
        descriptor = keep_open("/proc/self/status", os.O_RDONLY, STATUS)
    except OSError:  # no /proc
        return -1, True
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        close_quietly(descriptor)
        return -1, False
    except OSError:
        pass
    return descriptor, True


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
