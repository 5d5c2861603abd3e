"""The operations of this process: boundaries, exact figures between them, lines in the record."""

from __future__ import annotations

import os
from _thread import RLock, _local, get_native_id
from sys import modules
from time import monotonic

from otel_memwatch.operations.counters import NOTHING, Counters, Reading, io_text, io_totals
from otel_memwatch.operations.identity import IdGenerator
from otel_memwatch.operations.journal import Journal, header_line
from otel_memwatch.operations.segments import Segments
from otel_memwatch.operations.text import attributes_text, quote
from otel_memwatch.operations.watermark import (
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

    from otel_memwatch.operations.tracing import NativeSpan

    Ids = tuple[str, str, str | None, bool]
    """Trace, span and parent span of an operation whose ids a tracer has given, and whether that exports the span."""

_LARGE_GAP = 1 << 20


class _Thread(_local):
    """What is asked for again and again about the running thread."""

    def __init__(self) -> None:
        self.id = get_native_id()


class Opened:
    """An operation of this process from its opening on: its ids, what its opening saw, its figures once closed."""

    __slots__ = (
        "closed",
        "figures",
        "id",
        "mark",
        "native",
        "number",
        "owner",
        "parent",
        "reading",
        "recorder",
        "rss",
        "span",
        "trace",
        "usage",
        "watermark",
    )

    figures: Figures | None
    number: int
    reading: Reading
    rss: int | None
    usage: Any
    watermark: int | None

    def __init__(
        self, recorder: Recorder, identity: int, parent: Opened | None, trace: str, span: str
    ) -> None:
        self.recorder = recorder
        self.id = identity
        self.parent = parent
        self.trace = trace
        self.span = span
        self.closed = False
        self.figures = None
        self.owner: object = None
        self.mark: Opened | None = None
        """The phase that `mark` has begun inside it last."""
        self.native: NativeSpan | None = None


class Figures:
    """What is known of a closed operation; sizes in bytes, `None` for unknown."""

    __slots__ = ("after", "before", "certainty", "end", "gpu", "high", "low", "peak", "start")

    def __init__(self, peak: int | None, low: int | None, high: int | None, certainty: str) -> None:
        self.peak = peak
        """Largest resident size of the process inside the operation; the lower end of an interval."""
        self.low = low
        self.high = high
        self.certainty = certainty
        """"exact", "interval", "censored" (not above `high`) or "sampled" (unknown)."""
        self.start: int | None = None
        """Resident size at the opening."""
        self.end: int | None = None
        """Resident size at the closing."""
        self.gpu: dict[str, Any] | None = None

    def io(self) -> tuple[int, int, int, int] | None:
        """Bytes read from storage, written to storage, passed to read calls and to write calls."""
        return (0, 0, 0, 0) if self.before is self.after else io_totals(self.before, self.after)

    before: Reading
    after: Reading


class Recorder:
    """All that one process keeps to record its operations; another process (after a fork) makes its own.

    Raises `OSError` when the run directory cannot be written. Its methods never raise for trouble with the record.
    """

    def __init__(self, directory: str, exact: bool, root: tuple[str, str | None] | None) -> None:
        self.retired = False
        self.directory = directory
        self.pid = os.getpid()
        self.new_span = IdGenerator().span_id
        self.trace, self.root_span = root if root is not None else (IdGenerator().trace_id(), None)
        self.journal = Journal(directory, str(self.pid))
        self.watermark = open_watermark(exact)
        self._read_watermark = self.watermark.read
        self._is_ours = self.journal.is_ours
        self._before = self.watermark.before if isinstance(self.watermark, Resettable) else 0
        self._lock = RLock()  # one thread may come in twice: signal handlers and finalizers run anywhere
        self._segments = Segments()
        self._gaps = Segments()
        self._number = 0
        self._foreign = 0
        self._open: set[int] = set()
        self._busy = False
        """A boundary is being taken by the thread that has the lock."""
        self._deferred: list[tuple[Opened, str | None, Mapping[str, object] | None]] = []
        """Closings that came while a boundary was being taken."""
        self._catching_up = False
        self._modules = 0
        self._has_allocators = False
        self._id = self.journal.first_id
        self._thread = _Thread()
        self.journal.write(header_line(self.watermark.exact, self.watermark.floor))
        self._counters = Counters()

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
        else:
            span = self.new_span()
            trace, parent_span = (
                (self.trace, self.root_span) if parent is None else (parent.trace, parent.span)
            )
        with self._lock:
            self._id = identity = self._id + 1
            opened = Opened(self, identity, parent, trace, span)
            if len(modules) != self._modules:
                self._look_for_allocators()
            if self._has_allocators:
                _allocators("opened", identity)
            if self._busy:
                now = monotonic()
                self._open_apart(opened)
            else:
                self._busy = True
                try:
                    opened.watermark, opened.rss, opened.usage = self._boundary()
                    opened.number = self._number
                    self._open.add(identity)
                    now = monotonic()
                    counters = self._counters
                    opened.reading = counters.last if now < counters.until else self._read_counters(now)
                finally:
                    self._busy = False
        segment = opened.watermark
        rss = opened.rss
        self.journal.write(
            f'{{"open":{identity},"time":{now:.6f},"name":{quote(name)},"trace":"{trace}","span":"{span}",'
            f'"parent":{_text(parent_span)},"thread":{self._thread.id},"rss":{"null" if rss is None else rss},'
            f'"segment":{"null" if segment is None else segment}'
            + (',"exported":true' if exported else "")
            + (f',"attributes":{attributes_text(attributes)}}}\n' if attributes else "}\n")
        )
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
                segment, rss, usage = self._boundary()
                counters = self._counters
                after = counters.last if now < counters.until else self._read_counters(now)
                figures = self._peak(opened, segment, rss)
                self._open.discard(opened.id)
                if not self._open:
                    self._segments.clear()
                    self._gaps.clear()
            finally:
                self._busy = False
        before = opened.reading
        figures.start, figures.end, figures.before, figures.after = opened.rss, rss, before, after
        status = '"ok","error":null' if error is None else f'"error","error":{quote(error)}'
        peak, low, high = figures.peak, figures.low, figures.high
        line = (
            f'{{"close":{opened.id},"time":{now:.6f},"status":{status},"rss":{"null" if rss is None else rss},'
            f'"segment":{"null" if segment is None else segment},"peak":{"null" if peak is None else peak},'
            f'"low":{"null" if low is None else low},"high":{"null" if high is None else high},'
            f'"certainty":"{figures.certainty}",{_cpu_text(opened.usage, usage, before.children, after.children)}'
            f"{NOTHING if before is after else io_text(figures.io())}"
        )
        if len(modules) != self._modules:
            self._look_for_allocators()
        if self._has_allocators:
            figures.gpu = _allocators("closed", opened.id)
            if figures.gpu:
                line += f',"gpu":{_json(figures.gpu)}'
        if attributes:
            line += f',"attributes":{attributes_text(attributes)}'
        opened.figures = figures
        self.journal.write(line + "}\n")
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
        opened.rss = opened.watermark = opened.usage = None
        opened.reading = self._counters.last

    def _boundary(self) -> tuple[int | None, int | None, Any]:
        """End the segment of this moment: its watermark, the present size, `getrusage`. The lock is held."""
        try:
            if not self._is_ours():
                self._open_again()
            segment, rss, usage, gap, foreign = self._read_watermark()
        except OSError:  # the program closed descriptors that it does not know
            self._open_again()
            segment, rss, usage, gap, foreign = self._read_watermark()
        self._number = number = self._number + 1
        if self._open:
            value = segment if self.watermark.exact else rss
            if value is not None:
                self._segments.push(number, value)
            if gap:
                self._gaps.push(number, gap)
            if foreign:
                self._foreign = number
        if self._before:
            segment = max(segment or 0, self._before)
            self._before = 0
        return segment, rss, usage

    def _open_again(self) -> None:
        """Open everything again after the program has closed it; what has the numbers now is the program's.

        Where the record cannot be opened any more (it has dropped its privileges, say) nothing is.
        """
        lost = self.watermark
        recorded = self.journal.is_ours() or self.journal.reopen()
        self.watermark = open_watermark(lost.exact) if recorded else Blind()
        if recorded:
            self.watermark.own_read += lost.own_read
            self.watermark.own_written += lost.own_written
        self._read_watermark = self.watermark.read
        self._counters.open_again(recorded)

    def _look_for_allocators(self) -> None:
        """Modules have been imported since the last time: there may be one with a GPU allocator among them."""
        self._modules = len(modules)
        self._has_allocators = any(name in modules for name in ("torch", "cupy", "jax", "tensorflow"))

    def _read_counters(self, now: float) -> Reading:
        watermark = self.watermark
        return self._counters.read(now, watermark.own_read, watermark.own_written + self.journal.written)

    def _peak(self, opened: Opened, segment: int | None, rss: int | None) -> Figures:
        """Largest resident size between opening and closing, with its certainty. The lock is held."""
        if opened.number < 0:
            return Figures(rss, rss, None, "interval")
        inside = self._segments.since(opened.number)
        eps = local_counter_error() if PER_THREAD else self.watermark.eps
        if not self.watermark.exact or inside is None:
            return _bounded(opened, segment, inside, eps)
        gap = self._gaps.since(opened.number) or 0
        low, high = (inside - eps if inside > eps else 0), inside + eps + gap
        if self._foreign > opened.number:
            return Figures(max(low, opened.rss or 0, rss or 0), low, None, "interval")
        if (gap > _LARGE_GAP and gap * 64 > inside) or (
            PER_THREAD and eps > _LARGE_GAP and eps * 64 > inside
        ):
            return Figures(low, low, high, "interval")
        return Figures(inside, low, high, "exact")

    def close(self) -> None:
        """Give all descriptors back. Operations that are open stay open in the record."""
        self.retired = True
        if self.journal.is_ours():
            self.watermark.close()
            self._counters.close()
            self.journal.close()


def _bounded(opened: Opened, watermark: int | None, inside: int | None, eps: int) -> Figures:
    """The figures from a watermark of the whole life: exact when it rose inside the operation, else bounds."""
    if watermark is None:
        return Figures(None, None, None, "sampled")
    if opened.watermark is not None and watermark > opened.watermark:
        return Figures(watermark, max(watermark - eps, 0), watermark + eps, "exact")
    if inside is None:
        return Figures(watermark, None, watermark, "censored")
    low = max(inside, opened.rss or 0)
    return Figures(low, low, max(watermark + eps, low), "interval")


def _allocators(call: str, key: int) -> dict[str, Any] | None:
    """Ask the GPU allocators, in a program that has imported one; what goes wrong there is theirs."""
    try:
        from otel_memwatch import allocators

        answer = getattr(allocators, call)(key)
    except Exception:  # noqa: BLE001 - whatever a GPU library raises must not reach the program
        return None
    return answer if isinstance(answer, dict) else None


def _text(value: str | None) -> str:
    return "null" if value is None else quote(value)


def _json(value: Mapping[str, Any]) -> str:
    from json import dumps  # only with a GPU allocator, which has imported it long ago

    return dumps(value, default=str, separators=(",", ":"))


def _cpu_text(before: Any, after: Any, children_before: Any, children: Any) -> str:
    """CPU time and faults between opening and closing, those of reaped children included."""
    if before is None or after is None:
        return '"cpu_user":null,"cpu_system":null,"minor_faults":null,"major_faults":null'
    user, system = after[0] - before[0], after[1] - before[1]
    minor, major = after[6] - before[6], after[7] - before[7]
    if children is not children_before and children_before is not None:
        user += children[0] - children_before[0]
        system += children[1] - children_before[1]
        minor += children[6] - children_before[6]
        major += children[7] - children_before[7]
    return f'"cpu_user":{user:.6f},"cpu_system":{system:.6f},"minor_faults":{minor},"major_faults":{major}'
