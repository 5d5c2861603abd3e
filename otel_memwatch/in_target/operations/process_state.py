"""Process state for operations: open descriptors, the high-water mark of resident memory, and totals.

Sources, with their cost in a Python program:

- `getrusage` (0.8 us): high-water mark, CPU time and page faults. `ru_maxrss` starts at the size that the launching
  program had at exec.
- Writing "5" to `/proc/self/clear_refs` (0.6 us): resets the high-water mark to the current size.
- `/proc/self/status` (7 us): the high-water mark without the inherited minimum of `ru_maxrss`.
- I/O and resource use of reaped children: 2 us together.

The reset is necessary even if nothing seems to have happened. Freed memory leaves no trace in the counters of
`getrusage`. Some memory arrives without a page fault: huge pages made in the background, and pages that drivers and
other processes map.
"""

from __future__ import annotations

import os
from time import monotonic

from otel_memwatch.in_target.operations.operation_values import Moment, ProcessTotals
from otel_memwatch.runtime.kernel import (
    MAXRSS_BYTES,
    PAGE_SIZE,
    counter_error,
    has_thread_counters,
    processors,
)
from otel_memwatch.runtime.owned_descriptor import OwnedDescriptor, move_high
from otel_memwatch.runtime.procfs.statm import parse_resident

try:
    import fcntl
    import resource
except ImportError:  # not a Unix
    fcntl = resource = None  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from otel_memwatch.in_target.operations.operation_values import CpuTotals, IoTotals

RESET, SIZE, STATUS, IO, JOURNAL = range(512, 832, 64)
"""Lowest descriptor number for each use. After a program has closed all descriptors, a reopened one never gets the
remembered number of another one."""
UNTRUSTED = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Flags for a file in a directory that others may write to: do not follow links, do not wait for named pipes."""

IGNORED_FAULTS = 8
"""Page faults of this library between reading and reset."""
FOREIGN_SLACK = 4 << 20
"""Bytes by which the high-water mark may be below the size at the previous boundary. A larger gap means that other code
has reset it."""
FOREIGN = -1
"""Value of `Moment.doubt`: other code has reset the high-water mark since the previous boundary."""
FILL_RATE = 8e9
"""Upper bound of bytes per second that one core can touch (2 MiB pages; measured: 7e9)."""
HUGE_PAGE = 2 << 20


# Descriptors.


_kept: dict[int, OwnedDescriptor] = {}
"""Descriptors from `keep_open` by number, including those that the program has closed since."""


class OpeningDescriptors:
    """Descriptors opened for the recorder under construction; `None` if there is none."""

    descriptors: list[int] | None = None


def keep_open(path: str, flags: int, lowest: int) -> int:
    """Open a file on a descriptor of at least `lowest`, which child programs do not inherit.

    Daemons close every descriptor that they do not know and then open files. A high number is not reused then, so a
    write fails instead of reaching the program's file. Raises `OSError`.
    """
    descriptor = move_high(os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o600), lowest)
    _kept[descriptor] = OwnedDescriptor(descriptor)
    if OpeningDescriptors.descriptors is not None:
        OpeningDescriptors.descriptors.append(descriptor)
    return descriptor


def close_quietly(descriptor: int) -> None:
    """Close a descriptor from `keep_open`, unless the program has closed it and reused its number."""
    kept = _kept.pop(descriptor, None)
    if kept is not None:
        kept.close()


def read_quietly(path: str, size: int = 8192) -> bytes:
    """Return the beginning of a small file; empty if it cannot be read."""
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


class WatermarkOwner:
    """Ownership of the high-water mark, which only one interpreter of a process may reset.

    `alone` is true if no other interpreter owns it. Interpreters share no state, but file locks work between them. The
    locked file exists once per process, so locks of other processes do not interfere. If locks do not work, this
    interpreter counts as the only one.
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
        """Release the ownership."""
        close_quietly(self._descriptor)
        self._descriptor = -1


# Errors of the kernel's counters.


PER_THREAD = hasattr(os, "uname") and has_thread_counters(os.uname().release)
"""True if the error grows with the number of threads and must be computed each time."""


def local_counter_error() -> int:
    """Return the current `counter_error`, in bytes."""
    return counter_error(_threads(read_quietly("/proc/self/status")), processors(), per_thread=PER_THREAD)


def _threads(status: bytes) -> int:
    """Return the number of threads in `/proc/self/status`; 1 if missing."""
    digits = status.partition(b"\nThreads:")[2].split(None, 1)
    return int(digits[0]) if digits and digits[0].isdigit() else 1


