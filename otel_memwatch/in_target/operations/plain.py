"""The boundaries of operations in Python: what is done at each, for a program that has no compiled code installed.

It is the specification too: `_native.c` does the same, and a test compares what both write. At every boundary the
watermark is read and started anew. What it was counts for every operation that is open: so each has its exact peak,
however they nest, overlap or repeat.
"""

from __future__ import annotations

import os
from _thread import RLock, get_native_id
from time import monotonic

from otel_memwatch.in_target.operations import lines
from otel_memwatch.in_target.operations.process import (
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
from otel_memwatch.in_target.operations.values import Moment, ProcessTotals
from otel_memwatch.record.segments import Segments
from otel_memwatch.runtime.exact import is_exact, is_small

TYPE_CHECKING = False
if TYPE_CHECKING:
    from otel_memwatch.in_target.operations.journal import Journal
    from otel_memwatch.in_target.operations.process import Watermark
    from otel_memwatch.in_target.operations.values import Moved, Peak


class PlainOpening:
    """What is kept of an operation that has been opened."""

    __slots__ = ("closed", "end", "first", "id", "moved", "number", "peak", "start_totals", "time")

    def __init__(
        self, identity: int, time: float, number: int | None, first: Moment, totals: ProcessTotals
    ) -> None:
        self.id = identity
        self.time = time
        self.number = number
        """Number of the boundary at its opening; `None`: it has none of its own."""
        self.first = first
        """What that boundary saw."""
        self.start_totals = totals
        self.closed = False
        self.peak: Peak | None = None
        """`None`: it is open, or is being closed."""
        self.end: int | None = None
        self.moved: Moved | None = None


class PeakEvidence:
    """All that the peak of an operation is judged by."""

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
        """It was opened by a boundary of its own, not in the middle of another one."""
        self.resets = resets
        """The watermark is started anew at each boundary."""
        self.foreign = foreign
        """Somebody else has started it anew meanwhile."""
        self.start = start
        """Resident size at the opening; `end`: at the closing."""
        self.end = end
        self.before = before
        """The watermark at the opening; `after`: at the closing."""
        self.after = after
        self.inside = inside
        """The largest that the boundaries after the opening have seen, that of the closing included."""
        self.missed = missed
        """The largest that any of them cannot have seen; 0: they have seen everything."""
        self.error = error
        """By how much the kernel's counters may be off."""


def judge(it: PeakEvidence) -> Peak:
    """The largest resident size of an operation, its bounds, and how certain that is.

    The first case that applies. `low` is `inside` less the counters' error, `high` is `inside` with that and with
    what may have been missed.

    ==============================================  =======================  ====================  =========
    case                                            peak                     bounds                certainty
    ==============================================  =======================  ====================  =========
    opened in the middle of another boundary        end                      end to unknown        interval
    resets, and somebody else did too               max(low, start, end)     low to unknown        interval
    resets, and both bounds are near                inside                   low to high           exact
    resets                                          inside                   low to high           interval
    never reset, neither watermark nor sizes        unknown                  unknown               sampled
    never reset, no watermark                       max(inside, start)       that to unknown       interval
    never reset, it rose, and the error is small    the watermark            it, less and more     exact
    never reset, it rose                            the watermark            it, less and more     interval
    never reset, it did not, and no sizes           the watermark            unknown to that       censored
    never reset, it did not                         max(inside, start)       that to watermark     interval
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
    """Takes the boundaries of this process's operations and writes their lines: `values.Boundaries`.

    A signal handler or a finalizer may mark operations in the middle of a boundary, in the thread that has the lock.
    There can be no boundary inside a boundary: what is opened there has no peak but what its end sees, and what is
    closed there is closed as soon as the boundary is over.
    """

    def __init__(self, journal: Journal, watermark: Watermark, first_id: int) -> None:
        self._journal = journal
        self._watermark = watermark
        self._pid = os.getpid()
        self._stopped = False
        self._lock = RLock()
        self._busy = False
        """A boundary is being taken by the thread that has the lock."""
        self._deferred: list[tuple[PlainOpening, str | None, bytes]] = []
        """Closings that came meanwhile."""
        self._id = first_id
        self._number = 0
        """How many boundaries there have been."""
        self._open = 0
        """How many operations are open that had a boundary of their own."""
        self._sizes, self._missed = Segments(), Segments()
        """What each boundary saw since the one before, and what it cannot have seen."""
        self._foreign = 0
        """Number of the last boundary before which somebody else has started the watermark anew."""
        self._unseen = watermark.before
        """The watermark from before it was started anew for the first time, until a boundary tells it."""
        self._io = open_io()
        self._totals = ProcessTotals(None, None)
        self._own_read = 0
        """Bytes read here for the totals."""
        self._recheck_at = 0.0
        """From when on the next boundary has to look around."""

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
                        self._look_around()
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
        """Close an operation; in the middle of a boundary that is done later, and true is returned too."""
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
                    self._look_around()
                if opening.closed:  # by a signal handler, just now
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
        if own:
            self._open -= 1
        if self._open == 0:  # nothing that was before now will be asked for
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

    def _close_deferred(self) -> None:
        while self._deferred and not self._busy:
            try:
                closing = self._deferred.pop(0)
            except IndexError:  # another thread was quicker
                return
            self.close(*closing)

    def figures(self, opening: PlainOpening, /) -> tuple[Peak, int | None, int | None, Moved | None] | None:
        """Peak, sizes at both ends and I/O of an operation that was closed; `None` while it is open."""
        if opening.peak is None:
            return None
        return opening.peak, opening.first.rss, opening.end, opening.moved

    def shutdown(self, *, forked: bool = False) -> None:
        """Record nothing more, give the descriptors back."""
        if forked:  # whoever has the lock may not be there to give it back
            self._lock = RLock()
        with self._lock:
            self._stopped = True
            self._watermark.close()
            close_quietly(self._io)
            self._io = -1
            self._journal.close()

    def _reach(self, *, opening: bool, beside: bool) -> Moment:
        """Take a boundary: what has been since the one before."""
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
        """Count what a boundary saw for every operation that is open."""
        size = moment.segment if self._watermark.exact else moment.rss
        if moment.doubt == FOREIGN:
            self._foreign = self._number
        if size is not None:
            self._sizes.push(self._number, size)
            if moment.doubt > 0:
                self._missed.push(self._number, size + moment.doubt)

    def _look_around(self) -> None:
        """What is looked at every 100 us at most: whether the descriptors are still ours, and the totals.

        Nobody can make our descriptors his own by chance in that time: he would have to close them and then to open
        hundreds of files. Where they could not be placed high, they are looked at each time.
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
        """Open everything again after the program has closed it; what has the numbers now is the program's.

        Where the record cannot be opened any more (it has dropped its privileges, say) nothing is.
        """
        lost = self._watermark
        recorded = not self._stopped and (self._journal.is_ours() or self._journal.reopen())
        self._watermark = found = open_watermark(lost.exact, lost) if recorded else NoWatermark()
        found.own_read += lost.own_read
        found.own_written += lost.own_written
        self._unseen = max(self._unseen, found.before)
        self._io = open_io() if recorded else -1
