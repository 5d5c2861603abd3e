"""Boundaries of operations in Python, for programs without the compiled code.

This module is also the specification: `_native.c` does the same, and a test compares the output of both. Each boundary
reads and resets the high-water mark, and its value counts for every open operation. Each operation thus has an exact
peak, however operations nest, overlap or repeat.
"""

from __future__ import annotations

import os
from _thread import RLock, get_native_id
from time import monotonic

from otel_memwatch.in_target.operations.operation_values import Moment, ProcessTotals
from otel_memwatch.in_target.operations.process_state import (
    BRIEF,
    FOREIGN,
    LIFE,
    PER_THREAD,
    NoWatermark,
    close_quietly,
    local_counter_error,
    moved_between,
    open_io,
    open_watermark,
    read_totals,
    used_between,
)
from otel_memwatch.record import operation_writer as lines
from otel_memwatch.record.segments import Segments
from otel_memwatch.runtime.exactness import is_exact, is_small

TYPE_CHECKING = False
if TYPE_CHECKING:
    from otel_memwatch.in_target.operations.journal import Journal
    from otel_memwatch.in_target.operations.operation_values import IoTotals, Peak
    from otel_memwatch.in_target.operations.process_state import Watermark


class PlainOpening:
    """State of an operation that has been opened."""

    __slots__ = ("closed", "end", "first", "id", "moved", "number", "peak", "start_totals", "time")

    def __init__(
        self, identity: int, time: float, number: int | None, first: Moment, totals: ProcessTotals
    ) -> None:
        self.id = identity
        self.time = time
        self.number = number
        """Number of the boundary at its opening; `None` if it was opened during another boundary."""
        self.first = first
        """Values at that boundary."""
        self.start_totals = totals
        self.closed = False
        self.peak: Peak | None = None
        """`None` while it is open or being closed."""
        self.end: int | None = None
        self.moved: IoTotals | None = None


class PeakEvidence:
    """Evidence for the peak of an operation. Sizes are bytes."""

    __slots__ = (
        "after",
        "before",
        "end",
        "error",
        "foreign",
        "inside",
        "missed",
        "own_boundary",
        "resets",
        "start",
    )

    def __init__(
        self,
        *,
        own_boundary: bool,
        resets: bool,
        foreign: bool,
        start: int | None,
        end: int | None,
        before: int | None,
        after: int | None,
        inside: int | None,
        missed: int,
        error: int,
    ) -> None:
        self.own_boundary = own_boundary
        """True if it was opened by a separate boundary, not during another one."""
        self.resets = resets
        """True if each boundary resets the high-water mark."""
        self.foreign = foreign
        """True if other code has reset the high-water mark during the operation."""
        self.start = start
        """Resident size at the opening; `end` is that at the closing."""
        self.end = end
        self.before = before
        """High-water mark at the opening; `after` is that at the closing."""
        self.after = after
        self.inside = inside
        """Largest size at the boundaries after the opening, including the closing."""
        self.missed = missed
        """Largest size that one of these boundaries may have missed; 0 if they missed nothing."""
        self.error = error
        """Error of the kernel's counters."""


def judge(it: PeakEvidence) -> Peak:
    """Return the peak of an operation, its bounds and its certainty.

    The first matching case applies. `low` is `inside` minus `error`. `high` is `inside` plus `error` and the missed
    growth. "Mark" is the high-water mark.

    ==============================================  =======================  ====================  =========
    case                                            peak                     bounds                certainty
    ==============================================  =======================  ====================  =========
    opened during another boundary                  end                      end to unknown        interval
    resets, and other code reset it too             max(low, start, end)     low to unknown        interval
    resets, and the bounds are close                inside                   low to high           exact
    resets                                          inside                   low to high           interval
    never reset, neither mark nor sizes             unknown                  unknown               sampled
    never reset, no mark                            max(inside, start)       peak to unknown       interval
    never reset, mark rose, error is small          mark                     mark +/- error        exact
    never reset, mark rose                          mark                     mark +/- error        interval
    never reset, mark did not rise, no sizes        mark                     unknown to mark       censored
    never reset, mark did not rise                  max(inside, start)       peak to mark          interval
    ==============================================  =======================  ====================  =========
    """
    inside, error, start = it.inside, it.error, it.start
    if not it.own_boundary:
        return it.end, it.end, None, "interval"
    if it.resets and inside is not None:
        missed = max(0, it.missed - inside)
        low, high = max(inside - error, 0), inside + error + missed
        if it.foreign:
            return max(low, start or 0, it.end or 0), low, None, "interval"
        return inside, low, high, "exact" if is_exact(inside, low, high) else "interval"
    if it.after is None:
        if inside is None or start is None:
            return None, None, None, "sampled"
        return max(inside, start), max(inside, start), None, "interval"
    if it.before is not None and it.after > it.before:
        return (
            it.after,
            max(it.after - error, 0),
            it.after + error,
            "exact" if is_small(error, it.after) else "interval",
        )
    if inside is None:
        return it.after, None, it.after, "censored"
    low = max(inside, start or 0)
    return low, low, max(it.after + error, low), "interval"


