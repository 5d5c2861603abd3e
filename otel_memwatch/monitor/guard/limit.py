"""A hard limit on the memory of a run: its own control group has it, and nothing of the run outlives a breach.

The kernel kills one process, the one that it thinks best. What is left of a job then goes on without it, waits for it, or
starts it again: here all of the tree is ended at once, and what happened is told. A process that is about to be killed is
still there when the kernel tells of it, so that who had how much can be read.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time

from otel_memwatch.errors import Unavailable, UsageError
from otel_memwatch.model import ProcessEvent
from otel_memwatch.runtime.procfs.statm import parse_resident
from otel_memwatch.runtime.threads import Thread
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from otel_memwatch.model import ProcessRecord, RecordedOperation
    from otel_memwatch.monitor.run_cgroup.own_cgroup import OwnCgroup

NOT_STARTED = 126
"""Exit code where the command could not be put under its limit, and so was not started."""

_ROOM = 2 << 20
_CONFIRM_SECONDS = 0.2
"""Time within which the kernel counts a kill that it has told of: version 1 tells before it looks for whom to kill."""
_END_SECONDS = 5.0
_JUST_ENDED = 0.3
"""Seconds before the breach was told within which a process that ended was ended by it: ticks look no more often."""
_LARGEST = 5
"""Processes that are told of, by their size."""


class HardLimit:
    """Watches over the limit of a run's own group, from `watch` to `stop`.

    Attributes:
        bytes: that the group may have.
        breached: monotonic seconds at which the kernel said that it wanted more; `None`: not so far.

    """

    def __init__(
        self, size: int, group: OwnCgroup | None = None, spare: frozenset[int] = frozenset()
    ) -> None:
        """`group`: `None` where each process has the limit. `spare`: processes of ours in the group, which are not ended."""
        self.bytes = size
        self._spare = spare
        self.breached: float | None = None
        self._group = group
        self._largest: list[dict[str, Any]] = []
        self._over = threading.Event()
        self._wake, self._waker = os.pipe()

    def watch(self) -> None:
        """Begins to watch, in a thread of its own. Raises `OSError` where the kernel does not tell, `Unavailable` without room."""
        if self._group is None:
            self._over.set()
            return
        told = self._group.tells_of_kills()
        try:
            Thread(self._watch, "otel-memwatch-limit", (self._group, *told), room=_ROOM).start()
        except Unavailable:
            os.close(told[0])
            self._over.set()
            raise

    def stop(self) -> None:
        """Watches no longer; whoever was to be ended has been."""
        with contextlib.suppress(OSError):
            os.write(self._waker, b".")
        self._over.wait(_END_SECONDS)

    def _watch(self, group: OwnCgroup, descriptor: int, events: int) -> None:
        poll = select.poll()
        poll.register(descriptor, events)
        poll.register(self._wake, select.POLLIN)
        try:
            # It may have wanted too much before anybody watched.
            if group.oom_kills():
                self._end_all(group)
            while self.breached is None:
                ready = dict(poll.poll())
                if descriptor in ready:
                    self._look(group, descriptor)
                elif self._wake in ready:
                    if group.oom_kills():
                        self._end_all(group)
                    return
        finally:
            os.close(descriptor)
            self._over.set()

    def _look(self, group: OwnCgroup, descriptor: int) -> None:
        """The kernel says that the group, or one around it, had no more: whether ours was meant, and then the end of all."""
        largest = self._read_largest(group)
        # Version 2 tells again only once its file was read from the beginning; version 1 has no file to go back in.
        with contextlib.suppress(OSError):
            os.lseek(descriptor, 0, os.SEEK_SET)
        with contextlib.suppress(OSError):
            os.read(descriptor, 65536)
        until = time.monotonic() + _CONFIRM_SECONDS
        while not group.oom_kills():
            if time.monotonic() > until:
                return
            time.sleep(0.002)
        self._largest = largest
        self._end_all(group)

    def _end_all(self, group: OwnCgroup) -> None:
        """Ends every process of the group, those that they have started in the meantime too."""
        self.breached = time.monotonic()
        until = self.breached + _END_SECONDS
        while (pids := set(group.all_pids()) - self._spare) and time.monotonic() < until:
            for pid in pids:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.005)

    def _read_largest(self, group: OwnCgroup) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for pid in set(group.all_pids()) - self._spare:
            with contextlib.suppress(OSError, ValueError):
                with open(f"/proc/{pid}/statm", "rb") as file:
                    size = parse_resident(file.read())
                with open(f"/proc/{pid}/comm", "rb") as file:
                    name = os.fsdecode(file.read().rstrip(b"\n"))
                if size:
                    found.append({"pid": pid, "command": name, "bytes": size})
        return sorted(found, key=lambda one: -one["bytes"])[:_LARGEST]

    def verdict(
        self, operations: Iterable[RecordedOperation], processes: Iterable[ProcessRecord], peak: int | None
    ) -> dict[str, Any]:
        """What came of it, as `record.format` describes it.

        Args:
            operations: of the run.
            processes: its records. The one that the kernel chose may have been gone before we could look.
            peak: bytes that the tree needed at most.

        """
        largest = self._largest_of(processes) if self.breached is not None else []
        open_ = [one for one in operations if one.status == "open"] if self.breached is not None else []
        of_largest = [one for one in open_ if largest and one.pid == largest[0]["pid"]]
        innermost = max(of_largest or open_, key=lambda one: one.start, default=None)
        return {
            "bytes": self.bytes,
            "by": "process" if self._group is None else "control group",
            "breached": None if self._group is None else self.breached is not None,
            "peak": peak,
            "operation": None if innermost is None else innermost.name,
            "largest": largest,
        }

    def _largest_of(self, processes: Iterable[ProcessRecord]) -> list[dict[str, Any]]:
        """The largest processes that lived when it was breached: as they were read then, or as they are recorded."""
        assert self.breached is not None
        found = {one["pid"]: one for one in self._largest}
        ended = self.breached - _JUST_ENDED
        names: dict[int, str | None] = {}
        for record in processes:
            names[record.pid] = record.command or names.get(record.pid)
            size = max(record.peak or 0, record.rss or 0)
            gone = record.event is ProcessEvent.EXIT and record.time < ended
            if gone:
                found.pop(record.pid, None)
            elif size > found.get(record.pid, {"bytes": 0})["bytes"]:
                found[record.pid] = {"pid": record.pid, "command": names[record.pid], "bytes": size}
        return sorted(found.values(), key=lambda one: -one["bytes"])[:_LARGEST]


def guarded(enter: Callable[[], None]) -> Callable[[], None]:
    """`enter`, which puts the command under its limit before it is executed; where it cannot, nothing is executed."""

    def enter_or_end() -> None:
        try:
            enter()
        except Exception as error:  # noqa: BLE001 - whatever it is, there is no limit
            os.write(
                2,
                os.fsencode(f"otel-memwatch: not started, since it cannot be put under its limit: {error}\n"),
            )
            os._exit(NOT_STARTED)

    return enter_or_end


def limit_data(size: int) -> Callable[[], None]:
    """What limits the private memory of the calling process, and of each that it starts, to `size` bytes (RLIMIT_DATA)."""
    import resource

    def enter() -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = size if hard == resource.RLIM_INFINITY else min(size, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))

    return enter


def needs_group(reason: Unavailable) -> UsageError:
    """Why a run cannot have its limit where it can have no group, and what would help."""
    return UsageError(
        f"--limit needs a control group of the run's own: {reason.message}",
        f"{reason.hint or 'wrap as root'}; or --limit-fallback rlimit, which limits each process",
    )
