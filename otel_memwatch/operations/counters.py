"""Totals of the process that need a system call of their own: I/O, and what its reaped children used.

Reading both costs 2.4 us, as much as a boundary's memory figures. A reading is used again for 20 us: what was
read, written or reaped meanwhile is told by the next reading. Nothing is lost or told twice; it may be told by
a neighbour when operations follow each other faster than that.
"""

from __future__ import annotations

import os
from time import monotonic

from otel_memwatch.operations.files import IO, close_quietly, keep_open

try:
    import resource
except ImportError:  # not a Unix
    resource = None  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_CHILDREN = resource.RUSAGE_CHILDREN if resource else 0
_LIFE = 20e-6

NOTHING = ',"read_bytes":0,"write_bytes":0,"read_chars":0,"write_chars":0'
_UNKNOWN = ',"read_bytes":null,"write_bytes":null,"read_chars":null,"write_chars":null'


class Reading:
    """The counters at one moment, and how much of them this library caused itself."""

    __slots__ = ("children", "io", "own_read", "own_written")

    def __init__(self, children: Any, io: bytes, own_read: int, own_written: int) -> None:
        self.children = children
        self.io = io
        self.own_read = own_read
        self.own_written = own_written


class Counters:
    """Readings of this process. Not thread-safe."""

    __slots__ = ("_io", "_own", "last", "until")

    def __init__(self) -> None:
        self._own = 0
        self.until = 0.0
        self._io = _open()
        self.last = Reading(None, b"", 0, 0)
        self.read(monotonic(), 0, 0)

    def read(self, now: float, own_read: int, own_written: int) -> Reading:
        """A reading of not more than 20 us ago; `own_...`: bytes that the rest of this library has moved so far."""
        if now < self.until:
            return self.last
        children = resource.getrusage(_CHILDREN) if resource else None
        text = b""
        own_read += self._own
        if self._io is not None:
            try:
                text = os.pread(self._io, 256, 0)
            except OSError:  # the program closed it
                self._io = _open()
            self._own += len(text)
        self.last = last = Reading(children, text, own_read, own_written)
        self.until = now + _LIFE
        return last

    def open_again(self, wanted: bool) -> None:
        """Go on with a new descriptor, or with none: what has the number of the old one now is the program's."""
        self._io = _open() if wanted else None
        self.until = 0.0

    def close(self) -> None:
        """Give the descriptor back."""
        close_quietly(self._io)
        self._io = None


def _open() -> int | None:
    try:
        return keep_open("/proc/self/io", os.O_RDONLY, IO)
    except OSError:  # no /proc, or not ours to read
        return None


def io_totals(before: Reading, after: Reading) -> tuple[int, int, int, int] | None:
    """Bytes read from and written to storage, bytes passed to read and write calls; `None`: not known here.

    Reaped children are included, this library's own calls are not. The storage figures may include up to one
    page for each page of this library's own record that was written meanwhile.
    """
    first, last = before.io.split(), after.io.split()
    if len(first) < 12 or len(last) < 12:
        return None
    read = int(last[1]) - int(first[1]) - after.own_read + before.own_read
    written = int(last[3]) - int(first[3]) - after.own_written + before.own_written
    return int(last[9]) - int(first[9]), int(last[11]) - int(first[11]), max(0, read), max(0, written)


def io_text(totals: tuple[int, int, int, int] | None) -> str:
    """The fields of a closing line."""
    if totals is None:
        return _UNKNOWN
    return ',"read_bytes":%d,"write_bytes":%d,"read_chars":%d,"write_chars":%d' % totals  # noqa: UP031 - a tuple
