"""What the kernel tells a process of its children: whether there were any, and what they can have taken.

No tick is needed for it, so that nothing is missed between two. What nobody waits for is not in it: an orphan, which
has been handed to another process, is known by the monitor's ticks alone.
"""

from __future__ import annotations

import os
import signal

from otel_memwatch.in_target.operations.native import COMPILED, children_mark

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

_MAXRSS_BYTES = 1 if os.uname().sysname == "Darwin" else 1024
_HUGE = ("thp_fault_alloc", "thp_collapse_alloc", "thp_file_alloc")
"""Counters of /proc/vmstat of huge pages, for each of which one page fault is counted, or none."""
_HUGE_BYTES = 2 << 20
_SIZES = "/sys/kernel/mm/transparent_hugepage"
"""Where it says which other large pages a single fault may bring."""


ChildrenMark = tuple[int, int, int]
"""What a process without living children was told of all that it has waited for, with their own children.

Page faults that they had; bytes of the largest of them, where that is more than this process had itself when it started it;
and the process's own page faults.
"""


def plain_mark() -> ChildrenMark | None:
    """What has been so far; `None`: there are children now, or they leave no trace. 5 us."""
    if resource is None or signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        return None
    try:
        # Looks, and leaves what has ended to whoever waits for it.
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        waited = resource.getrusage(resource.RUSAGE_CHILDREN)
        own = resource.getrusage(resource.RUSAGE_SELF)
        return (
            waited.ru_minflt + waited.ru_majflt,
            waited.ru_maxrss * _MAXRSS_BYTES,
            own.ru_minflt + own.ru_majflt,
        )
    except (AttributeError, OSError):
        pass
    return None


mark = children_mark if COMPILED else plain_mark
"""The same, in 2 us where there is compiled code."""


class ChildrenLedger:
    """Follows the marks of a process from test to test."""

    def __init__(self) -> None:
        self._before = mark()
        self._huge = _huge_pages()
        self._page = os.sysconf("SC_PAGE_SIZE")

    def since(self) -> tuple[bool, tuple[int, int] | None]:
        """Whether there was no child since `turn`; if there was, what the children can have needed.

        That is: bytes that all together can have needed beside this process, and the largest of them, 0 where it is not
        above what came before. `None`: no bound is known, as children live. Each page that is new to a process costs it a
        page fault, and so does one of this process that a forked child goes on to use.
        """
        return self._look(mark())

    def turn(self) -> tuple[bool, tuple[int, int] | None]:
        """As `since`; ends the time of one test and begins the next one's."""
        now, before = mark(), self._before
        if now is not None and before is not None and now[0] == before[0]:
            self._before = now
            return True, None
        found = self._look(now)
        self._before = now
        self._huge = _huge_pages()
        return found

    def _look(self, now: ChildrenMark | None) -> tuple[bool, tuple[int, int] | None]:
        before = self._before
        if now is None or before is None:
            return False, None
        faults, largest, own_faults = now
        if faults == before[0]:
            return True, None
        huge = _huge_pages()
        if huge is None or self._huge is None:
            return False, None
        pages = faults - before[0] + own_faults - before[2]
        if largest <= before[1]:
            largest = 0
        return False, (pages * self._page + max(0, huge - self._huge) * _HUGE_BYTES, largest)


def _huge_pages() -> int | None:
    """Huge pages that the system has handed out since its start; `None`: a fault may bring other large pages too."""
    try:
        for name in os.listdir(_SIZES):
            if name.startswith("hugepages-") and name != "hugepages-2048kB":
                with open(f"{_SIZES}/{name}/enabled", encoding="ascii") as file:
                    if "[never]" not in file.read():
                        return None
    except OSError:
        pass  # an older kernel, which has none of them
    try:
        with open("/proc/vmstat", encoding="ascii") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith(_HUGE))
    except (OSError, ValueError):
        return None
