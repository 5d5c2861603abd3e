"""What operations need of the process that they are in: descriptors kept open, its watermark of resident memory, its totals.

Sources, with their cost in a Python program: `getrusage` gives the watermark, and CPU time and faults (0.8 us); writing
"5" to `/proc/self/clear_refs` (0.6 us) starts the watermark anew at the present size, which then is what the watermark
says; `/proc/self/status` (7 us) has it free of the one flaw of `getrusage`: `ru_maxrss` is never below what the program
that started this one had used when it called exec. I/O and what reaped children used are read together in 2 us.

The write cannot be left out where nothing seems to have happened: memory that is given back leaves no trace in any
counter of `getrusage`, and some comes without a page fault (huge pages made in the background, pages that drivers and
other processes put in).
"""

from __future__ import annotations

import os
import sys
from time import monotonic

from otel_memwatch.in_target.operations.values import Moment, ProcessTotals
from otel_memwatch.runtime.kernel import PAGE_SIZE, counter_error, has_thread_counters, processors
from otel_memwatch.runtime.owned_descriptor import OwnedDescriptor, move_high
from otel_memwatch.runtime.procfs.statm import parse_resident

try:
    import fcntl
    import resource
except ImportError:  # not a Unix
    fcntl = resource = None  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from otel_memwatch.in_target.operations.values import Moved, Used

RESET, SIZE, STATUS, IO, JOURNAL = range(512, 832, 64)
"""Numbers from which on the descriptors of each use are placed: when a program has closed them all, none that is
opened again takes the number under which another one is still remembered."""
UNTRUSTED = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""For a file whose directory others may write to: no link is followed, no named pipe is waited for."""

IGNORED_FAULTS = 8
"""Page faults between reading and reset that are this library's own."""
FOREIGN_SLACK = 4 << 20
"""Bytes by which the watermark may be below the size at the boundary before; further below, somebody else has
started it anew."""
FOREIGN = -1
"""`Moment.doubt`: somebody else has started the watermark anew since the boundary before."""
FILL_RATE = 8e9
"""Bytes that one core can touch in a second at the very most (2 MiB pages; measured: 7e9)."""
HUGE_PAGE = 2 << 20

_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024  # bytes in one of ru_maxrss


# Descriptors.


_kept: dict[int, OwnedDescriptor] = {}
"""Descriptors from `keep_open`, by their numbers; also those that the program has closed since."""


class JustOpened:
    """Descriptors that have been opened for the recorder that is being made; `None`: none is."""

    descriptors: list[int] | None = None


def keep_open(path: str, flags: int, lowest: int, mode: int = 0o600) -> int:
    """Open a file on a descriptor from `lowest` on that no program started from here inherits.

    High, so that a program which closes every descriptor it does not know (daemons do) and then opens its own
    never gets our number: a write by us then fails instead of reaching the program's file. Raises `OSError`.
    """
    descriptor = move_high(os.open(path, flags | getattr(os, "O_CLOEXEC", 0), mode), lowest)
    _kept[descriptor] = OwnedDescriptor(descriptor)
    if JustOpened.descriptors is not None:
        JustOpened.descriptors.append(descriptor)
    return descriptor


def close_quietly(descriptor: int) -> None:
    """Close a descriptor from `keep_open`, unless the program has closed it and uses the number itself."""
    kept = _kept.pop(descriptor, None)
    if kept is not None:
        kept.close()


