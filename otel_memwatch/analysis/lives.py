"""The processes of a run, folded one record at a time: their largest maxima, and how much they can have had together."""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

from otel_memwatch.analysis.basis import Basis
from otel_memwatch.analysis.overlap import Overlap, Span
from otel_memwatch.model import ProcessEvent, ProcessRecord

ALIVE_AT_END = "alive at the end"
"""Note of the last figures of a process that outlived the recording."""

_CLOCK_TICK = 0.01
"""Seconds by which a process can have started before the time that the kernel tells."""

_SETTLE = 10.0
"""Seconds for which an ended process waits for a late word about it."""

_MERGE_ABOVE = 16384
"""Ended processes that are kept apart."""


class Life:
    """What is known of one process's memory.

    Attributes:
        low: bytes that it certainly had during the run.
        bound: bytes that it certainly never exceeded in its life so far; `None`: not known.
        told: whether we reaped it ourselves.
        final: whether its last figures were taken at the end of the run.
    """

    __slots__ = ("at", "bound", "end", "final", "low", "pid", "start", "told", "_before")

    def __init__(self, pid: int, start: float, before: bool) -> None:
        self.pid = pid
        self.start = start
        self.end: float | None = None
        self.low = 0
        self.at: float | None = None
        self.bound: int | None = None
        self.told = self.final = False
        self._before: int | None = -1 if before else None

    def observe(self, record: ProcessRecord) -> None:
        """Takes in the record's memory figures.

        The watermark of a process that was there before the run may be older than the run: it says what the
        process certainly had only once it has risen.
        """
        if record.rss is not None:
            self.raise_to(record.rss, record.time)
        if record.peak is not None:
            self.observe_peak(record.peak, record.time)

    def observe_peak(self, peak: int, time: float) -> None:
        """Takes in a watermark."""
        if self._before == -1:
            self._before = peak
        if self._before is None or peak > self._before:
            self._before = None
            self.raise_to(peak, time)
        if self.bound is not None:
            self.bound = max(self.bound, peak)

    def raise_to(self, value: int, time: float) -> None:
        """It certainly had `value` bytes, seen at `time`."""
        if value > self.low:
            self.low, self.at = value, time

    @property
    def watermark(self) -> int:
        """The largest value of its watermark that was read, during the run or before."""
        return max(self.low, self._before or 0)


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
        reaped: the largest maximum that the kernel told for what we reaped ourselves, its reaped descendants included.
        largest: the life with the largest certain maximum.
        main: the target's own process.
    """

    def __init__(self, basis: Basis) -> None:
        self._basis = basis
        self.seen = self.vanished = 0
        self.reaped: int | None = None
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
        life.observe(record)
        if record.event is ProcessEvent.EXIT:
            del self._living[key]
            self._exit(life, record)
        elif record.note == ALIVE_AT_END:
            life.final = True
            life.bound = max(life.watermark, record.peak_bound or 0) or None
        self._remember(life)

    def _begin(self, record: ProcessRecord) -> Life:
        before = self._basis.joined and record.start < self._basis.started
        life = Life(record.pid, record.start, before)
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
        life.end = record.time
        life.told = record.exit_code is not None or record.signal is not None
        if record.peak_bound is not None:
            life.bound = max(record.peak_bound, life.watermark)
            if life.told:
                self.reaped = max(self.reaped or 0, record.peak_bound)
        else:
            self.vanished += 1
        self._ended.append(life)
        self.settle(record.time)

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
        if life.bound is not None:
            life.bound = max(life.bound, segments.value)

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
        """The life with an upper bound of its memory: a multiple of the largest maximum reaped where none is known."""
        end = math.inf if life.end is None else life.end
        begin = life.start - _CLOCK_TICK
        if life.bound is not None:
            return Span(begin, end, max(life.bound, life.watermark) + self._basis.rss_error)
        return Span(begin, end, max(0, life.watermark - (self.reaped or 0)), 1)

    def present(self) -> list[Life]:
        """Those who live, or ended a moment ago."""
        return [*self._living.values(), *self._ended]

    @property
    def living(self) -> list[Life]:
        """Those of whom no end is known."""
        return list(self._living.values())
