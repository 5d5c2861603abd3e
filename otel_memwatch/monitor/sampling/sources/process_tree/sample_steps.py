"""The source `process_tree`: the steps of a sample, in order."""

from __future__ import annotations

import math
import os

from otel_memwatch.monitor.sampling.sources import LATER_AT_REST
from otel_memwatch.monitor.sampling.sources.process_tree.columns import (
    IO,
    UPTIME,
    columns,
    descriptor_counts,
    fast_values,
    slow_values,
    uptime,
)
from otel_memwatch.monitor.sampling.sources.process_tree.member import GONE, Totals
from otel_memwatch.monitor.sampling.sources.process_tree.membership import Membership, TickDelta
from otel_memwatch.monitor.sampling.sources.process_tree.records import Records
from otel_memwatch.runtime.kernel import processors
from otel_memwatch.runtime.procfs.process import Io
from otel_memwatch.runtime.procfs.system import fault_bytes
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.truth.cgroup_windows import charge_error
from otel_memwatch.truth.exact import EXACT_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_memwatch.model import ChildExit, Value
    from otel_memwatch.monitor.sampling.repeated import Repetition
    from otel_memwatch.monitor.sampling.sources import Context
    from otel_memwatch.monitor.sampling.sources.process_tree.member import Member
    from otel_memwatch.monitor.sampling.sources.process_tree.needed_memory import NeededMemory

EVERY_STATUS = 20
"""Members up to which each sample can read every status. Above, each status is read about once a second."""
ROUND_SECONDS = 1.0
REST_SECONDS = 1.0
"""Least time between two readings of all files while no process runs."""