def read_quietly(path: str, size: int = 8192) -> bytes:
    """The beginning of a small file; nothing where it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return b""
    try:
        return os.read(descriptor, size)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


class Claim:
    """What only one interpreter of a process may have: the watermark. `alone`: no other one has claimed it.

    Interpreters know nothing of each other, but the locks of files do: this one is of a file that each process has of
    its own, so that nobody else's lock is ever met. Where locks do not work there is one interpreter, as far as is known.
    """

    def __init__(self) -> None:
        self.alone = True
        self._descriptor = -1
        try:
            self._descriptor = keep_open("/proc/self/status", os.O_RDONLY, STATUS)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.alone = False
            self.give_up()
        except (OSError, AttributeError):  # no /proc, no locks
            pass

    def give_up(self) -> None:
        """Leave it to others."""
        close_quietly(self._descriptor)
        self._descriptor = -1


# What the kernel does not tell exactly.


PER_THREAD = hasattr(os, "uname") and has_thread_counters(os.uname().release)
"""Whether the error grows with the number of threads, so that it has to be asked for each time."""


def local_counter_error() -> int:
    """`counter_error` here and now."""
    return counter_error(_threads(read_quietly("/proc/self/status")), processors(), per_thread=PER_THREAD)


def _threads(status: bytes) -> int:
    """Number of threads that `/proc/self/status` tells; 1 where it does not."""
    digits = status.partition(b"\nThreads:")[2].split(None, 1)
    return int(digits[0]) if digits and digits[0].isdigit() else 1


def _peak_field(status: bytes) -> int | None:
    """The watermark that `/proc/self/status` tells, in bytes; `None`: it does not."""
    digits = status.partition(b"\nVmHWM:")[2][:32].split(None, 1)
    return int(digits[0]) * 1024 if digits and digits[0].isdigit() else None


# The watermark.


class NoWatermark:
    """No watermark at all: the system has none, or the record is lost."""

    kind = 0
    exact = False
    floor: int | None = None
    reset = size = status = -1
    own_min = last = error = before = 0
    own_read = own_written = 0

    def __init__(self, claim: Claim | None = None) -> None:
        self.claim = claim

    def read_and_reset(self, *, opening: bool, beside: bool) -> Moment:  # noqa: ARG002 - as the others
        """Nothing is known."""
        return Moment()

    def close(self) -> None:
        """Give up the claim."""
        if self.claim is not None:
            self.claim.give_up()


class LifetimeWatermark:
    """The watermark of the whole life of the process, never started anew; the present size where /proc tells it.

    Raises `OSError` where there is a /proc that cannot be read.
    """

    kind = 1
    exact = False
    reset = -1

    def __init__(self, claim: Claim | None = None) -> None:
        self.claim = claim
        self.own_read = self.own_written = 0
        """Bytes that this object's own calls have added to the process's I/O."""
        self.own_min = 1 << 62
        """`ru_maxrss` of at least this much is the watermark of this process, not an inherited one."""
        self.floor: int | None = None
        """The inherited watermark, where there is one."""
        self.last = self.before = self.error = 0
        self.size = self.status = -1
        if os.path.exists("/proc/self/statm"):
            self.size = keep_open("/proc/self/statm", os.O_RDONLY, SIZE)
            self.status = keep_open("/proc/self/status", os.O_RDONLY, STATUS)
            self.error = local_counter_error()

    def read_and_reset(self, *, opening: bool, beside: bool) -> Moment:  # noqa: ARG002 - nothing is reset
        """The watermark of the whole life, which misses nothing. Raises `OSError`."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        used = usage.ru_utime, usage.ru_stime, usage.ru_minflt, usage.ru_majflt
        peak = usage.ru_maxrss * _MAXRSS_BYTES
        if self.size < 0:  # no /proc
            return Moment(peak, None, used)
        rss = self._resident()
        return Moment(self._own_peak(peak), rss, used)

    def _own_peak(self, top: int) -> int:
        """The watermark of this process where `ru_maxrss` says `top`; learns from which value on that can be believed."""
        if top >= self.own_min:
            return top
        peak = self._true_peak()
        if peak is None:
            return top
        if peak >= top:
            self.own_min = top
        else:
            self.floor = top
            self.own_min = top + 1
        return peak

    def _true_peak(self) -> int | None:
        return _peak_field(self._read(self.status))

    def _resident(self) -> int:
        """Return the present size, from the kernel's exact counters."""
        return parse_resident(self._read(self.size))

    def _read(self, descriptor: int) -> bytes:
        text = os.pread(descriptor, 4096, 0)
        self.own_read += len(text)
        return text

    def close(self) -> None:
        """Give the descriptors back."""
        if self.claim is not None:
            self.claim.give_up()
        for descriptor in (self.reset, self.size, self.status):
            close_quietly(descriptor)
        self.reset = self.size = self.status = -1


class SharedWatermark(LifetimeWatermark):
    """The present size only: the watermark is being started anew by another interpreter of this process."""

    kind = 2

    def read_and_reset(self, *, opening: bool, beside: bool) -> Moment:
        """The size. Raises `OSError`."""
        moment = super().read_and_reset(opening=opening, beside=beside)
        moment.segment = None
        return moment


