"""The process's own watermark of resident memory: read, and where that is allowed started anew.

Sources, with their cost in a Python program: `getrusage` gives the watermark, and CPU time and faults of the process
(0.8 us) or of the thread (0.5 us; the watermark is the process's here too); writing "5" to `/proc/self/clear_refs`
(0.6 us) starts the watermark anew at the present size, which then is what the watermark says; `/proc/self/status`
(7 us) has it free of the one flaw of `getrusage`: `ru_maxrss` is never below what the program that started this one
had used when it called exec.

The write cannot be left out where nothing seems to have happened: memory that is given back leaves no trace in
any counter of `getrusage`, and some comes without a page fault (huge pages made in the background, pages that drivers
and other processes put in).
"""

from __future__ import annotations

import os
import sys
from time import monotonic

from otel_memwatch.in_target.operations import boundary
from otel_memwatch.in_target.operations.boundary import CLOSING, CLOSING_BESIDE, OPENING, OPENING_BESIDE
from otel_memwatch.in_target.operations.files import (
    RESET,
    SIZE,
    STATUS,
    close_quietly,
    keep_open,
    read_quietly,
)
from otel_memwatch.in_target.operations.ledger import Ledger

try:
    import resource
except ImportError:  # not a Unix
    resource = None  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from otel_memwatch.in_target.operations.boundary import Turn, Used

    Moment = tuple[int | None, int | None, Used | None, int]
    """What a boundary saw, sizes in bytes, `None` for unknown: the largest resident size since the boundary before
    (of the whole life where nothing is reset); the present one; what the process has used; bytes by which a peak
    may have been missed between reading the watermark and starting it anew, or `FOREIGN`."""


_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_SELF = resource.RUSAGE_SELF if resource else 0
_turn, _read_start = boundary.turn, boundary.read_start  # looked up once: every boundary calls them
_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes in one of ru_maxrss

_IGNORED_FAULTS = 8
"""Page faults between read and reset that are this library's own."""
_HUGE_PAGE = 2 << 20
_THREAD_PAGES = 64
_FILL_RATE = 8e9
"""Bytes that one core can touch in a second at the very most (2 MiB pages; measured: 7e9)."""
_FOREIGN_SLACK = 4 << 20
FOREIGN = -1
"""Somebody else has started the watermark anew since the boundary before."""


def counts_per_thread(release: str) -> bool:
    """Whether a kernel of this release holds back 64 pages per thread (before Linux 6.2)."""
    major, _, rest = release.partition(".")
    minor = rest.partition(".")[0]
    return major.isdigit() and minor.isdigit() and (int(major), int(minor)) < (6, 2)


def counter_error(cpus: int, threads: int, per_thread: bool) -> int:
    """Bytes by which the kernel's watermark may differ from the truth.

    Its counters are kept per processor and folded in batches of max(32, 2 x processors) pages; older kernels hold
    back 64 pages for each thread.
    """
    return _THREAD_PAGES * _PAGE * threads if per_thread else (max(32, 2 * cpus) - 1) * cpus * _PAGE


def _status_bytes(text: bytes, field: bytes) -> int | None:
    """A field of `/proc/self/status` that is given in kB; `None`: not there."""
    rest = text.partition(b"\n" + field + b":")[2]
    digits = rest[:32].split(None, 1)
    return int(digits[0]) * 1024 if digits and digits[0].isdigit() else None


class Blind:
    """No watermark at all: the system has none."""

    exact = quick = False
    floor: int | None = None
    own_read = own_written = 0

    def between(self, _began: float, _opening: bool) -> Moment:
        """Nothing is known."""
        return (None, None, None, 0)

    def opening(self) -> Moment:
        """Nothing is known."""
        return (None, None, None, 0)

    closing = opening

    def close(self) -> None:
        """Nothing is held."""


