"""Memory that was certainly resident at one moment, and its best estimate, family by family.

A family is a set of processes that descend from each other by fork without an exec. Only they can share a private page,
so the sum over families counts no page twice. Within a family the rules are those of `truth.faults`:

* One member counts in full (`certainly_there`).
* Of the others only the pages count that no ancestor has (`own_pages`, `family_there`).
"""

from __future__ import annotations

from otel_memwatch.runtime.kernel import KERNEL_STACK, PAGE_SIZE
from otel_memwatch.runtime.procfs import address_spaces
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.truth.faults import family_there, gained, own_pages
from otel_memwatch.truth.kernel_memory import KernelReading, kernel_there
from otel_memwatch.truth.tree_estimates import (
    brought_private,
    frees_memory,
    likely_grown,
    likely_kept,
    likely_of_family,
    likely_of_member,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_memwatch.monitor.sampling.sources.process_tree.memory_scan import (
        AddressSpace,
        MemberReading,
        MemoryScan,
    )

MOST_APART = 32
"""Members per family with compared address spaces: each pair once, at 5 us."""
WORTH_COMPARING = 1 << 20
"""Minimum private memory, in bytes, to compare a process."""


class _OwnedPages(NamedTuple):
    """Certain memory of a family's member at one moment, in bytes."""

    pid: int
    space: AddressSpace
    whole: int
    """All of its pages."""
    own: int
    """Pages that certainly belong to it alone."""
    gained: int
    """Upper bound of the pages from its page faults."""
    faults: int
    """Its page faults."""


class _Family:
    """Processes that descend from each other by fork without an exec. Sizes are bytes."""

    __slots__ = (
        "all_known",
        "alone",
        "apart",
        "births",
        "compared",
        "gives_back",
        "held",
        "largest",
        "members",
    )

    def __init__(self) -> None:
        self.apart: list[int] = []
        """Members with pairwise different address spaces."""
        self.compared: set[int] = set()
        """Members already checked for a shared address space."""
        self.gives_back = False
        """A member was seen to release memory while the family had several."""
        self.alone = True
        """It had one member at the last scan."""
        self.births: dict[int, tuple[int, int]] = {}
        """Page faults and private memory of the oldest member when each other member was born."""
        self.begin()

    def begin(self) -> None:
        """Begin a scan."""
        self.members: list[_OwnedPages] = []
        """Members with known memory."""
        self.held = 0
        """Sum of their private memory, an upper bound."""
        self.all_known = True
        """The memory of every member is known."""
        self.largest = 0
        """Largest certain memory of one member."""

    def low(self, *, trusted: bool) -> int:
        """Return the bytes that the family certainly had. `trusted`: memory beyond the minimum is unshared."""
        most = self.largest
        if not trusted:
            return most
        members = [member for member in self.members if member.pid in self.apart]
        if not members:
            return most
        for whole in (max(members, key=lambda m: m.whole), min(members, key=lambda m: m.space.seen_at)):
            own = sum(m.own for m in members if m is not whole and m.space.least_at >= whole.space.seen_at)
            most = max(most, family_there(whole.whole, own))
        return most

    def estimate(self) -> int:
        """Return the best estimate of its bytes. The oldest member is best known; the others were forked."""
        if len(self.members) < 2 or not self.all_known:
            return self.held
        oldest = min(self.members, key=lambda m: m.space.seen_at)
        forked = [m for m in self.members if m is not oldest]
        others = (
            likely_of_member(
                m.own,
                m.whole,
                m.gained,
                m.space.least or 0,
                oldest.whole,
                family_frees=self.gives_back,
                copied=m.space.copied,
            )
            for m in forked
        )
        kept = 0
        eldest = min(forked, key=lambda m: m.space.seen_at)
        if not self.gives_back and eldest.pid in self.births:
            faults, held = self.births[eldest.pid]
            kept = likely_kept(
                gained(oldest.faults - faults, page=PAGE_SIZE),
                oldest.whole - held,
                max(m.space.least or 0 for m in forked),
            )
        return likely_of_family(self.held, oldest.whole + kept, others)

    def note_birth(self, pid: int) -> None:
        """Note the oldest member's page faults and memory just before a new member was born. That was after the last scan."""
        if self.members and pid not in self.births:
            oldest = self.members[0]
            held = oldest.space.held
            self.births[pid] = (oldest.faults, oldest.whole) if held is None else (oldest.space.base, held)

    def compare(self) -> None:
        """Find new members with an unshared address space. The result counts from the next scan on.

        Only then the readings certainly belong to this address space: a process between vfork and exec leaves its parent's.
        """
        present = {member.pid for member in self.members}
        self.compared &= present
        if len(self.compared) == len(present) or len(present) == 1:
            return
        self.apart = [pid for pid in self.apart if pid in present]
        for member in self.members:
            worth = member.pid not in self.compared and member.whole >= WORTH_COMPARING
            if worth and len(self.apart) < MOST_APART:
                self.compared.add(member.pid)
                if all(address_spaces.are_apart(member.pid, other) for other in self.apart):
                    self.apart.append(member.pid)


class Families:
    """All families of the tree."""

    def __init__(self) -> None:
        self._families: dict[int, _Family] = {}

    def begin(self) -> None:
        """Begin a scan. Families without members are dropped."""
        self._families = {key: family for key, family in self._families.items() if family.members}
        for family in self._families.values():
            present = {member.pid for member in family.members}
            family.births = {pid: birth for pid, birth in family.births.items() if pid in present}
            family.alone = len(present) < 2
            family.begin()

    def _of(self, space: AddressSpace) -> _Family:
        family = self._families.get(space.family)
        if family is None:
            family = self._families[space.family] = _Family()
        return family

    def add_unknown(self, reading: MemberReading) -> None:
        """Add a member with memory that no sample can read. Its page faults are the best estimate."""
        family, brought = self._of(reading.space), gained(reading.last, page=PAGE_SIZE)
        family.all_known = False
        family.held += brought if reading.held is None else min(reading.held, brought)

    def add(self, reading: MemberReading, there: int, high: int, error: int) -> None:
        """Add a member. Its address space has the minimum and maximum until now.

        Args:
            reading: readings of the process.
            there: bytes of private memory that it certainly had.
            high: bytes that it has at most, in swap too.
            error: uncertainty of the reading, in bytes.
        """
        family, space = self._of(reading.space), reading.space
        least = space.least or 0
        family.held += high
        family.largest = max(family.largest, there)
        if family.alone:
            space.most = reading.held or 0
        family.gives_back = family.gives_back or frees_memory(
            _most_so_far(reading, alone=family.alone), reading.held or 0
        )
        own = own_pages(there, least, error)
        brought = brought_private(
            reading.held or 0, gained(reading.last, page=PAGE_SIZE), reading.member.shmem
        )
        if not family.gives_back:
            space.copied = max(0, brought - own)
        family.note_birth(reading.member.pid)
        family.members.append(_OwnedPages(reading.member.pid, space, there, own, brought, reading.last))

    def low(self, *, trusted: bool) -> int:
        """Return the bytes of private memory certainly resident. `trusted`: memory beyond the minimum is unshared."""
        low = sum(family.low(trusted=trusted) for family in self._families.values())
        for family in self._families.values():
            family.compare()
        return low

    def kernel_memory(self, scan: MemoryScan, readings: list[MemberReading]) -> tuple[int, int]:
        """Return bytes of page tables and kernel stacks: the sum over all readings, and those certainly there."""
        total = 0
        families: dict[int, list[KernelReading]] = {}
        for reading in readings:
            member, key = reading.member, reading.space.family
            if reading.empty or scan.is_ours(reading.space):
                continue
            stacks = max(member.stacks, member.stat.threads * KERNEL_STACK)
            total += member.page_tables + stacks
            known = member.status_read or (member.steady and not member.status_outdated)
            if known and reading.held is not None and key != -member.pid:
                families.setdefault(key, []).append(
                    KernelReading(member.page_tables, member.stacks, member.steady, self.is_apart(reading))
                )
        return total, kernel_there(families.values())

    def is_apart(self, reading: MemberReading) -> bool:
        """Return whether no other process of its family certainly has its address space."""
        family = self._families.get(reading.space.family)
        return family is not None and (len(family.members) == 1 or reading.member.pid in family.apart)

    def estimate(self) -> int:
        """Return the best estimate of the private memory, in bytes."""
        return sum(family.estimate() for family in self._families.values())


def _most_so_far(reading: MemberReading, *, alone: bool) -> int:
    """Return the most private memory that a process was seen to have, in bytes.

    Its high-water mark shows what came and went between two scans. While the process was `alone`, nothing was copied.
    """
    member, space, mark = reading.member, reading.space, reading.member.watermark.last or 0
    if alone or reading.fresh or mark <= space.mark:
        return space.most
    return max(space.most, mark - (member.file or 0) - member.shmem)


def gained_before_end(
    readings: Iterable[MemberReading], gone: Sequence[AddressSpace], faults: int | None, huge: int
) -> int:
    """Return the best estimate of the bytes that processes gained between the last scan and their end.

    Args:
        readings: of this scan. A process without an address space has ended.
        gone: of the last scan; their processes have left the tree.
        faults: page faults of these since then; `None`: others may be among them.
        huge: bytes of huge pages that the tree probably got since then.
    """
    ended = [(reading.space, reading.new_faults) for reading in readings if reading.empty]
    if faults is not None:
        ended += [(space, 0) for space in gone]
    ended = [(space, new) for space, new in ended if space.held]
    new = sum(new for _, new in ended) + (faults or 0 if any(space.held for space in gone) else 0)
    return likely_grown(
        sum((space.held or 0) + space.shared for space, _ in ended),
        gained(sum(space.base for space, _ in ended), page=PAGE_SIZE),
        gained(new, huge if new else 0, page=PAGE_SIZE),
    )
