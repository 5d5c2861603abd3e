"""Totals of the process that need a system call of their own: I/O, and what its reaped children used.

Reading both costs 2 us, as much as a boundary's memory figures. An operation that is opened within 100 us of the last
reading begins with that one, and one that ends within 10 us of its opening ends with it too: what was read, written
or reaped meanwhile is told by the operation whose end reads next, and by those around it; never twice by operations
that follow each other.
"""

from __future__ import annotations

import os

from otel_memwatch.in_target.operations import boundary
from otel_memwatch.in_target.operations.files import IO, close_quietly, keep_open

TYPE_CHECKING = False
if TYPE_CHECKING:
    from otel_memwatch.in_target.operations.boundary import Moved, Used

LIFE = 100e-6
"""Seconds for which a reading is used for operations that are opened."""
BRIEF = 10e-6
"""Seconds up to which an operation is too short to be read at its end."""

NOTHING = b',"read_bytes":0,"write_bytes":0,"read_chars":0,"write_chars":0'
_UNKNOWN = b',"read_bytes":null,"write_bytes":null,"read_chars":null,"write_chars":null'


class Reading:
    """The counters at one moment; `None`: the system does not tell."""

    __slots__ = ("children", "io")

    def __init__(self, children: Used | None, io: Moved | None) -> None:
        self.children = children
        """What the children have used that the process has waited for."""
        self.io = io
        """Of the process and those children, but not this library's own."""


_reading = boundary.reading or Reading


class Counters:
    """Readings of this process. Not thread-safe."""

    __slots__ = ("io", "last", "own")

    def __init__(self) -> None:
        self.own = 0
        """Bytes that have been read for this."""
        self.io = _open()
        self.last: Reading = _reading(None, None)
        self.read(0, 0)

    def read(self, own_read: int, own_written: int) -> None:
        """Read; `own_...`: bytes that the rest of this library has moved so far."""
        own_read += self.own
        try:
            size, children, io = boundary.totals(self.io, own_read, own_written)
        except OSError:  # the program closed it
            self.io = _open()
            size, children, io = boundary.totals(-1, 0, 0)
        self.own += size
        before = self.last.children
        if children == before:
            children = before  # the same object: nothing to be added up
        self.last = _reading(children, io)

    def open_again(self, wanted: bool) -> None:
        """Go on with a new descriptor, or with none: what has the number of the old one now is the program's."""
        self.io = _open() if wanted else -1

    def close(self) -> None:
        """Give the descriptor back."""
        close_quietly(self.io)
        self.io = -1


def _open() -> int:
    """-1: there is none."""
    try:
        return keep_open("/proc/self/io", os.O_RDONLY, IO)
    except OSError:  # no /proc, or not ours to read
        return -1


def io_totals(before: Reading, after: Reading) -> tuple[int, int, int, int] | None:
    """Bytes read from and written to storage, bytes passed to read and write calls; `None`: not known here.

    Reaped children are included, this library's own calls are not. The storage figures may include up to one
    page for each page of this library's own record that was written meanwhile.
    """
    first, last = before.io, after.io
    if first is None or last is None:
        return None
    return last[0] - first[0], last[1] - first[1], max(0, last[2] - first[2]), max(0, last[3] - first[3])


def io_text(totals: tuple[int, int, int, int] | None) -> bytes:
    """The fields of a closing line."""
    if totals is None:
        return _UNKNOWN
    return b',"read_bytes":%d,"write_bytes":%d,"read_chars":%d,"write_chars":%d' % totals
