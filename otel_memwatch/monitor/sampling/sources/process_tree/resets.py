"""Detection of resets of a process's watermark by other programs. A reset loses the earlier peak.

A write to a file of /proc/PID is an inotify event like any other. So no reset of a known process is missed, and a sample
without events costs 1 us. Two kinds of resets remain undetected:

* resets before a sample first saw the process
* resets through /proc/PID/task/TID

The monitor itself resets no process.
"""

from __future__ import annotations

import contextlib
import os
import struct

from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_memwatch.monitor.sampling.sources.process_tree.files import Descriptors

_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_IN_MODIFY = 0x2
_EVENT = struct.Struct("iIII")
"""Watch, mask, cookie, and length of the following name."""
_ROOM = 65536
_LOST = -1
"""Placeholder for a watch: the queue was full, and events are missing."""


class ForeignResets:
    """Watches on processes from `watch` to `forget`: 8 us for each. Without inotify, no reset is noticed."""

    def __init__(self, proc: str, descriptors: Descriptors) -> None:
        self._proc = proc
        self._descriptors = descriptors
        self._queue = -1
        self._call: Any = None
        self._pids: dict[int, int] = {}
        """By watch."""
        self._watches: dict[int, int] = {}
        """By pid."""
        if descriptors.free > 0:
            self._open()

    def _open(self) -> None:
        try:
            from _ctypes import call_function, dlopen, dlsym

            this_program: Any = None
            library = dlopen(this_program, 0)
            names = ("inotify_init1", "inotify_add_watch", "inotify_rm_watch")
            addresses = {name: dlsym(library, name) for name in names}
        except (ImportError, OSError):
            return
        self._call = lambda name, *arguments: call_function(addresses[name], arguments)
        self._queue = self._call("inotify_init1", _FLAGS)
        if self._queue >= 0:
            self._descriptors.free -= 1

    def watch(self, pid: int) -> None:
        """Begin to watch a process."""
        if self._queue >= 0:
            found = self._call("inotify_add_watch", self._queue, f"{self._proc}/{pid}".encode(), _IN_MODIFY)
            if found >= 0:
                self._pids[found], self._watches[pid] = pid, found

    def forget(self, pid: int) -> None:
        """Stop watching an ended process."""
        found = self._watches.pop(pid, None)
        if found is not None:
            del self._pids[found]
            self._call("inotify_rm_watch", self._queue, found)

    def read(self) -> set[int]:
        """Return processes with a watermark reset since the last call, by any program."""
        return {pid for watch in self._events() for pid in self._of(watch)}

    def _of(self, watch: int) -> Iterator[int]:
        if watch == _LOST:
            yield from self._watches
        elif watch in self._pids:
            yield self._pids[watch]

    def _events(self) -> Iterator[int]:
        while self._queue >= 0:
            try:
                data = os.read(self._queue, _ROOM)
            except OSError:  # no events
                return
            at = 0
            while at < len(data):
                watch, _, _, length = _EVENT.unpack_from(data, at)
                at += _EVENT.size + length
                if watch == _LOST or data[at - length : at].startswith(b"clear_refs\0"):
                    yield watch

    def close(self) -> None:
        """Close the queue, and with it all watches."""
        if self._queue >= 0:
            with contextlib.suppress(OSError):
                os.close(self._queue)
            self._descriptors.free += 1
            self._queue = -1
            self._pids.clear()
            self._watches.clear()
