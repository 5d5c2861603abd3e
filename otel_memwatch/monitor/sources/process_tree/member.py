"""One process of the tree: its files, what they last said, and what is remembered of it."""

from __future__ import annotations

import contextlib
import os

from otel_memwatch.model import ProcessNote
from otel_memwatch.monitor.procfs.process import (
    ZOMBIE_STATES,
    Io,
    Stat,
    Status,
    parse_ignores_children,
    parse_io,
    parse_resident,
    parse_stat,
    parse_status,
    parse_watermark,
)
from otel_memwatch.monitor.sources.process_tree.files import READ, Descriptors, KeptFile
from otel_memwatch.runtime.kernel import monotonic_start
from otel_memwatch.runtime.typed import NamedTuple

GONE = (ProcessLookupError, FileNotFoundError)
"""What reading a process's file raises when the process is no more."""


class Totals(NamedTuple):
    """What only grows, of a process or of a tree, the reaped children included."""

    cpu_user: float = 0.0
    cpu_system: float = 0.0
    minor_faults: int = 0
    major_faults: int = 0
    io: Io | None = Io(0, 0, 0, 0)
    """`None`: not known, because the kernel denies a process's figures."""

    def __add__(self, other: object) -> Totals:
        assert isinstance(other, Totals)
        io = None
        if self.io is not None and other.io is not None:
            io = Io(*map(int.__add__, self.io, other.io))
        return Totals(
            self.cpu_user + other.cpu_user,
            self.cpu_system + other.cpu_system,
            self.minor_faults + other.minor_faults,
            self.major_faults + other.major_faults,
            io,
        )


