"""Files of /proc that are read again and again: descriptors are kept open while the limit allows it."""

from __future__ import annotations

import os
import resource

RESERVED = 128
"""Descriptors that are left to the rest of the monitor."""
READ = 4096
"""Bytes of a file that are read at once."""


class Descriptors:
    """How many descriptors may be kept: three quarters of the limit, less a reserve."""

    def __init__(self, most: int | None = None) -> None:
        if most is None:
            soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            soft = 1 << 20 if soft == resource.RLIM_INFINITY else soft
            most = max(0, soft * 3 // 4 - RESERVED)
        self.free = most


class KeptFile:
    """A file that is read from its beginning each time.

    A kept descriptor of a process's file belongs to that process for ever: after its end reading raises
    `ProcessLookupError`, whoever has its pid then. Without a descriptor to spare the file is opened for each reading
    (3 us more), and a gone process raises `FileNotFoundError`.
    """

    __slots__ = ("_descriptor", "_descriptors", "last", "path")

    def __init__(self, path: str, descriptors: Descriptors) -> None:
        self.path = path
        self.last: bytes | None = None
        """What `read_changed` read last."""
        self._descriptors = descriptors
        self._descriptor = -1
        """-1: none is kept, or not yet."""

    @property
    def kept(self) -> bool:
        """Whether the descriptor is kept, so that pid reuse cannot deceive."""
        return self._descriptor >= 0

    def read_changed(self) -> bytes | None:
        """As `read`; `None` where that is what this method has read before. Raises `OSError`."""
        data = self.read()
        if data == self.last:
            return None
        self.last = data
        return data

    def read(self) -> bytes:
        """Up to 4 KiB of the file's beginning. Raises `OSError`."""
        if self._descriptor >= 0:
            return os.pread(self._descriptor, READ, 0)
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(fd, READ, 0)
        except OSError:
            os.close(fd)
            raise
        self._keep(fd)
        return data

    def read_all(self) -> bytes:
        """The whole file; the kernel gives about a page at a time. Raises `OSError`."""
        data = part = self.read()
        while len(part) > READ // 2 and self._descriptor >= 0:
            part = os.pread(self._descriptor, READ, len(data))
            data += part
        if self._descriptor < 0 and len(data) > READ // 2:
            with open(self.path, "rb") as file:
                data = file.read()
        return data

    def _keep(self, fd: int) -> None:
        if self._descriptors.free > 0:
            self._descriptors.free -= 1
            self._descriptor = fd
        else:
            os.close(fd)

    def close(self) -> None:
        """Give the descriptor back; the file may be read again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self._descriptors.free += 1


def read_once(path: str) -> bytes:
    """The whole of a file that is not read again soon. Raises `OSError`."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = part = os.read(fd, READ)
        while part:
            part = os.read(fd, READ)
            data += part
        return data
    finally:
        os.close(fd)
