"""What is known of the memory of each process of a run, collected one record at a time.

`ProcessBounds` holds one process, `TreeBounds` all there were, in memory for those that live.
"""

from __future__ import annotations

import math
from collections import deque

from otel_memwatch.model import ProcessEvent, ProcessNote, ProcessRecord
from otel_memwatch.run.tree_bounds import EndedSpans, Span
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.truth.cgroup import left_cgroup
from otel_memwatch.truth.outside_faults import beyond_files
from otel_memwatch.truth.process import process_bound, wait4_was_its_own, watermark_is_of_run
from otel_memwatch.truth.processes import CLOCK_TICK, is_same_process, is_unwatched, process_span, unseen_max

if TYPE_CHECKING:
    from otel_memwatch.run.conditions import RunConditions

_SETTLE = 10.0
"""Seconds for which an ended process is kept apart: a late record or boundary may still tell something of it."""

_MERGE_ABOVE = 4096
"""Ended processes that are kept apart: merging so many takes 2 MiB for a moment."""


class ProcessBounds:
    """What is known of one process's memory.

    Attributes:
        low: bytes that it certainly had during the run, first seen `at` (monotonic seconds).
        waited_for: whether we waited for it ourselves.
        max_rss: what wait4 told then; `None`: nothing.
        final: whether its last figures were taken at the end of the run.
        reset_by_others: whether somebody else started its watermark anew.

    """

    __slots__ = (
        "_began_before", "_first_peak", "_highest", "_segments", "_whole_life", "at", "end", "final", "low", "max_rss",
        "pid", "reset_by_others", "start", "waited_for",
    )  # fmt: skip

    def __init__(self, pid: int, start: float, conditions: RunConditions) -> None:
        self.pid = pid
        self.start = start
        self.end: float | None = None
        self.low = 0
        self.at: float | None = None
        self.max_rss: int | None = None
        self.waited_for = self.final = self._segments = self._whole_life = self.reset_by_others = False
        self._began_before = conditions.joined and start < conditions.started
        self._first_peak: int | None = None
        self._highest = 0
        """The largest value that was read of it or that wait4 told, reached in the run or before."""

    def add_record(self, record: ProcessRecord, floor: int) -> None:
        """Takes in what a record says of its memory; `floor`: bytes up to which wait4 may tell of the launcher."""
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
        # wait4's maximum may be a child's: where there is a bound of the process's own, it is the nearer one.
        self._highest = max(self._highest, record.peak_bound or record.max_rss or 0)
        if record.event is ProcessEvent.EXIT:
            self.end, self.max_rss = record.time, record.max_rss
            self.waited_for = record.exit_code is not None or record.signal is not None
            self._whole_life = record.peak_bound is not None
        elif record.note == ProcessNote.ALIVE_AT_END:
            self.final = True

    def add_segment(self, value: int, time: float) -> None:
        """It had `value` bytes at its worst between two resets of its own watermark, as it reported itself."""
        self._segments = True
        self.raise_to(value, time)

    def add_watermark(self, peak: int, time: float) -> None:
        """Takes in its watermark, as it was read at `time`."""
        self._highest = max(self._highest, peak)
        if watermark_is_of_run(self._began_before, self._first_peak, peak):
            self._began_before = False
            self.raise_to(peak, time)
        elif self._first_peak is None:
            self._first_peak = peak

    def raise_to(self, value: int, time: float) -> None:
        """It certainly had `value` bytes, seen at `time`."""
        if value > self.low:
            self.low, self.at = value, time

    def reopen(self) -> None:
        """Takes back that its last figures were taken at the end of the run: nobody saw that end."""
        self.final = False

    @property
    def known(self) -> int:
        """Bytes that it did not exceed up to its last figures."""
        return max(self.low, self._highest)

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
    """The largest maximum that a process reported of itself, for the time between two resets of its watermark."""

    start: float | None
    """Of the process, in monotonic seconds; `None`: not told."""
    value: int
    time: float