class PlainBoundaries:
    """Implementation of `operation_values.Boundaries` in Python.

    A signal handler or a finalizer may mark operations during a boundary, in the thread that holds the lock. Boundaries
    do not nest. An operation opened there has only the peak that its closing measures. An operation closed there is
    closed after the boundary.
    """

    def __init__(self, journal: Journal, watermark: Watermark, first_id: int) -> None:
        self._journal = journal
        self._watermark = watermark
        self._pid = os.getpid()
        self._stopped = False
        self._lock = RLock()
        self._busy = False
        """True while the thread with the lock is at a boundary."""
        self._deferred: list[tuple[PlainOpening, str | None, bytes]] = []
        """Closings requested during a boundary."""
        self._id = first_id
        self._number = 0
        """Number of boundaries so far."""
        self._open = 0
        """Number of open operations that had a separate boundary."""
        self._sizes, self._missed = Segments(), Segments()
        """Peak between two boundaries, and upper bound of missed peaks."""
        self._foreign = 0
        """Number of the last boundary that found a reset by other code."""
        self._unseen = watermark.before
        """High-water mark before the first reset, until a boundary has recorded it."""
        self._io = open_io()
        self._totals = ProcessTotals(None, None)
        self._own_read = 0
        """Bytes read by this object for the totals."""
        self._recheck_at = 0.0
        """Time from which the next boundary must check descriptors and totals."""

    def open(
        self, name: str, trace: str, span: str, parent: str | None, more: bytes, /
    ) -> PlainOpening | None:
        """Open an operation."""
        if os.getpid() != self._pid:
            return None
        with self._lock:
            self._id += 1
            identity, inside_another, self._busy = self._id, self._busy, True
            try:
                if inside_another:
                    opening = PlainOpening(identity, monotonic(), None, Moment(), self._totals)
                else:
                    if monotonic() >= self._recheck_at:
                        self._recheck()
                    moment = self._reach(opening=True, beside=self._open > 0)
                    if self._open > 0:
                        self._count(moment)
                    self._open += 1
                    opening = PlainOpening(identity, monotonic(), self._number, moment, self._totals)
                self._journal.write(
                    lines.opening_line(
                        number=identity,
                        time=opening.time,
                        name=name,
                        trace=trace,
                        span=span,
                        parent=parent,
                        thread=get_native_id(),
                        rss=opening.first.rss,
                        segment=opening.first.segment,
                        more=more,
                    )
                )
            finally:
                self._busy = inside_another
        self._close_deferred()
        return opening

    def close(self, opening: PlainOpening, error: str | None, more: bytes, /) -> bool | None:
        """Close an operation and return true. During another boundary, the closing is deferred."""
        now = monotonic()
        if os.getpid() != self._pid:
            return None
        with self._lock:
            if opening.closed or self._stopped:
                return False
            if self._busy:
                self._deferred.append((opening, error, more))
                return True
            self._busy = True
            try:
                if now - opening.time > BRIEF or now >= self._recheck_at:
                    self._recheck()
                if opening.closed:  # a signal handler has just closed it
                    return False
                opening.closed = True
                self._close(opening, now, error, more)
            finally:
                self._busy = False
        self._close_deferred()
        return True

    def _close(self, opening: PlainOpening, now: float, error: str | None, more: bytes) -> None:
        first, own = opening.first, opening.number is not None
        last = self._reach(opening=False, beside=self._open > (1 if own else 0))
        self._count(last)
        since = opening.number or 0
        peak = judge(
            PeakEvidence(
                own_boundary=own,
                resets=self._watermark.exact,
                foreign=self._foreign > since,
                start=first.rss,
                end=last.rss,
                before=first.segment,
                after=last.segment,
                inside=self._sizes.since(since),
                missed=self._missed.since(since) or 0,
                error=local_counter_error() if PER_THREAD else self._watermark.error,
            )
        )
        peak = self._within_address_space(peak, now - opening.time)
        if own:
            self._open -= 1
        if self._open == 0:  # no open operation needs earlier values
            self._sizes.clear()
            self._missed.clear()
        moved = moved_between(opening.start_totals, self._totals)
        used = used_between(first, last, opening.start_totals, self._totals)
        self._journal.write(
            lines.closing_line(
                number=opening.id,
                time=now,
                error=error,
                rss=last.rss,
                segment=last.segment,
                peak=peak,
                used=used,
                moved=moved,
                more=more,
            )
        )
        opening.end, opening.moved, opening.peak = last.rss, moved, peak

    def _within_address_space(self, peak: Peak, seconds: float) -> Peak:
        """Return a range that ends at VmPeak, the largest size of the address space: no resident page is outside it.

        The high-water mark is off by 95 MiB on 64 processors. VmPeak is exact, and some 7 MiB above the resident size of a plain
        program. Its reading takes 7 us, so operations of `seconds` below `LIFE` do without.
        """
        value, low, high, certainty = peak
        if high is None or seconds <= LIFE or certainty != "interval":
            return peak
        space = self._watermark.address_space()
        return (value, low, max(space, value or 0), certainty) if 0 < space < high else peak

    def _close_deferred(self) -> None:
        while self._deferred and not self._busy:
            try:
                closing = self._deferred.pop(0)
            except IndexError:  # another thread was quicker
                return
            self.close(*closing)

    def figures(
        self, opening: PlainOpening, /
    ) -> tuple[Peak, int | None, int | None, IoTotals | None] | None:
        """Return peak, sizes at start and end, and I/O of a closed operation; `None` while it is open."""
        if opening.peak is None:
            return None
        return opening.peak, opening.first.rss, opening.end, opening.moved

    def write(self, line: bytes, read: int) -> None:
        """Append a line that took `read` bytes of /proc. Neither is I/O of the program."""
        with self._lock:
            if not self._stopped and self._journal.is_ours():
                self._journal.write(line)
                self._own_read += read

    def shutdown(self, *, forked: bool = False) -> None:
        """Stop recording and close the descriptors."""
        if forked:  # the thread that holds the lock may not exist in the child
            self._lock = RLock()
        with self._lock:
            self._stopped = True
            self._watermark.close()
            close_quietly(self._io)
            self._io = -1
            self._journal.close()

    def _reach(self, *, opening: bool, beside: bool) -> Moment:
        """Read the high-water mark at a boundary."""
        try:
            moment = self._watermark.read_and_reset(opening=opening, beside=beside)
        except OSError:  # the program closed descriptors that it does not know
            self._open_again()
            moment = self._watermark.read_and_reset(opening=opening, beside=beside)
        self._number += 1
        if self._unseen:
            moment.segment = max(moment.segment or 0, self._unseen)
            self._unseen = 0
        return moment

    def _count(self, moment: Moment) -> None:
        """Count the values of a boundary for every open operation."""
        size = moment.segment if self._watermark.exact else moment.rss
        if moment.doubt == FOREIGN:
            self._foreign = self._number
        if size is not None:
            self._sizes.push(self._number, size)
            if moment.doubt > 0:
                self._missed.push(self._number, size + moment.doubt)

    def _recheck(self) -> None:
        """Check that the descriptors are still ours, and read the totals; at most every 100 us.

        Within that time the program cannot take over our descriptor numbers, because it would have to close them and
        then open hundreds of files. Descriptors with low numbers are checked each time.
        """
        if not self._journal.is_ours():
            self._open_again()
        try:
            self._read_totals()
        except OSError:  # the program closed it
            self._io = open_io()
            self._read_totals()
        self._recheck_at = monotonic() + LIFE if self._journal.is_apart else 0.0

    def _read_totals(self) -> None:
        own_read = self._own_read + self._watermark.own_read
        own_written = self._journal.written + self._watermark.own_written
        self._totals, size = read_totals(self._io, own_read, own_written)
        self._own_read += size

    def _open_again(self) -> None:
        """Open all files again after the program has closed them. Their old numbers now belong to the program.

        If the record cannot be opened any more, for example after dropping privileges, no file is opened.
        """
        lost = self._watermark
        recorded = not self._stopped and (self._journal.is_ours() or self._journal.reopen())
        self._watermark = found = open_watermark(lost.exact, lost) if recorded else NoWatermark()
        found.own_read += lost.own_read
        found.own_written += lost.own_written
        self._unseen = max(self._unseen, found.before)
        self._io = open_io() if recorded else -1
