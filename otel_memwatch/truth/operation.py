"""Peaks of a part of a run: an operation, a test, several of these, or a process with its children."""

from __future__ import annotations

from otel_memwatch.model import Certainty, Evidence, Peak
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.truth.exact import at_least, is_exact
from otel_memwatch.truth.process import process_peak
from otel_memwatch.truth.tree import tree_of_processes

if TYPE_CHECKING:
    from collections.abc import Iterable


def operation_peak(
    value: int, certainty: Certainty, low: int | None, high: int | None, pid: int | None = None
) -> Peak:
    """Return the peak that a process reported for its operation (`in_target`), EXACT only by today's rule.

    An older version called figures exact that were farther from their bounds. An interval with a value between its bounds
    has it as its best estimate.

    Example: 69 MiB, "exact", between 0 and 164 MiB on a machine with 64 processors: between 0 and 164 MiB, best estimate 69.
    """
    if certainty is Certainty.EXACT:
        low, high = value if low is None else low, value if high is None else high
        if not is_exact(value, low, high):
            certainty = Certainty.INTERVAL
    between = certainty is Certainty.INTERVAL and low is not None and high is not None and low < value <= high
    estimate = value if between else None
    return Peak(value, certainty, low, high, pid=pid, estimate=estimate, evidence=(Evidence.PROCESS_PEAK,))


def refuted_by_sample(peak: Peak | None, sampled: int) -> Peak | None:
    """Return "at least" for an exact peak that a sample in the operation exceeds: the program has reset its high-water mark.

    Example: "exact" 22.6 MiB, measured at the end of an operation in which a sample found 62 MiB: at least 62 MiB.

    Args:
        peak: of an operation; `None`: unknown.
        sampled: bytes that its process certainly had at a sample within it; 0: none.
    """
    if peak is None or peak.certainty is not Certainty.EXACT or sampled <= (peak.high or peak.bytes):
        return peak
    return at_least(sampled, Evidence.SAMPLES, pid=peak.pid)


def operation_peak_so_far(low: int, pid: int) -> Peak | None:
    """Return the peak of an operation that is open, up to its process's last boundary; `None` for 0 bytes."""
    return at_least(low, Evidence.LAST_BOUNDARY, pid=pid) if low > 0 else None


def unclosed_operation_peak(low: int, high: int | None, error: int, pid: int) -> Peak | None:
    """Return the peak of an operation that was never closed, from samples and the bound of its process; `None`: unknown.

    Args:
        low: bytes that the process certainly had during the operation.
        high: bytes that the process never exceeded; `None`: unknown.
        error: counter uncertainty, in bytes.
        pid: of the process.
    """
    peak = process_peak(low, high, error, 0)
    if peak is None:
        return None
    unsure = (Evidence.LAST_BOUNDARY, Evidence.SAMPLES_BETWEEN)
    exact = peak.certainty is Certainty.EXACT
    return peak._replace(pid=pid, evidence=(Evidence.PROCESS_PEAK,) if exact else unsure)


def allocator_peak(low: int, high: int | None, allocator: str, *, exact: bool) -> Peak:
    """Return the peak of GPU memory that an allocator (torch, JAX ...) reported for an operation, in bytes.

    Args:
        low: bytes that it certainly held.
        high: bytes that it never exceeded; `None`: unknown.
        allocator: its name.
        exact: whether it keeps a high-water mark that was reset at the opening.
    """
    source = f"{allocator} watermark"
    if exact and high == low:
        return Peak.exact(low, source=source)
    return Peak.interval(low, high, source=source)