class _Inheriting:
    """Tells the watermark of this process from one that it inherited."""

    __slots__ = ("_status", "floor", "ledger", "own_read", "own_written")

    def __init__(self, ledger: Ledger | None) -> None:
        self.ledger = ledger if ledger is not None else Ledger()
        self.own_read = self.own_written = 0
        """Bytes that this object's own calls have added to the process's I/O."""
        self.floor: int | None = None
        self.ledger.genuine = 1 << 62
        self._status = -1

    def _verify(self, top: int) -> int:
        """The watermark, when `ru_maxrss` says `top`; learns from which value on that can be believed."""
        peak = self._true_peak()
        if peak is None:
            return top
        if peak >= top:
            self.ledger.genuine = top
        else:
            self.floor = top
            self.ledger.genuine = top + 1
        return peak

    def _true_peak(self) -> int | None:
        text = _read_start(self._status)
        self.own_read += len(text)
        return _status_bytes(text, b"VmHWM")


class Lifetime(_Inheriting):
    """The watermark of the whole life of the process, never started anew; the present size where /proc tells it."""

    __slots__ = ("_statm",)

    exact = quick = False

    def __init__(self, ledger: Ledger | None = None) -> None:
        super().__init__(ledger)
        self.ledger.error = 0
        self._statm: int | None = None
        if os.path.exists("/proc/self/statm"):
            self._statm = keep_open("/proc/self/statm", os.O_RDONLY, SIZE)
            self._status = keep_open("/proc/self/status", os.O_RDONLY, STATUS)
            self.ledger.error = local_counter_error()

    def opening(self) -> Moment:
        """Watermark and size: 2.5 us; 9 us while the watermark is below an inherited one."""
        usage = resource.getrusage(_SELF)
        used, top = boundary.used(usage), usage[2] * _UNIT
        if self._statm is None:  # no /proc
            return (top, None, used, 0)
        statm = _read_start(self._statm)
        self.own_read += len(statm)
        peak = top if top >= self.ledger.genuine else self._verify(top)
        return (peak, int(statm.split(None, 2)[1]) * _PAGE, used, 0)

    closing = opening

    def between(self, _began: float, _opening: bool) -> Moment:
        """The same: nothing is reset, so that nothing can be missed."""
        return self.opening()

    def close(self) -> None:
        """Give the descriptors back."""
        close_quietly(self._statm)
        close_quietly(self._status)
        self._statm, self._status = None, -1


class Shared(Lifetime):
    """The present size only: the watermark is being started anew by another interpreter of this process."""

    __slots__ = ()

    def opening(self) -> Moment:
        """The size: 2.5 us."""
        _, rss, used, _ = super().opening()
        return None, rss, used, 0

    closing = opening


