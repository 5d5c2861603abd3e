"""Kernel counters of a process's children: whether it had any, and an upper bound of their memory.

These counters need no samples, so no child is missed. They include only children that the process waits for. An orphan,
which the kernel reparents, appears only in the monitor's samples.
"""

from __future__ import annotations

import os
import signal

from otel_memwatch.in_target.operations.native import COMPILED, children_mark
from otel_memwatch.runtime.kernel import MAXRSS_BYTES, PAGE_SIZE
from otel_memwatch.runtime.procfs.system import other_page_sizes, read_allocated
from otel_memwatch.truth.faults import gained_by_children

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

_HUGE_BYTES = 2 << 20
"""Size of a huge page. The kernel counts one page fault or none for each."""
_SIZES = "/sys/kernel/mm/transparent_hugepage"
"""Directory that lists the other sizes of large pages that a single fault may map."""


ChildrenMark = tuple[int, int, int]
"""Counters of a process without living children. They cover all children it waited for, and their children.

1. Page faults of these children.
2. Size of the largest one, in bytes. It starts at the size that this process had when it started the child, so
   smaller values carry no information.
3. Page faults of this process.
"""


def plain_mark() -> ChildrenMark | None:
    """Return the counters so far; `None` if there are living children or SIGCHLD is ignored. Takes 5 us."""
    if resource is None or signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        return None
    try:
        # WNOWAIT leaves ended children to the code that waits for them.
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        waited = resource.getrusage(resource.RUSAGE_CHILDREN)
        own = resource.getrusage(resource.RUSAGE_SELF)
        return (
            waited.ru_minflt + waited.ru_majflt,
            waited.ru_maxrss * MAXRSS_BYTES,
            own.ru_minflt + own.ru_majflt,
        )
    except (AttributeError, OSError):
        pass
    return None


mark = children_mark if COMPILED else plain_mark
"""Fastest available implementation: 2 us with compiled code."""


class ChildrenLedger:
    """Counters of a process's children from test to test."""

    def __init__(self) -> None:
        self._before = mark()
        self._huge = _huge_pages()

    def since(self) -> tuple[bool, tuple[int, int] | None]:
        """Return whether no child ended since `turn`, and otherwise bounds of the children's memory.

        The bounds are bytes: an upper bound of all children together beside this process, and the size of the largest
        child. The latter is 0 if no child exceeded the earlier ones. The bounds are `None` if children are alive.

        Each page that is new to a process costs it a page fault. So does a page of this process that a forked child
        continues to use.
        """
        return self._look(mark())

    def turn(self) -> tuple[bool, tuple[int, int] | None]:
        """Return the result of `since`, and begin the time of the next test."""
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
        if largest <= before[1]:
            largest = 0
        needed = gained_by_children(
            faults - before[0], own_faults - before[2], huge - self._huge, page=PAGE_SIZE
        )
        return False, (needed, largest)


def _huge_pages() -> int | None:
    """Return the number of huge pages allocated since boot; `None` if a fault may map other large pages too."""
    allocated = read_allocated()
    if allocated is None or other_page_sizes(_SIZES, _HUGE_BYTES):
        return None
    return allocated.huge + allocated.collapsed