# High-water mark.


def _kib(status: bytes, name: bytes) -> int | None:
    """Return a size in `/proc/self/status`, in bytes; `None` if missing."""
    digits = status.partition(name)[2][:32].split(None, 1)
    return int(digits[0]) * 1024 if digits and digits[0].isdigit() else None


class NoWatermark:
    """Absence of a high-water mark: the system has none, or the record is lost."""

    kind = 0
    exact = False
    floor: int | None = None
    reset = size = status = -1
    own_min = last = error = before = 0
    own_read = own_written = 0

    def __init__(self, claim: WatermarkOwner | None = None) -> None:
        self.claim = claim

    def read_and_reset(self, *, opening: bool, beside: bool) -> Moment:  # noqa: ARG002 - same signature as the others
        """Return an empty moment."""
        return Moment()

    def address_space(self) -> int:
        """Return 0: not known."""
        return 0

    def close(self) -> None:
        """Release the ownership."""
        if self.claim is not None:
            self.claim.give_up()


class LifetimeWatermark:
    """High-water mark since the start of the process, never reset, and the current size if /proc exists.

    Raises `OSError` if /proc exists but cannot be read.
    """

    kind = 1
    exact = False
    reset = -1

    def __init__(self, claim: WatermarkOwner | None = None) -> None:
        self.claim = claim
        self.own_read = self.own_written = 0
        """Bytes that calls of this object have added to the process's I/O."""
        self.own_min = 1 << 62
        """Smallest `ru_maxrss` that belongs to this process instead of being inherited, in bytes."""
        self.floor: int | None = None
        """Inherited high-water mark, if any, in bytes."""
        self.last = self.before = self.error = 0
        self.size = self.status = -1
        if os.path.exists("/proc/self/statm"):
            self.size = keep_open("/proc/self/statm", os.O_RDONLY, SIZE)
            self.status = keep_open("/proc/self/status", os.O_RDONLY, STATUS)
            self.error = local_counter_error()

    def read_and_reset(self, *, opening: bool, beside: bool) -> Moment:  # noqa: ARG002 - nothing is reset
        """Return the high-water mark since the start of the process. Raises `OSError`."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        used = usage.ru_utime, usage.ru_stime, usage.ru_minflt, usage.ru_majflt
        peak = usage.ru_maxrss * MAXRSS_BYTES
        if self.size < 0:  # no /proc
            return Moment(peak, None, used)
        rss = self._resident()
        return Moment(self._own_peak(peak), rss, used)

    def _own_peak(self, top: int) -> int:
        """Return the high-water mark of this process for a `ru_maxrss` of `top`, and update `own_min`."""
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
        """Return the high-water mark in `/proc/self/status`, in bytes; `None` if missing."""
        return _kib(self._read(self.status), b"\nVmHWM:")

    def address_space(self) -> int:
        """Return the largest size of the address space so far, in bytes; 0 if missing."""
        try:
            return _kib(self._read(self.status), b"\nVmPeak:") or 0
        except OSError:  # no /proc, or closed by the program
            return 0

    def _resident(self) -> int:
        """Return the current size from the kernel's exact counters."""
        return parse_resident(self._read(self.size))

    def _read(self, descriptor: int) -> bytes:
        text = os.pread(descriptor, 4096, 0)
        self.own_read += len(text)
        return text

    def close(self) -> None:
        """Close the descriptors."""
        if self.claim is not None:
            self.claim.give_up()
        for descriptor in (self.reset, self.size, self.status):
            close_quietly(descriptor)
        self.reset = self.size = self.status = -1


class SharedWatermark(LifetimeWatermark):
    """Current size only, because another interpreter of this process resets the high-water mark."""

    kind = 2

    def read_and_reset(self, *, opening: bool, beside: bool) -> Moment:
        """Return the current size. Raises `OSError`."""
        moment = super().read_and_reset(opening=opening, beside=beside)
        moment.segment = None
        return moment


