"""One process of the tree: its files, what they last said, and what is remembered of it."""

from __future__ import annotations

import contextlib
import os

from otel_memwatch.model import ProcessNote
from otel_memwatch.monitor.sampling.sources.process_tree.files import Descriptors, KeptFile
from otel_memwatch.runtime.kernel import monotonic_start, rss_error, sum_known
from otel_memwatch.runtime.procfs.process import (
    ZOMBIE_STATES,
    Io,
    Stat,
    Status,
    parse_hugetlb,
    parse_ignores_sigchld,
    parse_io,
    parse_resident_files,
    parse_resident_private,
    parse_secret,
    parse_shmem,
    parse_stat,
    parse_status,
    parse_watermark,
)
from otel_memwatch.runtime.procfs.statm import parse_private, parse_resident
from otel_memwatch.runtime.typed import NamedTuple

GONE = (ProcessLookupError, FileNotFoundError)
"""What reading a process's file raises when the process is no more."""


Figures = tuple[int, int, float, int, int, ProcessNote | None]
"""Figures of one record: resident memory, watermark, CPU seconds, bytes of I/O, threads, note."""


def own_faults(stat: Stat) -> int:
    """Page faults of a process, minor and major, without its children's."""
    return stat.minor_faults + stat.major_faults


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
            io = Io(
                sum_known((self.io.read_chars, other.io.read_chars)),
                sum_known((self.io.write_chars, other.io.write_chars)),
                self.io.read_bytes + other.io.read_bytes,
                self.io.write_bytes + other.io.write_bytes,
            )
        return Totals(
            self.cpu_user + other.cpu_user,
            self.cpu_system + other.cpu_system,
            self.minor_faults + other.minor_faults,
            self.major_faults + other.major_faults,
            io,
        )


class Watermark:
    """What is known of the largest resident memory that a process had: VmHWM, which the kernel keeps.

    VmHWM begins anew with an exec, and when somebody resets it. All sizes are in bytes.
    """

    __slots__ = (
        "before_exec", "faults", "has_fallen", "largest", "last", "last_faults", "reset_by_others",
    )  # fmt: skip

    def __init__(self) -> None:
        self.last: int | None = None
        """VmHWM when it was read last; `None`: there was none."""
        self.largest: int | None = None
        """Largest VmHWM that was read."""
        self.faults = 0
        """Page faults of the process's own when the last VmHWM but one was read. Not those of the last one, which may be of
        another address space already: the process may have executed a program between the two readings."""
        self.last_faults: int | None = None
        """Page faults of the process's own when VmHWM was read last."""
        self.before_exec = 0
        """Upper bound of what it had in address spaces that it has left by an exec; 0: there was none."""
        self.has_fallen = False
        """It was less at one reading than before, in one address space."""
        self.reset_by_others = False
        """Somebody else has reset it."""

    def note(self, mark: int, stat: Stat) -> None:
        """VmHWM was read, after this stat."""
        self.largest = max(mark, self.largest or 0)
        faults = own_faults(stat)
        self.faults = faults if self.last_faults is None else self.last_faults
        self.last_faults = faults

    def grown(self, stat: Stat, fault_bytes: int) -> int:
        """Most that the process can have mapped until this stat, after VmHWM was read: `fault_bytes` for each fault."""
        return max(0, own_faults(stat) - self.faults) * fault_bytes

    def executed(self, stat: Stat, fault_bytes: int) -> None:
        """The process has executed a program: VmHWM knows nothing of the time between its last reading and that."""
        self.last = None
        if self.largest is not None:
            self.before_exec = max(self.before_exec, self.largest + self.grown(stat, fault_bytes))


class LastRecord:
    """What has been recorded of a process, by which is decided when it is worth another line."""

    __slots__ = ("argv", "figures", "stack", "time")

    def __init__(self, stack: int) -> None:
        self.stack = stack
        """Address of the stack of the program that was recorded: another address means an exec since."""
        self.argv: tuple[str, ...] | None = None
        self.figures: Figures | None = None
        self.time = 0.0


