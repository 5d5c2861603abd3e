"""Bounds of the memory of each process of a run, collected one record at a time.

`ProcessBounds` holds one process, `ProcessCollection` all of them, with memory only for living ones.
"""

from __future__ import annotations

import math

from otel_memwatch.model import ProcessEvent, ProcessNote, ProcessRecord
from otel_memwatch.run.tree_bounds import EndedSpans, Span
from otel_memwatch.runtime.light import deque
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.truth.cgroup import UncountedFaults, left_cgroup
from otel_memwatch.truth.outside_faults import beyond_files, with_unseen_fill
from otel_memwatch.truth.process import process_bound, wait4_was_its_own, watermark_is_of_run
from otel_memwatch.truth.processes import CLOCK_TICK, is_same_process, is_unwatched, process_span, unseen_max

if TYPE_CHECKING:
    from otel_memwatch.run.conditions import RunConditions

_SETTLE = 10.0
"""Seconds for which an ended process is kept apart: a late record or boundary may still concern it."""

_MERGE_ABOVE = 4096
"""Ended processes that are kept apart: merging so many takes 2 MiB for a moment."""


class ProcessBounds:
    """Bounds of one process's memory.

    Attributes:
        low: bytes that it certainly had during the run, first seen `at` (monotonic seconds).
        waited_for: whether we waited for it ourselves.
        sampled: the most resident memory at any sample, in bytes.
        max_rss: wait4's maximum; `None`: not reported.
        final: whether its last figures were taken at the end of the run.
        reset_by_others: whether another program reset its high-water mark.
        faults: its page faults, as of its last record.
        needed: the most anonymous and shared memory of it at a sample, in bytes.
    """

    __slots__ = (
        "_began_before", "_first_peak", "_highest", "_lone", "_segments", "_whole_life", "at", "end", "faults", "final",
        "low", "max_rss", "needed", "pid", "reset_by_others", "sampled", "start", "waited_for",
    )  # fmt: skip

    def __init__(self, pid: int, start: float, conditions: RunConditions) -> None:
        self.pid = pid
        self.start = start
        self.end: float | None = None
        self.low = self.sampled = self.faults = self.needed = 0
        self.at: float | None = None
        self.max_rss: int | None = None
        self._lone: tuple[int, int] | None = None
        self.waited_for = self.final = self._segments = self._whole_life = self.reset_by_others = False
        self._began_before = conditions.joined and start < conditions.started
        self._first_peak: int | None = None
        self._highest = 0
        """The largest value that was read or that wait4 reported, reached in the run or before."""

    def add_record(self, record: ProcessRecord, floor: int) -> None:
        """Add the memory figures of a record; `floor`: bytes up to which wait4's maximum may be the launcher's."""
        self.sampled = max(self.sampled, record.rss or 0, record.needed or 0)
        self.needed = max(self.needed, record.needed or 0)
        self.faults = max(self.faults, (record.minor_faults or 0) + (record.major_faults or 0))
        if record.rss is not None:
            self.raise_to(record.rss, record.time)
        if record.peak is not None:
            self.add_watermark(record.peak, record.time)
        if record.max_rss is not None and wait4_was_its_own(
            record.max_rss, childless=bool(record.childless), floor=floor
        ):
            self.raise_to(record.max_rss, record.time)
        if record.note == ProcessNote.WATERMARK_RESET:
            self.reset_by_others = True
        # wait4's maximum may be a child's: the bound of the process itself is tighter, if known.
        self._highest = max(self._highest, record.peak_bound or record.max_rss or 0)
        if record.event is ProcessEvent.EXIT:
            self.end, self.max_rss = record.time, record.max_rss
            if record.beside is not None and record.max_rss_error is not None:
                self._lone = record.beside, record.max_rss_error
            self.waited_for = record.exit_code is not None or record.signal is not None
            self._whole_life = record.peak_bound is not None
        elif record.note == ProcessNote.ALIVE_AT_END:
            self.final = True

    def add_segment(self, value: int, time: float) -> None:
        """Add a maximum that the process reported between two resets of its high-water mark."""
        self._segments = True
        self.raise_to(value, time)

    def add_watermark(self, peak: int, time: float) -> None:
        """Add a high-water mark, read at `time`."""
        self._highest = max(self._highest, peak)
        if watermark_is_of_run(self._began_before, self._first_peak, peak):
            self._began_before = False
            self.raise_to(peak, time)
        elif self._first_peak is None:
            self._first_peak = peak

    def raise_to(self, value: int, time: float) -> None:
        """Raise the lower bound to `value` bytes, seen at `time`."""
        if value > self.low:
            self.low, self.at = value, time

    def reopen(self) -> None:
        """Clear `final`: the end of the run was not recorded."""
        self.final = False

    @property
    def known(self) -> int:
        """Bytes that it did not exceed up to its last figures."""
        return max(self.low, self._highest)

    @property
    def lone(self) -> tuple[int, int] | None:
        """If it was the whole tree with one thread: the most bytes beside it, and the error of its maximum; else `None`."""
        if not self._whole_life or self._segments or self.reset_by_others:
            return None  # a reset hides its maximum
        return self._lone

    @property
    def bound(self) -> int | None:
        """Bytes that it certainly never exceeded; `None`: not known."""
        return process_bound(
            self.known,
            last_read=self.final,
            waited_for=self.waited_for,
            whole_life=self._whole_life,
            segments=self._segments,
            wait4=self.max_rss is not None,
            reset_by_others=self.reset_by_others,
        )