class Member:
    """A process of the tree.

    `refresh` reads stat, statm and io (8 us); `refresh_status` reads status (1 us and 5 us of kernel time).
    """

    __slots__ = (
        "_io_data",
        "_io_file",
        "_proc",
        "_stat_data",
        "_statm_data",
        "_statm_file",
        "_status_data",
        "_status_faults",
        "_totals",
        "argv",
        "children_file",
        "exec_stack",
        "ignores_children",
        "io",
        "mark",
        "outgrown",
        "pid",
        "recorded",
        "recorded_at",
        "rss",
        "shares_memory",
        "start",
        "stat",
        "stat_file",
        "status_file",
        "stirred",
        "watermark",
        "watermark_faults",
        "window_bound",
        "windowed",
        "zombie",
    )

    def __init__(self, proc: str, pid: int, descriptors: Descriptors) -> None:
        """Read the process for the first time. Raises `OSError` of `GONE` when it is no more."""
        directory = f"{proc}/{pid}"
        self._proc = proc
        self.pid = pid
        self.stat_file = KeptFile(f"{directory}/stat", descriptors)
        self._statm_file = KeptFile(f"{directory}/statm", descriptors)
        self._io_file: KeptFile | None = KeptFile(f"{directory}/io", descriptors)
        self.status_file = KeptFile(f"{directory}/status", descriptors)
        self.children_file = KeptFile(f"{directory}/task/{pid}/children", descriptors)
        self._stat_data = self._io_data = b""
        self._statm_data: bytes | None = None
        self._status_data: bytes | None = None
        self._totals: Totals | None = None
        self.stirred = True
        """Something of it has changed since its status was read, so that its watermark may have."""
        self.argv: tuple[str, ...] | None = None
        self.io: Io | None = None
        self.rss = 0
        self.mark: int | None = None
        """VmHWM when it was read last, in bytes; `None`: it had none then."""
        self.watermark: int | None = None
        """Largest VmHWM that was read, in bytes."""
        self.watermark_faults = 0
        """Page faults of its own when the watermark before the last was read: the last may already be that of another
        address space, where it has executed a program since its faults were read."""
        self._status_faults: int | None = None
        """Page faults of its own before its watermark was read last."""
        self.outgrown = 0
        """Upper bound of what it had in address spaces that it has left by an exec; 0: there was none."""
        self.windowed = False
        """Its watermark has been reset, so that VmHWM is that of the time since."""
        self.window_bound: int | None = None
        """Upper bound of its resident memory up to the last tick, once it is windowed."""
        self.ignores_children = False
        """It ignores SIGCHLD, as of the last reading of status: its children leave no trace in the accounting."""
        self.shares_memory = False
        """It runs in its parent's memory, between vfork and exec."""
        self.recorded: tuple[int, int, float, int, int, ProcessNote | None] | None = None
        """Figures that were told last."""
        self.recorded_at = 0.0
        try:
            self.stat: Stat = parse_stat(self.stat_file.read())
            self.zombie = False
            """It has ended and has not been waited for. A leader whose threads live on is no zombie."""
            self.start = monotonic_start(self.stat.start)
            self.exec_stack = self.stat.stack
            self.refresh()
        except OSError:
            self.close()
            raise

    @property
    def denied(self) -> bool:
        """The kernel does not show us its I/O: it belongs to another user, is not dumpable, or I/O is not counted."""
        return self._io_file is None

    def refresh(self) -> bool:
        """Read what is needed at every tick; whether any of it has changed. What has not is not parsed again.

        Raises an `OSError` of `GONE` when the process is no more.
        """
        # Read without calls of our own, which would be a third of the cost where there are many processes.
        kept = self.stat_file.descriptor
        data = os.pread(kept, READ, 0) if kept >= 0 else self.stat_file.read()
        changed = data != self._stat_data
        if changed:
            self._take_stat(data)
        kept = self._statm_file.descriptor
        resident = os.pread(kept, READ, 0) if kept >= 0 else None
        if changed or resident is None or resident != self._statm_data or self.stat.state in ZOMBIE_STATES:
            self._statm_data = resident
            rss = self._resident(resident)
            if changed or rss != self.rss:
                self.rss = rss
                changed = self.stirred = True
        if self._io_file is not None:
            kept = self._io_file.descriptor
            try:
                data = os.pread(kept, READ, 0) if kept >= 0 else self._io_file.read()
            except (PermissionError, FileNotFoundError):
                # denied, or a kernel that does not count I/O; a process that has gone is found by its stat
                self._deny_io()
            else:
                if data != self._io_data:
                    self._io_data, self.io, self._totals = data, parse_io(data), None
                    changed = True
        return changed

    def leaves_parent(self) -> None:
        """It does not run in its parent's memory any more; what it has now is known after the next `refresh`."""
        self.shares_memory = False
        self._statm_data = None

    def _resident(self, statm: bytes | None) -> int:
        if self.zombie or self.shares_memory:
            return 0
        if self.stat.state in ZOMBIE_STATES:
            return self._rss_of_threads()
        return parse_resident(self._statm_file.read() if statm is None else statm)

    def _take_stat(self, data: bytes) -> None:
        stat = parse_stat(data)
        if stat.start != self.stat.start:
            raise ProcessLookupError(f"pid {self.pid} is another process now")
        self._stat_data, self.stat, self._totals = data, stat, None
        self.zombie = stat.state in ZOMBIE_STATES and stat.threads <= 1

    def _deny_io(self) -> None:
        assert self._io_file is not None
        self._io_file.close()
        self._io_file = self.io = self._totals = None
        self.stirred = True

    def retry_io(self) -> None:
        """Try again to read what was denied: a process may have become readable by an exec."""
        if self._io_file is None:
            file = KeptFile(f"{self._proc}/{self.pid}/io", self.stat_file.descriptors)
            with contextlib.suppress(OSError):
                self.io = parse_io(file.read())
                self._io_file, self._totals = file, None
                return
            file.close()

    def resident(self) -> int:
        """Bytes of resident memory, read anew; what the tick has read of it stays."""
        if self.stat.state in ZOMBIE_STATES:
            return self._rss_of_threads()
        return parse_resident(self._statm_file.read())

    def _rss_of_threads(self) -> int:
        """Resident memory by way of a thread that lives on after the leader has ended."""
        return parse_resident(self._of_living_thread("statm") or b"0 0 0")

    def _of_living_thread(self, name: str) -> bytes | None:
        tasks = f"{self._proc}/{self.pid}/task"
        with contextlib.suppress(OSError):
            for tid in os.listdir(tasks):
                if int(tid) != self.pid:
                    with open(f"{tasks}/{tid}/{name}", "rb") as file:
                        return file.read()
        return None

    def refresh_status(self) -> bool:
        """Read the watermark; whether there still is one: a process that is ending has given its memory back.

        Raises an `OSError` of `GONE` when the process is no more.
        """
        self.stirred = False
        data: bytes | None = self.status_file.read()
        if self.stat.state in ZOMBIE_STATES and self.stat.threads > 1:
            data = self._of_living_thread("status") or data
        self._status_data = data
        assert data is not None
        self.ignores_children = parse_ignores_children(data)
        self.mark = mark = parse_watermark(data)
        if not self.shares_memory and mark is not None:
            self.watermark = max(mark, self.watermark or 0)
            faults = self.stat.minor_faults + self.stat.major_faults
            self.watermark_faults = faults if self._status_faults is None else self._status_faults
            self._status_faults = faults
        return mark is not None

    def last_look(self) -> bool:
        """Read its watermark a last time; `False` when its memory is gone, and what it had since the last tick with it.

        Raises an `OSError` of `GONE` when the process is no more.
        """
        self.refresh()
        return self.refresh_status()

    def has_waited(self) -> bool:
        """Whether it has waited for a child since it was read; one that has gone is found by the next tick."""
        try:
            return parse_stat(self.stat_file.read()).child_minor_faults != self.stat.child_minor_faults
        except OSError:
            return False

    def status(self) -> Status | None:
        """What status said when it was last read; `None` before."""
        return None if self._status_data is None else parse_status(self._status_data)

    def totals(self) -> Totals:
        """Its totals, its reaped children's included."""
        if self._totals is None:
            stat = self.stat
            self._totals = Totals(
                stat.cpu_user + stat.child_cpu_user,
                stat.cpu_system + stat.child_cpu_system,
                stat.minor_faults + stat.child_minor_faults,
                stat.major_faults + stat.child_major_faults,
                self.io,
            )
        return self._totals

    def close(self) -> None:
        """Close its files; what was read stays."""
        for file in (self.stat_file, self._statm_file, self._io_file, self.status_file, self.children_file):
            if file is not None:
                file.close()
