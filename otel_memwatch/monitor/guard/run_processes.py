"""Processes of a run: which there are, which are the largest, and how to end all of them.

They are the members of the run's own cgroup and the descendants of this process, which is a subreaper: a process that was
forked twice or has another session is still among them. A process may leave the cgroup, as `systemd-run --scope` does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from otel_memwatch.runtime.procfs.statm import parse_resident
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otel_memwatch.monitor.guard.thawer import Thawer
    from otel_memwatch.monitor.run_cgroup.own_cgroup import OwnCgroup

END_SECONDS = 5.0
"""Seconds within which a run that was killed is gone, unless a process waits for a device."""
_PAUSE = 0.005
"""Seconds between two rounds of killing."""
_LISTING_SECONDS = 0.05
"""Seconds for the sizes of processes: a fork bomb must not delay the event that lists them."""
LARGEST = 5
"""Number of processes to report, largest first."""


class RunProcesses:
    """Processes of one run.

    Args:
        group: the cgroup of the run; `None`: without one.
        spare: our processes among them, and children from before our start. They are neither reported nor killed.
        thawer: helper without which no process is frozen.

    """

    def __init__(self, group: OwnCgroup | None, spare: frozenset[int], thawer: Thawer | None = None) -> None:
        self._group, self._spare, self._thawer = group, spare, thawer

    def pids(self) -> set[int]:
        """Return the living processes. Reads the stat of each process of the machine."""
        return self._members() | _descendants(os.getpid(), self._spare)

    def _members(self) -> set[int]:
        return set() if self._group is None else set(self._group.all_pids()) - self._spare

    def largest(self) -> list[dict[str, Any]]:
        """Return PID, name and resident bytes of the largest processes, of the cgroup if there is one.

        Of a great many processes it finds those that can be read within 50 ms.
        """
        sizes: list[tuple[int, int]] = []
        until = time.monotonic() + _LISTING_SECONDS
        for pid in self._members() or self.pids():
            with contextlib.suppress(OSError, ValueError):
                sizes.append((parse_resident(_content(f"/proc/{pid}/statm")), pid))
            if time.monotonic() > until:
                break
        found: list[dict[str, Any]] = []
        for size, pid in sorted(sizes, reverse=True)[:LARGEST]:
            with contextlib.suppress(OSError):
                name = os.fsdecode(_content(f"/proc/{pid}/comm").rstrip(b"\n"))
                if size:
                    found.append({"pid": pid, "command": name, "bytes": size})
        return found

    def signal(self, number: int) -> None:
        """Send a signal to every process once."""
        for pid in self.pids():
            self._send(pid, number)

    def end(self) -> None:
        """Kill every process, including those started in the meantime. Return when none is left, at most after 5 s.

        A process with a pending SIGKILL cannot fork, so each round leaves only what was forked during it.
        """
        self.freeze()
        if self._group is not None and not self._spare & set(self._group.all_pids()):
            self._group.kill()
        until = time.monotonic() + END_SECONDS
        try:
            while (pids := self._members() or self.pids()) and time.monotonic() < until:
                for pid in pids:
                    self._send(pid, signal.SIGKILL)
                time.sleep(_PAUSE)
        finally:
            self.freeze(frozen=False)

    def freeze(self, *, frozen: bool = True) -> None:
        """Stop the processes of the cgroup before their end, if the kernel can do that: a fork bomb fills the processors."""
        if self._group is not None and self._thawer is not None:
            self._thawer.freeze(self._group, frozen=frozen)

    def _send(self, pid: int, number: int) -> None:
        """Send a signal to a process that still is one of the run: a fork bomb uses up PIDs within seconds."""
        with contextlib.suppress(OSError):
            descriptor = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
            try:
                if self._is_member(pid):
                    if descriptor is None:
                        os.kill(pid, number)
                    else:
                        signal.pidfd_send_signal(descriptor, number)
            finally:
                if descriptor is not None:
                    os.close(descriptor)

    def _is_member(self, pid: int) -> bool:
        if self._group is not None and self._group.holds(pid):
            return True
        while pid > 1 and pid not in self._spare:
            (pid, _) = _parent(pid) or (0, False)
            if pid == os.getpid():
                return True
        return False


def _descendants(root: int, spare: frozenset[int]) -> set[int]:
    """Return the living descendants of a process, without `spare` and their descendants."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (read := _parent(int(name))) is not None and read[1]:
            children.setdefault(read[0], []).append(int(name))
    found: set[int] = set()
    waiting = [root]
    while waiting:
        below = [pid for pid in children.get(waiting.pop(), ()) if pid not in spare]
        found.update(below)
        waiting += below
    return found


def _content(path: str) -> bytes:
    """Return the content of a small file in /proc, by three system calls: each waits for the interpreter's lock."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)


def _parent(pid: int) -> tuple[int, bool] | None:
    """Return the parent of a process, and whether the process lives; `None`: it is gone.

    A zombie with further threads lives: only its first thread has ended.
    """
    try:
        fields = _content(f"/proc/{pid}/stat").rpartition(b")")[2].split(None, 18)
        return int(fields[1]), fields[0] not in b"ZX" or int(fields[17]) > 1
    except (OSError, ValueError, IndexError):
        return None
