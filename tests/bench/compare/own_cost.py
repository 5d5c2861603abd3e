"""What the processes of a tool cost while it watches: CPU clocks and proportional memory, read from outside."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


def _children() -> dict[int, list[int]]:
    tree: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError, IndexError):
                ppid = int(Path(f"/proc/{name}/stat").read_text().rsplit(") ", 1)[1].split()[1])
                tree.setdefault(ppid, []).append(int(name))
    return tree


def _cpu(pid: int) -> float:
    """CPU seconds of a process (its clock, nanoseconds) and of the children that it has waited for (ticks)."""
    with suppress(OSError):
        own = time.clock_gettime((~pid << 3) | 2)
        words = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return own + (int(words[13]) + int(words[14])) / TICK
    return 0.0


def _pss(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


class Watch:
    """The processes of a tool that watches a crowd, whose first process writes its pid to `note`.

    Attributes:
        share: of one core, while the crowd was whole and quiet.
        memory: largest sum of proportional sizes of the tool's processes, in bytes.

    """

    def __init__(self, tool: int, note: Path) -> None:
        self._tool = tool
        self._note = note
        self.share = 0.0
        self.memory = 0

    def helpers(self) -> list[int]:
        """Processes of the tool: what descends from it and not from the crowd."""
        tree = _children()
        found, rest = [], [self._tool]
        with suppress(OSError, ValueError, IndexError):
            crowd = int(self._note.read_text().split()[0])
            tree = {parent: [one for one in children if one != crowd] for parent, children in tree.items()}
        while rest:
            pid = rest.pop()
            found.append(pid)
            rest += tree.get(pid, [])
        return found

    def until_the_end(self, seconds: float) -> None:
        """Measures the stretch between the first and the last second; returns shortly before the crowd ends."""
        end = time.monotonic() + 20
        while not (self._note.exists() and self._note.stat().st_size) and time.monotonic() < end:
            time.sleep(0.01)
        began = time.monotonic()
        time.sleep(1.5)
        before, at = {pid: _cpu(pid) for pid in self.helpers()}, time.monotonic()
        while time.monotonic() < began + seconds - 1.0:
            time.sleep(1.0)
            self.memory = max(self.memory, sum(map(_pss, self.helpers())))
        used = sum(max(0.0, _cpu(pid) - before.get(pid, 0.0)) for pid in {*before, *self.helpers()})
        self.share = used / (time.monotonic() - at)
