"""Peak of a process tree in a dedicated cgroup, and of the cgroup itself."""

from __future__ import annotations

from otel_memwatch.model import Certainty, Evidence, Peak
from otel_memwatch.runtime.typed import NamedTuple
from otel_memwatch.truth.exact import at_least, is_exact, of_counter

_FAULTS_BEFORE = 384
"""Most page faults of a command before it enters the run's cgroup, plus a margin for the lag of the cgroup's counter."""

BY_CGROUP = frozenset((Evidence.CGROUP_PEAK, Evidence.CGROUP_PEAK_LESS_CACHE))
"""Evidence of a tree's peak that includes the kernel memory of its processes: all of it was charged."""


def is_charged(peak: Peak | None) -> bool:
    """Return whether a tree's peak comes from the run's cgroup, kernel memory included, and no process left that cgroup."""
    return peak is not None and not BY_CGROUP.isdisjoint(peak.evidence)


class UncountedFaults(NamedTuple):
    """Page faults of a tree that its cgroup did not count, at most.

    They include those of the command before it entered the cgroup.
    """

    settled: int = 0
    """Largest number that was still missing after the cgroup's count had time to follow."""
    at_end: int = 0
    """Number that is missing at the last sample."""
    before: int | None = None
    """Number before the command entered the cgroup; `None`: not counted."""

    @property
    def most(self) -> int:
        """Upper bound of those in other cgroups."""
        return max(self.settled, self.at_end) - (self.before or 0)

    @property
    def dropped(self) -> int:
        """Number that only the cgroup has counted: of children that no process waited for, as with SA_NOCLDWAIT."""
        return max(0, (self.before or 0) - self.at_end)

    @property
    def elsewhere(self) -> bool:
        """True if a process had page faults in another cgroup.

        At the end a single one counts: it may have brought a huge page. Earlier the cgroup's count may be late.
        """
        return self.settled > _FAULTS_BEFORE or self.at_end > (
            _FAULTS_BEFORE if self.before is None else self.before
        )


def left_cgroup(*, seen: bool, charged: int, watermark: int, uncounted: UncountedFaults, error: int) -> bool:
    """Return whether a process used memory outside the run's cgroup, so the cgroup bounds the tree only from below.

    A process can move, or be moved, to another cgroup: by a write to its file, systemd-run --scope, cgexec, or a container
    runtime. Memory that it takes there is charged there. Signs of such a process:

    * a sample finds it there, if it stays long enough,
    * its size exceeds the cgroup's peak, file pages aside,
    * the processes count more page faults than the cgroup: the difference was taken elsewhere.

    Pages of a file that another cgroup was charged for first are in no figure of this cgroup. So a resident size proves
    nothing, unless its file pages were read at the same moment or its faults cannot have mapped that many.

    Example: a cgroup with a peak of 1 MiB, and a process of 313 MiB after 500 page faults: it was elsewhere.
    After 5 000 page faults it may have mapped a cached file: no sign of another cgroup.

    | a process | condition | its memory was counted |
    | --- | --- | --- |
    | was seen outside | any | not all of it |
    | was not | the largest is above the peak and the error | not all of it |
    | | it had page faults that the cgroup did not count | not all of it |
    | | neither | all of it |

    A stay shows in the page faults unless it had none, or the cgroup counted as many that the tree lacks:

    * those of children that no process waited for,
    * failed ones, and those that another program caused,
    * before Linux 6.4, each repetition of one that waited for a file.

    Args:
        seen: whether a sample found a process outside the cgroup and the cgroups below it.
        charged: the most anonymous and shared memory of one process at a sample. If it is larger, the part of a maximum
            between samples that files do not explain (`beyond_files`).
        watermark: peak of the cgroup, page cache included.
        uncounted: page faults of the tree less those in the cgroup.
        error: uncertainty of the cgroup's counters and those of the process, in bytes.
    """
    return seen or charged > watermark + error or uncounted.elsewhere


def tree_around_cgroup(
    low: int, held: int | None, unmapped: int | None, by_faults: int | None = None
) -> Peak | None:
    """Return the tree's peak if processes have left the run's cgroup: never EXACT.

    Args:
        low: bytes that were certainly needed, by the cgroup, or by one process if a sample found one outside.
        held: bytes that the processes never exceeded together, anywhere; `None`: unknown.
        unmapped: the most that the cgroup held beside the processes, in bytes; `None`: unknown.
        by_faults: upper bound of the cgroup plus all that page faults elsewhere can have brought, in bytes; `None`: unknown.
    """
    high, why = None if held is None or unmapped is None else held + unmapped, Evidence.PROCESS_PEAK_SUM
    if by_faults is not None and (high is None or by_faults < high):
        high, why = by_faults, Evidence.PAGE_FAULTS
    if high is None:
        return at_least(low, Evidence.CGROUP_OR_PROCESS, Evidence.LEFT_CGROUP) if low else None
    evidence = (Evidence.CGROUP_OR_PROCESS, why, Evidence.LEFT_CGROUP)
    return Peak.interval(low, max(low, high), evidence=evidence)


