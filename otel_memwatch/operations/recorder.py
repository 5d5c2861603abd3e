"""The operations of this process: boundaries, exact figures between them, lines in the record."""

from __future__ import annotations

import os
from _thread import RLock, _local, get_native_id
from sys import modules
from time import monotonic

from otel_memwatch.operations import counters, lines
from otel_memwatch.operations.counters import Counters
from otel_memwatch.operations.identity import IdGenerator
from otel_memwatch.operations.journal import Journal, header_line
from otel_memwatch.operations.opened import Opened
from otel_memwatch.operations.segments import Segments
from otel_memwatch.operations.watermark import (
    FOREIGN,
    PER_THREAD,
    Blind,
    Resettable,
    local_counter_error,
    open_watermark,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from otel_memwatch.operations.opened import Peak
    from otel_memwatch.operations.watermark import Lifetime, Moment

    Ids = tuple[str, str, str | None, bool]
    """Trace, span and parent span of an operation whose ids a tracer has given, and whether that exports the span."""

_LARGE_GAP = 1 << 20
_LIFE, _BRIEF = counters.LIFE, counters.BRIEF
_opening_line, _closing_line = lines.opening_line, lines.closing_line


class _Thread(_local):
    """What is asked for again and again about the running thread."""

    def __init__(self) -> None:
        self.id = get_native_id()


class Recorder:
    """All that one process keeps to record its operations; another process (after a fork) makes its own.

    Raises `OSError` when the run directory cannot be written. Its methods never raise for trouble with the record.
    """

    __slots__ = (
        "_before",
        "_between",
        "_busy",
        "_catching_up",
        "_closing",
        "_counted",
        "_counters",
        "_deferred",
        "_eps",
        "_folded",
        "_foreign",
        "_gaps",
        "_has_allocators",
        "_id",
        "_lock",
        "_modules",
        "_number",
        "_open",
        "_opening",
        "_plain",
        "_push",
        "_segments",
        "_stale",
        "_thread",
        "_write",
        "directory",
        "journal",
        "new_span",
        "pid",
        "retired",
        "root_span",
        "trace",
        "watermark",
    )

    def __init__(self, directory: str, exact: bool, root: tuple[str, str | None] | None) -> None:
        self.retired = False
        self.directory = directory
        self.pid = os.getpid()
        self.new_span = IdGenerator().span_id
        self.trace, self.root_span = root if root is not None else (IdGenerator().trace_id(), None)
        self.journal = Journal(directory, str(self.pid))
        self._watch(open_watermark(exact))
        self._before = self.watermark.before if isinstance(self.watermark, Resettable) else 0
        self._lock = RLock()  # one thread may come in twice: signal handlers and finalizers run anywhere
        self._segments = Segments()
        self._push = self._segments.push
        self._gaps = Segments()
        self._number = 0
        self._foreign = 0
        self._folded = False
        """There are segments or gaps that count for an operation that is open."""
        self._open = 0
        """How many operations are."""
        self._busy = False
        """A boundary is being taken by the thread that has the lock."""
        self._deferred: list[tuple[Opened, str | None, Mapping[str, object] | None]] = []
        """Closings that came while a boundary was being taken."""
        self._catching_up = False
        self._modules = 0
        self._has_allocators = False
        self._id = self.journal.first_id
        self._thread = _Thread()
        self._write = self.journal.write
        self._write(header_line(self.watermark.exact, self.watermark.floor))
        self._counters = Counters()
        self._stale = 0.0
        """The moment from which on an opening looks around first."""

    def _watch(self, watermark: Resettable | Lifetime | Blind) -> None:
        """Take the boundaries from this watermark."""
        self.watermark = watermark
        self._opening, self._closing, self._between = watermark.opening, watermark.closing, watermark.between
        self._plain = watermark.exact and not PER_THREAD
        self._counted = 0 if watermark.exact else 1  # of a moment: its segment, or its size
        self._eps = watermark.eps

    def begin(
        self,
        name: str,
        attributes: Mapping[str, object] | None,
        parent: Opened | None,
        ids: Ids | None = None,
    ) -> Opened:
        """Open an operation below `parent`, or with the ids that a tracer has given it."""
        exported = False
        if ids is not None:
            trace, span, parent_span, exported = ids
        elif parent is None:
            span, trace, parent_span = self.new_span(), self.trace, self.root_span
        else:
            span, trace, parent_span = self.new_span(), parent.trace, parent.span
        with self._lock:
            self._id = identity = self._id + 1
            opened = Opened(self, identity, parent, trace, span)
            if self._busy:
                self._open_apart(opened)
            else:
                self._busy = True
                try:
                    self._take_opening(opened)
                finally:
                    self._busy = False
            if self._has_allocators:
                _allocators("opened", identity)
        line = _opening_line(opened, name, parent_span, self._thread.id, attributes)
        self._write(line + (b',"exported":true}\n' if exported else b"}\n"))
        if self._deferred:
            self._catch_up()
        return opened

    def finish(
        self, opened: Opened, error: str | None = None, attributes: Mapping[str, object] | None = None
    ) -> bool:
        """Close an operation; `error` is the type of the exception that ended it.

        Its figures are there afterwards, or a moment later when this has interrupted another boundary.
        Nothing happens (false) when it is closed already, or this recorder has been closed: it may be the one of the
        process from which this one was forked.
        """
        now = monotonic()
        if opened.closed or self.retired or opened.recorder is not self:
            return False
        with self._lock:
            if opened.closed:
                return False
            if self._busy:
                self._deferred.append((opened, error, attributes))
                return True
            opened.closed = True
            self._busy = True
            try:
                last, peak = self._take_closing(opened, now)
                after = self._counters.last
            finally:
                self._busy = False
        gpu = _allocators("closed", opened.id) if self._has_allocators else None
        opened.closing = closing = now, peak, opened.first[1], last[1], opened.before, after, gpu
        self._write(_closing_line(opened, last, closing, error, attributes))
        if self._deferred:
            self._catch_up()
        return True

    def _catch_up(self) -> None:
        """Close what was to be closed in the middle of a boundary; a garbage collection may leave hundreds."""
        while self._deferred and not self._busy and not self._catching_up:
            self._catching_up = True
            try:
                while self._deferred and not self._busy:
                    self.finish(*self._deferred.pop(0))
            finally:
                self._catching_up = False

    def _open_apart(self, opened: Opened) -> None:
        """Open an operation in the middle of another one's boundary, which a signal handler or finalizer may do.

        There can be no boundary inside a boundary: its peak is only known to be not below what its end sees.
        """
        opened.number = -1
        opened.time = monotonic()
        opened.first = None, None, None, 0
        opened.before = self._counters.last

    def _take_opening(self, opened: Opened) -> None:
        """End the segment of this moment and begin an operation. The lock is held."""
        began = monotonic()
        if began >= self._stale:
            self._look_around(began)
        try:
            first = self._between(began, True) if self._open else self._opening()
        except OSError:  # the program closed descriptors that it does not know
            first = self._open_again().between(began, True)
        self._number = number = self._number + 1
        if self._open:
            self._fold(number, first)
        if self._before:
            first = (max(first[0] or 0, self._before), *first[1:])
            self._before = 0
        opened.number, opened.first, opened.before = number, first, self._counters.last
        opened.time = monotonic()
        self._open += 1

    def _take_closing(self, opened: Opened, now: float) -> tuple[Moment, Peak]:
        """End the segment of this moment and an operation, whose peak is found. The lock is held."""
        if now - opened.time > _BRIEF or now >= self._stale:
            self._look_around(now)
        alone = self._open == 1 and opened.number > 0
        try:
            last = self._closing() if alone else self._between(now, False)
        except OSError:
            last = self._open_again().between(now, False)
        segment, rss, _, doubt = last
        self._number = number = self._number + 1
        direct = opened.number == number - 1 and self._plain and segment and not doubt
        if not (alone and direct):
            self._fold(number, last)
        if direct and segment:
            eps = self._eps  # there has been no boundary since it was opened: the segment is its own
            peak: Peak = segment, segment - eps if segment > eps else 0, segment + eps, "exact"
        else:
            peak = self._peak(opened, segment, rss)
        if opened.number >= 0:
            self._open -= 1
        if self._folded and not self._open:
            self._forget()
        return last, peak

    def _forget(self) -> None:
        """No operation is open: nothing that was before now will be asked for."""
        self._segments.clear()
        self._gaps.clear()
        self._folded = False

    def _fold(self, number: int, moment: Moment) -> None:
        """Count a segment that has ended for every operation that is open."""
        self._folded = True
        value, doubt = moment[self._counted], moment[3]
        if value is not None:
            self._push(number, value)
        if doubt == FOREIGN:
            self._foreign = number
        elif doubt:
            self._gaps.push(number, doubt)

    def _open_again(self) -> Resettable | Lifetime | Blind:
        """Open everything again after the program has closed it; what has the numbers now is the program's.

        Where the record cannot be opened any more (it has dropped its privileges, say) nothing is.
        """
        lost = self.watermark
        recorded = self.journal.is_ours() or self.journal.reopen()
        self._watch(open_watermark(lost.exact) if recorded else Blind())
        if recorded:
            self.watermark.own_read += lost.own_read
            self.watermark.own_written += lost.own_written
        self._counters.open_again(recorded)
        return self.watermark

    def _look_around(self, now: float) -> None:
        """What is looked at every 100 us at most: whether the descriptors are ours, the counters, the modules.

        Nobody can make our descriptors his own by chance in that time: he would have to close them and then to open
        hundreds of files. Where they could not be placed high, they are looked at each time.
        """
        if not self.journal.is_ours():
            self._open_again()
        if len(modules) != self._modules:
            self._modules = len(modules)
            self._has_allocators = any(name in modules for name in ("torch", "cupy", "jax", "tensorflow"))
        watermark = self.watermark
        # Each boundary so far has written one byte, to start the watermark anew.
        self._counters.read(watermark.own_read, watermark.own_written + self._number + self.journal.written)
        self._stale = now + _LIFE if self.journal.is_apart else 0.0

    def _peak(self, opened: Opened, segment: int | None, rss: int | None) -> Peak:
        """Largest resident size between opening and closing, with its certainty. The lock is held."""
        if opened.number < 0:
            return rss, rss, None, "interval"
        before, start = opened.first[:2]
        inside = self._segments.since(opened.number)
        eps = local_counter_error() if PER_THREAD else self.watermark.eps
        if not self.watermark.exact or inside is None:
            return _bounded((before, segment), start, inside, eps)
        gap = self._gaps.since(opened.number) or 0
        low, high = (inside - eps if inside > eps else 0), inside + eps + gap
        if self._foreign > opened.number:
            return max(low, start or 0, rss or 0), low, None, "interval"
        if (gap > _LARGE_GAP and gap * 64 > inside) or (
            PER_THREAD and eps > _LARGE_GAP and eps * 64 > inside
        ):
            return low, low, high, "interval"
        return inside, low, high, "exact"

    def close(self) -> None:
        """Give all descriptors back. Operations that are open stay open in the record."""
        self.retired = True
        if self.journal.is_ours():
            self.watermark.close()
            self._counters.close()
            self.journal.close()


def _bounded(
    watermark: tuple[int | None, int | None], start: int | None, inside: int | None, eps: int
) -> Peak:
    """The peak from a watermark of the whole life, at both ends: exact when it rose between them, else bounds."""
    before, after = watermark
    if after is None:
        return None, None, None, "sampled"
    if before is not None and after > before:
        return after, max(after - eps, 0), after + eps, "exact"
    if inside is None:
        return after, None, after, "censored"
    low = max(inside, start or 0)
    return low, low, max(after + eps, low), "interval"


def _allocators(call: str, key: int) -> dict[str, Any] | None:
    """Ask the GPU allocators, in a program that has imported one; what goes wrong there is theirs."""
    try:
        from otel_memwatch import allocators

        answer = getattr(allocators, call)(key)
    except Exception:  # noqa: BLE001 - whatever a GPU library raises must not reach the program
        return None
    return answer if isinstance(answer, dict) else None
