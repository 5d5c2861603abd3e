"""Kinds of the tree's memory at new peaks, within a budget of time and beside the sampler.

A reading is worth its cost if memory has doubled since the last one, or if it has grown and then stayed level. The first
readings may use CPU time ahead of the budget, because many programs reach their peak soon.
"""

from __future__ import annotations

import time
from itertools import chain

from otel_memwatch.record.made_of import MOST_PARTS, MOST_PROCESSES, MadeOf, MemoryPart, ProcessParts
from otel_memwatch.runtime.kernel import KERNEL_STACK, read_once
from otel_memwatch.runtime.light import suppress
from otel_memwatch.runtime.procfs.process import parse_page_tables, parse_threads
from otel_memwatch.runtime.procfs.statm import parse_resident
from otel_memwatch.runtime.procfs.walks import PER_BYTE, outlives_walk, read_walking
from otel_memwatch.runtime.threads import Thread
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_memwatch.runtime.procfs.mappings import Part

SHARE, ADVANCE = 0.0005, 0.03
"""Share of one core that reading may take, and CPU seconds that may be used ahead of it."""
STEPS = ((0.8, 1.1), (0.5, 1.5), (0.0, 2.0))
"""Growth since the last reading that is worth another one, as a factor, from these shares of the advance left."""
LEAST = 16 << 20
"""Growth in bytes that is worth another reading, beside the factor."""
DOUBLED, GROWING = 2.0, 64 << 20
"""Growth that is worth a reading while memory still grows: a factor, and bytes of the tree."""
LEVEL, REST = 1.02, 0.2
"""Memory is level if it has grown by less than this factor for so many seconds."""
PER_PROCESS = 2e-3
"""Expected CPU seconds of a reading beside the walk, before one has been measured."""
PAUSE = 0.3
"""Seconds between two attempts."""
EARNED = 2 * PER_BYTE
"""CPU seconds added to the budget by each byte of a new peak: the program takes ten times as long to touch it."""
_PROCESSES = 64
"""Processes that are compared by size for the largest ones."""
_FILES = 12
"""Named files and shared memory in the sums of the tree."""


class Composition:
    """The latest reading at a peak.

    Args:
        write: keeps a reading, and raises nothing.
        main: PID of the process that was started or attached to.
        proc: mount point of /proc.

    """

    def __init__(self, write: Callable[[MadeOf], None], main: int, proc: str = "/proc") -> None:
        self._write, self._main, self._proc = write, main, proc
        self._read = 0
        """Level of the last reading."""
        self._next = 0.0
        """Monotonic seconds before which nothing is read: finding the largest processes has a cost too."""
        self._highest, self._since = 0, 0.0
        """Highest level, and monotonic time of the last growth by `LEVEL`."""
        self._begun: float | None = None
        self._spent, self._per_process = 0.0, PER_PROCESS
        """CPU seconds used, and those of a process whatever its size: they depend on the number of mappings."""
        self._thread: Thread | None = None

    def note(self, level: int, pids: Callable[[], Sequence[int]], now: float) -> None:
        """Begin a reading if one is due. Takes 1 us otherwise.

        Args:
            level: resident memory of the tree in bytes.
            pids: returns its processes.
            now: monotonic seconds.

        """
        if self._begun is None:
            self._begun = now
        if level > self._highest * LEVEL:
            self._highest, self._since = level, now
        if level < self._read + LEAST or level * LEVEL < self._highest or now < self._next:
            return
        left = ADVANCE + SHARE * (now - self._begun) + EARNED * self._highest - self._spent
        step = next((factor for share, factor in STEPS if left >= share * ADVANCE), float("inf"))
        settled = now - self._since >= REST and level >= step * self._read
        doubled = level >= max(DOUBLED * self._read, GROWING) and left >= ADVANCE / 2
        if not (settled or doubled) or (self._thread is not None and self._thread.is_alive()):
            return
        self._next = now + PAUSE
        processes = self._largest(pids())
        # The largest processes that the budget has time for, if the first is old enough.
        chosen, expected = [], 0.0
        for resident, pid in processes:
            expected += self._per_process + resident * PER_BYTE
            if expected > left:
                break
            if pid == self._main or outlives_walk(self._proc, pid, resident):
                chosen.append((resident, pid))
            elif not chosen:
                break
        if chosen:
            self._read = level
            arguments = (level, chosen, len(processes), now)
            self._thread = Thread(self._round, "otel-memwatch-kinds", arguments)
            self._thread.start()

    def due(self, level: int, now: float) -> float:
        """Return the monotonic seconds from which on `note` has to be called again, if the level stays the same."""
        wanted = level >= self._read + LEAST and level * LEVEL >= self._highest
        return max(self._next, now + PAUSE) if wanted else float("inf")

    def close(self) -> None:
        """Wait for a reading in progress."""
        if self._thread is not None:
            self._thread.join()

    def _largest(self, pids: Sequence[int]) -> list[tuple[int, int]]:
        """Return resident bytes and PID of the processes, the largest first."""
        sizes = []
        for pid in pids[:_PROCESSES]:
            with suppress(OSError, ValueError):
                sizes.append((parse_resident(read_once(f"{self._proc}/{pid}/statm")), pid))
        return sorted((one for one in sizes if one[0]), reverse=True)

    def _round(self, level: int, chosen: Sequence[tuple[int, int]], number: int, now: float) -> None:
        begun = time.thread_time()
        found = {}
        for _, pid in chosen:
            with suppress(OSError, ValueError):
                found[pid] = self._parts(pid)
        if found:
            processes = [
                ProcessParts(pid, _bounded([MemoryPart(*one[:3]) for one in parts]))
                for pid, parts in found.items()
            ]
            sums: dict[tuple[str, str], int] = {}
            for part in chain.from_iterable(found.values()):
                sums[part[:2]] = sums.get(part[:2], 0) + part.share
            ordered = sorted(sums.items(), key=lambda item: -item[1])
            tree = _bounded([MemoryPart(*key, size) for key, size in ordered if size > 0])
            made_of = MadeOf(now, level, tree, tuple(processes[:MOST_PROCESSES]), number - len(found))
            self._write(made_of)
        seconds = time.thread_time() - begun
        self._spent += seconds
        for_sizes = PER_BYTE * sum(resident for resident, _ in chosen)
        self._per_process = max(PER_PROCESS / 4, (seconds - for_sizes) / len(chosen))

    def _parts(self, pid: int) -> list[Part]:
        """Return the parts of a process, with its memory in the kernel. Raises `OSError`, `ValueError`."""
        # Not before it is needed: most commands are small or short.
        from otel_memwatch.runtime.procfs.mappings import Part, parts_of

        parts = parts_of(read_walking(self._proc, pid, "smaps"))
        status = read_once(f"{self._proc}/{pid}/status")
        tables, stacks = parse_page_tables(status), parse_threads(status) * KERNEL_STACK
        if not parts:
            raise ValueError("it has ended")
        return [*parts, Part("page tables", "", tables, tables), Part("kernel stacks", "", stacks, stacks)]


def _bounded(parts: Sequence[MemoryPart]) -> tuple[MemoryPart, ...]:
    """Return all kinds, and only the largest files and shared memory by name; the others are one entry for each kind."""
    kept, files, rest = [], 0, dict[str, int]()
    for one in parts:
        files += bool(one.name)
        if not one.name or files <= _FILES:
            kept.append(one)
        else:
            rest[one.kind] = rest.get(one.kind, 0) + one.bytes
    others = [MemoryPart(kind, "", size) for kind, size in rest.items()]
    return tuple([*kept, *others][:MOST_PARTS])