class ProcessTree:
    """The tree of `context.root`.

    Cost of a sample: 25 us and about 15 us for each process.
    """

    name = "process_tree"
    blind: str | None = None
    resting = sleeps = False

    def __init__(self, context: Context) -> None:
        self._context = context
        self._proc = str(context.proc)
        records = self._records = Records(
            self._proc,
            fault_bytes(context.sys, os.uname().release),
            context.on_process,
            context.marks_operations,
        )
        self._tree = Membership(context, records)
        self._needed = _open_needed(context, self._tree, records)
        self._range: tuple[int, int | None] = (0, None)
        """Result of `needed_range`."""
        self._estimate: tuple[int, int, int] | None = None
        """Result of `needed_estimate`."""
        self._slow_pace = context.pace()
        self._rest_pace = context.pace(REST_SECONDS)
        self._rests_until = -math.inf
        """Monotonic seconds of the next reading of all files while no process runs."""
        self._round = 0
        """Index of the member of a large tree with the status to read next."""
        self._watched: Sequence[Member] = ()
        """Members of which the samples of a repetition read the status."""
        self._sum = Totals()
        self._fast: list[Value] = []
        """Values of the last sample with a changed figure."""
        self.columns = columns(
            context.slow_period(),
            needed=self._needed is not None and not context.in_group,
            in_group=context.in_group,
        )
        self._at_rest: list[Value] = []
        """Values of the next sample if nothing changes and no slow value is due."""
        self._lost_io = 0
        """Samples until the I/O of a group is known again."""
        self._read_status = self._lines_wait = True
        """A status has changed since the last values; a process may need a line when its last one is older."""
        self._slow: list[Value] = []
        """The last slow values; empty: a figure has changed since."""
        self._descriptors: Mapping[int, int | None] = {}
        """Open descriptors by pid, at the last reading of slow values."""
        self._not_due: list[Value] = [None] * sum(column.period > 0 for column in self.columns)

    def pids(self) -> Sequence[int]:
        """Return living processes with separate memory as of the last reading, the target first."""
        members = self._tree.members
        return tuple(pid for pid, member in members.items() if not member.zombie and not member.shares_memory)

    def needed_range(self) -> tuple[int, int] | None:
        """Return the largest lower bound so far and the upper bound at the last sample; `None`: unknown."""
        low, high = self._range
        return None if high is None else (low, high)

    def needed_estimate(self) -> tuple[int, int, int] | None:
        """Return best estimates of the last sample, in bytes: memory needed, and its parts in unmapped files and shared memory.

        `None`: unknown.
        """
        return self._estimate

    @property
    def runs(self) -> int | None:
        """Return a number that stays the same while no process has run. Its size has no meaning."""
        return self._tree.sleep.runs

    def note_exit(self, end: ChildExit) -> None:
        """Queue the kernel's report of a reaped child. May be called from another thread."""
        self._tree.exits.append(end)

    def ended_in(self) -> Mapping[int, bytes]:
        """Return cgroups of children that ended by the last sample, read from /proc while they were zombies."""
        return self._tree.ended_in

    def totals(self) -> Mapping[str, float | int | None]:
        """Return the totals of the tree so far, including reaped children; `None`: unknown."""
        io = self._sum.io
        return {
            "cpu_user": self._sum.cpu_user,
            "cpu_system": self._sum.cpu_system,
            "minor_faults": self._sum.minor_faults,
            "major_faults": self._sum.major_faults,
            **(dict.fromkeys(Io._fields) if io is None else io._asdict()),
            "processes": self._tree.pids.seen,
            "unobserved": self._tree.pids.unobserved,
        }

    @property
    def may_probe(self) -> bool:
        """Return whether an early sample is ever worth its cost: not if the run has a cgroup."""
        return self._needed is not None and not self._context.in_group

    @property
    def probe_after(self) -> float:
        """Return the seconds until an early sample is worth its cost; infinite: none is."""
        return math.inf if self._needed is None else self._needed.probe_after

    def probe(self, now: float) -> bool:  # noqa: ARG002 - the signature is EarlySampleSource's
        """Return whether a sample now narrows the bounds of memory needed."""
        return self._needed is not None and self._needed.is_sample_worth_it()

    def read(self, now: float) -> Sequence[Value]:
        """Return one value for each column. Raises `OSError` only if /proc itself is unreadable."""
        pace = self._slow_pace
        if self.resting and now < self._rests_until and self._tree.rests(now):
            return self._at_rest
        slow = pace.due(now)
        changes = self._tree.update(now, whole=slow)
        self.resting = not (changes.figures or self._tree.faults.signs)
        read_some = self._read_watermarks(all_of_them=slow)
        if slow:
            self._tree.look_at_groups(now)
        if read_some:
            self._tree.find_resets(now)
        self._tree.close_ledgers(changes)
        values = self._values(changes, now, slow=slow)
        if self._context.target_group is not None:
            # A process outside may have waited for one of the group, whose last bytes are then in no counter. The I/O bounds
            # the page cache between samples, so omit it at this sample and the next.
            self._lost_io = 2 if changes.lost else max(0, self._lost_io - 1)
            if self._lost_io:
                values[IO] = [None] * 4
                self.resting = False
        if self.resting:
            self._at_rest = [*values[: len(values) - len(self._not_due)], *self._not_due]
        if slow:
            # Nothing but the kernel, which may reclaim memory, changes a process that does not run.
            self._rest_pace.due(now)
            self._rests_until = (self._rest_pace if self._tree.sleep.asleep else pace).next
        return values

    def repeats(self) -> Repetition | None:
        """Return until when the next samples have the same values; `None`: they may differ.

        While all members sleep, these samples read their sizes and watermarks when `read` would, and find them unchanged.
        """
        self.sleeps = False
        files = self._tree.files_at_rest() if self.resting else None
        if files is None:
            return None
        from otel_memwatch.monitor.sampling.repeated import Repetition

        due, members = self._rests_until, list(self._tree.members.values())
        sizes = self._tree.sleep.watched_sizes(members, due, REST_SECONDS)
        if sizes:
            self._watched = self._in_turn(members)
            statuses = [member.status_as_read(due, REST_SECONDS) for member in self._watched]
            self.sleeps = None not in statuses
            if self.sleeps:
                files += (*sizes, *filter(None, statuses))
        until = due + LATER_AT_REST if self.sleeps else due
        return Repetition(min(until, self._tree.rests_until), self._at_rest, files)

    def note_repeated(self, contents: Sequence[bytes | None]) -> None:
        """Note samples that repeated these values: the last contents of the files."""
        self._tree.note_repeated(contents)
        if self.sleeps and contents[-1] is not None:
            for member in self._watched:
                member.note_same_status()
            self._round += len(self._watched)

    def finish(self, now: float) -> None:
        """Record the last figures of every process and close all files. Do not call while `read` is running."""
        self._tree.finish(now)
        self._sum = self._tree.totals()
        self._tree.close()
        if self._needed is not None:
            self._needed.close()

    def _read_watermarks(self, *, all_of_them: bool) -> bool:
        """Read statuses: in a small tree of changed members, in a large tree of some members in turn. Return whether it read any.

        Without a page fault a process has no more memory than before. Another process may have added memory to it: the
        watermark keeps this until `all_of_them` are read.
        """
        every = list(self._tree.members.values())
        members = self._in_turn(every)
        if len(every) > EVERY_STATUS:
            self._round += len(members)
        elif not all_of_them:
            members = [member for member in members if member.status_outdated]
        for member in members:
            before = member.status_data
            try:
                member.refresh_status()
            except GONE:
                continue
            self._read_status = self._read_status or member.status_data is not before
        return bool(members)

    def _in_turn(self, members: list[Member]) -> list[Member]:
        """Return the members with the status to read next: all of a small tree."""
        if len(members) <= EVERY_STATUS:
            return members
        count = min(len(members), int(len(members) * self._context.interval / ROUND_SECONDS) + 1)
        self._round %= len(members)
        return (members + members)[self._round : self._round + count]

    def _values(self, changes: TickDelta, now: float, *, slow: bool) -> list[Value]:
        """Return the values of a sample. If no figure has changed, reuse the values of the previous sample."""
        members = self._tree.members.values()
        main = self._tree.members.get(self._context.root)
        asleep = self._tree.sleep.asleep
        if changes.figures or (slow and (self._read_status or not asleep)) or not self._fast:
            self._sum = self._tree.totals()
            self._fast = fast_values(main, members, self._sum)
            self._slow, self._read_status, self._lines_wait = [], False, True
        if self._lines_wait and (changes.figures or slow):
            self._lines_wait = self._records.figures(members, now)
        fast = [*self._fast, self._tree.pids.unobserved, self._tree.faults.unseen]
        if self._context.in_group:
            low = None if self._needed is None else self._needed.read(changes, now, 0).low
            fast += (low, None)
        elif self._needed is not None:
            io = self._sum.io
            written = 0 if io is None or io.write_chars is None else io.write_chars - io.write_bytes
            bounds = self._needed.read(changes, now, written)
            kept = None if bounds.high is None else self._needed.kept
            self._range = max(self._range[0], bounds.low or 0), kept
            self._estimate = (
                None if bounds.estimate is None else (bounds.estimate, *self._needed.beside_private)
            )
            fast += bounds
        if not slow:
            return fast + self._not_due
        if asleep and self._slow:
            self._slow[UPTIME] = uptime(now, main)
            return fast + self._slow
        for member in members:
            member.retry_io()
        if not asleep:
            self._descriptors = descriptor_counts(self._proc, members)
        self._slow = slow_values(now, main, members, self._descriptors)
        return fast + self._slow


def _open_needed(context: Context, tree: Membership, records: Records) -> NeededMemory | None:
    """Return the bounds of memory needed; `None`: a cgroup measures it, or /proc lacks counters.

    On many processors the cgroup's counters are inexact, so the processes give a lower bound too. Those of a group that we join
    do not: it may not have been charged for memory from before a process entered it.
    """
    if context.target_group is not None or (
        context.own_cgroup is not None and charge_error(processors()) <= EXACT_BYTES
    ):
        return None
    # Other runs with a cgroup do without these modules.
    from otel_memwatch.monitor.sampling.sources.process_tree.needed_memory import NeededMemory

    try:
        return NeededMemory(context, tree, records)
    except (OSError, ValueError):
        return None
