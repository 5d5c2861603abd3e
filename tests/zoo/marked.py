"""A composition with operations: a Python program that runs its parts as children and knows each operation's memory.

`python -m tests.zoo.marked ENTER ZOO STEPS`: ENTER is the word G of workload.c, ZOO the compiled program, STEPS a JSON
list of [action, argument]:

* "open" NAME and "close": operations, the newest closes first.
* "hold" MIB and "free": memory of this process, the newest goes first.
* "run" WORDS: the compiled program with these words, to its end; "start" WORDS: beside what follows; "wait": for all.

The referee is its cgroup. The program reads and resets the watermark around both ends of each operation, so each
operation has a separate truth: between the largest watermark inside and the largest one with both ends. Version 2 has no
watermark of the kernel's memory, which may be part of the cgroup's. There, only memory that a boundary found mapped is certain. It prints
the line of workload.c's word g, then a line "operations" with a JSON object.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.zoo.compositions import InTurn, Part

MEMORY = Path("/sys/fs/cgroup/memory")
VERSION_2 = not MEMORY.exists()
PEAK = "memory.peak" if VERSION_2 else "memory.max_usage_in_bytes"
MAPPED = ("anon", "shmem") if VERSION_2 else ("total_rss", "total_shmem")
CACHE = ("file", "", "shmem") if VERSION_2 else ("total_cache", "", "total_shmem")
FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x8000  # MAP_POPULATE: touched at once
Step = tuple[str, "int | str | list[str] | None"]


class Known(NamedTuple):
    """Truth about one operation, in bytes."""

    least: int
    """Largest watermark of the referee inside the operation."""
    most: int
    """The same with both ends of the operation."""
    own: int
    """Largest resident size of the process that marks, to what Python itself takes or gives back."""
    parent: str | None
    kernel: int = 0
    """Largest watermark of the referee's kernel memory with both ends of the operation."""


def steps_of(part: Part, dice: random.Random) -> list[Step]:
    """Draw operations for a composition: one around all, one for each part of a sequence, some of them nested or empty."""
    pieces = part.parts if isinstance(part, InTurn) else (part,)
    steps: list[Step] = [("open", "all")]
    for number, piece in enumerate(pieces):
        words = [*piece.words(), "w"]
        held = dice.choice((0, 0, 3, 20))
        if held:
            steps.append(("hold", held))
        steps.append(("open", f"part {number}"))
        if dice.random() < 0.3:
            steps += [
                ("start", words),
                ("open", f"beside {number}"),
                ("hold", 12),
                ("free", None),
                ("close", None),
            ]
            steps.append(("wait", None))
        elif dice.random() < 0.4:
            steps += [("open", f"inside {number}"), ("run", words), ("close", None)]
        else:
            steps.append(("run", words))
        steps.append(("close", None))
        if held:
            steps.append(("free", None))
    return [*steps, ("open", "empty"), ("close", None), ("close", None)]


class _Referee:
    """The cgroup that this process is in."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._peak = os.open(path / PEAK, os.O_RDWR)  # on version 2, a reset is only for this descriptor
        self.top = self.kernel = self.needed = self.mapped = 0

    def figure(self, name: str) -> int:
        return int((self._path / name).read_text())

    def of_stat(self, *names: str) -> int:
        lines = (line.split() for line in (self._path / "memory.stat").read_text().splitlines())
        return sum(int(value) * (1 if name in names[:2] else -1) for name, value in lines if name in names)

    def take(self) -> tuple[int, int, int]:
        """Return the largest usage since the last call, that of the kernel alone, and the mapped memory. Begin anew."""
        mapped = self.of_stat(*MAPPED)
        self.mapped = max(self.mapped, mapped)
        top, kernel = int(os.pread(self._peak, 32, 0)), 0
        os.pwrite(self._peak, b"0", 0)
        if not VERSION_2:
            kernel = self.figure("memory.kmem.max_usage_in_bytes")
            self.needed = max(self.needed, mapped + self.figure("memory.kmem.usage_in_bytes"))
            (self._path / "memory.kmem.max_usage_in_bytes").write_text("0")
        self.top, self.kernel = max(self.top, top), max(self.kernel, kernel)
        return top, kernel, mapped

    def others(self) -> int:
        """Return the number of other processes, without the monitor's in a scope."""
        pids = set((self._path / "cgroup.procs").read_text().split()) - {str(os.getpid())}
        count = 0
        for pid in pids:
            try:
                count += Path(f"/proc/{pid}/comm").read_text() != "signal-witness\n"
            except OSError:
                continue
        return count

    def line(self) -> str:
        cache = self.of_stat(*CACHE)
        return f"referee {self.top} {self.kernel} {self.needed} {self.mapped} {cache}"


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


