"""One process of the tree: its files, their last contents and its history."""

from __future__ import annotations

import os

from otel_memwatch.model import ProcessNote
from otel_memwatch.monitor.sampling.sources.process_tree.proc_files import Descriptors, KeptFile
from otel_memwatch.runtime.kernel import KERNEL_STACK, monotonic_start, read_once, rss_error, sum_known
from otel_memwatch.runtime.light import suppress
from otel_memwatch.runtime.procfs.process import (
    ZOMBIE_STATES,
    Io,
    Stat,
    Status,
    has_executed,
    parse_hugetlb,
    parse_ignores_sigchld,
    parse_io,
    parse_page_tables,
    parse_resident_files,
    parse_resident_private,
    parse_secret,
    parse_shmem,
    parse_stat,
    parse_status,
    parse_threads,
    parse_watermark,
)
from otel_memwatch.runtime.procfs.statm import parse_private, parse_resident
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from otel_memwatch.monitor.sampling.repeated import WatchedFile

GONE = (ProcessLookupError, FileNotFoundError)
"""Exceptions raised by a read of a file of a process that no longer exists."""


_ASLEEP = frozenset("SDTtI")
"""States of a process that has to be scheduled before it does anything."""
_NOT_COUNTED = b"0 0 0\n"
"""Content of schedstat if the kernel does not count."""

Figures = tuple[int, int, float, int, int, ProcessNote | None]
"""Figures of one record: resident memory, watermark, CPU seconds, bytes of I/O, threads, note."""


def own_faults(stat: Stat) -> int:
    """Return the page faults of a process, minor and major, without those of its children."""
    return stat.minor_faults + stat.major_faults


class Totals(NamedTuple):
    """Cumulative counters of a process or of a tree, including reaped children."""

    cpu_user: float = 0.0
    cpu_system: float = 0.0
    minor_faults: int = 0
    major_faults: int = 0
    io: Io | None = Io(0, 0, 0, 0)
    """`None`: unknown, because the kernel denies access to the figures of a process."""

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
    """Readings of a process's VmHWM, the high-water mark of its resident memory that the kernel maintains.

    VmHWM restarts with an exec and with a reset. All sizes are in bytes.
    """

    __slots__ = (
        "before_exec", "faults", "has_fallen", "largest", "last", "last_faults", "reset_by_others",
    )  # fmt: skip

    def __init__(self) -> None:
        self.last: int | None = None
        """VmHWM at its last reading; `None`: the process had none."""
        self.largest: int | None = None
        """Largest VmHWM of all readings."""
        self.faults = 0
        """Page faults of the process without children, at the reading of VmHWM before the last one.

        The last reading may belong to another address space: the process may have executed a program in between.
        """
        self.last_faults: int | None = None
        """Page faults of the process without children, at the last reading of VmHWM."""
        self.before_exec = 0
        """Upper bound of its memory in address spaces that it has left by an exec; 0: none."""
        self.has_fallen = False
        """It fell between two readings of one address space."""
        self.reset_by_others = False
        """Another program has reset it."""

    def note(self, mark: int, stat: Stat) -> None:
        """Add a reading of VmHWM, taken after this stat."""
        self.largest = max(mark, self.largest or 0)
        faults = own_faults(stat)
        self.faults = faults if self.last_faults is None else self.last_faults
        self.last_faults = faults

    def grown(self, stat: Stat, fault_bytes: int) -> int:
        """Return an upper bound of the bytes mapped between the reading of VmHWM and this stat: `fault_bytes` for each fault."""
        return max(0, own_faults(stat) - self.faults) * fault_bytes

    def executed(self, stat: Stat, fault_bytes: int) -> None:
        """Note an exec. VmHWM does not cover the time between its last reading and the exec."""
        self.last = None
        if self.largest is not None:
            self.before_exec = max(self.before_exec, self.largest + self.grown(stat, fault_bytes))


class LastRecord:
    """Last record of a process. It decides when the process needs another line."""

    __slots__ = ("argv", "figures", "stack", "time")

    def __init__(self, stack: int) -> None:
        self.stack = stack
        """Address of the stack of the recorded program. Another address means an exec since."""
        self.argv: tuple[str, ...] | None = None
        self.figures: Figures | None = None
        self.time = 0.0


