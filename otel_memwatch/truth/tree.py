"""Memory that a process tree needs, from bounds of its processes: without a dedicated cgroup."""

from __future__ import annotations

from otel_memwatch.model import Certainty, Evidence, Peak
from otel_memwatch.runtime.typed import NamedTuple
from otel_memwatch.truth.exact import at_least, is_one_figure, of_counter
from otel_memwatch.truth.kernel_memory import EXCLUDED


class Certificate(NamedTuple):
    """A lower or an upper bound, and the evidence for it."""

    bytes: int
    evidence: Evidence
    at: float | None = None
    """Seconds after the start of the run at which a lower bound was seen; `None`: unknown."""


def highest(*certificates: Certificate) -> Certificate:
    """Return the largest lower bound; the first of equal ones."""
    return max(certificates, key=lambda one: one.bytes)


def tree_between(
    low: Certificate, high: Certificate | None, by_group: Certificate | None, error: int
) -> Peak | None:
    """Return the tree's peak between a lower bound and the smaller of two upper bounds; `None`: nothing is known.

    The bound of a shared cgroup counts only if it is not below the lower one. Memory that the tree certainly had and the
    cgroup was not charged for breaks its assumptions.

    Example: at least 80 MiB at one sample, at most 300 by page faults. In a cgroup with a limit of 200: between 80 and 200 MiB.

    Args:
        low: lower bound; 0 bytes: unknown.
        high: upper bound from the processes; `None`: unknown.
        by_group: upper bound from a cgroup shared with others (`tree_bound_by_group`); `None`: unknown.
        error: counter uncertainty of one process, in bytes.
    """
    if by_group is not None and low.bytes <= by_group.bytes and (high is None or by_group.bytes < high.bytes):
        high = by_group
    peak = tree_of_processes(low.bytes, None if high is None else high.bytes, error)
    if peak is None:
        return None
    if high is not None and high is by_group:
        peak = peak._replace(excludes=())  # a cgroup is charged for kernel memory too
    return peak._replace(
        at=low.at, evidence=(low.evidence,) if high is None else (low.evidence, high.evidence)
    )


def lone_process_bound(
    max_rss: int | None, beside: int, error: int, floor: int
) -> tuple[int | None, int | None]:
    """Return the most resident bytes of a process with one thread, and the most that its tree of one needed.

    Page faults between two samples do not say what was freed meanwhile; wait4's maximum does:

    * The process maps no more than its maximum. All its private memory is mapped, or was a moment ago.
    * munmap notes the maximum first and returns when all pages are free. With a second thread, new pages could come in
      between, so a process that ever had threads has no such bound (`ran_all`).
    * An exec has two address spaces for a moment. Samples notice one, except in the last window: its bound by page faults
      counts too.
    * Files in memory that came and went between two samples are not in it. If page faults give a larger bound, these may have
      been the reason: the peak then excludes such files.
    * A part of a huge page that it freed may stay charged: `beside` includes all huge pages that were parted.
    * A reset of the maximum is noticed from the first sample on. So the bound of the first window counts too.
    * Memory that it handed to the kernel and no longer maps, as by vmsplice, is in a pipe: that is excluded.

    Example: a loop of 100 MiB, freed and taken again twice between samples. By page faults the tree needed at most 219 MiB,
    by the maximum 108.

    Args:
        max_rss: its maximum by wait4, in bytes, which is no child's; `None`: unknown.
        beside: the most shared memory, page tables, kernel stacks and parted huge pages at samples.
        error: bytes by which the maximum may be too low (`lone_error`).
        floor: peak of the launcher, in bytes; smaller values of wait4 may be inherited from it.
    """
    if max_rss is None or max_rss <= floor:
        return None, None
    return max_rss + error, max_rss + error + beside


def tree_from_bounds(low: int, high: int | None, error: int, single: int | None = None) -> Peak | None:
    """Return the peak of a tree's resident sizes, from the sum of its processes' bounds and a lower bound.

    The lower bound is the largest process, or the proportional sizes of all at one moment (each page counted once). A sum
    of resident sizes is none: it counts shared pages several times. The tree was one process if the bounds differ by at
    most the error of one process. If that is small, the peak is EXACT.

    Args:
        low: bytes that were certainly there at one moment.
        high: the sum of the bounds, with one error for each process; `None`: unknown.
        error: counter uncertainty of one process, in bytes.
        single: the exact figure of the process, if one is known.
    """
    unsure = (Evidence.LARGEST_PROCESS_OR_PSS, Evidence.PROCESS_PEAK_SUM)
    if high is None:
        return at_least(low, *unsure) if low else None
    high = max(high, low)
    if high <= low + 2 * error and is_one_figure(low, high):
        value = max(low, high - error) if single is None else single
        peak = of_counter(value, error, evidence=(Evidence.PROCESS_PEAK,))
        if peak.certainty is Certainty.EXACT:
            return peak
    return Peak.interval(low, high, evidence=unsure)


def tree_of_processes(low: int, high: int | None, error: int = 0) -> Peak | None:
    """Return the tree's peak without a dedicated cgroup: never EXACT, however near both bounds are.

    Memory that no process maps is in neither bound, except page tables and kernel stacks at samples. It is kernel memory
    (pipes, sockets, dentries), and files in memory that came and went between two samples. No counter says how much of it
    there was, so the peak excludes "kernel".

    Example: processes that needed 100 to 101 MiB: between 100 and 101 MiB. With 80 MiB in its sockets, which nothing in
    /proc reports, the tree needed 181. The bounds are never nearer to each other than the counters' error.

    Args:
        low: bytes that were certainly needed at one moment.
        high: bytes that processes certainly did not exceed; `None`: unknown.
        error: counter uncertainty of one process, in bytes.
    """
    if high is None:
        return Peak.interval(low, None, excludes=(EXCLUDED,)) if low else None
    return Peak.interval(low, max(low + error, high), excludes=(EXCLUDED,))


