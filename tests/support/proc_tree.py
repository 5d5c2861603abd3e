"""A /proc made of ordinary files, for what real processes do not do on demand."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")


class ProcTree:
    """A directory that looks like /proc; `process` adds or rewrites a process, `remove` ends one."""

    def __init__(self, path: Path, *, children_files: bool = True) -> None:
        self.path = path
        self._children_files = children_files
        self._children: dict[int, list[int]] = {}
        (path / "sys/kernel").mkdir(parents=True)
        (path / "sys/kernel/pid_max").write_text("32768\n")
        (path / "meminfo").write_text("MemTotal: 1000 kB\nMemFree: 500 kB\n")
        self.last_pid(100)
        self.process(os.getpid(), 1, "monitor")
        (path / "self").symlink_to(str(os.getpid()))

    def last_pid(self, pid: int) -> None:
        """The fork counter."""
        (self.path / "loadavg").write_text(f"0.10 0.20 0.30 1/200 {pid}\n")

    def process(
        self,
        pid: int,
        ppid: int,
        command: str = "job",
        *,
        state: str = "S",
        rss: int = 1 << 20,
        peak: int | None = None,
        start: float = 100.0,
        user: float = 0.0,
        system: float = 0.0,
        child_user: float = 0.0,
        minor: int = 10,
        child_minor: int = 0,
        threads: int = 1,
        stack: int = 4096,
        virtual: int = 1 << 24,
        page_tables: int = 0,
        io: tuple[int, int, int, int] | None = (0, 0, 0, 0),
        ignored: int = 0,
        flags: int = 0,
    ) -> None:
        """Write the files of a process; `io` of `None`: the kernel does not count. `flags`: 64 before its first exec."""
        folder = self.path / str(pid)
        (folder / "task" / str(pid)).mkdir(parents=True, exist_ok=True)
        fields = [state, ppid, 1, 1, 0, -1, flags, minor, child_minor, 0, 0]
        fields += [int(user * TICKS), int(system * TICKS), int(child_user * TICKS), 0, 20, 0, threads, 0]
        fields += [int(start * TICKS), virtual, rss // PAGE, 2**64 - 1, 1, 1, stack, 0, 0, 0, 0, ignored]
        self._write(folder / "stat", f"{pid} ({command}) " + " ".join(map(str, fields)) + "\n")
        self._write(folder / "statm", f"{virtual // PAGE} {rss // PAGE} 0 0 0 0 0\n")
        if io is not None:
            names = ("rchar", "wchar", "syscr", "syscw", "read_bytes", "write_bytes", "cancelled_write_bytes")
            values = (io[0], io[1], 1, 1, io[2], io[3], 0)
            self._write(folder / "io", "".join(f"{n}: {v}\n" for n, v in zip(names, values, strict=True)))
        memory = (
            ""
            if state == "Z"
            else (
                f"VmHWM:\t{(peak or rss) >> 10:8} kB\nVmRSS:\t{rss >> 10:8} kB\n"
                f"RssAnon:\t{rss >> 10:8} kB\nRssFile:\t0 kB\nRssShmem:\t0 kB\nVmPTE:\t{page_tables >> 10:8} kB\nVmSwap:\t0 kB\n"
            )
        )
        self._write(
            folder / "status",
            f"Name:\t{command}\nState:\t{state} (x)\nTgid:\t{pid}\nPid:\t{pid}\nUid:\t0\t0\t0\t0\n{memory}"
            f"Threads:\t{threads}\nSigIgn:\t{ignored:016x}\nSigCgt:\t0\n"
            "voluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t6\n",
        )
        (folder / "cmdline").write_bytes(command.encode() + b"\0arg\0")
        (folder / "fd").mkdir(exist_ok=True)
        known = self._children.setdefault(ppid, [])
        if pid not in known:
            known.append(pid)
        self._list_children(ppid)
        self._list_children(pid)

    @staticmethod
    def _write(path: Path, text: str) -> None:
        # in place: kept descriptors must see it, as those of the real /proc do
        with path.open("r+" if path.exists() else "w") as file:
            file.write(text)
            file.truncate()

    def _list_children(self, pid: int) -> None:
        folder = self.path / str(pid) / "task" / str(pid)
        if self._children_files and folder.is_dir():
            self._write(folder / "children", "".join(f"{child} " for child in self._children.get(pid, [])))

    def remove(self, pid: int, ppid: int) -> None:
        """End a process that has been waited for. A kept descriptor still reads: use few descriptors to see it gone."""
        folder = self.path / str(pid)
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        folder.rmdir()
        self._children[ppid].remove(pid)
        self._list_children(ppid)


class KnownPids:
    """Stands for the source process_tree where a test says which processes there are."""

    runs: int | None = None
    resting = sleeps = False
    """As in `TreeSource`."""

    def __init__(self, pids: Iterable[int], needed_range: tuple[int, int] | None = None) -> None:
        self._pids = tuple(pids)
        self._needed_range = needed_range

    def needed_range(self) -> tuple[int, int] | None:
        """As it was given."""
        return self._needed_range

    def needed_estimate(self) -> None:
        """None is known."""
        return

    def ended_in(self) -> dict[int, bytes]:
        """None has ended."""
        return {}

    def pids(self) -> Sequence[int]:
        """As they were given."""
        return self._pids