class Segment(NamedTuple):
    """The largest maximum that a process reported for itself between two resets of its high-water mark."""

    start: float | None
    """Start of the process, in monotonic seconds; `None`: not reported."""
    value: int
    time: float


class ProcessCollection:
    """All processes of a run. Memory is bounded by the living ones, not by all processes.

    Attributes:
        count: number of processes.
        reaped_max_bytes: the largest maximum of all ended processes that we, or processes we waited for, waited for.
        attained_bytes: the largest of these that one process certainly had, unless it is the launcher's.
        ended_faults: page faults of ended processes.
        most_faults: the most page faults of one process.
        unreaped: whether no process waited for some processes.
        ignores_sigchld: whether a process ignored SIGCHLD. The kernel then drops the use of its children; unseen ones leave
            no other trace.
        hidden: whether /proc hid processes from us.
        left_cgroup: whether a process was seen outside the run's cgroup.
        outside_ledger: whether memory came into the tree without a page fault of the tree.
        unwritten_files: whether the machine's shared memory rose beyond the tree's mappings and write calls.
        placements: the most times that threads of the run began, or ran again; `None`: not counted.
        pinned: whether a process had pinned memory, which no resident size need include.
        sampled: the most resident memory of one process at any sample, in bytes.
        largest: the process with the largest certain maximum.
        main: the target's own process.
        ended_spans: processes that ended some time ago.
    """

    def __init__(self, conditions: RunConditions) -> None:
        self._conditions = conditions
        self.count = 0
        self.reaped_max_bytes: int | None = None
        self.attained_bytes = 0
        self.unreaped = self.ignores_sigchld = self.hidden = self.left_cgroup = self.outside_ledger = False
        self.pinned = self.unwritten_files = False
        self.placements: int | None = None
        self.sampled = 0
        self.largest: ProcessBounds | None = None
        self.main: ProcessBounds | None = None
        self.ended_spans = EndedSpans()
        self._any_vanished = False
        self._most_needed: int | None = None
        self._most_file: int | None = None
        self._vanished_max_bytes = 0
        self._latest_vanished: float | None = None
        self.ended_faults = self.most_faults = 0
        self._unreported_reset = False
        self._living: dict[tuple[int, float], ProcessBounds] = {}
        self._ended: deque[ProcessBounds] = deque()
        self._by_pid: dict[int, ProcessBounds] = {}
        self._segments: dict[int, Segment] = {}
        """Segments of processes without a record so far."""

    def add_record(self, record: ProcessRecord) -> ProcessBounds | None:
        """Add a record and return its process; `None`: its end is known already."""
        key = record.pid, record.start
        process = self._living.get(key)
        if process is None:
            ended = self._by_pid.get(record.pid)
            has_ended = ended is not None and ended.end is not None and ended.start == record.start
            if has_ended and record.event is ProcessEvent.EXIT:
                return None
            process = self._living[key] = self._begin(record)
        process.add_record(record, self._conditions.floor)
        self.most_faults = max(self.most_faults, process.faults)
        self.unreaped = self.unreaped or record.note == ProcessNote.UNREAPED
        self.ignores_sigchld = self.ignores_sigchld or record.note == ProcessNote.IGNORES_CHILDREN
        self.hidden = self.hidden or record.note == ProcessNote.HIDDEN
        self.left_cgroup = self.left_cgroup or record.note == ProcessNote.LEFT_CGROUP
        self.unwritten_files = self.unwritten_files or record.note == ProcessNote.UNWRITTEN_FILES
        self.pinned = self.pinned or record.note == ProcessNote.PINNED
        self.outside_ledger = self.outside_ledger or self.pinned or record.note == ProcessNote.OUTSIDE_LEDGER
        if record.file is not None:
            self._most_file = max(record.file, self._most_file or 0)
        if record.needed is not None:
            self._most_needed = max(record.needed, self._most_needed or 0)
        if record.event is ProcessEvent.EXIT:
            del self._living[key]
            self.ended_faults += (record.minor_faults or 0) + (record.major_faults or 0)
            if record.placements is not None:
                self.placements = max(self.placements or 0, record.placements)
            if process.waited_for:
                highest = max(record.peak_bound or 0, record.max_rss or 0)
                self.reaped_max_bytes = max(self.reaped_max_bytes or 0, highest) or None
                # Without wait4's figure, a bound made of windows and wait4's maximum is no process's maximum.
                if record.max_rss is not None or not self._conditions.exact:
                    self.attained_bytes = max(self.attained_bytes, record.max_rss or highest)
            else:
                self._latest_vanished = max(self._latest_vanished or process.start, process.start)
            self._ended.append(process)
        self._compare(process)
        return process

    def _begin(self, record: ProcessRecord) -> ProcessBounds:
        process = ProcessBounds(record.pid, record.start, self._conditions)
        self.count += 1
        self._by_pid[record.pid] = process
        if self.main is None and record.pid == self._conditions.root:
            self.main = process
        early = self._segments.get(record.pid)
        if early is not None and is_same_process(process.start, early.start):
            process.add_segment(early.value, early.time)
            del self._segments[record.pid]
        return process

    def raise_to(self, process: ProcessBounds, value: int, time: float) -> None:
        """Raise the lower bound of a process to `value` bytes, seen at `time`."""
        process.raise_to(value, time)
        self._compare(process)

    def add_watermark(self, process: ProcessBounds, peak: int, time: float) -> None:
        """Add a high-water mark of the process."""
        process.add_watermark(peak, time)
        self._compare(process)

    def _compare(self, process: ProcessBounds) -> None:
        self.sampled = max(self.sampled, process.sampled)
        if self.largest is None or process.low > self.largest.low:
            self.largest = process

    def add_segment(self, pid: int, start: float | None, value: int, time: float) -> None:
        """Add the maximum of process `pid` (started at `start`) between two of its boundaries."""
        process = self._by_pid.get(pid)
        if process is None and self.main is not None and self.main.pid == pid:
            process = self.main
        if process is not None and is_same_process(process.start, start):
            process.add_segment(value, time)
            self._compare(process)
        else:
            self._segments[pid] = Segment(start, value, time)

    def settle(self, now: float) -> None:
        """Add processes that ended some time before `now` to the spans of all ended processes."""
        while self._ended and (self._ended[0].end or 0.0) < now - _SETTLE:
            process = self._ended.popleft()
            self.ended_spans.add(self.span(process))
            if process.bound is None:
                self._any_vanished = True
                self._vanished_max_bytes = max(self._vanished_max_bytes, process.known)
                unreported = process.waited_for or process.reset_by_others
                self._unreported_reset = self._unreported_reset or unreported
            if self._by_pid.get(process.pid) is process:
                del self._by_pid[process.pid]
        if len(self.ended_spans) > _MERGE_ABOVE:
            waiting = [p.start - CLOCK_TICK for p in (*self._living.values(), *self._ended)]
            if len(self.ended_spans) > 4 * len(waiting):
                self.ended_spans.merge(waiting, now - _SETTLE)

    def span(self, process: ProcessBounds) -> Span:
        """Return the process with its weight in the tree; an unseen process if it has no bound."""
        end = math.inf if process.end is None else process.end
        bound = process.bound
        start, end, weight = process_span(process.start, end, bound or 0, self._conditions.rss_error)
        return Span(start, end, 0, 1) if bound is None else Span(start, end, weight)

    @property
    def unwatched(self) -> bool:
        """True if processes of the run could not be watched."""
        return is_unwatched(blind=self._conditions.blind, hidden=self.hidden)

    @property
    def all_faults_counted(self) -> bool:
        """True if the tree's page faults include those of each process, and each process outside the cgroup was there briefly."""
        uncounted = self.unreaped or self.ignores_sigchld or self.unwatched or self.outside_ledger
        return not (uncounted or self.left_cgroup)

    @property
    def placements_of_all(self) -> int | None:
        """`placements`, if all processes have ended, and another one waited for each; else `None`."""
        unknown = self.unreaped or self.ignores_sigchld or self.unwatched or self._living
        return None if unknown else self.placements

    def bounded_by_faults(self, high: float) -> bool:
        """Return whether page faults explain all memory of the tree; `high`: the largest of their bounds, in bytes."""
        if self.unwatched or self.outside_ledger:
            return False
        return with_unseen_fill(0, self.attained_bytes, self.most_file, self._conditions.floor) <= high

    @property
    def most_file(self) -> int | None:
        """The most file pages of any process at a sample; `None`: not sampled."""
        return self._most_file

    @property
    def knows_needed(self) -> bool:
        """True if anonymous and shared memory of a process was read; old records have resident sizes only."""
        return self._most_needed is not None

    @property
    def charged_bytes(self) -> int:
        """Lower bound of the largest needed memory of one process that is charged to cgroups, at a sample."""
        return max(0, (self._most_needed or 0) - self._conditions.sum_error)

    def have_left(self, watermark: int, uncounted: UncountedFaults, faults: int) -> bool:
        """Return whether processes used memory outside the run's cgroup.

        If the run has joined the cgroup, only memory at samples counts: earlier memory of a process, and its page faults, may
        be from before it entered.

        Args:
            watermark: of that cgroup, in bytes.
            uncounted: page faults of the tree that the cgroup did not count.
            faults: page faults of the tree.
        """
        largest = 0 if self.largest is None else self.largest.low
        floor = self._conditions.floor
        unexplained = (
            beyond_files(size, self._most_file, floor, faults)
            for size, floor in ((self.attained_bytes, floor), (largest, 0))
        )
        joined = self._conditions.joined
        return left_cgroup(
            seen=self.left_cgroup,
            charged=self.charged_bytes if joined else max(self.charged_bytes, *unexplained),
            watermark=watermark,
            uncounted=UncountedFaults() if joined else uncounted,
            error=self._conditions.charge_error + self._conditions.rss_error,
        )

    @property
    def any_vanished(self) -> bool:
        """True if any process ended without an upper bound of its memory."""
        return self._any_vanished or any(process.bound is None for process in self._ended)

    def unseen_max_bytes(
        self, latest_unseen: float | None = None, vanished: ProcessBounds | None = None
    ) -> int | None:
        """Return an upper bound of any process that ended without one; `None`: not known.

        Args:
            latest_unseen: latest monotonic seconds at which a process that no sample saw can have started; `None`: none.
            vanished: the process in question; `None`: all.
        """
        seen = self._latest_vanished if vanished is None else vanished.start
        starts = [time for time in (seen, latest_unseen) if time is not None]
        recent = [process for process in self._ended if process.bound is None]
        target = self.main
        lost = target is None or (target.end is not None and not target.waited_for)
        unclaimed = [segment.value for segment in self._segments.values()]
        return unseen_max(
            self.reaped_max_bytes,
            max([self._vanished_max_bytes, *(process.known for process in recent), *unclaimed]),
            unreaped=self.unreaped or lost or (latest_unseen is not None and self.ignores_sigchld),
            unreported_reset=self._unreported_reset
            or any(process.waited_for or process.reset_by_others for process in recent),
            latest_start=max(starts, default=None),
            oldest_alive=min((process.start for process in self._living.values()), default=None),
        )

    @property
    def unclaimed_segment(self) -> tuple[int, Segment] | None:
        """The largest segment of an unknown process, with its pid; `None`: no such segment."""
        return max(self._segments.items(), key=lambda item: item[1].value, default=None)

    @property
    def living(self) -> list[ProcessBounds]:
        """Processes without a known end."""
        return list(self._living.values())

    def recent(self) -> list[ProcessBounds]:
        """Return the processes that live, or ended a moment ago."""
        return [*self._living.values(), *self._ended]