class ResettableWatermark(LifetimeWatermark):
    """The watermark between each two readings, which start it anew. Raises `OSError` where not allowed."""

    kind = 3
    exact = True

    def __init__(self, claim: Claim | None = None) -> None:
        super().__init__(claim)
        try:
            self.reset = keep_open("/proc/self/clear_refs", os.O_WRONLY, RESET)
            self.before = self._true_peak() or 0
            """The watermark of the process's life until now, which the first boundary tells."""
            self._start_anew()
        except OSError:
            self.claim = None  # whoever asked for this one keeps it
            self.close()
            raise
        top = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_BYTES
        self._own_peak(top)
        self.last = min(self._resident(), top)
        """Resident size at the last boundary."""

    def _start_anew(self) -> None:
        os.pwrite(self.reset, b"5", 0)
        self.own_written += 1

    def read_and_reset(self, *, opening: bool, beside: bool) -> Moment:
        """Read the watermark, start it anew, and read what it is then. Raises `OSError`.

        Args:
            opening: an operation begins here. What the process has used is told from the second reading then, else
                from the first: what a boundary uses is not in the operation.
            beside: other operations are open. Memory that comes and goes between reading and reset is in no figure
                of theirs; the page faults between the readings bound how much that can have been.

        """
        began = monotonic()
        before = resource.getrusage(resource.RUSAGE_SELF)
        top = self._own_peak(before.ru_maxrss * _MAXRSS_BYTES)
        self._start_anew()
        after = resource.getrusage(resource.RUSAGE_SELF)
        rss = after.ru_maxrss * _MAXRSS_BYTES
        if rss < self.own_min:
            try:
                rss = min(self._resident(), rss)
            except (
                OSError
            ):  # closed by the program, too late for this boundary: the next one opens everything again
                close_quietly(self.reset)
                self.reset = -1
        segment = max(top, rss)
        usage = after if opening else before
        used = usage.ru_utime, usage.ru_stime, usage.ru_minflt, usage.ru_majflt
        faults = after.ru_minflt - before.ru_minflt
        doubt = 0
        if segment + FOREIGN_SLACK < self.last and (beside or not opening):
            doubt = FOREIGN
        elif beside and faults > IGNORED_FAULTS:
            doubt = self._possible_gap(faults, monotonic() - began)
        self.last = rss
        return Moment(segment, rss, used, doubt)

    def _possible_gap(self, faults: int, seconds: float) -> int:
        """Largest growth that so many page faults in so much time can have caused.

        With one thread the faults are this library's own, a signal handler's, or copies on write after a fork: single
        pages. Other threads may have got huge ones.
        """
        try:
            page = PAGE_SIZE if _threads(self._read(self.status)) == 1 else HUGE_PAGE
        except OSError:  # as above
            page = HUGE_PAGE
        return min(faults * page, int(seconds * FILL_RATE * processors()))


Watermark = NoWatermark | LifetimeWatermark


def open_watermark(reset: bool, lost: Watermark | None = None) -> Watermark:
    """The best there is here.

    Args:
        reset: whether this process's watermark may be started anew.
        lost: the one before, some of whose descriptors the program has closed.

    """
    if resource is None:
        return NoWatermark()
    if lost is not None and lost.claim is not None:
        lost.claim.give_up()
    claim = Claim()
    kinds: list[type[LifetimeWatermark]] = [LifetimeWatermark if claim.alone else SharedWatermark]
    if claim.alone and reset and os.path.exists("/proc/self/clear_refs"):
        kinds.insert(0, ResettableWatermark)
    for kind in kinds:
        try:
            return kind(claim)
        except OSError:
            pass
    return NoWatermark(claim)


# Totals.

LIFE = 100e-6
"""Seconds for which a reading of the totals is used for operations that are opened."""
BRIEF = 10e-6
"""Seconds up to which an operation is too short for its totals to be read at its end.

What was read, written or reaped meanwhile is told by the operation whose end reads next, and by those around it; never
twice by operations that follow each other.
"""


def open_io() -> int:
    """A descriptor of `/proc/self/io`; -1: there is none, or it is not ours to read."""
    try:
        return keep_open("/proc/self/io", os.O_RDONLY, IO)
    except OSError:
        return -1


def read_totals(io: int, own_read: int, own_written: int) -> tuple[ProcessTotals, int]:
    """What is told of an operation for the whole process, and how many bytes had to be read for that.

    Args:
        io: descriptor of `/proc/self/io`; below zero: there is none.
        own_read: bytes that this library has read itself, which are taken off.
        own_written: bytes that it has written.

    Raises `OSError`.
    """
    text = os.pread(io, 1024, 0) if io >= 0 else b""
    children: Used | None = None
    if resource is not None:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        children = usage.ru_utime, usage.ru_stime, usage.ru_minflt, usage.ru_majflt
    fields = text.split(None, 12)
    moved: Moved | None = None
    if len(fields) >= 12:
        moved = int(fields[9]), int(fields[11]), int(fields[1]) - own_read, int(fields[3]) - own_written
    return ProcessTotals(children, moved), len(text)


def used_between(first: Moment, last: Moment, before: ProcessTotals, after: ProcessTotals) -> Used | None:
    """What the process used between two boundaries, with the children that it waited for meanwhile."""
    if first.used is None or last.used is None:
        return None
    old, new = before.children, after.children
    if old is None or new is None:
        old = new = (0.0, 0.0, 0, 0)
    return (
        last.used[0] - first.used[0] + new[0] - old[0],
        last.used[1] - first.used[1] + new[1] - old[1],
        last.used[2] - first.used[2] + new[2] - old[2],
        last.used[3] - first.used[3] + new[3] - old[3],
    )


def moved_between(before: ProcessTotals, after: ProcessTotals) -> Moved | None:
    """Bytes read from and written to storage, bytes passed to read and write calls; `None`: not known here.

    Reaped children are included, this library's own calls are not. The storage figures may include up to one
    page for each page of this library's own record that was written meanwhile.
    """
    if before is after:
        return 0, 0, 0, 0
    first, last = before.moved, after.moved
    if first is None or last is None:
        return None
    return last[0] - first[0], last[1] - first[1], max(0, last[2] - first[2]), max(0, last[3] - first[3])
