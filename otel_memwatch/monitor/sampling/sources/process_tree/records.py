"""Records of single processes: first sight, occasional figures, exit."""

from __future__ import annotations

from otel_memwatch.model import ProcessEvent, ProcessNote, ProcessRecord
from otel_memwatch.monitor.sampling.sources.process_tree.accounting import ReapedProcess
from otel_memwatch.monitor.sampling.sources.process_tree.member import Figures, Member
from otel_memwatch.runtime.kernel import monotonic_start, read_once
from otel_memwatch.runtime.procfs.process import Io, Stat, parse_arguments
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from otel_memwatch.monitor.sampling.sources.process_tree.lone_process import LoneEnd


LINES_PER_SECOND = 4.0
"""Maximum of figures recorded per second for the whole tree. Processes of large trees are recorded less often."""
SHORTEST, LONGEST = 1.0, 10.0
"""Bounds of the seconds between two figures of one process."""
MATERIAL_BYTES = 1 << 20
MATERIAL_SHARE = 0.01
MATERIAL_CPU = 0.1


def _arguments(proc: str, pid: int) -> tuple[str, ...] | None:
    try:
        return parse_arguments(read_once(f"{proc}/{pid}/cmdline")) or None
    except OSError:
        return None


class Records:
    """Converter of members to `ProcessRecord`s.

    Figures exclude children, except I/O: the kernel adds the I/O of children to it.
    """

    def __init__(
        self,
        proc: str,
        fault_bytes: int,
        on_process: Callable[[ProcessRecord], None],
        marks_operations: Callable[[int], bool],
    ) -> None:
        self._proc = proc
        self._fault_bytes = fault_bytes
        self._on_process = on_process
        self._marks_operations = marks_operations

    def seen(self, member: Member, now: float) -> None:
        """Record a process that has joined the tree."""
        member.recorded.argv = _arguments(self._proc, member.pid)
        self._record(ProcessEvent.SEEN, member, now, named=True)

    def hidden(self, pid: int, now: float) -> None:
        """Record a living process of the tree that /proc hides from us."""
        self._on_process(ProcessRecord(ProcessEvent.SEEN, now, pid, now, note=ProcessNote.HIDDEN))

    def hidden_ended(self, pid: int, start: float, now: float) -> None:
        """Record the end of a hidden process, found at `start`. Another process waited for it."""
        self._on_process(ProcessRecord(ProcessEvent.EXIT, now, pid, start, note=ProcessNote.HIDDEN))

    def executed(self, member: Member, now: float) -> None:
        """Record the new command if the process has executed another program since the last record."""
        stack = member.stat.stack
        if member.zombie or stack in (member.recorded.stack, 0):
            return
        member.recorded.stack = stack
        member.watermark.executed(member.stat, self._fault_bytes)
        member.recorded.argv = _arguments(self._proc, member.pid)
        self._record(ProcessEvent.FIGURES, member, now, named=True, note=ProcessNote.EXEC)

    def left_cgroup(self, member: Member, now: float) -> None:
        """Record a process found outside the run's cgroup."""
        self._record(ProcessEvent.FIGURES, member, now, named=True, note=ProcessNote.LEFT_CGROUP)

    def outside_ledger(self, member: Member, now: float, note: ProcessNote) -> None:
        """Record, with this process, that its tree has memory of which page faults show nothing, and why."""
        self._record(ProcessEvent.FIGURES, member, now, note=note)

    def reset_by_others(self, member: Member, now: float) -> None:
        """Record that another program has reset the watermark of a process."""
        self._record(ProcessEvent.FIGURES, member, now, named=True, note=ProcessNote.WATERMARK_RESET)

    def figures(self, members: Collection[Member], now: float) -> bool:
        """Record processes with changed figures if their last record is old enough; return whether one is not."""
        due = now - min(LONGEST, max(SHORTEST, len(members) / LINES_PER_SECOND))
        waits = False
        for member in members:
            if member.recorded.time > due:
                waits = True
            elif _changed(member):
                self._record(ProcessEvent.FIGURES, member, now)
        return waits

    def last(self, member: Member, now: float, *, whole: bool) -> None:
        """Record a process at the end of the run.

        It is alive, or it is ending just now. `whole`: these are its complete figures.
        """
        alive = whole and not member.zombie
        note = ProcessNote.ALIVE_AT_END if alive else None
        self._record(ProcessEvent.FIGURES, member, now, note=note, bound=member.watermark.before_exec or None)

    def gone(self, member: Member, now: float, *, unreaped: bool = False) -> None:
        """Record the end of a process that another process waited for, or (`unreaped`) none.

        The record has its last figures. Nothing bounds its peak.
        """
        note = ProcessNote.UNREAPED if unreaped else None
        self._record(ProcessEvent.EXIT, member, max(now, member.freed), note=note)

    def reaped(
        self,
        reaped: ReapedProcess,
        member: Member | None,
        hidden: float | None = None,
        lone: LoneEnd | None = None,
        placements: int | None = None,
    ) -> None:
        """Record the exact exit of a process that we waited for, known or not.

        `hidden`: time at which it was found to be hidden; `lone`: it was the whole tree; `placements`: as in
        the record.
        """
        end, stat = reaped.exit, reaped.stat
        last = member.stat if stat is None and member is not None else stat
        io = reaped.with_last(None if member is None else member.io)
        self._on_process(
            ProcessRecord(
                ProcessEvent.EXIT,
                end.time if member is None else max(end.time, member.freed),
                end.pid,
                member.start if member is not None else _start(reaped) if hidden is None else hidden,
                ppid=None if last is None else last.ppid,
                command=None if last is None else last.command,
                rss=None if member is None else member.rss,
                peak=None if member is None else member.watermark.largest,
                peak_bound=self._reaped_bound(reaped, member),
                **_counters(last, io),  # type: ignore[arg-type]
                exit_code=end.exit_code,
                signal=end.signal,
                note=_end_note(reaped, member) if hidden is None else ProcessNote.HIDDEN,
                max_rss=end.max_rss or None,
                childless=None if stat is None else stat.child_minor_faults == 0,
                file=None if member is None else member.file,
                needed=None if member is None else member.needed,
                beside=None if lone is None else lone.beside,
                max_rss_error=None if lone is None else lone.error,
                placements=placements,
            )
        )

    def reaped_elsewhere(self, reaped: ReapedProcess, member: Member | None) -> None:
        """Record that a process that we waited for ended outside the run's cgroup. Call this before `reaped`."""
        stat = reaped.stat
        self._on_process(
            ProcessRecord(
                ProcessEvent.FIGURES,
                reaped.exit.time,
                reaped.exit.pid,
                member.start if member is not None else _start(reaped),
                command=None if stat is None else stat.command,
                note=ProcessNote.LEFT_CGROUP,
            )
        )

    def _reaped_bound(self, reaped: ReapedProcess, member: Member | None) -> int | None:
        """Return an upper bound of the peak of a process that we waited for; `None`: unknown.

        ==========================================================  ======================================================
        process                                                     its bound
        ==========================================================  ======================================================
        resets its watermark, or the kernel reported no maximum     unknown
        was reset by another program                                unknown
        was never seen alive                                        the kernel's maximum
        was read, but without a watermark                           the kernel's maximum
        is an orphan, first read after an exec: it may have been a  the kernel's maximum
        copy of a large parent before
        any other                                                   its watermark plus the bytes it can have mapped since that
                                                                    reading, limited by the kernel's maximum; at least its
                                                                    watermark
        ==========================================================  ======================================================

        The kernel's maximum may belong to a child. The page faults exclude children.
        """
        most = reaped.exit.max_rss
        if most <= 0 or self._marks_operations(reaped.exit.pid):
            return None
        if member is None:
            return most
        watermark = member.watermark
        if watermark.reset_by_others:
            return None
        if watermark.largest is None or (member.executed_unseen and not reaped.exit.main):
            return most
        grown = most if reaped.stat is None else watermark.grown(reaped.stat, self._fault_bytes)
        return max(watermark.largest, min(most, max(watermark.before_exec, watermark.largest + grown)))

    def _record(
        self,
        event: ProcessEvent,
        member: Member,
        now: float,
        *,
        named: bool = False,
        note: ProcessNote | None = None,
        bound: int | None = None,
    ) -> None:
        stat, recorded = member.stat, member.recorded
        recorded.time = now
        recorded.figures = _figures(member)
        self._on_process(
            ProcessRecord(
                event,
                now,
                member.pid,
                member.start,
                ppid=stat.ppid if named else None,
                command=stat.command if named else None,
                argv=recorded.argv if named else None,
                rss=member.rss,
                peak=member.watermark.largest,
                peak_bound=bound,
                **_counters(stat, member.io),  # type: ignore[arg-type]
                threads=stat.threads,
                note=note or _note(member),
                file=member.file,
                needed=member.needed,
            )
        )