class TreeBounds:
    """All processes of a run. Memory is bounded by the living ones, not by all there were.

    Attributes:
        count: how many processes there were.
        reaped_max_bytes: the largest maximum of everything that ended and that we, or what we waited for, waited for.
        attained_bytes: the largest of these that one process certainly had, unless it is the launcher's.
        ended_faults: page faults of those that have ended.
        unreaped: whether there were processes for which nobody waited.
        ignores_sigchld: whether a process ignored SIGCHLD: the kernel drops what its children used, and of those that no
            tick saw nothing else is known.
        hidden: whether there were processes that /proc did not show to us.
        left_cgroup: whether a process was seen outside the run's own control group.
        outside_ledger: whether memory came into the tree that no page fault of it has brought.
        largest: the process with the largest certain maximum.
        main: the target's own process.
        ended_spans: what ended some time ago.

    """

    def __init__(self, conditions: RunConditions) -> None:
        self._conditions = conditions
        self.count = 0
        self.reaped_max_bytes: int | None = None
        self.attained_bytes = 0
        self.unreaped = self.ignores_sigchld = self.hidden = self.left_cgroup = self.outside_ledger = False
        self.largest: ProcessBounds | None = None
        self.main: ProcessBounds | None = None
        self.ended_spans = EndedSpans()
        self._any_vanished = False
        self._most_needed: int | None = None
        self._most_file: int | None = None
        self._vanished_max_bytes = 0
        self._latest_vanished: float | None = None
        self.ended_faults = 0
        self._unreported_reset = False
        self._living: dict[tuple[int, float], ProcessBounds] = {}
        self._ended: deque[ProcessBounds] = deque()
        self._by_pid: dict[int, ProcessBounds] = {}
        self._segments: dict[int, Segment] = {}
        """Those of processes of which no record has come yet."""

    def add_record(self, record: ProcessRecord) -> ProcessBounds | None:
        """Takes in what a record says of its process, and gives that; `None`: its end is known already."""
        key = record.pid, record.start
        process = self._living.get(key)
        if process is None:
            if record.event is ProcessEvent.EXIT and self._has_ended(record):
                return None
            process = self._living[key] = self._begin(record)
        process.add_record(record, self._conditions.floor)
        self.unreaped = self.unreaped or record.note == ProcessNote.UNREAPED
        self.ignores_sigchld = self.ignores_sigchld or record.note == ProcessNote.IGNORES_CHILDREN
        self.hidden = self.hidden or record.note == ProcessNote.HIDDEN
        self.left_cgroup = self.left_cgroup or record.note == ProcessNote.LEFT_CGROUP
        self.outside_ledger = self.outside_ledger or record.note == ProcessNote.OUTSIDE_LEDGER
        if record.file is not None:
            self._most_file = max(record.file, self._most_file or 0)
        if record.needed is not None:
            self._most_needed = max(record.needed, self._most_needed or 0)
        if record.event is ProcessEvent.EXIT:
            del self._living[key]
            self._add_exit(process, record)
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

    def _has_ended(self, record: ProcessRecord) -> bool:
        process = self._by_pid.get(record.pid)
        return process is not None and process.end is not None and process.start == record.start

    def _add_exit(self, process: ProcessBounds, record: ProcessRecord) -> None:
        self.ended_faults += (record.minor_faults or 0) + (record.major_faults or 0)
        if process.waited_for:
            highest = max(record.peak_bound or 0, record.max_rss or 0)
            self.reaped_max_bytes = max(self.reaped_max_bytes or 0, highest) or None
            # Without wait4's own figure, a bound made of windows and of what wait4 told is nobody's maximum.
            if record.max_rss is not None or not self._conditions.exact:
                self.attained_bytes = max(self.attained_bytes, record.max_rss or highest)
        else:
            self._latest_vanished = max(self._latest_vanished or process.start, process.start)
        self._ended.append(process)

    def raise_to(self, process: ProcessBounds, value: int, time: float) -> None:
        """The process certainly had `value` bytes, seen at `time`."""
        process.raise_to(value, time)
        self._compare(process)

    def add_watermark(self, process: ProcessBounds, peak: int, time: float) -> None:
        """Takes in a watermark of the process."""
        process.add_watermark(peak, time)
        self._compare(process)

    def _compare(self, process: ProcessBounds) -> None:
        if self.largest is None or process.low > self.largest.low:
            self.largest = process

    def add_segment(self, pid: int, start: float | None, value: int, time: float) -> None:
        """Process `pid` (started at `start`) had `value` bytes at its worst between two of its boundaries."""
        process = self._by_pid.get(pid)
        if process is None and self.main is not None and self.main.pid == pid:
            process = self.main
        if process is not None and is_same_process(process.start, start):
            process.add_segment(value, time)
            self._compare(process)
        else:
            self._segments[pid] = Segment(start, value, time)

    def settle(self, now: float) -> None:
        """Adds processes that ended some time before `now` to the spans of all that have ended."""
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
            self._merge(now)

    def _merge(self, now: float) -> None:
        waiting = [p.start - CLOCK_TICK for p in (*self._living.values(), *self._ended)]
        if len(self.ended_spans) > 4 * len(waiting):
            self.ended_spans.merge(waiting, now - _SETTLE)

    def span(self, process: ProcessBounds) -> Span:
        """The process with its weight in the tree; that of an unseen one where it has no bound of its own."""
        end = math.inf if process.end is None else process.end
        bound = process.bound
        start, end, weight = process_span(process.start, end, bound or 0, self._conditions.rss_error)
        return Span(start, end, 0, 1) if bound is None else Span(start, end, weight)

    @property
    def unwatched(self) -> bool:
        """Whether processes of the run could not be watched."""
        return is_unwatched(blind=self._conditions.blind, hidden=self.hidden)

    @property
    def most_file(self) -> int | None:
        """The most file pages that a process was seen with; `None`: nobody looked."""
        return self._most_file

    @property
    def knows_needed(self) -> bool:
        """Whether anonymous and shared memory of a process was read; old records have resident sizes only."""
        return self._most_needed is not None

    @property
    def charged_bytes(self) -> int:
        """The most that one process certainly had at a sample of what is charged to control groups as needed memory."""
        return max(0, (self._most_needed or 0) - self._conditions.rss_error)

    def have_left(self, watermark: int, faults_elsewhere: int, faults: int) -> bool:
        """Whether processes used memory outside the run's own control group.

        Args:
            watermark: of that group, in bytes.
            faults_elsewhere: page faults of the tree that the group was not told of.
            faults: page faults of the tree.

        """
        largest = 0 if self.largest is None else self.largest.low
        floor = self._conditions.floor
        unexplained = (
            beyond_files(size, self._most_file, floor, faults)
            for size, floor in ((self.attained_bytes, floor), (largest, 0))
        )
        return left_cgroup(
            seen=self.left_cgroup,
            charged=max(self.charged_bytes, *unexplained),
            watermark=watermark,
            faults_elsewhere=faults_elsewhere,
            error=self._conditions.charge_error + self._conditions.rss_error,
        )

    @property
    def any_vanished(self) -> bool:
        """Whether any ended without an upper bound of its memory."""
        return self._any_vanished or any(process.bound is None for process in self._ended)

    def unseen_max_bytes(
        self, latest_unseen: float | None = None, vanished: ProcessBounds | None = None
    ) -> int | None:
        """Upper bound of any process that ended without one of its own; `None`: there is none.

        Args:
            latest_unseen: monotonic seconds at which a process that no tick saw can have started at the latest; `None`:
                there was none.
            vanished: the one that is asked about; `None`: all.

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
        """The largest segment that belongs to no process we still know, with its pid; `None`: there is none."""
        return max(self._segments.items(), key=lambda item: item[1].value, default=None)

    @property
    def living(self) -> list[ProcessBounds]:
        """Those of whom no end is known."""
        return list(self._living.values())

    def recent(self) -> list[ProcessBounds]:
        """Those who live, or ended a moment ago."""
        return [*self._living.values(), *self._ended]