def tree_of_one_process(peak: Peak) -> Peak:
    """Return the tree's peak from that of its only process: the same bounds, and not EXACT (`tree_of_processes`)."""
    if peak.certainty is not Certainty.EXACT:
        return peak
    low = peak.bytes if peak.low is None else peak.low
    return peak._replace(
        bytes=low, certainty=Certainty.INTERVAL, low=low, estimate=peak.bytes, excludes=(EXCLUDED,)
    )


def tree_of_unread_processes(largest: Peak | None, *, alone: bool) -> Peak | None:
    """Return the tree's peak if no process was read while it lived; `None`: nothing is known.

    wait4 reports resident sizes, with pages of files that the kernel can reclaim: no lower bound of the memory needed. Of a
    single process they are an upper bound.

    Example: python3 with an array of 80 MiB needs 83.5 MiB, and has 87.7 MiB resident.

    Args:
        largest: peak of the largest process.
        alone: True if it was the only one.
    """
    if largest is None or not largest.bytes:
        return None
    if largest.certainty is Certainty.CENSORED:
        return largest if alone else None
    if alone and largest.high is not None:
        return Peak.interval(
            0, largest.high, estimate=largest.bytes, excludes=(EXCLUDED,), evidence=largest.evidence
        )
    return Peak.sampled(largest.bytes, at=largest.at, evidence=(Evidence.LARGEST_PROCESS,))


def tree_bound_by_group(
    watermark: int | None,
    limits: tuple[int, int] | None,
    *,
    error: int,
    shared: int | None,
    outside: int | None,
    swapped: int | None,
    joined: bool,
) -> Certificate | None:
    """Return the bytes that the tree never needed, by a cgroup that it shared with others; `None`: unknown.

    Memory of the tree is charged to the cgroup. So the tree never has more than the cgroup's peak, from before the run or
    not, and that is never above a hard limit:

        needed  <=  charged  <=  peak  <=  limit

    Example: 20 programs of 50 MiB run in turn, between samples. Their own figures bound them by 1 GiB, a limit of 200 MiB
    by 200 MiB. Pages of files are charged as cache, to this cgroup or to an earlier user: needed memory excludes
    cache, so they are not added. A cgroup without a limit bounds little: its peak is that of a whole session or machine.

    | resident, and not charged here | so |
    | --- | --- |
    | memory files (tmpfs) that another cgroup was charged for | the tree's largest sum of them is added |
    | memory that a process brings from another cgroup | no bound if the tree is older than the run |
    | processes that left the cgroup | no bound if one was seen outside |
    | pages in swap, which are needed too | no bound, unless swap was unused at all samples |

    Args:
        watermark: peak of the cgroup, at the last sample; `None`: this kernel keeps none.
        limits: the smallest and the largest limit that was read at samples; `None`: there is none.
        error: `charge_error` of the machine.
        shared: the largest sum of shared resident memory of the tree; `None`: unknown.
        outside: number of processes found outside the cgroup; `None`: not checked.
        swapped: most bytes in swap at any sample, of the cgroup or of the machine; `None`: unknown.
        joined: whether the tree is older than the run.
    """
    if limits is None or joined or shared is None or outside != 0 or swapped != 0:
        return None
    if watermark is not None:
        # A peak that has reached the limit is the limit.
        reached = watermark + error >= limits[0]
        by = Evidence.SHARED_CGROUP_LIMIT if reached else Evidence.SHARED_CGROUP_PEAK
        return Certificate(watermark + error + shared, by)
    if limits[0] == limits[1]:
        return Certificate(limits[0] + error + shared, Evidence.SHARED_CGROUP_LIMIT)
    return None


def within_machine(peak: Peak | None, machine: int | None) -> Peak | None:
    """Return a peak with no upper bound above the machine's memory and swap.

    Bounds of short-lived processes are sums, and include processes of other users. No run needs more than the machine has.

    Example: between 174 MiB and 198 GiB, on a machine of 23.5 GiB without swap: between 174 MiB and 23.5 GiB.

    | the peak's upper bound | the machine's memory | becomes |
    | --- | --- | --- |
    | above it | known | the machine's, and the source says so |
    | above it, but EXACT: a page that is mapped twice counts twice in a process's resident size | known | stays |
    | unknown: "at least" says more | known | stays |
    | any | not in the record | stays |

    Memory or swap that was added during the run is not in it.

    Args:
        peak: of the run, an operation, a process or a group.
        machine: bytes of memory and swap at the start of the run; `None`: not recorded.
    """
    if peak is None or machine is None or peak.high is None or peak.high <= machine:
        return peak
    if peak.certainty is Certainty.EXACT:
        return peak
    high = max(machine, peak.low or 0)
    evidence = (*peak.evidence, Evidence.MACHINE)
    if peak.certainty is Certainty.CENSORED:
        return peak._replace(bytes=high, high=high, evidence=evidence)
    estimate = None if peak.estimate is None else min(peak.estimate, high)
    return peak._replace(bytes=min(peak.bytes, high), high=high, evidence=evidence, estimate=estimate)