def _note(member: Member) -> ProcessNote | None:
    if member.ignores_sigchld:  # the only one of these that decides about a bound
        return ProcessNote.IGNORES_CHILDREN
    if member.zombie:
        return ProcessNote.ZOMBIE
    if member.denied:
        return ProcessNote.DENIED
    return ProcessNote.SHARES_MEMORY if member.shares_memory else None


def _end_note(reaped: ReapedProcess, member: Member | None) -> ProcessNote | None:
    if reaped.ignored_sigchld or (member is not None and member.ignores_sigchld):
        return ProcessNote.IGNORES_CHILDREN
    return ProcessNote.NEVER_SEEN if member is None else None


def _start(reaped: ReapedProcess) -> float:
    """Return the start of a process that was never seen. If unknown, return its end, the latest possible start."""
    if reaped.stat is not None:
        return monotonic_start(reaped.stat.start)
    return reaped.exit.time if reaped.exit.start is None else reaped.exit.start


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


def _figures(member: Member) -> Figures:
    stat, io = member.stat, member.io
    moved = 0 if io is None else sum(value or 0 for value in io)
    return (
        member.rss,
        member.watermark.largest or 0,
        stat.cpu_user + stat.cpu_system,
        moved,
        stat.threads,
        _note(member),
    )


def _changed(member: Member) -> bool:
    """Return whether a figure has changed enough to matter to a reader."""
    if member.recorded.figures is None:
        return True
    old, new = member.recorded.figures, _figures(member)
    for before, after in zip(old[:2], new[:2], strict=True):
        if abs(after - before) > max(MATERIAL_BYTES, MATERIAL_SHARE * before):
            return True
    return new[2] - old[2] >= MATERIAL_CPU or new[3] - old[3] >= MATERIAL_BYTES or new[4:] != old[4:]
