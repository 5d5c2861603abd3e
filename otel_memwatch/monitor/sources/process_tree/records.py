"""What is told of single processes: seen, figures now and then, exit."""

from __future__ import annotations

from otel_memwatch.model import ProcessEvent, ProcessNote, ProcessRecord
from otel_memwatch.monitor.procfs.process import Io, Stat, parse_arguments
from otel_memwatch.monitor.sources.process_tree.accounting import end_ignores_children, end_io, end_stat
from otel_memwatch.monitor.sources.process_tree.files import read_once
from otel_memwatch.monitor.sources.process_tree.member import Member
from otel_memwatch.runtime.kernel import monotonic_start
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from otel_memwatch.model import ChildExit

LINES_PER_SECOND = 4.0
"""Figures told in a second at most, of the whole tree: large trees are told more seldom."""
SHORTEST, LONGEST = 1.0, 10.0
"""Seconds between two figures of one process."""
MATERIAL_BYTES = 1 << 20
MATERIAL_SHARE = 0.01
MATERIAL_CPU = 0.1


def _arguments(proc: str, pid: int) -> tuple[str, ...] | None:
    try:
        return parse_arguments(read_once(f"{proc}/{pid}/cmdline")) or None
    except OSError:
        return None


class Records:
    """Turns members into `ProcessRecord`s. Figures are without the children's, but for I/O, which the kernel adds up."""

    def __init__(
        self,
        proc: str,
        fault_bytes: int,
        tell: Callable[[ProcessRecord], None],
        marks_operations: Callable[[int], bool],
    ) -> None:
        self._proc = proc
        self._fault_bytes = fault_bytes
        self._tell = tell
        self._marks_operations = marks_operations

    def seen(self, member: Member, now: float) -> None:
        """A process has joined the tree."""
        member.argv = _arguments(self._proc, member.pid)
        self._record(ProcessEvent.SEEN, member, now, named=True)

    def executed(self, member: Member, now: float) -> bool:
        """Tell of a new command, when the process has executed another program since it was told last."""
        stat = member.stat
        if member.zombie or stat.stack in (member.exec_stack, 0):
            return False
        member.exec_stack = stat.stack
        if member.watermark is not None:
            # the watermark that is read from now on knows nothing of the time between the last reading and the exec
            faults = stat.minor_faults + stat.major_faults - member.watermark_faults
            member.outgrown = max(member.outgrown, member.watermark + max(0, faults) * self._fault_bytes)
        member.argv = _arguments(self._proc, member.pid)
        self._record(ProcessEvent.FIGURES, member, now, named=True, note=ProcessNote.EXEC)
        return True

    def figures(self, members: Collection[Member], now: float) -> None:
        """Tell of those processes whose figures have changed, when the last time is long enough ago."""
        told_before = now - min(LONGEST, max(SHORTEST, len(members) / LINES_PER_SECOND))
        for member in members:
            if member.recorded_at <= told_before and _changed(member):
                self._record(ProcessEvent.FIGURES, member, now)

    def last(self, member: Member, now: float, *, whole: bool) -> None:
        """The record ends and the process lives (`whole`: these are its figures), or it is ending just now."""
        if member.outgrown:
            member.window_bound = max(member.window_bound or 0, member.outgrown)
        self._record(
            ProcessEvent.FIGURES,
            member,
            now,
            note=ProcessNote.ALIVE_AT_END if whole and not member.zombie else None,
        )

    def gone(self, member: Member, now: float, *, unreaped: bool = False) -> None:
        """A process has ended that others waited for, or nobody: its last figures stand, and nothing bounds its peak."""
        member.window_bound = None
        self._record(ProcessEvent.EXIT, member, now, note=ProcessNote.UNREAPED if unreaped else None)

    def reaped(self, end: ChildExit, member: Member | None) -> None:
        """A process that we waited for ourselves, known or not: its exit, exact."""
        stat = end_stat(end)
        start = member.start if member is not None else _start(end, stat)
        last = member.stat if stat is None and member is not None else stat
        io = end_io(end) or (None if member is None else member.io)
        peak = None if member is None else member.watermark
        bound = self._reaped_bound(end, member)
        self._tell(
            ProcessRecord(
                ProcessEvent.EXIT,
                end.time,
                end.pid,
                start,
                ppid=None if last is None else last.ppid,
                command=None if last is None else last.command,
                rss=None if member is None else member.rss,
                peak=peak,
                peak_bound=bound,
                **_counters(last, io),  # type: ignore[arg-type]
                exit_code=end.exit_code,
                signal=end.signal,
                note=_end_note(end, member),
                max_rss=end.max_rss or None,
                childless=None if stat is None else stat.child_minor_faults == 0,
            )
        )

    def _reaped_bound(self, end: ChildExit, member: Member | None) -> int | None:
        """Most that the process ever had: what the kernel told, and the windows before if the watermark was reset."""
        if end.max_rss <= 0 or self._marks_operations(end.pid):
            return None
        if member is None:
            return end.max_rss
        if member.windowed and member.window_bound is None:
            return None
        before = max(member.watermark or 0, member.window_bound or 0)
        if member.watermark is None:
            return max(before, end.max_rss)
        grown = max(member.outgrown, member.watermark + self._grown(end, member))
        return max(before, min(end.max_rss, grown))

    def _grown(self, end: ChildExit, member: Member) -> int:
        """Bytes that the process can have mapped after its watermark was read: so much for each page fault since.

        What the kernel told when we waited for it may be a child's; its page faults are its own.
        """
        stat = end_stat(end)
        if stat is None:
            return end.max_rss
        faults = stat.minor_faults + stat.major_faults - member.watermark_faults
        return max(0, faults) * self._fault_bytes

    def _record(
        self,
        event: ProcessEvent,
        member: Member,
        now: float,
        *,
        named: bool = False,
        note: ProcessNote | None = None,
    ) -> None:
        stat = member.stat
        member.recorded_at = now
        member.recorded = _figures(member)
        self._tell(
            ProcessRecord(
                event,
                now,
                member.pid,
                member.start,
                ppid=stat.ppid if named else None,
                command=stat.command if named else None,
                argv=member.argv if named else None,
                rss=member.rss,
                peak=member.watermark,
                peak_bound=member.window_bound,
                **_counters(stat, member.io),  # type: ignore[arg-type]
                threads=stat.threads,
                note=note or _note(member),
            )
        )


