"""Figures from wait4 at the end of processes, for runs without a usable /proc.

Either /proc is missing, or it belongs to another PID namespace. wait4 reports the largest resident memory, CPU time and
page faults of a process and of all its reaped descendants.
"""

from __future__ import annotations

from collections import deque

from otel_memwatch import catalog
from otel_memwatch.model import Column, ProcessEvent, ProcessRecord
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_memwatch.model import ChildExit, Value
    from otel_memwatch.monitor.sampling.sources import Context

_MODE, _FAULT = "cpu.mode", "system.paging.fault.type"


class WaitedFor:
    """The target and its orphans that became our children. Nothing is known of them before they end.

    Args:
        context: context of the run.
        why: reason why they cannot be watched, as a phrase.

    """

    name = "process_tree"
    resting = sleeps = False
    runs = None

    def __init__(self, context: Context, why: str) -> None:
        self._context = context
        self.blind: str | None = (
            f"{why}: processes are recorded at their end only "
            "(to watch them: unshare --mount-proc, or mount -t proc proc /proc)"
        )
        self._ends: deque[ChildExit] = deque()
        self._seen = 0
        self._user = self._system = 0.0
        self._minor = self._major = 0
        self.columns: Sequence[Column] = (
            Column(catalog.MEMWATCH_TREE_CPU_TIME, ((_MODE, "user"),)),
            Column(catalog.MEMWATCH_TREE_CPU_TIME, ((_MODE, "system"),)),
            Column(catalog.MEMWATCH_TREE_PAGING_FAULTS, ((_FAULT, "minor"),)),
            Column(catalog.MEMWATCH_TREE_PAGING_FAULTS, ((_FAULT, "major"),)),
        )

    def pids(self) -> Sequence[int]:
        """Return no pids: a lookup would fail or find another process."""
        return ()

    def needed_range(self) -> None:
        """Return `None`: nothing bounds the memory needed here."""

    def needed_estimate(self) -> None:
        """Return `None`: nothing estimates the memory needed here."""

    def note_exit(self, end: ChildExit) -> None:
        """Queue wait4's report of a child. May be called from another thread."""
        self._ends.append(end)

    def ended_in(self) -> Mapping[int, bytes]:
        """Return no cgroups: they belong to another PID namespace."""
        return {}

    def totals(self) -> Mapping[str, float | int | None]:
        """Return the totals of all processes that have ended so far."""
        user, system, minor, major = self._values()
        return {
            "cpu_user": user,
            "cpu_system": system,
            "minor_faults": minor,
            "major_faults": major,
            "processes": self._seen,
        }

    def finish(self, now: float) -> None:  # noqa: ARG002 - the signature is that of every process_tree
        """Process the last queued reports. Do not call while `read` is running."""
        self._take_ends()

    def read(self, now: float) -> Sequence[Value]:  # noqa: ARG002
        """Return one value for each column; `None` before the first end."""
        self._take_ends()
        return self._values()

    def _values(self) -> tuple[Value, Value, Value, Value]:
        if not self._seen:
            return None, None, None, None
        return round(self._user, 3), round(self._system, 3), self._minor, self._major

    def _take_ends(self) -> None:
        while self._ends:
            end = self._ends.popleft()
            if end.pid in self._context.exclude:
                continue
            self._seen += 1
            self._user += end.cpu_user
            self._system += end.cpu_system
            self._minor += end.minor_faults
            self._major += end.major_faults
            self._context.on_process(
                ProcessRecord(
                    ProcessEvent.EXIT,
                    end.time,
                    end.pid,
                    self._start(end),
                    peak_bound=None if self._context.marks_operations(end.pid) else end.max_rss or None,
                    exit_code=end.exit_code,
                    signal=end.signal,
                    note="never seen alive",
                    max_rss=end.max_rss or None,
                )
            )

    def _start(self, end: ChildExit) -> float:
        """Return the start of an ended process; for an orphan its latest possible start."""
        if end.start is not None:
            return end.start
        started = self._context.started
        return started if end.pid == self._context.root and started is not None else end.time
