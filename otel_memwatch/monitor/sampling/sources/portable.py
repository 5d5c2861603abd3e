"""The target and its descendants by psutil: for systems without /proc, and for comparisons.

There are no watermarks and no fork counter here. Events between two samples are not seen, and peaks are sampled.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque

import psutil

from otel_memwatch import catalog
from otel_memwatch.errors import TargetEnded
from otel_memwatch.model import ChildExit, ProcessEvent, ProcessNote, ProcessRecord
from otel_memwatch.monitor.sampling.sources import columns_of
from otel_memwatch.runtime.kernel import sum_known
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from otel_memwatch.model import Column, Value
    from otel_memwatch.monitor.sampling.sources import Context, Row

FIGURES_SECONDS = 1.0
_START_ERROR = 0.011
"""Seconds by which the stated start of a process may be early: a clock tick, and the rounding of two clocks."""
_MODE, _DIRECTION, _SWITCH = "cpu.mode", "disk.io.direction", "process.context_switch.type"


class _ProcessCounters(NamedTuple):
    """Counters of one process without its children; `None`: the system does not report them."""

    cpu_user: float
    cpu_system: float
    read_bytes: int | None
    write_bytes: int | None


class _PortableProcess:
    """One process with its last readings from psutil."""

    def __init__(self, process: psutil.Process, offset: float) -> None:
        self.process = process
        self.start = process.create_time() - offset
        self.rss = self.virtual = self.peak = 0
        self.threads: int | None = None
        self.used = _ProcessCounters(0.0, 0.0, None, None)
        self.zombie = False
        self.recorded_at = -FIGURES_SECONDS
        self.has_io = hasattr(process, "io_counters")
        self.refresh()

    def refresh(self) -> None:
        """Read all values; denied ones keep their last value. Raises `psutil.NoSuchProcess` if it is gone."""
        try:
            with self.process.oneshot():
                memory, cpu = self.process.memory_info(), self.process.cpu_times()
                self.zombie = self.process.status() == psutil.STATUS_ZOMBIE
                self.threads = self.process.num_threads()
        except psutil.ZombieProcess:
            self.zombie, self.rss = True, 0
            return
        except psutil.AccessDenied:
            return
        self.rss, self.virtual = memory.rss, memory.vms
        self.peak = max(self.peak, memory.rss)
        io = self._io()
        self.used = _ProcessCounters(
            cpu.user,
            cpu.system,
            None if io is None else io.read_bytes,
            None if io is None else io.write_bytes,
        )

    def _io(self) -> Any:
        if not self.has_io:
            return None
        try:
            return self.process.io_counters()
        except (psutil.AccessDenied, NotImplementedError):
            return None

    def optional(self, method: str) -> Any:
        """Return the result of a method of psutil; `None` if the system lacks or denies it."""
        try:
            return getattr(self.process, method)()
        except (AttributeError, NotImplementedError, psutil.Error):
            return None


class Portable:
    """The tree of `context.root` by psutil: 2 ms per sample, and 0.2 ms per process, on Linux."""

    name = "process_tree"
    resting = sleeps = False
    runs = None
    blind: str | None = None

    def __init__(self, context: Context) -> None:
        self._context = context
        self._offset = time.time() - time.monotonic()
        self._members: dict[int, _PortableProcess] = {}
        self._exits: deque[ChildExit] = deque()
        self._departed: list[_ProcessCounters] = []
        self._reaped_cpu = [0.0, 0.0]
        self._highest: list[float | None] = [None] * 4
        self._seen = 0
        self._began: float | None = None
        """Time of the first sample."""
        self._awaited: dict[int, tuple[_PortableProcess, float]] = {}
        try:
            self._since = psutil.Process(context.root).create_time()
        except psutil.NoSuchProcess:
            if not context.adopt:
                raise TargetEnded(f"There is no process {context.root}.") from None
            self._since = psutil.Process().create_time()
        self._pace = context.pace()
        self.columns: Sequence[Column] = (
            *columns_of(_FAST),
            *columns_of(_SLOW, context.slow_period()),
        )

    # -- for others

    def pids(self) -> Sequence[int]:
        """Return the living processes of the tree as of the last reading, the target first."""
        return tuple(pid for pid, member in self._members.items() if not member.zombie)

    def needed_range(self) -> None:
        """Return `None`: there are no bounds of memory needed here."""

    def needed_estimate(self) -> None:
        """Return `None`: nothing estimates the memory needed here."""

    def note_exit(self, end: ChildExit) -> None:
        """Queue the kernel's report of a reaped child. May be called from another thread."""
        self._exits.append(end)

    def ended_in(self) -> Mapping[int, bytes]:
        """Return nothing: this system has no cgroups."""
        return {}

    def totals(self) -> Mapping[str, float | int | None]:
        """Return the totals of the tree so far, without processes that no sample saw."""
        user, system, read, written = self._highest
        return {
            "cpu_user": user,
            "cpu_system": system,
            "read_bytes": read,
            "write_bytes": written,
            "processes": self._seen,
        }

    def finish(self, now: float) -> None:
        """Record the last readings of every process. Not while `read` is running."""
        self._read_exits()
        for member, _ in self._awaited.values():
            self._record(ProcessEvent.EXIT, member, now)
        self._awaited.clear()
        self._add_up()
        for member in self._members.values():
            self._record(
                ProcessEvent.FIGURES, member, now, note=None if member.zombie else ProcessNote.ALIVE_AT_END
            )

    # -- a sample

    def read(self, now: float) -> Sequence[Value]:
        """Return one value for each column."""
        self._read_exits()
        self._refresh(now)
        for process in self._candidates():
            self._add(process, now)
        for pid, (member, deadline) in list(self._awaited.items()):
            if now > deadline:
                del self._awaited[pid]
                self._record(ProcessEvent.EXIT, member, now)
        if self._began is None:
            self._began = now
        self._add_up()
        living = [member for member in self._members.values() if not member.zombie]
        tree = _Tree(now, self._members.get(self._context.root), living, self._highest)
        due = self._pace.due(now)
        return [get(tree) for _, _, get in _FAST] + [get(tree) if due else None for _, _, get in _SLOW]

    def _read_exits(self) -> None:
        while self._exits:
            end = self._exits.popleft()
            if end.pid in self._context.exclude:
                continue
            member = self._members.pop(end.pid, None)
            if member is not None:
                self._departed.append(member.used)
            elif end.pid in self._awaited:
                member = self._awaited.pop(end.pid)[0]
            else:
                self._seen += 1
            self._reaped_cpu[0] += end.cpu_user
            self._reaped_cpu[1] += end.cpu_system
            start = member.start if member is not None else (end.start if end.start is not None else end.time)
            self._context.on_process(
                ProcessRecord(
                    ProcessEvent.EXIT,
                    end.time,
                    end.pid,
                    start,
                    rss=None if member is None else member.rss,
                    peak_bound=end.max_rss or None,
                    exit_code=end.exit_code,
                    signal=end.signal,
                    max_rss=end.max_rss or None,
                )
            )

    def _refresh(self, now: float) -> None:
        for pid, member in list(self._members.items()):
            try:
                running = member.process.is_running()
                if running:
                    member.refresh()
            except psutil.NoSuchProcess:
                running = False
            if not running:
                del self._members[pid]
                # On Linux its parent's I/O includes that of the child.
                used = member.used
                self._departed.append(used._replace(read_bytes=0, write_bytes=0) if psutil.LINUX else used)
                if pid == self._context.root and self._context.adopt:
                    self._awaited[pid] = (member, now + 5.0)  # the supervisor will report more exact figures
                else:
                    self._record(ProcessEvent.EXIT, member, now)
            elif now - member.recorded_at >= FIGURES_SECONDS:
                self._record(ProcessEvent.FIGURES, member, now)

    def _candidates(self) -> Iterable[psutil.Process]:
        """Return possible new members: the target, its descendants, and orphans of these."""
        roots = [psutil.Process()] if self._context.adopt else [m.process for m in self._members.values()]
        found: dict[int, psutil.Process] = {}
        for process in roots:
            try:
                found.update({child.pid: child for child in process.children(recursive=True)})
            except psutil.Error:
                continue
        if self._context.root not in self._members and self._seen == 0:
            with contextlib.suppress(psutil.NoSuchProcess):
                yield psutil.Process(self._context.root)
        yield from found.values()

    def _add(self, process: psutil.Process, now: float) -> None:
        pid = process.pid
        if pid in self._members or pid in self._awaited or pid in self._context.exclude or pid == os.getpid():
            return
        try:
            if process.create_time() < self._since - _START_ERROR:
                return
            member = _PortableProcess(process, self._offset)
        except psutil.Error:
            return
        self._members[pid] = member
        older = self._began is not None and member.start + _START_ERROR <= self._began
        if older and not self._context.adopt:
            # Its earlier life was not recorded.
            self._departed.append(
                _ProcessCounters._make(None if count is None else -count for count in member.used)
            )
        self._seen += 1
        self._record(ProcessEvent.SEEN, member, now)

    def _add_up(self) -> None:
        """Sum the counters; no total ever falls. Reaped children count by wait4, or by their last readings."""
        used = self._departed + [member.used for member in self._members.values()]
        if len(self._departed) > 1:
            self._departed = [_sum_used(self._departed)]
        total = list(_sum_used(used))
        for mode in (0, 1):  # user and system CPU time
            total[mode] = max(total[mode] or 0.0, self._reaped_cpu[mode])
        self._highest = [
            None if new is None else max(old or 0, new) for old, new in zip(self._highest, total, strict=True)
        ]

    def _record(
        self, event: ProcessEvent, member: _PortableProcess, now: float, note: ProcessNote | None = None
    ) -> None:
        member.recorded_at = now
        named = event is ProcessEvent.SEEN
        self._context.on_process(
            ProcessRecord(
                event,
                now,
                member.process.pid,
                round(member.start, 3),
                ppid=member.optional("ppid") if named else None,
                command=member.optional("name") if named else None,
                argv=tuple(member.optional("cmdline") or ()) or None if named else None,
                rss=member.rss,
                cpu_user=member.used.cpu_user,
                cpu_system=member.used.cpu_system,
                read_bytes=member.used.read_bytes,
                write_bytes=member.used.write_bytes,
                threads=member.threads,
                note=note or (ProcessNote.ZOMBIE if member.zombie else None),
            )
        )