class Member:
    """A process of the tree: `refresh` reads stat, statm and io (8 us); `refresh_status` status (1 us, 5 us of kernel time).

    Attributes:
        pid, start, stat: which process it is, and its stat as read last; `start` in monotonic seconds.
        zombie: it has ended and has not been waited for. A leader whose threads live on is no zombie.
        rss, io: bytes of resident memory, and I/O, as read last.
        hugetlb, shmem: bytes of huge pages of hugetlbfs, and of resident shared memory, as of the last reading of status.
        mapped: bytes of its resident files and shared memory, as of the last reading of status.
        secret: of these, what may be memory of memfd_secret.
        file: most file pages in its resident memory, of the readings of status; `None`: not known.
        needed: most anonymous and shared memory of one reading of status; `None`: not known.
        left_cgroup: it was seen outside the run's own control group.
        ignores_sigchld: its children leave no trace in the accounting, as of the last reading of status.
        shares_memory: it runs in its parent's memory, between vfork and exec.
        status_outdated: something of it has changed since its status was read, so that its watermark may have.
        watermark: what is known of its largest resident memory.
        recorded: what has been recorded of it.
        stat_file, children_file: files that the windows and the discovery read too.

    """

    __slots__ = (
        "_descriptors",
        "_io_file",
        "_leader_ended",
        "_proc",
        "_statm_file",
        "_status_data",
        "_status_file",
        "_totals",
        "children_file",
        "file",
        "hugetlb",
        "ignores_sigchld",
        "io",
        "left_cgroup",
        "mapped",
        "needed",
        "pid",
        "recorded",
        "rss",
        "secret",
        "shares_memory",
        "shmem",
        "start",
        "stat",
        "stat_file",
        "status_outdated",
        "watermark",
        "zombie",
    )

    def __init__(self, proc: str, pid: int, descriptors: Descriptors) -> None:
        """Read the process for the first time. Raises `OSError` of `GONE` when it is no more."""
        directory = f"{proc}/{pid}"
        self._proc = proc
        self._descriptors = descriptors
        self.pid = pid
        self.stat_file = KeptFile(f"{directory}/stat", descriptors)
        self._statm_file = KeptFile(f"{directory}/statm", descriptors)
        self._io_file: KeptFile | None = KeptFile(f"{directory}/io", descriptors)
        self._status_file = KeptFile(f"{directory}/status", descriptors)
        self.children_file = KeptFile(f"{directory}/task/{pid}/children", descriptors)
        self._status_data: bytes | None = None
        self._totals: Totals | None = None
        self.io: Io | None = None
        self.rss = self.hugetlb = self.shmem = self.mapped = self.secret = 0
        self.status_outdated = True
        self.ignores_sigchld = self.shares_memory = self.left_cgroup = False
        self.file: int | None = None
        self.needed: int | None = None
        self.watermark = Watermark()
        try:
            self.stat: Stat = parse_stat(self.stat_file.read())
            self._leader_ended = self.zombie = False
            self.start = monotonic_start(self.stat.start)
            self.recorded = LastRecord(self.stat.stack)
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
        changed = False
        data = self.stat_file.read_changed()
        if data is not None:
            self._accept(parse_stat(data))
            changed = True
        if self._statm_file.read_changed() is not None or changed or self._leader_ended:
            rss = self._resident()
            if changed or rss != self.rss:
                self.rss = rss
                changed = self.status_outdated = True
        if self._io_file is not None:
            try:
                data = self._io_file.read_changed()
            except (PermissionError, FileNotFoundError):
                # denied, or a kernel that does not count I/O; a process that has gone is found by its stat
                self._deny_io()
            else:
                if data is not None:
                    self.io, self._totals = parse_io(data), None
                    changed = True
        return changed

    def _accept(self, stat: Stat) -> None:
        if stat.start != self.stat.start:
            raise ProcessLookupError(f"pid {self.pid} is another process now")
        self.stat, self._totals = stat, None
        self._leader_ended = stat.state in ZOMBIE_STATES
        self.zombie = self._leader_ended and stat.threads <= 1

    def _resident(self) -> int:
        """Bytes of resident memory of its own, by the statm that was read last."""
        if self.zombie or self.shares_memory:
            return 0
        if self._leader_ended:
            return self._rss_of_threads()
        return parse_resident(self._statm_file.last or b"")

    def enters_parent(self) -> None:
        """It runs in its parent's memory: it has none of its own."""
        self.shares_memory = True
        self.rss = 0

    def leaves_parent(self) -> None:
        """It does not run in its parent's memory any more; what it has now is known after the next `refresh`."""
        self.shares_memory = False
        self._statm_file.last = None

    def _deny_io(self) -> None:
        assert self._io_file is not None
        self._io_file.close()
        self._io_file = self.io = self._totals = None
        self.status_outdated = True

    def retry_io(self) -> None:
        """Try again to read what was denied: a process may have become readable by an exec."""
        if self._io_file is None:
            file = KeptFile(f"{self._proc}/{self.pid}/io", self._descriptors)
            with contextlib.suppress(OSError):
                self.io = parse_io(file.read())
                self._io_file, self._totals = file, None
                return
            file.close()

    def read_resident(self) -> int:
        """Bytes of resident memory, read anew; what the tick has read of it stays."""
        if self._leader_ended:
            return self._rss_of_threads()
        return parse_resident(self._statm_file.read())

    def read_private(self) -> int | None:
        """Bytes of private memory, read anew; `None`: not known, since the leader has ended and its threads live on.

        Raises `OSError` when the process is no more. Where it runs in its parent's memory, that is what it has.
        """
        return None if self._leader_ended else parse_private(self._statm_file.read())

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
        self.status_outdated = False
        data = self._status_file.read()
        if self._leader_ended and self.stat.threads > 1:
            data = self._of_living_thread("status") or data
        self._status_data = data
        self.ignores_sigchld = parse_ignores_sigchld(data)
        self.hugetlb = self.shmem = self.secret = 0
        if not self.shares_memory:
            self.hugetlb, self.shmem, self.secret = parse_hugetlb(data), parse_shmem(data), parse_secret(data)
        before = self.watermark.last
        self.watermark.last = mark = parse_watermark(data)
        if mark is not None and before is not None and mark < before and self._has_lost(before - mark):
            self.watermark.has_fallen = True
        if mark is not None and not self.shares_memory:
            self.watermark.note(mark, self.stat)
            file = parse_resident_files(data)
            self.mapped = (file or 0) + self.shmem
            if file is not None and (self.file is None or file > self.file):
                self.file = file
            private = parse_resident_private(data)
            if private is not None:
                self.needed = max(self.needed or 0, private + self.shmem)
        return mark is not None

    def _has_lost(self, size: int) -> bool:
        """Return whether a reset took so many bytes of its watermark: an exec begins another one too."""
        if size <= rss_error(self.stat.threads):
            return False
        return parse_stat(self.stat_file.read()).stack == self.stat.stack == self.recorded.stack

    def last_look(self) -> bool:
        """Read it a last time; `False` when its memory is gone, and with it what it had reached since the last tick.

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

    @property
    def status_data(self) -> bytes:
        """What status said when it was last read, as it is; empty before."""
        return self._status_data or b""

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
        for file in (self.stat_file, self._statm_file, self._io_file, self._status_file, self.children_file):
            if file is not None:
                file.close()