def no_more_than(part: Peak | None, whole: Peak | None) -> Peak | None:
    """Return a peak of a part of the run, with no upper bound and no exact figure above the whole run's.

    Example: the tree needed at most 1.22 GiB. The evidence of one operation alone gives at most 1.87 GiB. So the operation
    needed at most 1.22 GiB too.

    | the part's upper bound | the whole's | becomes |
    | --- | --- | --- |
    | above it, or unknown | known | the whole's |
    | anything else | | stays |

    Two EXACT figures have an error each. The part's is not above the whole's, unless its lower bound is.
    """
    if part is None or whole is None or whole.high is None or part.certainty is Certainty.SAMPLED:
        return part
    if part.certainty is whole.certainty is Certainty.EXACT and part.bytes > whole.bytes:
        part = part._replace(bytes=max(part.low or 0, whole.bytes))
    if part.high is not None and part.high <= whole.high:
        return part
    low = None if part.low is None else min(part.low, whole.high)
    estimate = None if part.estimate is None else min(part.estimate, whole.high)
    return part._replace(bytes=min(part.bytes, whole.high), low=low, high=whole.high, estimate=estimate)


def tree_of_operation(
    low: int, held: int | None, by_faults: int | None, likely: int, error: int
) -> Peak | None:
    """Return the memory that the tree needed during an operation without a dedicated cgroup; `None`: nothing is known.

    The rule is the run's (`tree_between`). An exact resident size is no lower bound either: it includes pages of files and
    libraries, which the kernel can reclaim.

    Example: a process with libraries of 300 MiB reports 1.16 GiB for its operation. A sample inside found 0.84 GiB of
    anonymous and shared memory: between 0.84 and 1.16 GiB, best estimate 0.86.

    Args:
        low: most anonymous and shared memory of the tree at one sample inside the operation, in bytes; 0: no sample.
        held: bytes that the processes did not exceed together during the operation; `None`: unknown.
        by_faults: bytes that the tree did not exceed in the windows of the operation, by page faults; `None`: unknown.
        likely: best estimate, in bytes.
        error: counter uncertainty of one process, in bytes.
    """
    known = [high for high in (held, by_faults) if high is not None]
    peak = tree_of_processes(low, min(known, default=None), error)
    if peak is None or peak.high is None:
        return None if peak is None else peak._replace(evidence=(Evidence.ONE_SAMPLE,))
    estimate = max(low, min(likely, peak.high))
    from_above = Evidence.PAGE_FAULTS if by_faults == min(known) else Evidence.PROCESS_PEAK_SUM
    return peak._replace(estimate=estimate, evidence=(Evidence.ONE_SAMPLE, from_above))


def part_of_tree(part: Peak | None, whole: Peak | None, *, throughout: bool = False) -> Peak | None:
    """Return the tree's peak in a part of the run, which never needed more than the whole run.

    An operation that lasts from the sample before the run's peak to the sample after it reaches the run's lower bound by
    its samples. Both are then one figure. An operation that only touches this window keeps the lower bound of its
    samples, and its upper bound includes the window.

    Example: the tree needed 49.6 MiB exactly (49.1 to 50.1). The samples of "Sort" say 49.1 to 49.6: in "Sort" it needed
    49.6 MiB, exactly. "Load" ended in the same window, with 20.3 to 50.1 by its samples: that range stays.

    | the part | becomes |
    | --- | --- |
    | has a bound or an estimate above the whole's | the whole's |
    | certainly had the whole's lower bound, and the whole is EXACT | the whole's figure, within the part's bounds |
    | excludes memory, as the whole does | it excludes the same |
    | anything else | stays |

    The peak of a process narrows neither bound of a tree with a dedicated cgroup, not even if no other process lived:

    * from above: kernel memory (pipes, sockets) and files in memory that no process maps are charged too. They can come and
      go between two samples without a page fault or a write call (`fallocate`, `sendmsg`), so no counter bounds them,
    * from below: it includes pages of files, which were not read at that moment.

    So it gives the best estimate (`likely_in_operation`).

    Args:
        part: peak of the part, from its samples.
        whole: peak of the run.
        throughout: whether the part lasted throughout the window of the run's peak, and its samples are not in the record.
    """
    part = no_more_than(part, whole)
    if part is not None and whole is not None and part.excludes:
        part = part._replace(excludes=whole.excludes or part.excludes, excluded_bytes=whole.excluded_bytes)
    if throughout and whole is not None:
        if part is None:
            return whole._replace(operation=None, operations=(), operation_likely=False)
        if (part.low or 0) < (whole.low or 0):
            part = part._replace(bytes=max(part.bytes, whole.low or 0), low=whole.low)
    if part is None or whole is None or part.certainty is Certainty.SAMPLED:
        return part
    if part.low is None or whole.low is None:
        return part
    if part.low > whole.low and part.certainty is Certainty.INTERVAL:
        part = part._replace(bytes=min(part.bytes, whole.low), low=whole.low)
    if part.estimate is not None and whole.estimate is not None:
        part = part._replace(estimate=max(part.low or 0, min(part.estimate, whole.estimate)))
    if whole.certainty is not Certainty.EXACT or part.high is None or (part.low or 0) < whole.low:
        return part
    figure = max(part.low or 0, min(whole.bytes, part.high))
    return part._replace(bytes=figure, certainty=Certainty.EXACT, estimate=None)


