"""Bounds over all processes of a run: identity, the largest process, and short-lived processes without a sample."""

from __future__ import annotations

from otel_memwatch.model import Evidence, Peak
from otel_memwatch.truth.process import below_launcher, reached_peak, reaches, stated

CLOCK_TICK = 0.01
"""Seconds by which a process can have started before the time that the kernel reports (units of 1/100 s)."""

_SAME_START = 1.0
"""Seconds by which two readings of one process's start may differ: each converts the clock since boot separately."""


def is_same_process(start: float, other: float | None) -> bool:
    """Return whether two starts of one pid belong to the same process; `None` is unknown and counts as yes.

    The kernel uses a pid again only after all others, which takes more than a second.
    """
    return other is None or abs(other - start) <= _SAME_START


def was_alive(start: float, end: float | None, time: float) -> bool:
    """Return whether a process with this start and end (`None`: it still lives) can have acted at `time`."""
    return start <= time + _SAME_START and (end is None or time <= end)


def process_span(start: float, end: float, bound: int, error: int) -> tuple[float, float, int]:
    """Return from when to when a process can have had memory, and its weight in the sum over the tree, in bytes.

    A tree never has more than the largest sum of the bounds of processes that live at the same time. Shared pages count
    once for each process, so the sum may be far above the truth, and is never below.

    Example: three processes of at most 100 MiB, two of which overlap: at most 200 MiB and two errors.
    """
    return start - CLOCK_TICK, max(start, end), bound + error


def unseen_max(
    reaped: int | None,
    known: int,
    *,
    unreaped: bool,
    unreported_reset: bool,
    latest_start: float | None,
    oldest_alive: float | None,
) -> int | None:
    """Return an upper bound for each process without an individual one, in bytes; `None`: no such bound.

    The parent waited for each of them, or an ancestor that adopted it. Every wait passes wait4's figure from child to
    parent, in the end to a process that we waited for. So the largest figure that we got bounds all of them since the
    last reset of their high-water marks. Readings and reports before the reset cover the rest.

    Example: a compiler that no sample saw is waited for by make, and make by us with 300 MiB: the compiler had no more.

    | the chain of waits breaks if | because |
    | --- | --- |
    | `reaped` is `None` | we waited for no process |
    | another program waited for the command | it got the figures of the command's children |
    | no process waited for one | its parent ignores SIGCHLD: the kernel drops its usage |
    | a high-water mark was reset and not reported | wait4 covers only the time after |
    | an ancestor is still alive | it keeps the figures of its children until a process waits for it |

    An ancestor starts before its descendants. So a daemon that outlives the command leaves the bound to all processes
    that started before the daemon. The others lose it: they may be the daemon's children.

    Args:
        reaped: the largest maximum of everything that we waited for, in bytes.
        known: the largest value that was read from, or reported by, any process to be bounded.
        unreaped: whether one of them may not have been waited for, or the command was not ours to wait for.
        unreported_reset: whether one that we waited for reset its mark and did not report the value before.
        latest_start: the latest moment at which one of them can have started; `None`: there is none.
        oldest_alive: start of the oldest process that has not ended; `None`: all have ended.
    """
    if reaped is None or unreaped or unreported_reset:
        return None
    if latest_start is not None and oldest_alive is not None and oldest_alive - CLOCK_TICK <= latest_start:
        return None
    return max(reaped, known)


def is_unwatched(*, blind: bool, hidden: bool) -> bool:
    """Return whether processes could not be watched, so the tree and its processes have no upper bound.

    A process that /proc hides (hidepid) may have any number of hidden descendants, and may live for any time. A
    mount with hidepid alone is no evidence. Every hidden process has a hidden ancestor that is the child of a visible one,
    and the kernel lists it there. One that no sample met is bounded like other unseen processes.

    Example: a shell with 2 MiB waits for a hidden setuid program with 200 MiB. wait4 of the shell reports 200 MiB: the
    largest process had at least 200 MiB, and the shell's 2 MiB do not bound the tree.

    Args:
        blind: whether no process could be watched.
        hidden: whether one was found that lives and cannot be read.
    """
    return blind or hidden


def is_bounded(
    *, seen: bool, all_bounded: bool, unbounded: bool, unseen: int | None, unwatched: bool
) -> bool:
    """Return whether every process of the tree has a bound, and so the largest one and their sum.

    | missing | bounded |
    | --- | --- |
    | nothing: each process has a bound | yes |
    | the bounds of processes that have ended | if one for all of these is known (`unseen_max`) |
    | the bound of a process that has not ended | no: it may grow |
    | no process was seen, or processes could not be watched | no |

    Args:
        seen: whether any process was seen.
        all_bounded: whether every process that has not ended has a bound.
        unbounded: whether processes, seen or not, ended without a bound.
        unseen: bytes that none of these exceeded; `None`: unknown.
        unwatched: whether processes could not be watched.
    """
    return seen and all_bounded and not unwatched and (unseen is not None or not unbounded)


def largest_process(
    low: int,
    high: int | None,
    attained: int,
    error: int,
    floor: int,
    *,
    at: float | None,
    pid: int | None,
    sampled: bool = False,
    unwatched: bool = False,
) -> Peak | None:
    """Return the peak of the largest single process of the tree.

    Each maximum that wait4 reports was reached by some process. That makes it a lower bound of the largest process, even
    if that process is unknown and no sample saw it.

    | high | condition | peak |
    | --- | --- | --- |
    | unknown | processes could not be watched; `attained` is larger, and above the floor | at least `attained` |
    | unknown | `low` is 0 | none |
    | unknown | | at least `low`; SAMPLED if there are no high-water marks |
    | known | `low` reaches it | EXACT, and the process is known; INTERVAL if the error is large |
    | known | not above the floor | CENSORED |
    | known | `attained` reaches it, and is above the floor | EXACT, the process is unknown |
    | known | neither | INTERVAL from the larger of the two |

    Args:
        low: the largest maximum that a known process certainly had, in bytes.
        high: bytes that no process exceeded; `None`: unknown.
        attained: largest ru_maxrss of all processes we waited for, in bytes.
        error: counter uncertainty, in bytes.
        floor: peak of the launcher, in bytes; smaller values of wait4 may be inherited from it.
        at: seconds after the start of the run at which `low` was seen.
        pid: of the process that had `low`.
        sampled: whether there are no high-water marks.
        unwatched: whether processes could not be watched, so only those are known that we waited for.
    """
    reached = attained if attained > floor else 0
    if unwatched and reached > low:
        return Peak.interval(max(0, reached - stated(error)), None, evidence=(Evidence.WAIT4,))
    if high is None and not low:
        return None
    if high is None and sampled:
        return Peak.sampled(low, at=at, pid=pid, evidence=(Evidence.RSS_SAMPLES,))
    if high is None:
        certain = max(0, low - stated(error))
        return Peak.interval(certain, None, at=at, pid=pid, evidence=(Evidence.PROCESS_PEAK,))
    high = max(high, low)
    if not high:
        return None
    if reaches(low, high, error):
        return reached_peak(low, high, error, at=at, pid=pid, evidence=(Evidence.PROCESS_PEAK,))
    if high <= floor:
        return below_launcher(low, error, floor)
    if reached and reaches(reached, high, error):
        return reached_peak(reached, high, error, evidence=(Evidence.WAIT4,))
    if reached > low:
        low, at, pid = reached, None, None
    low, high = max(0, low - stated(error)), high + stated(error)
    return Peak.interval(low, high, at=at, pid=pid, evidence=(Evidence.WAIT4, Evidence.PROCESS_PEAK_WINDOWS))