class Resettable(_Inheriting):
    """The watermark of each stretch between two readings, which start it anew. Raises `OSError` where not allowed."""

    __slots__ = ("_reset", "_statm", "before", "quick")

    exact = True

    def __init__(self, ledger: Ledger | None = None) -> None:
        super().__init__(ledger)
        self._reset = keep_open("/proc/self/clear_refs", os.O_WRONLY, RESET)
        try:
            self._statm = keep_open("/proc/self/statm", os.O_RDONLY, SIZE)
            self._status = keep_open("/proc/self/status", os.O_RDONLY, STATUS)
            self.before = self._true_peak() or 0
            """The watermark of the process's life until now."""
            os.pwrite(self._reset, b"5", 0)
        except OSError:
            self.close()
            raise
        ledger = self.ledger
        ledger.reset, ledger.size, ledger.status = self._reset, self._statm, self._status
        ledger.error, ledger.ignored, ledger.slack = local_counter_error(), _IGNORED_FAULTS, _FOREIGN_SLACK
        ledger.per_thread = PER_THREAD
        self.quick = not PER_THREAD or _links() - 2 == _threads(_read_start(self._status))
        """Compiled code may take its boundaries: it counts threads by the links of a folder."""
        ledger.last = self._rss(_maxrss())
        self._verify(_maxrss())

    def opening(self) -> Moment:
        """Read the watermark and start it anew, where no operation is open: 2 us.

        9 us while the size is below an inherited watermark. What comes and goes between reading and reset is in none.
        """
        ledger = self.ledger
        turned = _turn(self._reset, OPENING, ledger.genuine, _IGNORED_FAULTS)
        segment, used, rest, _ = turned or self._turn_below(OPENING)
        ledger.last = rss = rest if rest >= ledger.genuine else self._rss(rest)
        return max(segment, rss), rss, used, 0

    def closing(self) -> Moment:
        """The same for the only operation that is open; here too nothing is missed: it ends with the reading."""
        ledger = self.ledger
        turned = _turn(self._reset, CLOSING, ledger.genuine, _IGNORED_FAULTS)
        segment, used, rest, _ = turned or self._turn_below(CLOSING)
        rss = rest if rest >= ledger.genuine else self._rss(rest)
        doubt = FOREIGN if segment + _FOREIGN_SLACK < ledger.last else 0
        ledger.last = rss
        return max(segment, rss), rss, used, doubt

    def between(self, began: float, opening: bool) -> Moment:
        """The same where other operations are open: 2.3 us. A peak that they miss is told by the page faults."""
        ledger = self.ledger
        kind = OPENING_BESIDE if opening else CLOSING_BESIDE
        turned = _turn(self._reset, kind, ledger.genuine, _IGNORED_FAULTS)
        segment, used, rest, faults = turned or self._turn_below(kind)
        rss = rest if rest >= ledger.genuine else self._rss(rest)
        doubt = 0
        if segment + _FOREIGN_SLACK < ledger.last:
            doubt = FOREIGN
        elif faults:
            doubt = self._gap(faults, monotonic() - began)
        ledger.last = rss
        return max(segment, rss), rss, used, doubt

    def _turn_below(self, kind: int) -> Turn:
        """The same where the watermark cannot be told from an inherited one by `getrusage`."""
        segment = self._verify(_maxrss())
        turned = _turn(self._reset, kind, 0, _IGNORED_FAULTS)
        assert turned is not None
        return segment, *turned[1:]

    def _rss(self, top: int) -> int:
        """Present size in bytes from the exact counters, never above `top`, what `ru_maxrss` says."""
        text = _read_start(self._statm)
        self.own_read += len(text)
        return min(int(text.split(None, 2)[1]) * _PAGE, top)

    def _gap(self, faults: int, seconds: float) -> int:
        """Largest growth that so many page faults in so much time can have caused.

        With one thread the faults are this library's own, a signal handler's, or copies on write after a fork: single
        pages. Other threads may have got huge ones.
        """
        text = _read_start(self._status)
        self.own_read += len(text)
        page = _PAGE if _threads(text) == 1 else _HUGE_PAGE
        return min(faults * page, int(seconds * _FILL_RATE * _cpus()))

    def close(self) -> None:
        """Give the descriptors back."""
        for name in ("_reset", "_statm", "_status"):
            close_quietly(getattr(self, name, None))
            setattr(self, name, -1)


def _maxrss() -> int:
    return resource.getrusage(_SELF)[2] * _UNIT


def _cpus() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return os.cpu_count() or 1


PER_THREAD = hasattr(os, "uname") and counts_per_thread(os.uname().release)
"""Whether the error grows with the number of threads, so that it has to be asked for each time."""


def local_counter_error() -> int:
    """`counter_error` here and now."""
    return counter_error(_cpus(), _threads(read_quietly("/proc/self/status")), PER_THREAD)


def _threads(status: bytes) -> int:
    """Number of threads that `/proc/self/status` tells; 1 where it does not."""
    digits = status.partition(b"\nThreads:")[2].split(None, 1)
    return int(digits[0]) if digits and digits[0].isdigit() else 1


def _links() -> int:
    try:
        return os.stat("/proc/self/task").st_nlink
    except OSError:
        return 0


def open_watermark(reset: bool, alone: bool, ledger: Ledger) -> Resettable | Lifetime | Blind:
    """The best there is here.

    Args:
        reset: whether this process's watermark may be started anew.
        alone: whether no other interpreter of this process does so.
        ledger: what the boundaries have to know of each other.

    """
    if resource is None:
        return Blind()
    if not alone:
        try:
            return Shared(ledger)
        except OSError:
            return Blind()
    if reset and os.path.exists("/proc/self/clear_refs"):
        try:
            return Resettable(ledger)
        except OSError:
            pass
    try:
        return Lifetime(ledger)
    except OSError:
        return Blind()
