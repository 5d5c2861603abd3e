"""Programs for workload.c made of the kinds of kinds.c: one after the other, beside each other, one inside another."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Kind(NamedTuple):
    """One way to use memory; the bytes are shares of the MiB that it is asked for.

    Attributes:
        unmapped: most that it keeps where no process maps it, so only a control group counts it.
        cache: most new page cache that it leaves.
        unfaulted: most that comes without a page fault: without a group, it is seen only while it is mapped.

    """

    name: str
    unmapped: float = 0
    cache: float = 0
    unfaulted: float = 0


_PLAIN = """
    plain waves calloc_untouched small_pieces dontneed lazily_freed huge huge_split huge_purged collapsed populated locked locked_all
    remapped program_break deep_stack in_threads sparse zero_page merged secret shared_block shared_writers
    system_v file_mapped file_mapped_briefly file_private_written file_shared_written file_read pipes sockets spliced_file descriptors dentries
    fork_reading fork_writing fork_kept fork_exchanged fork_snapshot fork_prefork fork_then_exec pool_churning workers_replaced bursts burst_together
    deep_tree spawned memory_in_common exec_chain exec_in_thread leader_gone daemonized adopting unawaited helper_left zombies killed
    core_dumped stopped traced written_into written_by_proc privileges_dropped not_dumpable in_namespaces elsewhere huge_pages
    own_watermark_reset
"""
KINDS = {
    kind.name: kind
    for kind in (
        *map(Kind, _PLAIN.split()),
        Kind("faulted_by_hand", unfaulted=1),
        *(
            Kind(name, unmapped=1)
            for name in (
                "memory_file",
                "memory_file_mapped",
                "memory_file_allocated",
                "memory_file_passed",
                "tmpfs_file",
                "tmpfs_blip",
                "system_v_detached",
                "pages_in_pipes",
            )
        ),
        *(
            Kind(name, cache=1)
            for name in (
                "file_written",
                "file_written_and_mapped",
                "file_linked_briefly",
                "cache_then_memory",
            )
        ),
    )
}


class Leaf(NamedTuple):
    """A kind with its size and the time for which it keeps it."""

    kind: str
    mib: int
    ms: int

    def words(self) -> Iterator[str]:
        """Arguments for workload.c."""
        yield f"z{self.kind}:{self.mib}:{self.ms}"


class InTurn(NamedTuple):
    """Parts in turn, in the process that runs this one."""

    parts: tuple[Part, ...]

    def words(self) -> Iterator[str]:
        """Arguments for workload.c."""
        for part in self.parts:
            yield from part.words()


class Parallel(NamedTuple):
    """Parts at once, each in a child; their parent goes on when all have ended."""

    parts: tuple[Part, ...]

    def words(self) -> Iterator[str]:
        """Arguments for workload.c."""
        for part in self.parts:
            yield "("
            yield from part.words()
            yield ")"
        yield "w"


class Inside(NamedTuple):
    """A part in a child, while its parent keeps `mib` MiB."""

    mib: int
    part: Part

    def words(self) -> Iterator[str]:
        """Arguments for workload.c."""
        yield f"a{self.mib}"
        yield "("
        yield from self.part.words()
        yield from (")", "w", "f")


Part = Leaf | InTurn | Parallel | Inside


def leaves(part: Part) -> Iterator[Leaf]:
    """All leaves, in their order."""
    if isinstance(part, Leaf):
        yield part
    elif isinstance(part, Inside):
        yield from leaves(part.part)
    else:
        for inner in part.parts:
            yield from leaves(inner)


def drawn(dice: random.Random, names: Sequence[str]) -> Part:
    """A random composition in which each of the kinds stands once."""
    parts: list[Part] = [
        Leaf(name, dice.choice((1, 3, 8, 16, 24, 40)), dice.choice((0, 5, 20, 60, 150))) for name in names
    ]
    while len(parts) > 1:
        count = dice.randint(2, min(4, len(parts)))
        joined, parts = tuple(parts[:count]), parts[count:]
        part: Part = dice.choice((InTurn, Parallel))(joined)
        if dice.random() < 0.3:
            part = Inside(dice.choice((2, 10, 30)), part)
        parts.insert(dice.randint(0, len(parts)), part)
    return parts[0]
