"""What the counters of this machine allow to be said of a process or a control group."""

from __future__ import annotations

import os

from otel_memwatch.runtime.exactness import is_small
from otel_memwatch.runtime.kernel import processors, rss_error
from otel_memwatch.truth.cgroup_windows import charge_error


def of_process(value: int) -> str:
    """The certainty of a process's or an operation's peak of `value` bytes whose watermark was read in time."""
    return "exact" if is_small(rss_error(), value) else "interval"


def is_counter_error(low: int | None, high: int | None) -> bool:
    """Return whether only the counters' error lies between two bounds of a process's peak, so nothing was missed."""
    return low is not None and high is not None and high - low <= 2 * rss_error()


def error_here() -> int:
    """Return the bytes by which the kernel's peak of a process is really off, whatever number of processors a run assumes.

    `MEMWATCH_TEST_PROCESSORS=64` widens the printed range on a machine with two. The true peak must lie in that range to
    within the error of two.
    """
    return rss_error(cpus=os.sysconf("SC_NPROCESSORS_ONLN"))


def tree_error(process_error: int, cpus: int | None = None) -> int:
    """Return the bytes by which a claim about a tree may differ from its referee, a cgroup.

    A cgroup is charged ahead on each processor, and its memory.stat is as late. Example: 16 MiB for 64 processors. There a
    process's peak is off by 95 MiB, in which every false claim about a small program would hide.
    """
    return min(process_error, charge_error(os.sysconf("SC_NPROCESSORS_ONLN") if cpus is None else cpus))


def of_group(value: int, doubt: int = 0) -> tuple[str, ...]:
    """The certainties that a tree in a separate control group may have; `doubt`: bytes of cache and the like, about.

    It is exact where the charge error leaves room for `doubt`, a range where it alone is too large, and either in between.
    """
    error = charge_error(processors())
    if not is_small(error, value):
        return ("interval",)
    return ("exact",) if is_small(error + doubt, value) else ("exact", "interval")
