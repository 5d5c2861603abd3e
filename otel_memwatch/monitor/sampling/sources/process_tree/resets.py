"""Resets of a process's watermark by other programs. A reset loses the earlier peak.

A write to a file of /proc/PID is an inotify event like any other. So no reset of a known process is missed, and a sample
without events costs 1 us. Two kinds of resets remain undetected:

* resets before a sample first saw the process
* resets through /proc/PID/task/TID

A fallen watermark shows these, if it was read before and after. The monitor itself resets no process.

A process that marks operations resets its watermark, and finds resets by other programs at its boundaries. Once it has
announced its resets, its watch ends.
"""

from __future__ import annotations

import os
import select
import sys

from otel_memwatch.runtime.kernel import rss_error
from otel_memwatch.runtime.light import suppress
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from otel_memwatch.model import ChildExit
    from otel_memwatch.monitor.sampling.sources import Context
    from otel_memwatch.monitor.sampling.sources.process_tree.member import Member
    from otel_memwatch.monitor.sampling.sources.process_tree.proc_files import Descriptors
    from otel_memwatch.monitor.sampling.sources.process_tree.records import Records

_MARKS_BEGIN = 1.0
"""Maximum seconds, on a busy machine, between a process's first reset and the file in which it marks operations."""

_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_IN_MODIFY = 0x2
_EVENT_BYTES = 16
"""Watch, mask, cookie, and length of the following name."""
_ROOM = 65536
_LOST = -1
"""Placeholder for a watch: the queue was full, and events are missing."""
_NONE: frozenset[int] = frozenset()


class ResetEvents:
    """Watches on processes from `watch` to `forget`: 8 us for each. Without inotify, no reset is noticed."""

    def __init__(self, proc: str, descriptors: Descriptors) -> None:
        self._proc = proc
        self._descriptors = descriptors
        self._queue = -1
        self._poll = select.poll()
        """Tests the queue for events: the exception for an empty queue costs 30 us with cold caches."""
        self._call: Any = None
        self._pids: dict[int, int] = {}
        """By watch."""
        self._watches: dict[int, list[int]] = {}
        """By pid."""
        self._opened = False

    def _open(self) -> None:
        """Open the queue for the first process: a command that has ended needs none."""
        self._opened = True
        if self._descriptors.free <= 0:
            return
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
            self._poll.register(self._queue, select.POLLIN)

    def watch(self, pid: int, *, by_thread: bool) -> None:
        """Begin to watch a process; `by_thread`: also the file of its first thread, which resets the same watermark."""
        if not self._opened:
            self._open()
        if self._queue < 0:
            return
        paths = [f"{self._proc}/{pid}", f"{self._proc}/{pid}/task/{pid}"][: 1 + by_thread]
        watches = [self._call("inotify_add_watch", self._queue, path.encode(), _IN_MODIFY) for path in paths]
        found = [watch for watch in watches if watch >= 0]
        self._watches[pid] = found
        self._pids.update(dict.fromkeys(found, pid))

    def sees_all(self, pid: int) -> bool:
        """Return whether a reset by either file is noticed."""
        return len(self._watches.get(pid, ())) > 1

    def end(self, pid: int) -> None:
        """End the watch on a process that resets its watermark itself: each event costs that process 1 us."""
        for found in self._watches.get(pid, ()):
            if self._pids.pop(found, None) is not None:
                self._call("inotify_rm_watch", self._queue, found)

    def forget(self, pid: int) -> None:
        """Stop watching an ended process."""
        self.end(pid)
        self._watches.pop(pid, None)

    def read(self) -> Collection[int]:
        """Return processes with a watermark reset since the last call, by any program."""
        if self._queue < 0 or not self._poll.poll(0):
            return _NONE
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
                watch, length = (
                    int.from_bytes(data[at + field : at + field + 4], sys.byteorder, signed=True)
                    for field in (0, 12)
                )
                at += _EVENT_BYTES + length
                if watch == _LOST or data[at - length : at].startswith(b"clear_refs\0"):
                    yield watch

    def close(self) -> None:
        """Close the queue, and with it all watches."""
        if self._queue >= 0:
            with suppress(OSError):
                os.close(self._queue)
            self._descriptors.free += 1
            self._queue = -1
            self._pids.clear()
            self._watches.clear()


class ForeignResets:
    """Decision whether the process itself or another program has reset a member's watermark.

    A process that begins to mark operations resets its watermark before it announces this. So the decision waits
    `_MARKS_BEGIN` seconds, unless the process or the run ends.
    """

    def __init__(self, proc: str, descriptors: Descriptors, records: Records, context: Context) -> None:
        self._events = ResetEvents(proc, descriptors)
        self._records = records
        self._marks_operations = context.marks_operations
        self._resets_itself = context.resets_itself
        self._since: dict[int, float] = {}
        """Members with a noticed reset, with its time."""

    def watch(self, pid: int, *, by_thread: bool) -> None:
        """Begin to watch a member."""
        self._events.watch(pid, by_thread=by_thread)

    def sees_all(self, pid: int) -> bool:
        """Return whether a reset of a member that was watched `by_thread` is noticed."""
        return self._events.sees_all(pid)

    def forget(self, pid: int) -> None:
        """Stop watching a process that is no longer a member."""
        self._events.forget(pid)
        self._since.pop(pid, None)

    def find(self, members: Mapping[int, Member], now: float, *, over: bool = False) -> None:
        """Record members with a reset or fallen watermark. `over`: the run ends."""
        for pid in self._events.read():
            if self._resets_itself(pid):
                self._events.end(pid)
            elif pid in members and pid not in self._since:
                self._since[pid] = now
        for pid, member in members.items():
            if member.watermark.has_fallen and pid not in self._since:
                self._since[pid] = now
        if not self._since:
            return
        for pid, since in list(self._since.items()):
            if over or now - since >= _MARKS_BEGIN:
                self.confirm(members[pid], now)

    def confirm(self, member: Member, now: float) -> None:
        """Decide about a noticed reset of a member, if there was one. Record one by another program."""
        if member.watermark.reset_by_others or member.pid not in self._since:
            return
        if self._marks_operations(member.pid):
            del self._since[member.pid]
            member.watermark.has_fallen = False
            return
        self._record(member, now)

    def compare_at_end(self, member: Member, end: ChildExit) -> None:
        """Record a reset if wait4 reports less than the watermark of a member showed before."""
        watermark = member.watermark
        if watermark.largest is None or end.max_rss <= 0 or self._marks_operations(member.pid):
            return
        lost = watermark.largest - end.max_rss
        if not watermark.reset_by_others and lost > rss_error(member.stat.threads):
            self._record(member, end.time)

    def _record(self, member: Member, now: float) -> None:
        member.watermark.reset_by_others = True
        self._records.reset_by_others(member, now)

    def close(self) -> None:
        """Stop watching."""
        self._events.close()