class ResettableWatermark(LifetimeWatermark):
    """High-water mark between two readings; each reading resets it. Raises `OSError` if not permitted."""

    kind = 3
    exact = True

    def __init__(self, claim: WatermarkOwner | None = None) -> None:
        super().__init__(claim)
        try:
            self.reset = keep_open("/proc/self/clear_refs", os.O_WRONLY, RESET)
            self.before = self._true_peak() or 0
            """High-water mark of the process before the first reset, recorded at the first boundary."""
            self._start_anew()
        except OSError:
            self.claim = None  # the caller keeps the ownership
            self.close()
            raise
        top = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MAXRSS_BYTES
        self._own_peak(top)
        self.last = min(self._resident(), top)
        """Resident size at the last boundary."""

    def _start_anew(self) -> None:
        os.pwrite(self.reset, b"5", 0)
        self.own_written += 1

    def read_and_reset(self, *, opening: bool, beside: bool) -> Moment:
        """Read the high-water mark, reset it, and read it again. Raises `OSError`.

        Args:
            opening: true if an operation begins. Resource use is then taken from the second reading, otherwise from the
                first, so operations exclude the boundary's cost.
            beside: true if other operations are open. Their figures exclude memory that comes and goes between reading
                and reset. The page faults between both readings bound this memory.

        """
        began = monotonic()
        before = resource.getrusage(resource.RUSAGE_SELF)
        top = self._own_peak(before.ru_maxrss * MAXRSS_BYTES)
        self._start_anew()
        after = resource.getrusage(resource.RUSAGE_SELF)
        rss = after.ru_maxrss * MAXRSS_BYTES
        if rss < self.own_min:
            try:
                rss = min(self._resident(), rss)
            except (
                OSError
            ):  # closed by the program, too late for this boundary; the next one opens all files again
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
            # With one thread, the page faults are those of this library, of a signal handler, or copies on write after a
            # fork. All of them map single pages. Other threads may map huge pages.
            try:
                page = PAGE_SIZE if _threads(self._read(self.status)) == 1 else HUGE_PAGE
            except OSError:  # as above
                page = HUGE_PAGE
            # The growth that these page faults can cause at most, in the time that they had.
            doubt = min(faults * page, int((monotonic() - began) * FILL_RATE * processors()))
        self.last = rss
        return Moment(segment, rss, used, doubt)


Watermark = NoWatermark | LifetimeWatermark


def open_watermark(reset: bool, lost: Watermark | None = None) -> Watermark:
    """Return the best high-water mark available on this system.

    Args:
        reset: true if the high-water mark of this process may be reset.
        lost: previous high-water mark, if the program has closed some of its descriptors.

    """
    if resource is None:
        return NoWatermark()
    if lost is not None and lost.claim is not None:
        lost.claim.give_up()
    claim = WatermarkOwner()
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
"""Seconds for which openings of operations reuse a reading of the totals."""
BRIEF = 10e-6
"""Longest duration, in seconds, of an operation that ends without a reading of the totals.

I/O and reaped children of such an operation count for the next operation that reads the totals at its end, and for the
enclosing operations. Operations in sequence never count them twice.
"""


def open_io() -> int:
    """Return a descriptor of `/proc/self/io`; -1 if it is missing or not readable."""
    try:
        return keep_open("/proc/self/io", os.O_RDONLY, IO)
    except OSError:
        return -1


def read_totals(io: int, own_read: int, own_written: int) -> tuple[ProcessTotals, int]:
    """Return the process's totals for operations, and the number of bytes read to get them.

    Args:
        io: descriptor of `/proc/self/io`; negative if there is none.
        own_read: bytes read by this library, which are subtracted.
        own_written: bytes written by this library, which are subtracted.

    Raises `OSError`.
    """
    text = os.pread(io, 1024, 0) if io >= 0 else b""
    children: CpuTotals | None = None
    if resource is not None:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        children = usage.ru_utime, usage.ru_stime, usage.ru_minflt, usage.ru_majflt
    fields = text.split(None, 12)
    moved: IoTotals | None = None
    if len(fields) >= 12:
        moved = int(fields[9]), int(fields[11]), int(fields[1]) - own_read, int(fields[3]) - own_written
    return ProcessTotals(children, moved), len(text)


def used_between(
    first: Moment, last: Moment, before: ProcessTotals, after: ProcessTotals
) -> CpuTotals | None:
    """Return the resource use between two boundaries, including children that the process waited for."""
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


def moved_between(before: ProcessTotals, after: ProcessTotals) -> IoTotals | None:
    """Return bytes read from and written to storage, and bytes passed to read and write calls; `None` if unknown.

    Includes reaped children, but not this library's calls. The storage figures may include up to one page for each page
    of this library's record that was written between the boundaries.
    """
    if before is after:
        return 0, 0, 0, 0
    first, last = before.moved, after.moved
    if first is None or last is None:
        return None
    return last[0] - first[0], last[1] - first[1], max(0, last[2] - first[2]), max(0, last[3] - first[3])