class Member:
    """A process of the tree.

    `refresh` reads stat in 4 us, and statm and io in 5 us. `refresh_status` reads status in 1 us and 5 us of kernel time.

    Attributes:
        pid: its pid.
        start: its start in monotonic seconds.
        stat: its last stat.
        zombie: it has ended, and no process has waited for it. A leader with living threads is not a zombie.
        rss: bytes of resident memory, last reading.
        io: I/O, last reading.
        hugetlb: bytes of huge pages of hugetlbfs, as of the last status.
        shmem: bytes of resident shared memory, as of the last status.
        mapped: bytes of its resident files and shared memory, as of the last status.
        secret: part of `mapped` that may be memory of memfd_secret.
        page_tables: bytes of its page tables, as of the last status.
        stacks: bytes of its threads' kernel stacks, as of the last status.
        status_read: status was read since the last `refresh`.
        steady: memory and stat were the same at the end of the sample as at its `refresh`.
        file: maximum of its resident file pages over all readings of status, in bytes; `None`: unknown.
        needed: maximum of its anonymous and shared memory over all readings of status, in bytes; `None`: unknown.
        left_cgroup: a sample found it outside the run's cgroup.
        ignores_sigchld: its children leave no trace in the accounting, as of the last stat or status.
        shares_memory: it runs in its parent's memory, between vfork and exec.
        status_outdated: a figure has changed since the last status, so its watermark may have changed.
        watermark: its high-water mark of resident memory.
        executed_unseen: it had executed a program when it was first read. Before, it was a copy of its parent.
        recorded: its last record.
        freed: monotonic time at which a walk of ours let go of its memory, if it ended during the walk; 0.0: none kept it.
        stat_file, children_file: files that the windows and the discovery read too.
    """

    __slots__ = (
        "_descriptors",
        "_io_file",
        "_leader_ended",
        "_proc",
        "_schedule",
        "_schedule_file",
        "_statm_file",
        "_status",
        "_status_data",
        "_status_file",
        "_totals",
        "children_file",
        "executed_unseen",
        "file",
        "freed",
        "hugetlb",
        "ignores_sigchld",
        "io",
        "left_cgroup",
        "mapped",
        "needed",
        "page_tables",
        "pid",
        "recorded",
        "rss",
        "secret",
        "shares_memory",
        "shmem",
        "stacks",
        "start",
        "stat",
        "stat_file",
        "status_outdated",
        "status_read",
        "steady",
        "watermark",
        "zombie",
    )

    def __init__(self, proc: str, pid: int, descriptors: Descriptors) -> None:
        """Read the process for the first time. Raises an `OSError` of `GONE` if it no longer exists."""
        directory = f"{proc}/{pid}"
        self._proc = proc
        self._descriptors = descriptors
        self.pid = pid
        self.stat_file = KeptFile(f"{directory}/stat", descriptors)
        self._statm_file = KeptFile(f"{directory}/statm", descriptors)
        self._io_file: KeptFile | None = KeptFile(f"{directory}/io", descriptors)
        self._status_file = KeptFile(f"{directory}/status", descriptors)
        self.children_file = KeptFile(f"{directory}/task/{pid}/children", descriptors)
        self._schedule_file: KeptFile | None = KeptFile(f"{directory}/schedstat", descriptors)
        self._schedule: bytes | None = None
        """Its content before a reading of stat that found the process asleep; `None`: it may have run since."""
        self._status_data: bytes | None = None
        self._status: Status | None = None
        self._totals: Totals | None = None
        self.io: Io | None = None
        self.rss = self.hugetlb = self.shmem = self.mapped = self.secret = 0
        self.page_tables = self.stacks = 0
        self.status_outdated = True
        self.status_read = self.steady = False
        self.freed = 0.0
        self.ignores_sigchld = self.shares_memory = self.left_cgroup = False
        self.file: int | None = None
        self.needed: int | None = None
        self.watermark = Watermark()
        try:
            data = self.stat_file.read()
            self.stat: Stat = parse_stat(data)
            self.executed_unseen = has_executed(data)
            self._leader_ended = self.zombie = False
            self.start = monotonic_start(self.stat.start)
            self.recorded = LastRecord(self.stat.stack)
            self.refresh()
        except OSError:
            self.close()
            raise

    @property
    def denied(self) -> bool:
        """Return whether the kernel denies access to its I/O.

        It belongs to another user, is not dumpable, or the kernel does not count I/O.
        """
        return self._io_file is None

    def refresh(self, *, whole: bool = True) -> bool:
        """Read stat, and statm and io if it has changed or if `whole`; return whether one has changed.

        Each page that a process gains costs it a page fault, which stat counts. Stat also has its resident size, without
        pages that processors hold back. So memory is the same while stat is. Unchanged files are not parsed again.

        A process that has not run since is not read at all, unless `whole`.

        Raises an `OSError` of `GONE` if the process no longer exists.
        """
        changed = self.status_read = False
        if not whole and self._has_not_run():
            return False
        schedule = None if whole else self._times_run()
        data = self.stat_file.read_changed()
        if data is not None:
            self._accept(parse_stat(data))
            changed = True
        elif not whole and self._statm_file.last is not None and not self._leader_ended:
            self._note_schedule(schedule)
            return False
        if self._statm_file.read_changed() is not None or changed or self._leader_ended:
            rss = self._resident()
            if changed or rss != self.rss:
                self.rss = rss
                changed = self.status_outdated = True
        if self._io_file is not None:
            try:
                data = self._io_file.read_changed()
            except (PermissionError, FileNotFoundError):
                # Access is denied, or the kernel does not count I/O. If the process has ended, its stat shows it.
                self._io_file.close()
                self._io_file = self.io = self._totals = None
                self.status_outdated = True
            else:
                if data is not None:
                    self.io, self._totals = parse_io(data), None
                    changed = True
        return changed

    def size_as_read(self) -> tuple[int, int, bytes] | None:
        """Return its statm and the last content for `are_same`: if it has not run, the kernel may only have reclaimed pages."""
        file = self._statm_file
        return file.as_read(file.last) if file.kept and file.last is not None else None

    def is_unchanged(self) -> bool:
        """Return whether it has not run since the last reading of its stat (1 us), or its stat is the same (5 us).

        Then it has not ended, and has no more memory than before.
        """
        if self._has_not_run():
            return True
        if self._leader_ended or self.shares_memory:
            return False
        schedule = self._times_run()
        try:
            unchanged = self.stat_file.read() == self.stat_file.last
        except OSError:
            return False
        if unchanged:
            self._note_schedule(schedule)
        return unchanged

    def _has_not_run(self) -> bool:
        """Return whether it certainly has not run since the last reading of its stat (1 us): stat is the same then."""
        file, before = self._schedule_file, self._schedule
        if before is not None and file is not None and file.has(before):
            return True
        self._schedule = None
        return False

    def asleep(self) -> tuple[int, int, bytes] | None:
        """Return a file and its content for `are_same`: while it has this content, the process has not run; `None`: unknown."""
        file, schedule = self._schedule_file, self._schedule
        return None if file is None or schedule is None else file.as_read(schedule)

    def _note_schedule(self, schedule: bytes | None) -> None:
        """Note the counters read right before its stat, which had not changed, if only its main thread can run."""
        if self.stat.threads == 1 and self.stat.state in _ASLEEP and not self.shares_memory:
            self._schedule = schedule

    def _times_run(self) -> bytes | None:
        """Return the counters of its main thread that grow when the scheduler lets it run; `None`: the kernel has none."""
        file = self._schedule_file
        if file is None:
            return None
        try:
            data = file.read()
            if file.kept and data != _NOT_COUNTED:
                return data
        except OSError:  # if the process has ended, its stat shows it
            pass
        file.close()
        self._schedule_file = None
        return None

    def _accept(self, stat: Stat) -> None:
        if stat.start != self.stat.start:
            raise ProcessLookupError(f"pid {self.pid} is another process now")
        self.stat, self._totals, self._schedule = stat, None, None
        self._leader_ended = stat.state in ZOMBIE_STATES
        self.zombie = self._leader_ended and stat.threads <= 1
        self.ignores_sigchld = self.ignores_sigchld or stat.ignores_sigchld

    def _resident(self) -> int:
        """Return the bytes of its resident memory in the last statm, without its parent's."""
        if self.zombie or self.shares_memory:
            return 0
        if self._leader_ended:
            # A living thread has the memory of a process whose leader has ended.
            return parse_resident(self._of_living_thread("statm") or b"0 0 0")
        return parse_resident(self._statm_file.last or b"")

    def enters_parent(self) -> None:
        """Note that it runs in its parent's memory and has no memory itself."""
        self.shares_memory = True
        self.rss = 0

    def leaves_parent(self) -> None:
        """Note that it has left its parent's memory. The next `refresh` reads its memory."""
        self.shares_memory = False
        self._statm_file.last = None

    def retry_io(self) -> None:
        """Retry the denied read of I/O. An exec may have made the process readable."""
        if self._io_file is None:
            file = KeptFile(f"{self._proc}/{self.pid}/io", self._descriptors)
            with suppress(OSError):
                self.io = parse_io(file.read())
                self._io_file, self._totals = file, None
                return
            file.close()

    def read_private(self) -> int | None:
        """Read the bytes of private memory again; `None`: unknown, since the leader has ended and its threads live on.

        If it runs in its parent's memory, return the parent's. Raises `OSError` if the process no longer exists.
        """
        if self._leader_ended:
            return None
        data = self._statm_file.read()
        self.steady = data == self._statm_file.last
        return parse_private(data)

    def _of_living_thread(self, name: str) -> bytes | None:
        tasks = f"{self._proc}/{self.pid}/task"
        with suppress(OSError):
            for tid in os.listdir(tasks):
                if int(tid) != self.pid:
                    return read_once(f"{tasks}/{tid}/{name}")
        return None

    def refresh_status(self) -> bool:
        """Read the watermark; return whether it exists. A process that is ending has released its memory.

        Raises an `OSError` of `GONE` if the process no longer exists.
        """
        self.status_outdated, self.status_read = False, True
        data = self._status_file.read()
        if self._leader_ended and self.stat.threads > 1:
            data = self._of_living_thread("status") or data
        if data == self._status_data and self.page_tables and self.watermark.last is not None:
            self.note_same_status()
            return True
        self._status_data, self._status = data, None
        self.ignores_sigchld = parse_ignores_sigchld(data)
        self.stacks = parse_threads(data) * KERNEL_STACK
        self.hugetlb = self.shmem = self.secret = self.page_tables = 0
        if not self.shares_memory:
            self.page_tables = parse_page_tables(data)
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

    def status_as_read(self, due: float, every: float) -> WatchedFile | None:
        """Return its status to be read from `due` on, which must stay as it is; `None`: no descriptor is open.

        Pending signals do not matter: the kernel counts those of all processes of the user.
        """
        file = self._status_file.watched(self.status_data)
        before, signals, rest = self.status_data.partition(b"\nSigQ:")
        parts = tuple(filter(None, (before + signals, rest[rest.find(b"\n") :])))
        return None if file is None else file._replace(parts=parts, whole=False, next=due, every=every)

    def note_same_status(self) -> None:
        """Note a reading of a status that has not changed."""
        if self.watermark.last is not None:
            self.watermark.note(self.watermark.last, self.stat)

    def _has_lost(self, size: int) -> bool:
        """Return whether a reset removed this many bytes from its watermark. An exec restarts the watermark too."""
        if size <= rss_error(self.stat.threads):
            return False
        return parse_stat(self.stat_file.read()).stack == self.stat.stack == self.recorded.stack

    def last_look(self) -> bool:
        """Read it a last time; `False`: its memory is released, and its peak since the last sample is lost.

        Raises an `OSError` of `GONE` if the process no longer exists.
        """
        self.refresh()
        return self.refresh_status()

    def has_waited(self) -> bool:
        """Return whether it has waited for a child since its reading. If it has ended, the next sample finds out."""
        if self._has_not_run():
            return False
        try:
            return parse_stat(self.stat_file.read()).child_minor_faults != self.stat.child_minor_faults
        except OSError:
            return False

    @property
    def status_data(self) -> bytes:
        """Return the last status as bytes; empty before the first reading."""
        return self._status_data or b""

    def status(self) -> Status | None:
        """Return the last status; `None` before the first reading."""
        if self._status is None and self._status_data is not None:
            self._status = parse_status(self._status_data)
        return self._status

    def totals(self) -> Totals:
        """Return its totals, including its reaped children."""
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
        """Close its files. The readings remain available."""
        for file in (
            self.stat_file,
            self._statm_file,
            self._io_file,
            self._status_file,
            self.children_file,
            self._schedule_file,
        ):
            if file is not None:
                file.close()
