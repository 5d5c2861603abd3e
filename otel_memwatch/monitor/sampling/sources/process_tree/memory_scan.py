"""Readings of the private memory and page faults of all members, for the bounds of memory needed.

Each sample reads twice. The order of the readings defines three moments:

    sample:  stat of all (first) ... new processes ... | t |  statm of all  stat of all (last)  born meanwhile | b |  last pid

* At `t` every process has been read exactly once. Its memory in statm, less its page faults since `first`, was resident
  at `t`, for all processes at once.
* At `b` the tree has no more private pages than its processes hold together. No pid was assigned during the last search
  for processes born meanwhile (`LateBirths`).
* All later gains are among the page faults since `first`, and the machine's huge pages since the sample began.
"""

from __future__ import annotations

from otel_memwatch.monitor.sampling.sources.process_tree.member import own_faults
from otel_memwatch.runtime.kernel import read_once
from otel_memwatch.runtime.procfs.process import parse_stat
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_memwatch.monitor.sampling.sources.process_tree.member import Member
    from otel_memwatch.runtime.procfs.process import Stat

_AT_REST = frozenset("STtZ")
"""States of a thread that is not inside a system call that releases memory: asleep, stopped, ended."""


def is_releasing(stat: Stat) -> bool:
    """Return whether a process may be in the middle of releasing memory (`most_in_release`)."""
    return stat.threads > 1 or stat.state not in _AT_REST


class StatusReading(NamedTuple):
    """A reading of a process's status, with the values just before it. Sizes are bytes."""

    data: bytes
    rss: int
    mapped: int
    """Files and shared memory."""
    faults: int
    huge: int
    """Huge pages that the machine had allocated until then."""


class AddressSpace:
    """One process in one address space, as of the previous scan. Sizes are bytes."""

    __slots__ = (
        "base",
        "copied",
        "family",
        "held",
        "least",
        "least_at",
        "left",
        "mark",
        "most",
        "seen_at",
        "shared",
        "status",
    )

    def __init__(self, family: int, base: int, scan: int) -> None:
        self.family = family
        """Key of its family: the address of its stack, which a fork keeps and an exec changes."""
        self.seen_at = self.least_at = scan
        """Number of the first scan that saw it, and of the scan with its minimum."""
        self.least: int | None = None
        """Minimum of its private memory; `None`: not read yet."""
        self.most = 0
        """Maximum of its private memory."""
        self.base = base
        """Page fault count up to which the bound of the tree includes its gains."""
        self.held: int | None = None
        """Private memory; `None`: unknown."""
        self.left: int | None = 0
        """Private memory that its process had before its exec since the previous scan; `None`: unknown."""
        self.mark = 0
        """Its high-water mark, or that of its process before its exec."""
        self.copied = 0
        """Bytes that its page faults brought beyond its growth, until its family was first seen to free memory."""
        self.shared = 0
        """Maximum of the shared memory that it maps."""
        self.status: StatusReading | None = None
        """Last reading of its high-water mark; `None`: none yet."""


class MemberReading(NamedTuple):
    """Readings of one process in one scan."""

    member: Member
    space: AddressSpace
    fresh: bool
    """It was not in this address space at the previous scan."""
    held: int | None
    """Bytes of private memory; `None`: unknown."""
    first: int
    last: int
    """Its page faults before and after the reading of memory."""
    releasing: bool
    """It may have been in the middle of releasing memory (`most_in_release`)."""

    @property
    def empty(self) -> bool:
        """Return whether it has lost its address space: it is a zombie or about to become one."""
        return self.member.zombie or (self.held == 0 and not self.member.stat.stack)

    @property
    def new_faults(self) -> int:
        """Return its page faults since the previous scan."""
        return self.last - self.space.base


class BornInScan(NamedTuple):
    """Reading of a process of the tree that was born since the discovery."""

    stat: Stat
    held: int | None
    """Bytes of private memory, in swap too; `None`: unknown."""


class LateBirths(NamedTuple):
    """Processes of the tree born since the discovery."""

    processes: list[BornInScan]
    complete_at: float | None
    """Monotonic seconds at which no other process of the tree existed; `None`: perhaps there always was one."""


class MemoryScan:
    """The address spaces of all members, and their readings.

    Args:
        proc: mount point of /proc.
        joined: the first processes existed before the run. Their earlier page faults do not count.
    """

    def __init__(self, proc: str, *, joined: bool) -> None:
        self.count = 0
        """Number of scans so far."""
        self.joining = joined
        """The memory of the tree at the start of the run is not known yet."""
        self._own_stack = parse_stat(read_once(f"{proc}/self/stat")).stack
        self._spaces: dict[int, AddressSpace] = {}
        self._departed: dict[int, AddressSpace] = {}
        """Processes that vanished by the last scan. Their final page faults may still be reported."""

    def known(self, pid: int) -> AddressSpace | None:
        """Return a process of the last scan; `None`: it was not read."""
        return self._spaces.get(pid)

    def known_or_departed(self, pid: int) -> AddressSpace | None:
        """Return a process of the last two scans; `None`: neither read it."""
        return self._spaces.get(pid) or self._departed.get(pid)

    def is_ours(self, space: AddressSpace) -> bool:
        """Return whether it is our address space. The target has it before its exec; it does not belong to the tree."""
        return space.family == self._own_stack

    def read(self, members: Mapping[int, Member]) -> tuple[list[MemberReading], bool]:
        """Read statm of all, then stat of all. Also return whether one has ended during this."""
        self.count += 1
        held: list[int | None] = []
        cut_short = False
        for member in members.values():
            size = None
            if not member.zombie:
                try:
                    size = member.read_private()
                except OSError:
                    size, cut_short = 0, True
            held.append(size)
        readings = []
        for member, size in zip(members.values(), held, strict=True):
            stat, releasing = member.stat, True
            try:
                data = member.stat_file.read()
                if data != member.stat_file.last:
                    member.steady = False
                    stat = parse_stat(data)
                releasing = is_releasing(stat)
            except OSError:
                member.steady = releasing = False
                cut_short = cut_short or not member.zombie
            space, fresh = self._space(member, size)
            readings.append(
                MemberReading(
                    member, space, fresh, size, own_faults(member.stat), own_faults(stat), releasing
                )
            )
        return readings, cut_short

    def _space(self, member: Member, held: int | None) -> tuple[AddressSpace, bool]:
        """Return the present address space of a process, and whether it is new."""
        space = self._spaces.get(member.pid)
        key = member.stat.stack or -member.pid
        if space is not None and (
            space.family == key or member.zombie or (not member.stat.stack and held == 0)
        ):
            return space, False
        base = 0
        if space is not None:
            base = space.base
        elif self.joining:
            base = own_faults(member.stat)
        new = self._spaces[member.pid] = AddressSpace(key, base, self.count)
        if space is not None:
            new.left, new.mark = space.held, space.mark
        return new, True

    def gone(self, members: Mapping[int, Member]) -> list[AddressSpace]:
        """Return the address spaces of the last scan that no member of the tree has now."""
        return [self._spaces[pid] for pid in self._spaces.keys() - members.keys()]

    def close(self, members: Mapping[int, Member]) -> None:
        """End a scan: only these processes remain."""
        gone = self._spaces.keys() - members.keys()
        self._departed = {pid: self._spaces.pop(pid) for pid in gone}
