"""The operations of this process: boundaries, exact figures between them, lines in the record."""

from __future__ import annotations

import os
from _thread import _local, get_native_id
from sys import modules
from time import monotonic

from otel_memwatch.in_target.operations import counters, lines
from otel_memwatch.in_target.operations.boundary import Lock
from otel_memwatch.in_target.operations.counters import Counters
from otel_memwatch.in_target.operations.files import claim, close_quietly
from otel_memwatch.in_target.operations.identity import IdGenerator
from otel_memwatch.in_target.operations.journal import Journal, header_line
from otel_memwatch.in_target.operations.ledger import WHOLE, Ledger
from otel_memwatch.in_target.operations.opened import Opened
from otel_memwatch.in_target.operations.watermark import (
    FOREIGN,
    Blind,
    Resettable,
    local_counter_error,
    open_watermark,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from otel_memwatch.in_target.operations.opened import Peak
    from otel_memwatch.in_target.operations.watermark import Lifetime, Moment

    Ids = tuple[str, str, str | None, bool]
    """Trace, span and parent span of an operation whose ids a tracer has given, and whether that exports the span."""

_LARGE_GAP = 1 << 20
_LIFE, _BRIEF = counters.LIFE, counters.BRIEF
_END = lines.END


class _Thread(_local):
    """What is asked for again and again about the running thread."""

    id: int

    def __init__(self) -> None:
        self.id = get_native_id()

    def __getattr__(self, name: str) -> int:
        """`id`, for a finalizer that runs before it has been set."""
        return get_native_id()


class Recorder:
    """All that one process keeps to record its operations; another process (after a fork) makes its own.

    Raises `OSError` when the run directory cannot be written. Its methods never raise for trouble with the record.
    """

    __slots__ = (
        "_before",
        "_catching_up",
        "_claim",
        "_counters",
        "_deferred",
        "_foreign",
        "_has_allocators",
        "_has_libraries",
        "_here",
        "_ledger",
        "_lock",
        "_modules",
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

    def __init__(
        self,
        directory: str,
        exact: bool,
        root: tuple[str, str | None],
        here: Callable[[], Recorder | None],
    ) -> None:
        self.retired = False
        self.directory = directory
        self.pid = os.getpid()
        self.new_span = IdGenerator().span_id
        self.trace, self.root_span = root
        self._here = here
        self._claim, alone = claim()
        self.journal = Journal(directory, str(self.pid))
        self._ledger = Ledger()
        # Two interpreters of one process write to the same file: theirs are apart by chance, and behind all others.
        self._ledger.id = self.journal.first_id if alone else 1 << 48 | int(self.new_span(), 16) >> 16
        self._watch(open_watermark(exact, alone, self._ledger))
        self._lock = Lock()  # one thread may come in twice: signal handlers and finalizers run anywhere
        self._foreign = 0
        """Number of the last boundary before which somebody else has started the watermark anew."""
        self._deferred: list[tuple[Opened, str | None, Mapping[str, object] | None]] = []
        """Closings that came while a boundary was being taken."""
        self._catching_up = False
        self._modules = 0
        self._has_libraries = False
        """The program has imported a GPU library; `_has_allocators`: it has used one."""
        self._has_allocators = False
        self._thread = _Thread()
        self._write = self.journal.write
        if alone or self.journal.is_new:
            self._write(header_line(self.watermark.exact, self.watermark.floor))
        self._counters = Counters()
        self._ledger.counted = self._counters.last

    def _watch(self, watermark: Resettable | Lifetime | Blind) -> None:
        """Take the boundaries from this watermark."""
        self.watermark = watermark
        self._before = watermark.before if isinstance(watermark, Resettable) else 0
        """The watermark from before it was started anew for the first time, until a boundary tells it."""
        self._ledger.quick = False  # until then

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
        opened = Opened(self, parent, trace, span)
        thread, more = self._thread.id, _END
        if attributes or exported:
            more = lines.opening_more(attributes, exported)
        told = self._ledger.begin(opened, name, parent_span, thread, more)
        if told is None:
            if os.getpid() != self.pid:
                here = self._here()
                if here is not None:
                    return here.begin(name, attributes, parent, ids)
            told = self._begin_locked(opened, name, parent_span, thread, more)
        if told != WHOLE:
            self._write(lines.opening_line(opened, name, parent_span, thread, more)[told:])
        if self._deferred:
            self._catch_up()
        return opened

    def _begin_locked(
        self, opened: Opened, name: str, parent_span: str | None, thread: int, more: bytes
    ) -> int:
        """The boundary of an opening; returns how many bytes of its line have been written."""
        ledger, told = self._ledger, None
        with self._lock:
            if ledger.busy:
                ledger.id = opened.id = ledger.id + 1
                self._open_apart(opened)
            else:
                ledger.busy = True
                try:
                    self._look_around_if_due(monotonic())
                finally:
                    ledger.busy = False
                told = ledger.begin(opened, name, parent_span, thread, more)
                if told is None:
                    ledger.busy = True
                    try:
                        ledger.id = opened.id = ledger.id + 1
                        self._take_opening(opened)
                    finally:
                        ledger.busy = False
            if self._has_allocators:
                _allocators("opened", opened.id)
        return told or 0

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
        plain = error is None and not attributes
        told = self._ledger.finish(opened, now, None) if plain else None
        if told is None:
            if os.getpid() != self.pid:
                self._here()
                return False
            with self._lock:
                if opened.closed:
                    return False
                if self._ledger.busy:
                    self._deferred.append((opened, error, attributes))
                    return True
                told = self._finish_locked(opened, now, plain)
        if told != WHOLE:
            assert opened.closing is not None
            self._write(lines.closing_line(opened, opened.closing, error, attributes)[told:])
        if self._deferred:
            self._catch_up()
        return True

    def _finish_locked(self, opened: Opened, now: float, plain: bool) -> int:
        """The boundary of a closing; returns how many bytes of its line have been written."""
        ledger = self._ledger
        ledger.busy = True
        try:
            if now - opened.time > _BRIEF:
                self._look_around(now)
            else:
                self._look_around_if_due(now)
        finally:
            ledger.busy = False
        before, after, told = opened.before, ledger.counted, None
        if plain and before.children is after.children:
            told = ledger.finish(opened, now, lines.closing_more(before, after))
        if told is not None:
            return told
        if opened.closed:  # by a signal handler, just now
            return WHOLE
        opened.closed = True
        ledger.busy = True
        try:
            last, peak = self._take_closing(opened, now)
        finally:
            ledger.busy = False
        gpu: dict[str, Any] | None = _allocators("closed", opened.id) if self._has_allocators else None
        opened.closing = now, peak, opened.first, last, before, after, gpu
        return 0

    def _catch_up(self) -> None:
        """Close what was to be closed in the middle of a boundary; a garbage collection may leave hundreds."""
        ledger = self._ledger
        while self._deferred and not ledger.busy and not self._catching_up:
            self._catching_up = True
            try:
                while self._deferred and not ledger.busy:
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
        opened.before = self._ledger.counted

    def _take_opening(self, opened: Opened) -> None:
        """End the segment of this moment and begin an operation. The lock is held."""
        ledger, watermark, began = self._ledger, self.watermark, monotonic()
        try:
            first = watermark.between(began, True) if ledger.open else watermark.opening()
        except OSError:  # the program closed descriptors that it does not know
            first = self._open_again().between(began, True)
        opened.number, opened.first = self._reached(first, ledger.open > 0)
        opened.before = self._ledger.counted
        opened.time = monotonic()
        ledger.open += 1

    def _take_closing(self, opened: Opened, now: float) -> tuple[Moment, Peak]:
        """End the segment of this moment and an operation, whose peak is found. The lock is held."""
        ledger, watermark = self._ledger, self.watermark
        alone = ledger.open == 1 and opened.number > 0
        try:
            last = watermark.closing() if alone else watermark.between(now, False)
        except OSError:
            last = self._open_again().between(now, False)
        _, last = self._reached(last, True)
        peak = self._peak(opened, last[0], last[1])
        if opened.number >= 0:
            ledger.open -= 1
        if not ledger.open:  # nothing that was before now will be asked for
            ledger.forget()
        return last, peak

    def _reached(self, moment: Moment, counts: bool) -> tuple[int, Moment]:
        """The number of a boundary, and what it saw; `counts`: for operations that are open."""
        self._ledger.number = number = self._ledger.number + 1
        if self._before:
            moment = (max(moment[0] or 0, self._before), *moment[1:])
            self._before = 0
        if counts:
            self._fold(number, moment)
        return number, moment

    def _fold(self, number: int, moment: Moment) -> None:
        """Count a segment that has ended for every operation that is open."""
        segment, rss, _, doubt = moment
        value = segment if self.watermark.exact else rss
        if doubt == FOREIGN:
            self._foreign, doubt = number, 0
        if value is not None:
            self._ledger.fold(value, doubt)

    def _open_again(self) -> Resettable | Lifetime | Blind:
        """Open everything again after the program has closed it; what has the numbers now is the program's.

        Where the record cannot be opened any more (it has dropped its privileges, say) nothing is.
        """
        lost, alone = self.watermark, False
        recorded = not self.retired and (self.journal.is_ours() or self.journal.reopen())
        if recorded:
            self._claim, alone = claim()
        self._watch(open_watermark(lost.exact, alone, self._ledger) if recorded else Blind())
        if recorded:
            self.watermark.own_read += lost.own_read
            self.watermark.own_written += lost.own_written
        self._counters.open_again(recorded)
        return self.watermark

    def _look_around_if_due(self, now: float) -> None:
        if now >= self._ledger.stale:
            self._look_around(now)

    def _look_around(self, now: float) -> None:
        """What is looked at every 100 us at most: whether the descriptors are ours, the counters, the modules.

        Nobody can make our descriptors his own by chance in that time: he would have to close them and then to open
        hundreds of files. Where they could not be placed high, they are looked at each time.
        """
        ledger, journal = self._ledger, self.journal
        journal.written += ledger.written
        ledger.written = 0
        if not journal.is_ours():
            self._open_again()
        if len(modules) != self._modules:
            self._modules = len(modules)
            self._has_libraries = any(name in modules for name in ("torch", "cupy", "jax", "tensorflow"))
        if self._has_libraries and not self._has_allocators:
            self._has_allocators = bool(_allocators("in_use"))
        watermark, counters = self.watermark, self._counters
        # Each boundary so far has written one byte, to start the watermark anew.
        written = watermark.own_written + journal.written
        counters.read(watermark.own_read + ledger.own_read, written + ledger.number)
        ledger.counted = counters.last
        ledger.stale = now + _LIFE if journal.is_apart else 0.0
        ledger.io, ledger.journal, ledger.place = counters.io, journal.descriptor, journal.place
        ledger.read_before, ledger.written_before = watermark.own_read + counters.own, written
        ledger.modules, ledger.asks = self._modules, self._has_libraries and not self._has_allocators
        kept = journal.is_apart and journal.is_quick
        ledger.quick = kept and watermark.quick and not self._before and not self._has_allocators

    def _peak(self, opened: Opened, segment: int | None, rss: int | None) -> Peak:
        """Largest resident size between opening and closing, with its certainty. The lock is held."""
        if opened.number < 0:
            return rss, rss, None, "interval"
        before, start = opened.first[0], opened.first[1]
        inside, missed = self._ledger.since(opened.number)
        per_thread = self._ledger.per_thread
        eps = local_counter_error() if per_thread else self._ledger.error
        if not self.watermark.exact or inside is None:
            return _bounded((before, segment), start, inside, eps)
        gap = max(0, missed - inside)
        low, high = (inside - eps if inside > eps else 0), inside + eps + gap
        if self._foreign > opened.number:
            return max(low, start or 0, rss or 0), low, None, "interval"
        if (gap > _LARGE_GAP and gap * 64 > inside) or (
            per_thread and eps > _LARGE_GAP and eps * 64 > inside
        ):
            return low, low, high, "interval"
        return inside, low, high, "exact"

    def close(self) -> None:
        """Give all descriptors back. Operations that are open stay open in the record."""
        self.retired = True
        self._ledger.quick = False
        if self.journal.is_ours():
            close_quietly(self._claim)
            self.watermark.close()
            self._counters.close()
        self.journal.close()

    def leave(self) -> None:
        """As `close`, for the child of a fork: whoever has the lock may not be there to give it back."""
        self._lock = Lock()
        self.close()


def _bounded(
    watermark: tuple[int | None, int | None], start: int | None, inside: int | None, eps: int
) -> Peak:
    """The peak from a watermark of the whole life, at both ends: exact when it rose between them, else bounds."""
    before, after = watermark
    if after is None:
        if inside is None or start is None:
            return None, None, None, "sampled"
        return max(inside, start), max(inside, start), None, "interval"
    if before is not None and after > before:
        return after, max(after - eps, 0), after + eps, "exact"
    if inside is None:
        return after, None, after, "censored"
    low = max(inside, start or 0)
    return low, low, max(after + eps, low), "interval"


class _Allocators:
    """What reads the GPU allocators, loaded for a program that has imported one.

    Never waited for: in a child that is forked while another thread loads it, it would be for ever.
    """

    module: Any = None
    loading = False


def _allocators(call: str, *arguments: int) -> Any:
    """Ask the GPU allocators, in a program that has imported one; what goes wrong there is theirs: `None`."""
    try:
        if _Allocators.module is None:
            if _Allocators.loading:
                return None
            _Allocators.loading = True
            from otel_memwatch.in_target import allocators

            _Allocators.module, _Allocators.loading = allocators, False
        return getattr(_Allocators.module, call)(*arguments)
    except Exception:  # noqa: BLE001 - whatever a GPU library raises must not reach the program
        return None