def tree_low_in_cgroup(needed: int | None, watermark: int, process: int, *, still_read: bool) -> int:
    """Return the bytes that the tree in its cgroup certainly needed.

    Args:
        needed: lower bound from the cgroup, without page cache; `None` or 0: unknown.
        watermark: peak of the cgroup, in bytes.
        process: the most anonymous and shared memory of one process at a sample, in bytes. It stands in if the cgroup
            reports nothing, or became unreadable.
        still_read: whether the cgroup could be read at the last sample.
    """
    low = needed or min(process, watermark)
    return low if still_read else max(process, low)


def within_limit(high: int, limits: tuple[int, int] | None, error: int) -> int:
    """Return an upper bound of the memory charged to the run's cgroup, no higher than its hard limit.

    If the monitor paused during a reset, only the limit bounds the memory that came meanwhile.

    Example: a peak of 120 MiB, and 447 MiB that processors can have touched in the 47 ms until the reset. With a limit of
    120 MiB the bound is 120 MiB.

    Args:
        high: bytes that were certainly not exceeded otherwise.
        limits: the smallest and the largest limit of the cgroup that was read; `None`: it has none.
        error: uncertainty of the cgroup's counters, in bytes.
    """
    if limits is None or limits[0] != limits[1]:
        return high
    return min(high, limits[0] + error)


def tree_from_cgroup(low: int, high: int, charged: int | None = None, likely: int | None = None) -> Peak:
    """Return the tree's peak from its cgroup.

    Two near bounds are one figure: the middle, which has the smallest error. Samples of the processes, shared memory files
    and kernel memory give no bound: a memory file may come and go between two samples.

    Example: at least 100 MiB needed, at most 140: between 100 and 140 MiB. The other 40 are page cache or a memory file.

    Args:
        low: bytes that were certainly needed.
        high: bytes that were certainly not exceeded.
        charged: peak of the cgroup, page cache included, as it was read. Needed memory is a part of it, so the middle is
            not above it.
        likely: the best estimate, if there is one.
    """
    low = min(low, high)
    middle = (low + high) // 2
    middle = middle if charged is None else max(low, min(middle, charged))
    if is_exact(middle, low, high):
        return Peak(middle, Certainty.EXACT, low, high, evidence=(Evidence.CGROUP_PEAK,))
    estimate = None if likely is None else max(low, min(likely, high))
    return Peak.interval(low, high, estimate=estimate, evidence=(Evidence.CGROUP_PEAK_LESS_CACHE,))


def tree_while_cgroup_was_read(low: int) -> Peak | None:
    """Return the tree's peak from a cgroup that could not be read up to the end: at least `low` bytes; `None` for 0."""
    return at_least(low, Evidence.CGROUP_PEAK_WHILE_READ, Evidence.PROCESS_PEAK) if low else None


def own_watermark(watermark: int, most_in_gap: int, error: int, *, unbroken: bool) -> Peak:
    """Return the peak of the run's cgroup, page cache included.

    Example: a peak of 120 MiB. One reset came 47 ms late, and the cgroup may have held 567 MiB meanwhile: between 120 and
    567 MiB.

    Args:
        watermark: the largest peak that was read, in bytes.
        most_in_gap: upper bound between reading the cgroup's peak and resetting it, in bytes.
        error: `charge_error` of the machine.
        unbroken: whether the peak was never reset, so it covers the whole run.
    """
    if not unbroken and most_in_gap > watermark + error:
        evidence = (Evidence.CGROUP_PEAK, Evidence.CGROUP_LATE_RESET)
        return Peak.interval(watermark, most_in_gap, evidence=evidence)
    return of_counter(watermark, error, evidence=(Evidence.CGROUP_PEAK,))


def lifetime_watermark(before: int, after: int, error: int) -> Peak:
    """Return a cgroup's peak during the run, if it could not be reset at the start.

    If the peak rose, it was reached in the run: EXACT. If not, the run stayed below: CENSORED.

    Example: 800 MiB before and 900 after: 900; 800 before and after: not above 800.

    Args:
        before: peak at the start of the run, in bytes.
        after: peak at its end, in bytes.
        error: `charge_error` of the machine.
    """
    if after > before:
        return of_counter(after, error, evidence=(Evidence.AROUND_PEAK, Evidence.AROUND_ROSE))
    return Peak.censored(after, evidence=(Evidence.AROUND_PEAK, Evidence.AROUND_NOT_REACHED))


def stopped_watermark(before: int, after: int, error: int, *, own: bool) -> Peak | None:
    """Return the peak of a cgroup that was not sampled at the end, from its last reading; `None`: it proves nothing.

    The run reached the peak if the cgroup is the run's, or if the peak rose during the run. It may have risen later.

    Args:
        before: peak at the start of the run, in bytes.
        after: peak at the last sample, in bytes.
        error: `charge_error` of the machine.
        own: whether it is the run's cgroup.
    """
    if after <= error or (not own and after <= before):
        return None
    whose = Evidence.CGROUP_PEAK if own else Evidence.AROUND_PEAK
    return at_least(after - error, whose, Evidence.UP_TO_LAST_SAMPLE)
