"""Totals of the process that need a system call of their own: I/O, and what its reaped children used.

Reading both costs 2 us, as much as a boundary's memory figures. An operation that is opened within 100 us of the last
reading begins with that one, and one that ends within 10 us of its opening ends with it too: what was read, written
or reaped meanwhile is told by the operation whose end reads next, and by those around it; never twice by operations
that follow each other.
"""

from __future__ import annotations

import os

from otel_memwatch.operations.files import IO, close_quietly, keep_open

try:
    import resource
except ImportError:  # not a Unix
    resource = None  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_CHILDREN = resource.RUSAGE_CHILDREN if resource else 0
LIFE = 100e-6
"""Seconds for which a reading is used for operations that are opened."""
BRIEF = 10e-6
"""Seconds up to which an operation is too short to be read at its end."""

NOTHING = b',"read_bytes":0,"write_bytes":0,"read_chars":0,"write_chars":0'
_UNKNOWN = b',"read_bytes":null,"write_bytes":null,"read_chars":null,"write_chars":null'


class Reading:
    """The counters at one moment, and how much of them this library caused itself."""

    __slots__ = ("_totals", "children", "io", "own_read", "own_written")

    def __init__(self, children: Any, io: bytes, own_read: int, own_written: int) -> None:
        self.children = children
        self.io = io
        self.own_read = own_read
        self.own_written = own_written
        self._totals: tuple[int, int, int, int] | None = None

    def totals(self) -> tuple[int, int, int, int] | None:
        """Bytes read from and written to storage, bytes passed to read and write calls but our own."""
        if self._totals is None:
            fields = self.io.split(None, 12)
            if len(fields) >= 12:
                self._totals = (
                    int(fields[9]), int(fields[11]), int(fields[1]) - self.own_read, int(fields[3]) - self.own_written
                )  # fmt: skip
        return self._totals


class Counters:
    """Readings of this process. Not thread-safe."""

    __slots__ = ("_io", "_own", "last")

    def __init__(self) -> None:
        self._own = 0
        self._io = _open()
        self.last = Reading(None, b"", 0, 0)
        self.read(0, 0)

    def read(self, own_read: int, own_written: int) -> None:
        """Read; `own_...`: bytes that the rest of this library has moved so far."""
        children = resource.getrusage(_CHILDREN) if resource else None
        before = self.last.children
        if children == before:
            children = before  # the same object: nothing to be added up
        text = b""
        own_read += self._own
        if self._io is not None:
            try:
                text = os.pread(self._io, 256, 0)
            except OSError:  # the program closed it
                self._io = _open()
            self._own += len(text)
        self.last = Reading(children, text, own_read, own_written)

    def open_again(self, wanted: bool) -> None:
        """Go on with a new descriptor, or with none: what has the number of the old one now is the program's."""
        self._io = _open() if wanted else None

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
    first, last = before.totals(), after.totals()
    if first is None or last is None:
        return None
    return last[0] - first[0], last[1] - first[1], max(0, last[2] - first[2]), max(0, last[3] - first[3])


def io_text(totals: tuple[int, int, int, int] | None) -> bytes:
    """The fields of a closing line."""
    if totals is None:
        return _UNKNOWN
    return b',"read_bytes":%d,"write_bytes":%d,"read_chars":%d,"write_chars":%d' % totals
