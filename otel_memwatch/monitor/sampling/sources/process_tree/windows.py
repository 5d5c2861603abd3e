"""Windowed watermarks: a certified upper bound of the tree's resident memory between two ticks.

A window is the time between two scans, which are made at ticks. A scan reads each process's watermark, and resets it
where the process has given memory back since the last reset: elsewhere a reset changes nothing. The bound of a window is
the sum of the watermarks that the processes reached in it. Three things are added, so that it holds:

* What a process may have mapped between the reading of its watermark and the reset, by its page faults. Each of them may
  have brought a huge page. So a process that has page faults just then is not reset: its window goes on until the
  next scan.
* The error of the kernel's counters.
* For processes that vanished before their last watermark was read: what they had at the last tick, and what their parents'
  count of reaped children's page faults allows.

Two things are not in it: processes that nobody saw (`memwatch.tree.unobserved` counts them), and what a child has between
fork and exec, which is its parent's memory but for the few pages that it writes.

A scan takes time. At an instant within it some processes are already in the new window and the rest in the old one: the
bound covers every such mixture (`_prefix_bound`).
"""

from __future__ import annotations

import contextlib
import os

from otel_memwatch.monitor.sampling.sources.process_tree.files import Descriptors, read_once
from otel_memwatch.monitor.sampling.sources.process_tree.member import Member, own_faults
from otel_memwatch.runtime.kernel import (
    PAGE_SIZE,
    counter_error,
    has_thread_counters,
    parse_release,
    processors,
)
from otel_memwatch.runtime.procfs.process import parse_stat
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from otel_memwatch.runtime.procfs.process import Stat

RESET_WATERMARK = b"5"
"""Written to clear_refs: the watermark becomes the present resident memory."""
FAULT_AROUND = 16 * PAGE_SIZE
"""Bytes that one fault on a cached file maps at most (fault_around_bytes), where it does not map the whole folio."""
WHOLE_FOLIOS = (6, 18)
"""Release since which one fault maps the whole folio that the page cache has, up to a huge page, settings or not."""
DEFAULT_HUGE_PAGE = 2 << 20
"""Bytes of a huge page where the kernel does not show its size: that of x86 and of most ARM machines."""
_WORTH_SHARE = 1 / 64
"""Part of its watermark that a process has to have given back for a reset to be worth it."""


def fault_bytes(sys: Path, release: str) -> int:
    """Bytes by which one page fault can raise resident memory on this kernel: mostly a huge page's.

    ====================================================  ========================================
    huge pages                                            bytes
    ====================================================  ========================================
    not compiled into the kernel                          `FAULT_AROUND`
    switched off, and a release before `WHOLE_FOLIOS`     `FAULT_AROUND`
    of a size that the kernel shows                       that size, or `FAULT_AROUND` if larger
    of an unknown size                                    `DEFAULT_HUGE_PAGE`
    ====================================================  ========================================
    """
    pages = sys / "kernel/mm/transparent_hugepage"
    try:
        if parse_release(release) < WHOLE_FOLIOS and b"[never]" in read_once(str(pages / "enabled")):
            return FAULT_AROUND
        return max(FAULT_AROUND, int(read_once(str(pages / "hpage_pmd_size"))))
    except FileNotFoundError:
        return DEFAULT_HUGE_PAGE if pages.exists() else FAULT_AROUND
    except (OSError, ValueError):
        return DEFAULT_HUGE_PAGE


class Vanished(NamedTuple):
    """A member that is gone since the last scan."""

    pid: int
    rss: int
    """Bytes when it was last read."""
    faults: int
    """Page faults when it was last read."""
    reaped_peak: int | None
    """Watermark of its last window, which the kernel gave when we waited for it; `None`: another process waited for it."""


