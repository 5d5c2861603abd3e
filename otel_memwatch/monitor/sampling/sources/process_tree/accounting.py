"""Totals of a tree while processes start and end.

The kernel adds the usage of a process to its parent's totals when the parent waits for it. So the sum over living
processes, each with its reaped children, is complete, with two exceptions:

* Our own children, when we wait for them. The supervisor reports their exact totals.
* Children of a parent that ignores SIGCHLD. Only their last reading remains.

Members are read parents first. A child reaped in between is missed for one sample, never counted twice. If a parent is
read again, its children that have ended since their reading do not count (`Membership.totals`). The total never falls,
so the sample that misses the child repeats the earlier value.
"""

from __future__ import annotations

import os

from otel_memwatch.monitor.sampling.sources.process_tree.member import Member, Totals
from otel_memwatch.runtime.light import lru_cache, suppress
from otel_memwatch.runtime.procfs.process import Io, Stat, parse_ignores_sigchld, parse_io, parse_stat
from otel_memwatch.runtime.typed import TYPE_CHECKING, Enum, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_memwatch.model import ChildExit

AWAIT_SECONDS = 5.0
"""Seconds to wait for wait4's figures of a child of the monitor after it vanished."""


class ReapedBy(Enum):
    """The process that waited for a vanished member, and so has its totals."""

    MONITOR = "monitor"
    """The supervisor will report its totals."""
    PARENT = "parent"
    """Its parent, which has vanished too, or the monitor after that. The supervisor will report its totals then."""
    UNKNOWN = "unknown"
    """Only the last reading is known. The supervisor may still report it."""


class VanishedProcess:
    """A vanished member with totals that may still change."""

    def __init__(self, member: Member, now: float, reaped_by: ReapedBy) -> None:
        self.member = member
        self.reaped_by = reaped_by
        self.totals = Totals() if reaped_by is ReapedBy.PARENT else member.totals()
        self.deadline = now + (AWAIT_SECONDS if reaped_by is ReapedBy.MONITOR else 0.0)
        """Until then the supervisor may report its totals."""


class Account:
    """Running totals of the tree."""

    def __init__(self) -> None:
        self._departed = Totals()
        self._gone: dict[int, VanishedProcess] = {}
        self._highest = Totals()

    def vanished(self, member: Member, now: float, reaped_by: ReapedBy) -> None:
        """Add a member that vanished without leaving its totals to a living member."""
        self._gone[member.pid] = VanishedProcess(member, now, reaped_by)

    def joined(self, member: Member) -> None:
        """Subtract the usage of a member before it joined the tree, also after it ends."""
        user, system, minor, major, io = member.totals()
        without = None if io is None else Io(*(None if value is None else -value for value in io))  # type: ignore[arg-type]
        self._departed += Totals(-user, -system, -minor, -major, without)

    def reaped(self, reaped: ReapedProcess, last_io: Io | None) -> None:
        """Replace the totals of a process by those of wait4.

        Its I/O is that of the zombie, else the last reading. Without either the tree's I/O is unknown from now on.
        """
        end = reaped.exit
        gone = self._gone.pop(end.pid, None)
        io = reaped.with_last(last_io if gone is None else gone.member.io)
        self._departed += Totals(end.cpu_user, end.cpu_system, end.minor_faults, end.major_faults, io)

    def awaited(self, pid: int) -> Member | None:
        """Return the vanished member of this pid that wait4 has not reported yet."""
        gone = self._gone.get(pid)
        return gone.member if gone is not None else None

    @property
    def pending(self) -> bool:
        """Vanished members may still change the totals."""
        return bool(self._gone)

    def overdue(self, now: float) -> list[VanishedProcess]:
        """Remove and return vanished members that wait4 no longer reports. Their last readings count."""
        done = [self._gone.pop(pid) for pid, gone in list(self._gone.items()) if now > gone.deadline]
        for gone in done:
            self._departed += gone.totals
        return done

    def sum(self, members: Iterable[Member]) -> Totals:
        """Return the current totals of the tree. None ever falls.

        The I/O is `None` while access to a living process's I/O is denied.
        """
        user, system, minor, major, io = self._departed
        known = io is not None
        read_chars, write_chars, read_bytes, write_bytes = io or (0, 0, 0, 0)
        # A living process shows all four or none. Only an ended process may have bytes without characters.
        chars_known = read_chars is not None and write_chars is not None
        read_chars, write_chars = read_chars or 0, write_chars or 0
        for totals in [gone.totals for gone in self._gone.values()] + [member.totals() for member in members]:
            user += totals.cpu_user
            system += totals.cpu_system
            minor += totals.minor_faults
            major += totals.major_faults
            if totals.io is None:
                known = False
            elif known:
                read_chars += totals.io.read_chars or 0
                write_chars += totals.io.write_chars or 0
                read_bytes += totals.io.read_bytes
                write_bytes += totals.io.write_bytes
        high = self._highest
        held = high.io or Io(0, 0, 0, 0)
        summed = Io(
            max(held.read_chars or 0, read_chars) if chars_known else None,
            max(held.write_chars or 0, write_chars) if chars_known else None,
            max(held.read_bytes, read_bytes),
            max(held.write_bytes, write_bytes),
        )
        self._highest = Totals(
            max(high.cpu_user, user),
            max(high.cpu_system, system),
            max(high.minor_faults, minor),
            max(high.major_faults, major),
            summed if known else high.io,
        )
        return self._highest if known else self._highest._replace(io=None)


class ReapedProcess(NamedTuple):
    """A process that we waited for, with readings of its zombie."""

    exit: ChildExit
    stat: Stat | None
    """`None`: unreadable."""
    io: Io | None
    """`None`: unreadable."""
    ignored_sigchld: bool
    """It ignored SIGCHLD at its end, so the kernel added its children's usage to no process."""

    def with_last(self, last: Io | None) -> Io | None:
        """Return its I/O, replacing the `last` reading; `None`: unknown.

        Newer kernels deny unprivileged users the files of a zombie. wait4 reports bytes but not characters.
        """
        end = self.exit
        if self.io is not None or end.read_bytes is None or end.write_bytes is None or not counts_io():
            return self.io or last
        chars = (None, None) if last is None else last[:2]
        return Io(*chars, end.read_bytes, end.write_bytes)


@lru_cache(None)
def counts_io() -> bool:
    """Return whether this kernel counts process I/O. Otherwise a rusage has 0."""
    return os.path.exists("/proc/self/io")


def read_exit(end: ChildExit) -> ReapedProcess:
    """Parse the supervisor's reading of a zombie."""
    stat, io, ignored = None, None, False
    with suppress(ValueError, IndexError):
        stat = None if end.stat is None else parse_stat(end.stat)
    with suppress(ValueError, IndexError):
        io = None if end.io is None else parse_io(end.io)
    with suppress(ValueError):
        ignored = end.status is not None and parse_ignores_sigchld(end.status)
    return ReapedProcess(end, stat, io, ignored)