class _Tree(NamedTuple):
    """Readings of the tree in one sample, for the getters of the columns."""

    now: float
    main: _PortableProcess | None
    """The target; `None` after its end."""
    living: Sequence[_PortableProcess]
    totals: Sequence[float | None]
    """User and system CPU time, bytes read and written, including reaped processes."""


def _own(get: Callable[[_PortableProcess], Value], *, zombie: bool = False) -> Callable[[_Tree], Value]:
    """Return the getter of a figure of the target: `None` after its end. A zombie has a value only with `zombie`."""
    return lambda tree: None if tree.main is None or (tree.main.zombie and not zombie) else get(tree.main)


def _switches(kind: str) -> Callable[[_Tree], Value]:
    return _own(lambda main: getattr(main.optional("num_ctx_switches"), kind, None))


def _uptime(tree: _Tree) -> Value:
    return _own(lambda main: round(tree.now - main.start, 3))(tree)


_READ, _WRITE = ((_DIRECTION, "read"),), ((_DIRECTION, "write"),)
_USER, _SYSTEM = ((_MODE, "user"),), ((_MODE, "system"),)
_VOLUNTARY, _INVOLUNTARY = ((_SWITCH, "voluntary"),), ((_SWITCH, "involuntary"),)

_FAST: tuple[Row[_Tree], ...] = (
    (catalog.PROCESS_MEMORY_USAGE, (), _own(lambda main: main.rss)),
    (catalog.MEMWATCH_TREE_MEMORY_USAGE, (), lambda tree: sum(one.rss for one in tree.living)),
    (catalog.PROCESS_CPU_TIME, _USER, _own(lambda main: main.used.cpu_user, zombie=True)),
    (catalog.PROCESS_CPU_TIME, _SYSTEM, _own(lambda main: main.used.cpu_system, zombie=True)),
    (catalog.MEMWATCH_TREE_CPU_TIME, _USER, lambda tree: tree.totals[0]),
    (catalog.MEMWATCH_TREE_CPU_TIME, _SYSTEM, lambda tree: tree.totals[1]),
    (catalog.MEMWATCH_TREE_DISK_IO, _READ, lambda tree: tree.totals[2]),
    (catalog.MEMWATCH_TREE_DISK_IO, _WRITE, lambda tree: tree.totals[3]),
    (catalog.MEMWATCH_TREE_PROCESS_COUNT, (), lambda tree: len(tree.living)),
    (catalog.MEMWATCH_TREE_THREAD_COUNT, (), lambda tree: sum_known(one.threads for one in tree.living)),
)
"""Columns that are read at every sample."""

