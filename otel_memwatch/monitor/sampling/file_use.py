"""Files that the tree maps or reads, by name, within a budget of time.

| reading | shows | cost |
| --- | --- | --- |
| `/proc/PID/maps` | mapped files | some us for each mapping |
| `/proc/PID/smaps` | also their pages in memory | like smaps_rollup: a walk of all page tables |
| `/proc/PID/fd`, `fdinfo` | files that are open for reading | some 15 us for each descriptor |

Reading takes at most `SHARE` of one core. Only processes with many file pages, or with much mapped, are read in full, the largest first.
"""

from __future__ import annotations

import os
import stat
import time

from otel_memwatch.runtime.kernel import PAGE_SIZE, read_once
from otel_memwatch.runtime.light import suppress
from otel_memwatch.runtime.procfs.mappings import parse_mapped_files
from otel_memwatch.runtime.procfs.walks import PER_BYTE, outlives_walk, read_walking
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

SHARE, ADVANCE = 0.0003, 0.006
"""Share of one core that reading may take, and CPU seconds that may be used ahead of it."""
FIRST, PERIOD, LONGEST = 0.4, 1.0, 300.0
"""Seconds until the first reading, and between two of them: at first, and at most."""
LEAST = 1 << 20
"""Bytes of the smallest file that is named."""
_WORTH_READING = 16 << 20
"""Resident file pages of a process from which its files are read. An interpreter alone has 8 MiB."""
_WORTH_MAPPING = 64 << 20
"""Mapped bytes from which they are read as well: at a memory limit, few pages of a large file are resident."""
_PROCESSES, _DESCRIPTORS, _NAMED = 32, 256, 12


class FileUse:
    """Largest mappings and readings of each file, over all readings of all processes."""

    def __init__(self, main: int, proc: str = "/proc") -> None:
        self._main, self._proc = main, proc
        self._files: dict[bytes, tuple[int, int, int | None]] = {}
        """Size, most bytes mapped and most resident, by path."""
        self._begun: float | None = None
        self._spent = 0.0
        self.due = 0.0
        """Monotonic seconds of the next reading."""
        self._pause = PERIOD
        self.named_none = False
        """The last reading found no process that was worth it: as long as none runs, none will be."""

    def read(self, pids: Sequence[int], now: float) -> None:
        """Read the files of these processes if a reading is due and within the budget."""
        if self._begun is None:
            self._begun, self.due = now, now + FIRST
        if now < self.due:
            return
        allowed = SHARE * (now - self._begun) + ADVANCE
        before = time.thread_time()
        worth_it = self._read(pids, allowed - self._spent)
        self._spent += time.thread_time() - before
        self.due = now + (self._pause if worth_it else FIRST)
        self.named_none = not worth_it
        if worth_it:
            self._pause = min(LONGEST, 1.5 * self._pause)

    def _read(self, pids: Sequence[int], seconds: float) -> bool:
        """Read processes for so many CPU seconds; return whether one was worth it, or no time is left."""
        sizes = sorted(((*self._sizes(pid), pid) for pid in pids[:_PROCESSES]), reverse=True)
        worth_it = [one for one in sizes if one[0] >= _WORTH_READING or one[1] >= _WORTH_MAPPING]
        end = time.thread_time() + seconds
        for _, _, resident, pid in worth_it:
            left = end - time.thread_time()
            if left <= 0:
                return True
            lasts = pid == self._main or outlives_walk(self._proc, pid, resident)
            name = "smaps" if lasts and 2 * resident * PER_BYTE < left else "maps"
            with suppress(OSError, ValueError):
                found = parse_mapped_files(read_walking(self._proc, pid, name))
                for path, one in found.items():
                    if one.mapped >= LEAST:
                        self._add(path, one.mapped, one.resident)
                self._add_open_files(pid)
        return bool(worth_it)

    def _sizes(self, pid: int) -> tuple[int, int, int]:
        """Return a process's resident bytes of files and shared memory, its mapped bytes that are no data, and all resident bytes.

        They are 0 if it has ended.
        """
        with suppress(OSError, ValueError, IndexError):
            size, resident, shared, _, _, data, _ = (
                int(field) * PAGE_SIZE for field in read_once(f"{self._proc}/{pid}/statm").split()
            )
            return shared, size - data, resident
        return 0, 0, 0

    def _add_open_files(self, pid: int) -> None:
        """Add the large files that a process has open for reading."""
        folder = f"{self._proc}/{pid}/fd"
        for name in os.listdir(folder)[:_DESCRIPTORS]:
            with suppress(OSError, ValueError):
                found = os.stat(f"{folder}/{name}")
                if not stat.S_ISREG(found.st_mode) or found.st_size < LEAST or not found.st_nlink:
                    continue
                fields = dict(
                    line.split(None, 1)
                    for line in read_once(f"{self._proc}/{pid}/fdinfo/{name}").splitlines()[:3]
                )
                if int(fields[b"flags:"], 8) & os.O_ACCMODE != os.O_WRONLY:
                    self._add(os.fsencode(os.readlink(f"{folder}/{name}")), 0, None)

    def _add(self, path: bytes, mapped: int, resident: int | None) -> None:
        known = self._files.get(path)
        if known is None:
            if len(self._files) >= 4096:
                return
            try:
                found = os.stat(path)
            except (OSError, ValueError):
                return  # in another mount namespace, or removed
            known = (found.st_size, 0, None) if stat.S_ISREG(found.st_mode) else (0, 0, None)
        size, most, in_memory = known
        if resident is not None:
            in_memory = max(in_memory or 0, resident)
        # A file that is mapped twice has its pages once.
        self._files[path] = size, max(most, min(mapped, size)), in_memory

    def to_json(self) -> dict[str, Any] | None:
        """Return the form of `run.json`; `None`: no large file was seen."""
        large = {path: one for path, one in self._files.items() if one[0] >= LEAST}
        if not large:
            return None
        first = sorted(large.items(), key=lambda item: (-item[1][0], item[0]))[:_NAMED]
        return {
            "number": len(large),
            "bytes": sum(size for size, _, _ in large.values()),
            "mapped": sum(mapped for _, mapped, _ in large.values()),
            "largest": [
                {"path": os.fsdecode(path), "bytes": size, "mapped": mapped, "resident": resident}
                for path, (size, mapped, resident) in first
            ],
        }
