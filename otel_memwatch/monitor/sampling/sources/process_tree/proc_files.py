"""Files of /proc that are read repeatedly. Descriptors stay open while the limit allows it."""

from __future__ import annotations

import os
import resource
from itertools import repeat

from otel_memwatch.runtime.kernel import read_once
from otel_memwatch.runtime.light import eq
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_memwatch.monitor.sampling.repeated import WatchedFile

RESERVED = 128
"""Descriptors reserved for the rest of the monitor."""
READ = 4096
"""Bytes per read."""


class Descriptors:
    """Number of descriptors that may stay open: three quarters of the limit, less a reserve."""

    def __init__(self, most: int | None = None) -> None:
        if most is None:
            soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            soft = 1 << 20 if soft == resource.RLIM_INFINITY else soft
            most = max(0, soft * 3 // 4 - RESERVED)
        self.free = most


class KeptFile:
    """A file with every reading from its beginning.

    An open descriptor of a process's file belongs to that process for ever. After the process has ended, reading raises
    `ProcessLookupError`, even if another process has its pid. Without a spare descriptor each reading opens the file
    (3 us more), and an ended process raises `FileNotFoundError`.
    """

    __slots__ = ("_descriptor", "_descriptors", "last", "path")

    def __init__(self, path: str, descriptors: Descriptors) -> None:
        self.path = path
        self.last: bytes | None = None
        """Last data of `read_changed`."""
        self._descriptors = descriptors
        self._descriptor = -1
        """-1: none is open."""

    @property
    def kept(self) -> bool:
        """Return whether the descriptor stays open, which rules out pid reuse."""
        return self._descriptor >= 0

    def read_changed(self) -> bytes | None:
        """Read the file like `read`; `None` if it has not changed since the last call. Raises `OSError`."""
        data = self.read()
        if data == self.last:
            return None
        self.last = data
        return data

    def read(self) -> bytes:
        """Return up to 4 KiB from the file's beginning. Raises `OSError`."""
        if self._descriptor >= 0:
            return os.pread(self._descriptor, READ, 0)
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(fd, READ, 0)
        except OSError:
            os.close(fd)
            raise
        if self._descriptors.free > 0:
            self._descriptors.free -= 1
            self._descriptor = fd
        else:
            os.close(fd)
        return data

    def has(self, data: bytes) -> bool:
        """Return whether the open file has exactly this content. A short buffer takes half the time of `read`."""
        try:
            return os.pread(self._descriptor, len(data) + 1, 0) == data
        except OSError:  # the process has ended, or no descriptor is open
            return False

    def as_read(self, data: bytes) -> tuple[int, int, bytes]:
        """Return the arguments with which `are_same` checks for this content; the file is open."""
        return self._descriptor, len(data) + 1, data

    def watched(self, content: bytes | None, *, whole: bool = True) -> WatchedFile | None:
        """Return the file with a content, or a part of it, that has to stay as it is; `None`: no descriptor is open."""
        from otel_memwatch.monitor.sampling.repeated import WatchedFile

        if content is None or self._descriptor < 0:
            return None
        return WatchedFile(self._descriptor, (content,), whole)

    def read_all(self) -> bytes:
        """Return the whole file. The kernel returns about a page per read. Raises `OSError`."""
        data = part = self.read()
        while len(part) > READ // 2 and self._descriptor >= 0:
            part = os.pread(self._descriptor, READ, len(data))
            data += part
        if self._descriptor < 0 and len(data) > READ // 2:
            data = read_once(self.path)
        return data

    def close(self) -> None:
        """Release the descriptor. The file may be read again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self._descriptors.free += 1


def are_same(files: Iterable[tuple[int, int, bytes]]) -> bool:
    """Return whether all of these files still have the content that `KeptFile.as_read` noted (1 us for each)."""
    descriptors, lengths, contents = zip(*files, strict=True)
    try:
        return all(map(eq, map(os.pread, descriptors, lengths, repeat(0)), contents))
    except OSError:  # a process has ended
        return False