class _ProcessWindow:
    """The present window of one process, which began at the scan before."""

    __slots__ = ("before_reset", "clear_refs", "faults", "known", "resets", "rss", "stack", "upper")

    def __init__(self, clear_refs: int | None, stack: int) -> None:
        self.clear_refs = clear_refs
        """Descriptor by which the watermark is reset; `None`: denied, or there are no more descriptors."""
        self.stack = stack
        """Address of the stack at its beginning: another one since means an exec."""
        self.known = False
        """The process was measured at the last scan: `rss` and `faults` are those of the window's beginning."""
        self.resets = False
        """Nobody else resets the watermark, as far as known: it falls by our resets only."""
        self.before_reset = 0
        """Bound of what the process had before its watermark was reset last."""
        self.rss = 0
        """Bytes at the beginning of the window."""
        self.faults = 0
        """Page faults, minor and major, at the beginning of the window."""
        self.upper = 0
        """Bound of the window before."""

    def bound_by_faults(self, faults: int, per_fault: int) -> int:
        """Most that the process can have had in the window until it had so many page faults, whatever its watermark."""
        return self.rss + (faults - self.faults) * per_fault


class WatermarkWindows:
    """Scans the members at every tick: 20 to 40 us for each process."""

    def __init__(
        self, proc: str, sys: Path, descriptors: Descriptors, marks_operations: Callable[[int], bool]
    ) -> None:
        self._proc = proc
        self._descriptors = descriptors
        self._marks_operations = marks_operations
        self._cpus = processors()
        release = os.uname().release
        self._thread_counters = has_thread_counters(release)
        self._per_fault = fault_bytes(sys, release)
        self._windows: dict[int, _ProcessWindow] = {}
        self.reset_now: set[int] = set()
        """Processes whose watermark the last scan has reset."""
        self.disturbed: set[int] = set()
        """Processes whose watermark somebody else resets: we leave them alone since we noticed."""

    def scan(self, members: Mapping[int, Member], vanished: Iterable[Vanished], child_faults: int) -> int:
        """Upper bound in bytes of the tree's resident memory since the scan before.

        At the first scan, since the members' beginning.

        Args:
            members: the living, zombies among them.
            vanished: members that have gone since the last scan.
            child_faults: by how much the members' counts of reaped children's page faults rose, in all.
        """
        before, after, newborn = [], [], 0
        self.reset_now.clear()
        for pid, member in members.items():
            old = self._windows.get(pid)
            upper = self._measure(member, old)
            if old is None:
                newborn += upper
            else:
                before.append(self._windows[pid].upper)
                after.append(upper)
            self._windows[pid].upper = upper
        return _prefix_bound(before, after) + newborn + self._gone(vanished, child_faults)

    def _measure(self, member: Member, window: _ProcessWindow | None) -> int:
        """Bound of the process's window that ends now; a new one begins.

        What the tick has read of its stat stays: the next tick looks for what has changed since.
        """
        if window is None:
            window = self._windows[member.pid] = _ProcessWindow(self._open(member), member.stat.stack)
        if member.shares_memory:
            return 0
        began_rss, began_faults = window.rss, window.faults
        try:
            stat = parse_stat(member.stat_file.read())
            faults = own_faults(stat)
            member.refresh_status()
            mark = member.watermark.last
            if mark is None:
                # It is ending: its memory and its watermark are gone, its page faults are not.
                upper = window.bound_by_faults(faults, self._per_fault)
                window.rss, window.faults = 0, faults
                return upper
            error = counter_error(member.stat.threads, self._cpus, per_thread=self._thread_counters)
            upper = self._bound(member, window, mark, stat, error) + error
            upper += self._reset(member, window, mark + error, faults)
            window.rss = member.read_resident()
            last = parse_stat(member.stat_file.read())
        except OSError:
            # It has gone since this tick read it: the next tick finds out who waited for it.
            return window.upper
        if last.stack not in (0, stat.stack):
            # It has executed another program while it was measured: of which of them the watermark was is not known.
            upper = max(upper, began_rss + (own_faults(last) - began_faults) * self._per_fault + error)
        window.stack = last.stack
        if member.watermark.was_reset:
            member.watermark.bound = max(mark + error, window.before_reset)
        return upper

    def _bound(self, member: Member, window: _ProcessWindow, mark: int, stat: Stat, error: int) -> int:
        """Most that the process can have had in the window: its watermark, unless that does not cover the window.

        It does not when somebody else resets it, or when an exec in the window has begun another address space: then
        what it had at the beginning of the window, and what its page faults since can have brought.
        """
        executed = window.stack not in (0, stat.stack)
        if window.resets and not executed and mark < window.rss - error:
            self.disturbed.add(member.pid)
        if window.known and (executed or member.pid in self.disturbed or self._marks_operations(member.pid)):
            mark = max(mark, window.bound_by_faults(own_faults(stat), self._per_fault))
        window.known = True
        return mark

    def _open(self, member: Member) -> int | None:
        if self._descriptors.free <= 0:
            return None
        try:
            fd = os.open(f"{self._proc}/{member.pid}/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            return None
        self._descriptors.free -= 1
        return fd

    def _reset(self, member: Member, window: _ProcessWindow, mark: int, faults: int) -> int:
        """Reset the watermark, if that is worth it, allowed, and ours to do; bytes that it may have missed.

        Args:
            member: the process.
            window: its window, a new one of which begins.
            mark: its watermark and the error of that, in bytes.
            faults: its page faults before that was read.

        """
        window.faults = faults
        window.resets = not (
            window.clear_refs is None or member.pid in self.disturbed or self._marks_operations(member.pid)
        )
        if not window.resets or mark * (1 - _WORTH_SHARE) <= member.rss or _read_faults(member) != faults:
            return 0
        assert window.clear_refs is not None
        try:
            os.pwrite(window.clear_refs, RESET_WATERMARK, 0)
        except OSError:
            window.resets = False  # denied: another user's process
            return 0
        window.faults = _read_faults(member)
        missed = (window.faults - faults) * self._per_fault
        window.before_reset = max(window.before_reset, mark + missed)
        member.watermark.was_reset = True
        self.reset_now.add(member.pid)
        return missed

    def _gone(self, vanished: Iterable[Vanished], child_faults: int) -> int:
        """Bound of what the processes that vanished can have had since the last scan."""
        total, known_faults = 0, 0
        for process in vanished:
            window = self._windows.pop(process.pid, None)
            if window is not None:
                self._close(window)
            if process.reaped_peak is not None:
                total += max(process.reaped_peak, process.rss)
            elif window is None or not window.known:
                total += process.rss
            else:
                # What it had since, and gave back, may be in what was read of it when this tick began.
                total += max(window.rss, process.rss)
                known_faults += min(window.faults, process.faults)
        return total + max(0, child_faults - known_faults) * self._per_fault

    def _close(self, window: _ProcessWindow) -> None:
        if window.clear_refs is not None:
            with contextlib.suppress(OSError):
                os.close(window.clear_refs)
            window.clear_refs = None
            self._descriptors.free += 1

    def close(self) -> None:
        """Close all files."""
        for window in self._windows.values():
            self._close(window)
        self._windows.clear()


def _read_faults(member: Member) -> int:
    return own_faults(parse_stat(member.stat_file.read()))


def _prefix_bound(before: list[int], after: list[int]) -> int:
    """Most that the tree can have had at an instant of the scan, which takes the processes one after the other.

    At such an instant the first processes are in the new window already and the rest are in the old one, so the bound is
    the largest sum over these mixtures. That in which all are in the old window belongs to the scan before.

    Example: two processes had 10 and 2 MiB in the old window, and have 1 and 9 MiB in the new one. After the first was
    scanned the sum is 1 + 2, after the second 1 + 9: the bound is 10. Had the second been scanned first, the sums were
    9 + 10 and 9 + 1, and the bound 19: it may have grown before the first one shrank.
    """
    current, most = sum(before), 0
    for old, new in zip(before, after, strict=True):
        current += new - old
        most = max(most, current)
    return most
