"""Bounds of one process's peak memory, from its high-water mark and from wait4."""

from __future__ import annotations

from otel_memwatch.model import Certainty, Evidence, Peak
from otel_memwatch.truth.exact import EXACT_BYTES, is_exact, of_counter

_ROUNDED_SECONDS = 3e-6
"""wait4 rounds user and system time down to microseconds."""


def sum_error(error: int, *, exact: bool) -> int:
    """Return the bytes by which the reading of a living process may be off.

    A processor adds a page to its counter after it has mapped the page, so also an exact sum may lack some pages.

    Example: 95 MiB on 64 processors. If the kernel adds what each processor holds back, 1 MiB.

    Args:
        error: counter uncertainty, in bytes.
        exact: whether the kernel's readings of a living process are exact sums.
    """
    return min(error, EXACT_BYTES) if exact else error


def lone_error(error: int, processors: int, migrations: int | None) -> int:
    """Return the bytes by which wait4's maximum of a process with one thread may be too low, since Linux 6.2.

    A processor holds back pages of a process only after it has mapped some for it:

    * Page faults of the thread count on the processor that runs it: the first, and one for each change of processor.
    * Programs that read its memory bring few pages, on their processors: one more is allowed for all of them.
    * The kernel brings pages on others if it collapses huge pages or reads swap: then the whole error counts.
    * A page taken away on another processor makes the maximum too high, never too low. So this is no error of a lower bound.

    Example: 64 processors, each of which holds back up to 1.5 MiB, and a thread that changed its processor four times: 9 MiB
    instead of 95.

    Args:
        error: counter uncertainty of any process of the machine, in bytes.
        processors: number of them in the machine.
        migrations: changes of processor in the life of its only thread; `None`: unknown.
    """
    if migrations is None:
        return error
    return min(error, error * (migrations + 2) // processors)


def ran_all(process_seconds: float, thread_seconds: float) -> bool:
    """Return whether one thread used all CPU time of a process and of its children, so no other ever ran.

    A thread that came and went between two samples is in no sample. wait4 reports the CPU time of all threads and children
    in whole microseconds. To start and end a thread costs some 20.

    Example: wait4 reports 45.213 ms, and the first thread used 45.2142: there was no other. With 41.2 there was one.

    Args:
        process_seconds: CPU time by wait4.
        thread_seconds: CPU time of the process's first thread.
    """
    return abs(process_seconds - thread_seconds) <= _ROUNDED_SECONDS


def watermark_is_of_run(began_before: bool, first: int | None, peak: int) -> bool:
    """Return whether a process reached its high-water mark during the run, so it certainly had that much in the run.

    A process that is older than the run may have reached its mark long ago. Once the mark has risen above its first
    reading, it belongs to the run.

    Example: a process is attached with a mark of 900 MiB and 50 MiB resident. The 900 MiB say nothing about the run.

    Args:
        began_before: whether the process is older than the run.
        first: first reading of the mark, in bytes; `None`: this is the first.
        peak: the mark now, in bytes.
    """
    return not began_before or (first is not None and peak > first)


def wait4_was_its_own(max_rss: int | None, *, childless: bool, floor: int) -> bool:
    """Return whether wait4's figure is the process's peak: it waited for no child, and the launcher had less.

    Args:
        max_rss: ru_maxrss of the process, in bytes; `None`: unknown.
        childless: whether the process never waited for a child.
        floor: peak of the launcher, in bytes; smaller values may be inherited from it.
    """
    return max_rss is not None and childless and max_rss > floor


def wait4_is_its_own(high: int, attained: int, error: int, floor: int) -> bool:
    """Return whether a process without descendants reached its upper bound: no other process can have reached it.

    Args:
        high: upper bound of the process's peak, in bytes.
        attained: largest ru_maxrss of all processes we waited for, in bytes: one of them had it.
        error: counter uncertainty, in bytes.
        floor: peak of the launcher, in bytes; smaller values may be inherited from it.
    """
    return floor < attained and reaches(attained, high, error)


def process_bound(
    known: int,
    *,
    last_read: bool,
    waited_for: bool,
    whole_life: bool,
    segments: bool,
    wait4: bool,
    reset_by_others: bool = False,
) -> int | None:
    """Return the bytes that a process never exceeded; `None`: no such bound is known.

    | its end | its high-water mark | bound |
    | --- | --- | --- |
    | alive, read at the end of the recording | | the largest value known |
    | we waited for it | covers its whole life | the largest value known, wait4's included |
    | we waited for it | it was reset; every segment was reported | the same: wait4 covers the time since the last reset |
    | we waited for it | it was reset; segments were not reported | none: it can have exceeded this before a reset |
    | another process waited for it | | none: it may have grown after the last reading (see `unseen_max`) |
    | unknown | | none |
    | any | another program reset it | none: the value before the reset is lost |

    Args:
        known: the largest value that was read from the process, or that wait4 reported, in bytes.
        last_read: whether its figures were read when the recording ended, and it lived.
        waited_for: whether we waited for it.
        whole_life: whether wait4 led to a bound for its whole life.
        segments: whether it reported the maxima between its resets of the mark.
        wait4: whether wait4 reported a maximum.
        reset_by_others: whether a program other than the monitor and the process itself reset its mark.
    """
    if reset_by_others:
        return None
    if waited_for and (whole_life or (segments and wait4)):
        return known
    return known or None if last_read else None


def reaches(value: int, high: int, error: int) -> bool:
    """Return whether a value that was reached and an upper bound are one figure: no further apart than `error`.

    Example: 299.9 MiB read and a bound of 300, with an error of 0.2 MiB: the process had 300 MiB, to the error.
    """
    return value >= high - error


def reached_peak(value: int, high: int, error: int, **rest: object) -> Peak:
    """Return the peak if a value `reaches` an upper bound: EXACT if the error allows it, else an interval.

    Example: 68 MiB read and a bound of 69. With 2 processors (error 0.7 MiB) 69 MiB would need 68.3. With 64 (95 MiB) the
    process had between 0 and 164 MiB.
    """
    peak = of_counter(high, error, **rest)
    if peak.certainty is Certainty.EXACT:
        return peak
    return Peak.interval(max(0, value - error), high + error, estimate=high, **rest)


def stated(error: int) -> int:
    """Return the error to add to the bounds of a range: 0 up to that of an exact figure."""
    return error if error > EXACT_BYTES else 0


def bounded_above(peak: Peak | None, high: int | None) -> Peak | None:
    """Return a range with a smaller upper bound, and EXACT if both bounds are now near enough.

    Example: 68 to 164 MiB, with the error of 64 processors. The process was on two of them (`lone_error`): 68 to 74 MiB.

    Args:
        peak: of a process; `None`: unknown.
        high: bytes that it never exceeded, by other evidence; `None`: unknown.
    """
    if peak is None or peak.certainty is not Certainty.INTERVAL or high is None:
        return peak
    if peak.high is None or peak.low is None or high >= peak.high:
        return peak
    high = max(high, peak.low)
    value = min(peak.bytes if peak.estimate is None else peak.estimate, high)
    if is_exact(value, peak.low, high):
        return peak._replace(bytes=value, certainty=Certainty.EXACT, high=high, estimate=None)
    return peak._replace(bytes=min(peak.bytes, high), high=high, estimate=value)


def below_launcher(low: int, error: int, floor: int) -> Peak:
    """Return the peak of a process for which wait4 reports no more than the launcher had: "at most".

    Example: on 64 processors, 9 MiB of wait4 and of the launcher, off by up to 95 MiB: at most 104 MiB.

    Args:
        low: bytes that the process certainly had by its high-water marks; 0: none.
        error: counter uncertainty, in bytes.
        floor: peak of the launcher, in bytes.
    """
    least = max(0, low - stated(error)) or None
    return Peak.censored(floor + stated(error), least, evidence=(Evidence.WAIT4, Evidence.LAUNCHER_FLOOR))


def raised_by_sample(peak: Peak | None, sampled: int) -> Peak | None:
    """Return a range with its lower bound raised to the most resident memory at any sample, which is an exact sum.

    Example: 69 MiB by its high-water mark, to 95 MiB on 64 processors: between 0 and 164 MiB. A sample found 68: between 68
    and 164 MiB.

    Args:
        peak: of a process, by its high-water marks; `None`: unknown.
        sampled: bytes that a sample certainly found; 0: none.
    """
    if peak is None or peak.certainty is not Certainty.INTERVAL or sampled <= (peak.low or 0):
        return peak
    high = None if peak.high is None else max(peak.high, sampled)
    estimate = None if peak.estimate is None else max(peak.estimate, sampled)
    return peak._replace(bytes=max(peak.bytes, sampled), low=sampled, high=high, estimate=estimate)


def process_peak(low: int, high: int | None, error: int, floor: int, *, sampled: bool = False) -> Peak | None:
    """Return the peak of one process.

    | low | high | peak |
    | --- | --- | --- |
    | 0 | unknown | none |
    | any | unknown | at least `low`; SAMPLED if there are no high-water marks |
    | reaches high | known | EXACT: the mark was read at its top; INTERVAL if the error is large |
    | below | not above the floor | CENSORED: wait4's figure may be the launcher's |
    | below | known | INTERVAL |

    A range includes the error if that is larger than the error of an exact figure.

    Example: VmHWM 300 MiB at the last reading, wait4 300 MiB: EXACT. With 5 MiB at the last reading it is between 5 and
    300 MiB, since the 300 may belong to a child.

    Args:
        low: bytes that the process certainly had.
        high: bytes that it certainly never exceeded; `None`: unknown.
        error: counter uncertainty, in bytes.
        floor: peak of the launcher, in bytes; smaller values of wait4 may be inherited from it.
        sampled: whether there are no high-water marks, so `low` is the largest sample.
    """
    if high is None:
        if not low:
            return None
        if sampled:
            return Peak.sampled(low, evidence=(Evidence.RSS_SAMPLES,))
        certain = max(0, low - stated(error))
        return Peak.interval(certain, None, evidence=(Evidence.PROCESS_PEAK, Evidence.READ_BEFORE_END))
    high = max(high, low)
    if low and reaches(low, high, error):
        return reached_peak(low, high, error, evidence=(Evidence.PROCESS_PEAK,))
    if high <= floor:
        return below_launcher(low, error, floor)
    high += stated(error)
    if low:
        certain = max(0, low - stated(error))
        return Peak.interval(certain, high, evidence=(Evidence.PROCESS_PEAK, Evidence.WAIT4))
    return Peak.interval(0, high, evidence=(Evidence.WAIT4, Evidence.WITH_DESCENDANTS))


def main_process_peak(
    peak: Peak | None, attained: int, error: int, floor: int, *, alone: bool, end: float | None
) -> Peak | None:
    """Return the peak of the command's first process; without descendants, wait4's figure is its peak.

    Args:
        peak: from the evidence of this process alone (`process_peak`).
        attained: largest ru_maxrss of all processes we waited for, in bytes.
        error: counter uncertainty, in bytes.
        floor: peak of the launcher, in bytes; smaller values may be inherited from it.
        alone: whether it was the only process of the run.
        end: seconds after the start of the run at which it ended; `None`: unknown.
    """
    if peak is None or not alone or peak.certainty is not Certainty.INTERVAL or peak.high is None:
        return peak
    if not wait4_is_its_own(peak.high, attained, error, floor):
        return peak
    high = max(attained, peak.high)
    found = reached_peak(attained, high, error, at=end, pid=peak.pid, evidence=(Evidence.WAIT4,))
    if found.certainty is Certainty.EXACT:
        return found
    low = max(peak.low or 0, attained - error)  # `high` includes the error already
    return found._replace(bytes=low, low=low, high=high, estimate=attained)
