"""The processes of a run, folded one record at a time: their largest maxima, and how much they can have had together."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from otel_memwatch.analysis.overlap import Overlap, Span
from otel_memwatch.model import ProcessEvent, ProcessRecord

if TYPE_CHECKING:
    from otel_memwatch.analysis.basis import Basis

ALIVE_AT_END = "alive at the end"
"""Note of the last figures of a process that outlived the recording."""

UNREAPED = "nobody waits for it"
"""Note of a process whose parent ignores its end: the kernel tells nobody what it used."""

_CLOCK_TICK = 0.01
"""Seconds by which a process can have started before the time that the kernel tells."""

_SETTLE = 10.0
"""Seconds for which an ended process waits for a late word about it."""

_MERGE_ABOVE = 16384
"""Ended processes that are kept apart."""


class Life:
    """What is known of one process's memory.

    Attributes:
        low: bytes that it certainly had during the run, first seen `at` (monotonic seconds).
        bound: bytes that it certainly never exceeded; `None`: not known.
        told: whether we waited for it ourselves.
        final: whether its last figures were taken at the end of the run.

    """

    __slots__ = ("_before", "_ceiling", "at", "bound", "end", "final", "low", "pid", "start", "told")

    def __init__(self, pid: int, start: float, basis: Basis) -> None:
        self.pid = pid
        self.start = start
        self.end: float | None = None
        self.low = 0
        self.at: float | None = None
        self.bound: int | None = None
        self.told = self.final = False
        self._before: int | None = -1 if basis.joined and start < basis.started else None
        self._ceiling = 0

    def take(self, record: ProcessRecord, basis: Basis) -> None:
        """Takes in what a record says of its memory."""
        if record.rss is not None:
            self.raise_to(record.rss, record.time)
        if record.peak is not None:
            self.observe_peak(record.peak, record.time)
        if record.max_rss is not None and record.childless and record.max_rss > basis.floor:
            self.raise_to(record.max_rss, record.time)
        self._ceiling = max(self._ceiling, record.peak_bound or 0, record.max_rss or 0)
        if record.event is ProcessEvent.EXIT:
            self.end = record.time
            self.told = record.exit_code is not None or record.signal is not None
            # Of a process that others waited for, what was read last is no bound: it may have grown since.
            if self.told and (record.peak_bound is not None or record.max_rss is not None):
                self.bound = self.known
        elif record.note == ALIVE_AT_END:
            self.final = True
            self.bound = self.known or None

    def observe_peak(self, peak: int, time: float) -> None:
        """Takes in a watermark.

        That of a process that was there before the run may be older than the run: it says what the process
        certainly had only once it has risen.
        """
        self._ceiling = max(self._ceiling, peak)
        if self._before == -1:
            self._before = peak
        if self._before is None or peak > self._before:
            self._before = None
            self.raise_to(peak, time)
        elif self.bound is not None:
            self.bound = self.known

    def raise_to(self, value: int, time: float) -> None:
        """It certainly had `value` bytes, seen at `time`."""
        if value > self.low:
            self.low, self.at = value, time
        if self.bound is not None and value > self.bound:
            self.bound = value

    @property
    def known(self) -> int:
        """Bytes that it did not exceed up to its last figures."""
        return max(self.low, self._ceiling)


class Segments(NamedTuple):
    """The largest maximum between two boundaries of a process that resets its own watermark."""

    start: float | None
    value: int
    time: float


class Lives:
    """All processes of a run. Memory is bounded by the living ones, not by all there were.

    Attributes:
        seen: how many processes there were.
        vanished: how many ended without an upper bound of their memory.
        reaped: upper bound of everything that ended and that we, or what we waited for, waited for.
        attained: the largest maximum that the kernel told for these: one of them had it, unless it is the launcher's.
        unreaped: whether there were processes for which nobody waited, so that `reaped` is no bound.
        largest: the life with the largest certain maximum.
        main: the target's own process.

    """

    def __init__(self, basis: Basis) -> None:
        self._basis = basis
        self.seen = self.vanished = 0
        self.reaped: int | None = None
        self.attained = 0
        self._largest_vanished = 0
        self.unreaped = False
        self.largest: Life | None = None
        self.main: Life | None = None
        self.past = Overlap()
        self._living: dict[tuple[int, float], Life] = {}
        self._ended: deque[Life] = deque()
        self._by_pid: dict[int, Life] = {}
        self._segments: dict[int, Segments] = {}

    def take(self, record: ProcessRecord) -> None:
        """Takes a record in."""
        key = record.pid, record.start
        life = self._living.get(key)
        if life is None:
            if record.event is ProcessEvent.EXIT and self._is_over(record):
                return
            life = self._living[key] = self._begin(record)
        life.take(record, self._basis)
        self.unreaped = self.unreaped or record.note == UNREAPED
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
        if known is not None:
            self._apply(life, known)
        return life

    def _is_over(self, record: ProcessRecord) -> bool:
        life = self._by_pid.get(record.pid)
        return life is not None and life.end is not None and life.start == record.start

    def _exit(self, life: Life, record: ProcessRecord) -> None:
        if life.bound is None:
            self.vanished += 1
            self._largest_vanished = max(self._largest_vanished, life.known)
        elif life.told:
            self.reaped = max(self.reaped or 0, life.bound)
            if record.max_rss is not None:
                self.attained = max(self.attained, record.max_rss)
            elif not self._basis.exact:
                self.attained = max(self.attained, life.bound)
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
        """Process `pid` (started at `start`) had `value` bytes at most, and at least once, between two of its boundaries."""
        known = self._segments.get(pid)
        if known is not None and known.start == start and known.value >= value:
            return
        self._segments[pid] = segments = Segments(start, value, time)
        life = self._by_pid.get(pid)
        if life is not None:
            self._apply(life, segments)
            self._remember(life)

    def _apply(self, life: Life, segments: Segments) -> None:
        if segments.start is not None and abs(segments.start - life.start) > 1.0:
            return
        life.raise_to(segments.value, segments.time)

    def settle(self, now: float) -> None:
        """Folds processes that ended some time before `now` into the past."""
        while self._ended and (self._ended[0].end or 0.0) < now - _SETTLE:
            life = self._ended.popleft()
            self.past.add(self.span(life))
            if self._by_pid.get(life.pid) is life:
                del self._by_pid[life.pid]
                self._segments.pop(life.pid, None)
        if len(self.past) > _MERGE_ABOVE:
            self._merge(now)

    def _merge(self, now: float) -> None:
        waiting = [life.start - _CLOCK_TICK for life in (*self._living.values(), *self._ended)]
        if len(self.past) > 4 * len(waiting):
            self.past.merge(waiting, now - _SETTLE)

    def span(self, life: Life) -> Span:
        """The life with an upper bound of its memory: one `unit` where none of its own is known."""
        end = math.inf if life.end is None else life.end
        begin = life.start - _CLOCK_TICK
        if life.bound is not None:
            return Span(begin, end, life.bound + self._basis.rss_error)
        return Span(begin, end, 0, 1)

    @property
    def unit(self) -> int | None:
        """Upper bound of any process that ended without one of its own; `None`: there is none.

        Each of them was waited for by another process, in the end by one of ours, so that wait4 covers the time
        since the last reset of its watermark; what was read before covers the rest.
        """
        if self.reaped is None or self.unreaped:
            return None
        return max(self.reaped, self._largest_vanished) + self._basis.rss_error

    def present(self) -> list[Life]:
        """Those who live, or ended a moment ago."""
        return [*self._living.values(), *self._ended]

    @property
    def living(self) -> list[Life]:
        """Those of whom no end is known."""
        return list(self._living.values())