def together(peaks: Iterable[Peak | None]) -> Peak | None:
    """Return the peak of several stretches of time; `None` if there are none, or one of them is unknown.

    Its bounds are the largest lower and the largest upper one. It is EXACT if the largest peak is, and no other can exceed
    that.

    Example: 50 MiB exactly (49 to 51), then between 4 and 20: 50 MiB exactly. Then at least 4: at least 49 MiB.
    """
    found: Peak | None = None
    for peak in peaks:
        if peak is None:
            return None
        if found is None:
            found = peak
            continue
        more, less = (peak, found) if _likely(peak) > _likely(found) else (found, peak)
        high = None if more.high is None or less.high is None else max(more.high, less.high)
        certainty = more.certainty
        if certainty is Certainty.EXACT and (high is None or high > (more.high or 0)):
            certainty = Certainty.INTERVAL
        low = max(more.low or 0, less.low or 0)
        found = more._replace(bytes=max(more.bytes, low), certainty=certainty, low=low, high=high)
    return found


def _likely(peak: Peak) -> int:
    """Return the best estimate, or the figure if it has none."""
    return peak.bytes if peak.estimate is None else peak.estimate


def with_children(
    low: int | None, high: int | None, children: tuple[int, int] | None
) -> tuple[int | None, int | None]:
    """Return the bounds of a process together with its children.

    Example: a process needed 90 to 100 MiB. Its children needed at most 250 together, the largest of them 200. Together:
    between 200 and 350 MiB.

    Args:
        low: lower bound of the process alone, in bytes.
        high: upper bound of the process alone, in bytes.
        children: bytes that they can have needed together (`gained_by_children`), and the largest of them; `None`: unknown.
    """
    if children is None or high is None:
        return low, None
    at_most, largest = children
    # wait4's figure for a child is at least the size of the process when it started the child.
    return (max(low or 0, largest) if largest > high else low), high + at_most


def tree_with_children(
    own: Peak | None, children: tuple[int, int] | None, recorded: Iterable[Peak | None]
) -> Peak | None:
    """Return the peak of a process with its children; `None` if the peak of the process is unknown.

    Args:
        own: peak of the process alone.
        children: as for `with_children`.
        recorded: recorded peak of the whole tree, for each stretch of the time; `None`: unknown.
    """
    if own is None:
        return None
    certain, high = with_children(own.low, own.high, children)
    low = max(certain or 0, *(peak.low or 0 for peak in recorded if peak is not None), 0)
    evidence = (Evidence.PROCESS_PEAK, Evidence.CHILDREN_FAULTS)
    return Peak.interval(low, None if high is None else max(low, high), evidence=evidence)


def growth(peak: Peak, start: int, error: int) -> Peak:
    """Return by how much a peak exceeds the size at the beginning.

    Example: 30 MiB exactly (29.3 to 30.7), and 10 MiB at the beginning, to 0.7 MiB: 20 MiB, between 18.6 and 21.4.

    Args:
        peak: of the part of the run.
        start: resident size at its beginning, in bytes.
        error: uncertainty of that size, in bytes.
    """
    low = None if peak.low is None else max(0, peak.low - start - error)
    high = None if peak.high is None else max(0, peak.high - start + error)
    return peak._replace(bytes=max(0, peak.bytes - start), low=low, high=high)
