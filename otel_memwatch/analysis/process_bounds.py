"""The processes of a run, folded one record at a time: their largest maxima, and how much they can have had together."""

from __future__ import annotations

import math
from collections import deque

from otel_memwatch.analysis.life import Life
from otel_memwatch.analysis.tree_bounds import Overlap, Span
from otel_memwatch.model import ProcessEvent, ProcessNote, ProcessRecord
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from otel_memwatch.analysis.run_conditions import Basis

CLOCK_TICK = 0.01
"""Seconds by which a process can have started before the time that the kernel tells."""

_SAME_START = 1.0
"""Seconds by which two accounts of a process's start may differ."""

_SETTLE = 10.0
"""Seconds for which an ended process waits for a late word about it."""

_MERGE_ABOVE = 4096
"""Ended processes that are kept apart: merging so many takes 2 MiB for a moment."""


class Segment(NamedTuple):
    """The largest maximum that a process told of itself, for the time between two resets of its watermark."""

    start: float | None
    """Of the process, in monotonic seconds; `None`: not told."""
    value: int
    time: float

    def is_of(self, life: Life) -> bool:
        """Whether it is that process: pids are used again."""
        return self.start is None or abs(self.start - life.start) <= _SAME_START


class Lives:
    """All processes of a run. Memory is bounded by the living ones, not by all there were.

    Attributes:
        seen: how many processes there were.
        reaped: upper bound of everything that ended and that we, or what we waited for, waited for.
        attained: the largest maximum that the kernel told for these: one of them had it, unless it is the launcher's.
        unreaped: whether there were processes for which nobody waited, so that `reaped` is no bound.
        heedless: whether a process ignored the end of its children: for those that no tick saw, `reaped` is no bound.
        largest: the life with the largest certain maximum.
        main: the target's own process.

    """

    def __init__(self, basis: Basis) -> None:
        self._basis = basis
        self.seen = 0
        self.reaped: int | None = None
        self.attained = 0
        self._vanished = self._largest_vanished = 0
        self._untold = False
        self.unreaped = self.heedless = False
        self.largest: Life | None = None
        self.main: Life | None = None
        self.past = Overlap()
        self._living: dict[tuple[int, float], Life] = {}
        self._ended: deque[Life] = deque()
        self._by_pid: dict[int, Life] = {}
        self._segments: dict[int, Segment] = {}

    def take(self, record: ProcessRecord) -> None:
        """Takes a record in."""
        key = record.pid, record.start
        life = self._living.get(key)
        if life is None:
            if record.event is ProcessEvent.EXIT and self._is_over(record):
                return
            life = self._living[key] = self._begin(record)
        life.take(record, self._basis)
        self.unreaped = self.unreaped or record.note == ProcessNote.UNREAPED
        self.heedless = self.heedless or record.note == ProcessNote.IGNORES_CHILDREN
        if record.event is ProcessEvent.EXIT:
            del self._living[key]
            self._exit(life, record)
        self._remember(life)

    def _begin(self, record: ProcessRecord) -> Life:
        life = Life(record.pid, record.start, self._basis)
        self.seen += 1
        self._by_pid[record.pid] = life
        if self.main is None and record.pid == self._basis.root:
            self.main = life
        known = self._segments.get(record.pid)
        if known is not None and known.is_of(life):
            life.add_segment(known.value, known.time)
            del self._segments[record.pid]
        return life

    def _is_over(self, record: ProcessRecord) -> bool:
        life = self._by_pid.get(record.pid)
        return life is not None and life.end is not None and life.start == record.start

    def _exit(self, life: Life, record: ProcessRecord) -> None:
        if life.told:
            told = max(record.peak_bound or 0, record.max_rss or 0)
            self.reaped = max(self.reaped or 0, told) or None
            if record.max_rss is not None or not self._basis.exact:
                self.attained = max(self.attained, record.max_rss or told)
        self._ended.append(life)
        self.settle(record.time)

    def raise_to(self, life: Life, value: int, time: float) -> None:
        """The process certainly had `value` bytes, seen at `time`."""
        life.raise_to(value, time)
        self._remember(life)

    def raise_watermark(self, life: Life, peak: int, time: float) -> None:
        """Takes in a watermark of the process."""
        life.observe_peak(peak, time)
        self._remember(life)

    def _remember(self, life: Life) -> None:
        if self.largest is None or life.low > self.largest.low:
            self.largest = life

    def segment(self, pid: int, start: float | None, value: int, time: float) -> None:
        """Process `pid` (started at `start`) had `value` bytes at its worst between two of its boundaries."""
        segment = Segment(start, value, time)
        life = self._by_pid.get(pid)
        if life is None and self.main is not None and self.main.pid == pid:
            life = self.main
        if life is not None and segment.is_of(life):
            life.add_segment(value, time)
            self._remember(life)
        else:
            self._segments[pid] = segment

    def settle(self, now: float) -> None:
        """Folds processes that ended some time before `now` into the past."""
        while self._ended and (self._ended[0].end or 0.0) < now - _SETTLE:
            life = self._ended.popleft()
            self.past.add(self.span(life))
            if life.bound is None:
                self._vanished += 1
                self._largest_vanished = max(self._largest_vanished, life.known)
                self._untold = self._untold or life.told
            if self._by_pid.get(life.pid) is life:
                del self._by_pid[life.pid]
        if len(self.past) > _MERGE_ABOVE:
            self._merge(now)

    def _merge(self, now: float) -> None:
        waiting = [life.start - CLOCK_TICK for life in (*self._living.values(), *self._ended)]
        if len(self.past) > 4 * len(waiting):
            self.past.merge(waiting, now - _SETTLE)

    def span(self, life: Life) -> Span:
        """The life with an upper bound of its memory: one `unit` where none of its own is known."""
        end = math.inf if life.end is None else life.end
        begin = life.start - CLOCK_TICK
        if life.bound is not None:
            return Span(begin, end, life.bound + self._basis.rss_error)
        return Span(begin, end, 0, 1)

    @property
    def vanished(self) -> int:
        """How many ended without an upper bound of their memory."""
        return self._vanished + sum(life.bound is None for life in self._ended)

    @property
    def untold(self) -> bool:
        """Whether one that we waited for reset its watermark and did not tell what it had before."""
        return self._untold or any(life.told and life.bound is None for life in self._ended)

    @property
    def unit(self) -> int | None:
        """Upper bound of any process that ended without one of its own; `None`: there is none.

        Each of them was waited for by another process, in the end by one of ours, so that wait4 covers the time
        since the last reset of its watermark; what was read before, or what it told itself, covers the rest.
        """
        if self.reaped is None or self.unreaped or self.untold:
            return None
        vanished = [life.known for life in self._ended if life.bound is None]
        late = [segment.value for segment in self._segments.values()]
        return max([self.reaped, self._largest_vanished, *vanished, *late]) + self._basis.rss_error

    @property
    def late(self) -> tuple[int, Segment] | None:
        """The largest segment that belongs to no process we still know, with its pid; `None`: there is none."""
        return max(self._segments.items(), key=lambda item: item[1].value, default=None)

    def present(self) -> list[Life]:
        """Those who live, or ended a moment ago."""
        return [*self._living.values(), *self._ended]

    @property
    def living(self) -> list[Life]:
        """Those of whom no end is known."""
        return list(self._living.values())
