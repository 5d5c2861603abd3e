"""Descriptors kept open inside a program that may close them and reuse their numbers."""

from __future__ import annotations

import os

try:
    import fcntl
except ImportError:  # not a Unix
    fcntl = None  # type: ignore[assignment]


def move_high(descriptor: int, lowest: int) -> int:
    """Move a descriptor to a number from `lowest` on, closed on exec; return it as it was if the limit is lower.

    Daemons close descriptors that they do not know and then open files, but rarely reach such numbers.
    """
    if fcntl is None:
        return descriptor
    try:
        high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, lowest)
    except (OSError, ValueError):  # a low limit on descriptors
        return descriptor
    os.close(descriptor)
    return high


class OwnedDescriptor:
    """A descriptor that remembers its file, so a reused number is never closed.

    `number` is -1 once the descriptor is closed or lost to the program.
    """

    __slots__ = ("_file", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self._file = _file(number)

    def is_ours(self) -> bool:
        """Return whether the number still belongs to the file it was opened for; forget it otherwise."""
        if self.number >= 0 and _file(self.number) != self._file:
            self.number = -1
        return self.number >= 0

    def close(self) -> None:
        """Close the descriptor unless the program has done so."""
        if self.is_ours():
            number, self.number = self.number, -1
            try:  # noqa: SIM105 - contextlib would be loaded into every program that marks operations
                os.close(number)
            except OSError:  # another thread of the program has just closed it
                pass


def _file(number: int) -> tuple[int, int] | None:
    """Return device and inode of an open file; `None` if the number is not open."""
    try:
        found = os.fstat(number)
    except (OSError, OverflowError):
        return None
    return found.st_dev, found.st_ino
