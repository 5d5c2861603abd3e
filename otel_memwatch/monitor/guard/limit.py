"""Hard memory limit of a run, set on the cgroup made for it.

At a breach the kernel kills only one process, which it chooses. The rest of the job would continue without it, wait for it
or restart it. This module therefore kills the whole tree and reports the breach.

The kernel reports a breach before the chosen process is gone, which leaves time to read the size of each process.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time

from otel_memwatch.errors import Unavailable, UsageError
from otel_memwatch.model import ProcessEvent
from otel_memwatch.monitor.guard.run_processes import END_SECONDS, LARGEST, RunProcesses
from otel_memwatch.runtime.threads import Thread
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.runtime.wait_readable import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from otel_memwatch.model import ProcessRecord, RecordedOperation
    from otel_memwatch.monitor.run_cgroup.own_cgroup import OwnCgroup

NOT_STARTED = 126
"""Exit code if the limit could not be applied. The command is not started then."""

_ROOM = 2 << 20
_CONFIRM_SECONDS = 5.0
"""Seconds to wait until the kernel counts a kill that it reported. Version 1 reports before it chooses a process, and only once."""
_JUST_ENDED = 0.3
"""Seconds: a process that ended this shortly before the reported breach was killed by it. Samples are no denser."""


class HardLimit:
    """Memory limit of a run, enforced from `watch` to `stop`, after `prepare`.

    Attributes:
        bytes: the limit.
        breached: monotonic seconds at which the kernel reported a breach; `None`: none so far.

    """

    def __init__(
        self,
        size: int,
        on_breach: Callable[[list[dict[str, Any]]], None],
    ) -> None:
        """Set the limit up.

        Args:
            size: the limit in bytes.
            on_breach: called once in the thread that watches, with the largest processes, before they are killed.
        """
        self.bytes = size
        self._on_breach = on_breach
        self.breached: float | None = None
        self._group: OwnCgroup | None = None
        self._processes = RunProcesses(None, frozenset())
        self._watched: tuple[OwnCgroup, int, int] | None = None
        """The cgroup, the descriptor of its events, and those to poll for."""
        self._begun = threading.Event()
        self._largest: list[dict[str, Any]] = []
        self._over = threading.Event()
        self._wake, self._waker = os.pipe()

    def prepare(self) -> None:
        """Start the thread that watches the limit. Raises `Unavailable`."""
        try:
            Thread(self._watch, "otel-memwatch-limit", room=_ROOM).start()
        except Unavailable:
            self._over.set()
            raise

    def watch(self, group: OwnCgroup | None, processes: RunProcesses) -> None:
        """Begin to watch. Raises `OSError` if the kernel does not report kills.

        Args:
            group: the run's cgroup; `None` if the limit applies to each process.
            processes: the run's processes.
        """
        self._group, self._processes = group, processes
        try:
            if group is not None:
                self._watched = (group, *group.out_of_memory_events())
        finally:
            self._begun.set()

    def stop(self) -> None:
        """Stop watching, once all processes that had to be killed are dead."""
        with contextlib.suppress(OSError):
            os.write(self._waker, b".")
        self._over.wait(END_SECONDS)

    def _watch(self) -> None:
        self._begun.wait()
        if self._watched is None:
            self._over.set()
            return
        group, descriptor, events = self._watched
        poll = select.poll()
        poll.register(descriptor, events)
        poll.register(self._wake, select.POLLIN)
        try:
            # The breach may precede this thread.
            if _killed(group, {}):
                self._end_all()
            while self.breached is None:
                ready = dict(poll.poll())
                if descriptor in ready:
                    self._check_event(group, descriptor)
                if self._wake in ready:
                    if self.breached is None and _killed(group, {}):
                        self._end_all()
                    return
        finally:
            os.close(descriptor)
            self._over.set()

    def _check_event(self, group: OwnCgroup, descriptor: int) -> None:
        """Kill the run if the shortage that the kernel reports is ours, not that of an enclosing cgroup."""
        counts = group.read_events(descriptor)  # first: a service manager removes a cgroup once it is empty
        if counts and not counts.get("oom"):  # version 2 reports reclaim too
            return
        killed = bool(counts.get("oom_kill"))
        if killed:
            self._processes.freeze()
        largest = self._processes.largest()
        until = time.monotonic() + _CONFIRM_SECONDS
        while not killed and time.monotonic() < until:
            killed = _killed(group, counts)
            if not killed and readable([self._wake], 0.002):  # the command has ended
                return
        if killed:
            self._largest = largest
            self._end_all()

    def _end_all(self) -> None:
        """Report the breach and kill every process."""
        self.breached = time.monotonic()
        try:
            self._on_breach(self._largest)
        finally:
            self._processes.end()  # the processes may be frozen

    def verdict(
        self, operations: Iterable[RecordedOperation], processes: Iterable[ProcessRecord], peak: int | None
    ) -> dict[str, Any]:
        """Return the outcome of the limit, in the form that `record.format` describes.

        Args:
            operations: operations of the run.
            processes: process records of the run. The process that the kernel killed may have ended before we read it.
            peak: upper bound of the tree's peak, in bytes.

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
        """Return the largest processes at the breach, from the readings then or from the record."""
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
        return sorted(found.values(), key=lambda one: -one["bytes"])[:LARGEST]


def _killed(group: OwnCgroup, counts: Mapping[str, int]) -> bool:
    """Return whether the OOM killer killed at the cgroup's limit; if that is gone, whether the `counts` before say so."""
    try:
        return group.kills_at_limit() > 0
    except OSError:
        return bool(counts.get("oom"))


def guarded(enter: Callable[[], int | None]) -> Callable[[], int | None]:
    """Return a function that applies the limit through `enter` and ends the process if that fails."""

    def enter_or_end() -> int | None:
        try:
            return enter()
        except Exception as error:  # noqa: BLE001 - any failure leaves the command without a limit
            os.write(
                2,
                os.fsencode(
                    f"otel-memwatch: the memory limit cannot be applied, so the command was not started: {error}\n"
                ),
            )
            os._exit(NOT_STARTED)

    return enter_or_end


def limit_data(size: int) -> Callable[[], None]:
    """Return a function that sets RLIMIT_DATA to `size` bytes: private memory of the caller and of each descendant."""
    import resource

    def enter() -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = size if hard == resource.RLIM_INFINITY else min(size, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))

    return enter


def needs_group(reason: Unavailable) -> UsageError:
    """Return the error for `--limit` if no cgroup can be made for the run, with a hint."""
    return UsageError(
        f"--limit requires a cgroup of the run's own: {reason.message}",
        f"{reason.hint or 'wrap as root'}; or --limit-fallback rlimit, which limits each process",
    )