_SLOW: tuple[Row[_Tree], ...] = (
    (catalog.PROCESS_MEMORY_VIRTUAL, (), _own(lambda main: main.virtual)),
    (catalog.PROCESS_DISK_IO, _READ, _own(lambda main: main.used.read_bytes)),
    (catalog.PROCESS_DISK_IO, _WRITE, _own(lambda main: main.used.write_bytes)),
    (catalog.PROCESS_THREAD_COUNT, (), _own(lambda main: main.threads)),
    (
        catalog.PROCESS_UNIX_FILE_DESCRIPTOR_COUNT,
        (),
        _own(lambda main: main.optional("num_fds")),
    ),
    (catalog.PROCESS_CONTEXT_SWITCHES, _VOLUNTARY, _switches("voluntary")),
    (catalog.PROCESS_CONTEXT_SWITCHES, _INVOLUNTARY, _switches("involuntary")),
    (catalog.PROCESS_UPTIME, (), _uptime),
    (catalog.MEMWATCH_TREE_MEMORY_VIRTUAL, (), lambda tree: sum(one.virtual for one in tree.living)),
    (
        catalog.MEMWATCH_TREE_FILE_DESCRIPTOR_COUNT,
        (),
        lambda tree: sum_known(one.optional("num_fds") for one in tree.living),
    ),
)
"""Columns that are read about once a second."""


def _sum_used(parts: Sequence[_ProcessCounters]) -> _ProcessCounters:
    return _ProcessCounters(
        sum(part.cpu_user for part in parts),
        sum(part.cpu_system for part in parts),
        sum_known(part.read_bytes for part in parts),
        sum_known(part.write_bytes for part in parts),
    )


open_source = Portable
"""Raises `TargetEnded` if there is no such process to attach to."""