def _note(member: Member) -> ProcessNote | None:
    if member.zombie:
        return ProcessNote.ZOMBIE
    if member.denied:
        return ProcessNote.DENIED
    if member.shares_memory:
        return ProcessNote.SHARES_MEMORY
    return ProcessNote.IGNORES_CHILDREN if member.ignores_children else None


def _end_note(end: ChildExit, member: Member | None) -> ProcessNote | None:
    if end_ignores_children(end) or (member is not None and member.ignores_children):
        return ProcessNote.IGNORES_CHILDREN
    return ProcessNote.NEVER_SEEN if member is None else None


def _start(end: ChildExit, stat: Stat | None) -> float:
    """Start of a process that was never seen; where nothing tells it, its end is the latest that it can be."""
    if stat is not None:
        return monotonic_start(stat.start)
    return end.time if end.start is None else end.start


def _counters(stat: Stat | None, io: Io | None) -> dict[str, float | int | None]:
    counters: dict[str, float | int | None] = {}
    if stat is not None:
        counters.update(
            cpu_user=stat.cpu_user,
            cpu_system=stat.cpu_system,
            minor_faults=stat.minor_faults,
            major_faults=stat.major_faults,
        )
    if io is not None:
        counters.update(io._asdict())
    return counters


def _figures(member: Member) -> tuple[int, int, float, int, int, ProcessNote | None]:
    stat, io = member.stat, member.io
    moved = 0 if io is None else sum(io)
    return (
        member.rss,
        member.watermark or 0,
        stat.cpu_user + stat.cpu_system,
        moved,
        stat.threads,
        _note(member),
    )


def _changed(member: Member) -> bool:
    """Whether something has changed by more than a person would care about."""
    if member.recorded is None:
        return True
    old, new = member.recorded, _figures(member)
    for before, after in zip(old[:2], new[:2], strict=True):
        if abs(after - before) > max(MATERIAL_BYTES, MATERIAL_SHARE * before):
            return True
    return new[2] - old[2] >= MATERIAL_CPU or new[3] - old[3] >= MATERIAL_BYTES or new[4:] != old[4:]