class _Open:
    """An operation that is going on."""

    def __init__(self, name: str, live: Any, parent: str | None, base: int, held: int) -> None:
        self.name, self.live, self.parent = name, live, parent
        self.least = self.most = self.kernel = 0
        self.inside = False
        self.base, self.held = base, held


def play(referee: _Referee, program: str, steps: list[Step]) -> dict[str, Known]:
    """Do all steps; return the truth about each operation."""
    from otel_memwatch import operation

    held: list[mmap.mmap] = []
    beside: list[subprocess.Popen[bytes]] = []
    opened: list[_Open] = []
    known: dict[str, Known] = {}

    def boundary() -> None:
        top, kernel, mapped = referee.take()
        for one in opened:
            one.most, one.kernel = max(one.most, top), max(one.kernel, kernel)
            if one.inside:
                one.least = max(one.least, mapped if VERSION_2 else top)

    for action, argument in steps:
        if action == "open":
            boundary()
            size = sum(map(len, held))
            live = operation(str(argument))
            opened.append(
                _Open(str(argument), live, opened[-1].name if opened else None, _resident() - size, size)
            )
            live.__enter__()
            boundary()
            opened[-1].inside = True
        elif action == "close":
            one = opened[-1]
            boundary()
            one.inside = False
            one.live.__exit__(None, None, None)
            boundary()
            opened.pop()
            known[one.name] = Known(one.least, one.most, one.base + one.held, one.parent, one.kernel)
        elif action == "hold":
            assert isinstance(argument, int)
            held.append(mmap.mmap(-1, argument << 20, flags=FLAGS))
            for one in opened:
                one.held = max(one.held, sum(map(len, held)))
        elif action == "free":
            held.pop().close()
        elif action == "wait":
            while beside:
                beside.pop().wait()
        else:
            assert isinstance(argument, list)
            beside.append(subprocess.Popen([program, *argument]))
            if action == "run":
                beside.pop().wait()
    return known


def main() -> None:
    """Enter the referee, start anew in it so all of this process is charged there, and do the steps."""
    enter, program, steps = sys.argv[1:4]
    if len(sys.argv) == 4:
        path, left = Path(enter[1:]), ""
        if not enter[1:]:
            entries = (line.split(":") for line in Path("/proc/self/cgroup").read_text().splitlines())
            outer = MEMORY / next(path for _, kind, path in entries if kind == "memory").lstrip("/")
            path, left = outer / f"referee-{os.getpid()}", str(outer)
            path.mkdir()
        (path / ("cgroup.procs" if VERSION_2 else "tasks")).write_text("0")
        os.execv(sys.executable, [sys.executable, "-m", "tests.zoo.marked", *sys.argv[1:], str(path), left])
    path, left = Path(sys.argv[4]), sys.argv[5]
    referee = _Referee(path)
    known = play(referee, program, [(action, argument) for action, argument in json.loads(steps)])
    while referee.others():
        time.sleep(0.002)
    referee.take()
    print(referee.line())
    print("operations", json.dumps(known), flush=True)
    if left:
        (Path(left) / "cgroup.procs").write_text("0")
        path.rmdir()


if __name__ == "__main__":
    main()
