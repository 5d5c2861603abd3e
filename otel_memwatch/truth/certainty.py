"""The rules of certainty: everything that has to be believed before a peak is believed.

Pure functions on numbers (bytes; seconds of the monotonic clock). The tally of a run that is being recorded and the
analysis of a recorded one collect evidence, each in its own way, and ask these functions what follows from it.

What the kernel keeps, and what the rules rest on:

* **VmHWM** (`/proc/PID/status`) is the largest resident size that a process has had since its last exec or since somebody
  reset it. It misses nothing, but it can be read only while the process lives: what is read at a tick is a lower bound
  of what it will have been at the end.
* **`ru_maxrss` of wait4** is known after the end. It is the larger of the process's own watermark and of the same figure
  of every child that the process had waited for. So it bounds all of these from above, but need not be the process's own.
  A process inherits the figure of the program that it was started by: at or below that **floor** it says nothing.
* **A control group's watermark** counts every page once, and page cache and kernel memory too.
* The kernel counts resident pages of a process in batches, so that VmHWM and `ru_maxrss` can be off by `error` bytes.
  Pages are charged to a control group in batches too: `charge_error`.

The certainties (`Peak`): EXACT, a low and a high end that are near enough (`runtime.exact`); INTERVAL, the
truth lies between; CENSORED, it is not above; SAMPLED, no watermark stands behind it.
"""

from __future__ import annotations

from otel_memwatch.model import Certainty, Peak
from otel_memwatch.runtime.exact import EXACT_BYTES, EXACT_PARTS, is_exact, is_one_figure
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_memwatch.record.samples import Array

# -- processes and time

CLOCK_TICK = 0.01
"""Seconds by which a process can have started before the time that the kernel tells (units of 1/100 s)."""

_SAME_START = 1.0
"""Seconds by which two accounts of one process's start may differ: each converts the clock since boot by itself."""

_TICK_ROUNDING = 0.001
"""Seconds to which a tick's moment is recorded, and some."""


def is_same_process(start: float, other: float | None) -> bool:
    """Whether two accounts of one pid, by the start that each tells, are of the same process; `None`: not told, so yes.

    Pids are used again, but not within a second: the kernel goes through all others first.
    """
    return other is None or abs(other - start) <= _SAME_START


def was_alive(start: float, end: float | None, time: float) -> bool:
    """Whether a process that started at `start` and ended at `end` (`None`: it has not) can have acted at `time`."""
    return start <= time + _SAME_START and (end is None or time <= end)


# -- one process


def watermark_is_of_run(began_before: bool, first: int | None, peak: int) -> bool:
    """Whether a watermark was reached during the run, so that the process certainly had so much in it.

    A process that was there before the run may have reached its watermark long ago: 900 MiB of VmHWM say nothing of a
    run that began when 50 were left. Once the watermark has risen above the first one that was read, it is the run's.

    Args:
        began_before: whether the process was there before the run.
        first: the watermark as it was first read; `None`: this is the first.
        peak: the watermark now.
    """
    return not began_before or (first is not None and peak > first)


def wait4_was_its_own(max_rss: int | None, *, childless: bool, floor: int) -> bool:
    """Whether a process certainly had what wait4 told of it: it waited for no child, and the launcher had less."""
    return max_rss is not None and childless and max_rss > floor


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
    """Bytes that a process never exceeded; `None`: no such bound is known.

    | its end | its watermark | bound |
    | --- | --- | --- |
    | alive, read at the end of the recording | | the largest of all that is known of it |
    | we waited for it | covers its whole life | the largest of all that is known of it, wait4's figure included |
    | we waited for it | it was reset; every segment was reported | the same: wait4's covers the time since the last reset |
    | we waited for it | it was reset; segments were not reported | none: it may have had more before a reset |
    | somebody else waited for it | | none of its own: it may have grown after it was last read (see `unseen_max`) |
    | not known | | none |
    | any | somebody else reset it | none: nobody was told what it had before |

    Args:
        known: the largest value that was read of it, or that wait4 told.
        last_read: whether its figures were read when the recording ended, and it lived.
        waited_for: whether we waited for it.
        whole_life: whether a bound of its whole life was made of what wait4 told.
        segments: whether it reported the maxima between the resets of its own watermark.
        wait4: whether wait4 told a maximum.
        reset_by_others: whether somebody who is neither the monitor nor the process's own operations reset its watermark.
    """
    if reset_by_others:
        return None
    if waited_for and (whole_life or (segments and wait4)):
        return known
    return known or None if last_read else None


def unseen_max(
    reaped: int | None,
    known: int,
    *,
    unreaped: bool,
    unreported_reset: bool,
    latest_start: float | None,
    oldest_alive: float | None,
) -> int | None:
    """Bytes that none of the processes exceeded which ended without a bound of their own; `None`: there is no bound.

    Somebody waited for each of them: its parent, or an ancestor that adopted it. The figure of wait4 is handed on from
    child to parent by every wait, in the end to a process that we waited for. So the largest that wait4 told us is a
    bound for all of them since the last reset of their watermarks; what was read or reported before covers the rest.

    Example: a compiler that no tick saw is waited for by make, and make by us with 300 MiB: the compiler had no more.

    | the chain of waits is broken | because |
    | --- | --- |
    | `reaped` is `None` | we waited for nobody |
    | somebody else waited for the target | all that its children handed on to it is lost to us |
    | nobody waited for a process | its parent ignores SIGCHLD: the kernel drops what it used |
    | a watermark was reset and not reported | wait4 told only of the time after |
    | an ancestor is still alive | it keeps what it was told of its children until somebody waits for it |

    An ancestor started before its descendants. So a daemon that outlives the target leaves the bound as it is for all
    processes that started before the daemon, and takes it away for the others: they may be its children.

    Args:
        reaped: the largest maximum of everything that we waited for.
        known: the largest value that was read of, or reported by, any of those that are to be bounded.
        unreaped: whether there may be one among them that nobody waited for, or the target was not ours to wait for.
        unreported_reset: whether one that we waited for reset its watermark and did not report what it had before.
        latest_start: the latest moment at which one of them can have started; `None`: there is none.
        oldest_alive: start of the oldest process that has not ended; `None`: all have ended.
    """
    if reaped is None or unreaped or unreported_reset:
        return None
    if latest_start is not None and oldest_alive is not None and oldest_alive - CLOCK_TICK <= latest_start:
        return None
    return max(reaped, known)


def is_unwatched(*, blind: bool, hidden: bool) -> bool:
    """Whether processes could not be watched, so that nothing bounds what they, and all of the tree, had from above.

    A process that /proc hides (hidepid) may have hidden descendants of any number, and may live as long as it likes.
    That such a mount is there says nothing yet: every hidden process has an ancestor that is hidden too and is the child
    of one that is seen, and the kernel lists it there. One that no tick met is bounded as other unseen ones are.

    Example: a shell with 2 MiB waits for a setuid program with 200 MiB, which is hidden. wait4 tells of the shell that somebody
    had 200 MiB: the largest process had at least 200 MiB, and the shell's own 2 MiB are nothing of the tree's.

    Args:
        blind: whether no process could be watched.
        hidden: whether one was found that lives and cannot be read.
    """
    return blind or hidden


def is_bounded(
    *, seen: bool, all_bounded: bool, unbounded: bool, unseen: int | None, unwatched: bool
) -> bool:
    """Whether every process of the tree has a bound, so that the largest process has one and their sum has one.

    | what is missing | bounded |
    | --- | --- |
    | nothing: each process has a bound | yes |
    | processes ended without a bound of their own | if one for all such processes is known (`unseen_max`) |
    | a process that has not ended has no bound | no: it may grow |
    | no process was seen, or processes could not be watched | no |

    Args:
        seen: whether any process was seen.
        all_bounded: whether every process that has not ended has a bound.
        unbounded: whether there were processes that ended without a bound, seen by ticks or not.
        unseen: bytes that none of these exceeded; `None`: not known.
        unwatched: whether processes could not be watched.
    """
    return seen and all_bounded and not unwatched and (unseen is not None or not unbounded)


def reaches(value: int, high: int, error: int) -> bool:
    """Whether a value that was reached and an upper bound are one figure: no further apart than the counters' error.

    Example: 299.9 MiB read and a bound of 300, with an error of 0.2 MiB: the process had 300 MiB, to the error.
    """
    return value >= high - error


def reached_peak(value: int, high: int, error: int, **rest: object) -> Peak:
    """The peak where a value `reaches` an upper bound: EXACT if the counters' error allows that, else an interval.

    Example: 68 MiB read and a bound of 69. With 2 processors (error 0.7 MiB) 69 MiB would need 68.3; with 64 (95 MiB) the
    process had between 0 and 164 MiB.
    """
    peak = Peak.of_counter(high, error, **rest)
    if peak.certainty is Certainty.EXACT:
        return peak
    return Peak.interval(max(0, value - error), high + error, estimate=high, **rest)


def process_peak(low: int, high: int | None, error: int, floor: int, *, sampled: bool = False) -> Peak | None:
    """The peak of one process.

    | low | high | |
    | --- | --- | --- |
    | any | none | at least `low`; where there are no watermarks at all: SAMPLED; nothing where `low` is nothing |
    | reaches high, but for the error | known | EXACT: the watermark was read when it had got there; INTERVAL if the error is large |
    | | not above the floor | CENSORED: wait4's figure may be the launcher's |
    | below | known | INTERVAL |

    Example: VmHWM last read 300 MiB, wait4 told 300 MiB: EXACT. Last read 5 MiB, told 300: between 5 and 300, since the
    300 may be those of a child.

    Args:
        low: bytes that it certainly had.
        high: bytes that it certainly never exceeded; `None`: not known.
        error: bytes by which the kernel's counters may be off.
        floor: bytes up to which wait4's figure may be that of the launcher.
        sampled: whether there are no watermarks, so that `low` is what ticks happened to see.
    """
    if high is None:
        if not low:
            return None
        if sampled:
            return Peak.sampled(low, how="resident size at ticks")
        return Peak.interval(low, None, how="VmHWM, last read before its end")
    high = max(high, low)
    if low and reaches(low, high, error):
        return reached_peak(low, high, error, how="VmHWM")
    if high <= floor:
        return Peak.censored(floor, low or None, how="wait4, not above the launcher's own")
    if low:
        return Peak.interval(low, high, how="VmHWM, wait4")
    return Peak.interval(0, high, how="wait4, its descendants included")


def wait4_is_its_own(high: int, attained: int, error: int, floor: int) -> bool:
    """Whether the bound of a process that never had a descendant is what it had: nobody else can have had it.

    Args:
        high: upper bound of the process.
        attained: the largest maximum that wait4 told: one of those that we waited for had it.
        error: bytes by which the kernel's counters may be off.
        floor: bytes up to which wait4's figure may be that of the launcher.
    """
    return floor < attained and reaches(attained, high, error)


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
    """The peak of the largest single process of the tree.

    wait4 told of each maximum that *somebody* had it: that makes it a lower bound of the largest process, though it is
    not known which one that was. It need not be looked for among the processes that were seen.

    | high | what else | |
    | --- | --- | --- |
    | none | | at least `low`; SAMPLED where there are no watermarks; nothing where `low` is nothing |
    | none | processes could not be watched | at least `attained`, where that is more and above the floor |
    | known | `low` reaches it, but for the error | EXACT, and it is known which process it was; INTERVAL if the error is large |
    | known | not above the floor | CENSORED |
    | known | `attained` reaches it, and is above the floor | EXACT, of nobody knows whom |
    | known | neither | INTERVAL from the larger of the two |

    Args:
        low: the largest maximum that a known process certainly had, `at` a moment, in process `pid`.
        high: bytes that no process exceeded; `None`: not known.
        attained: the largest maximum that wait4 told.
        error: bytes by which the kernel's counters may be off.
        floor: bytes up to which wait4's figure may be that of the launcher.
        at: seconds since the start of the run.
        pid: of the process that had `low`.
        sampled: whether there are no watermarks.
        unwatched: whether processes could not be watched, so that only those are known that we waited for.
    """
    reached = attained if attained > floor else 0
    if unwatched and reached > low:
        return Peak.interval(reached, None, how="wait4")
    if high is None:
        if not low:
            return None
        if sampled:
            return Peak.sampled(low, at=at, pid=pid, how="resident size at ticks")
        return Peak.interval(low, None, at=at, pid=pid, how="VmHWM")
    high = max(high, low)
    if not high:
        return None
    if reaches(low, high, error):
        return reached_peak(low, high, error, at=at, pid=pid, how="VmHWM")
    if high <= floor:
        return Peak.censored(floor, low or None, how="wait4, not above the launcher's own")
    if reached and reaches(reached, high, error):
        return reached_peak(reached, high, error, how="wait4")
    if reached > low:
        low, at, pid = reached, None, None
    return Peak.interval(low, high, at=at, pid=pid, how="wait4, windows of VmHWM")


# -- the tree without a control group


def process_span(start: float, end: float, bound: int, error: int) -> tuple[float, float, int]:
    """From when to when a process can have had memory, and how much at most: its weight in the sum over the tree.

    A tree never has more than the largest sum of the bounds of processes that live at the same time: pages that are
    shared count once for each process, so the sum may be far above the truth, and is never below.

    Example: three processes of at most 100 MiB, two of which overlap: at most 200 MiB and two errors.
    """
    return start - CLOCK_TICK, max(start, end), bound + error


def tree_from_bounds(low: int, high: int | None, error: int, single: int | None = None) -> Peak | None:
    """The tree's peak from the sum of its processes' bounds, and the largest thing that was certainly there at once.

    The lower end is the largest process, or the proportional sizes of all at one moment (each page counted once). The
    sum of resident sizes is none: it counts shared pages several times. Where both ends are no farther apart than the error
    of one process, and than those of any EXACT figure, the tree was one process: EXACT.

    Args:
        low: bytes that were certainly there at one moment.
        high: the sum of the bounds, an error for each process in it; `None`: not known.
        error: bytes by which the kernel's counters of one process may be off.
        single: the exact figure of the process, where one is known.
    """
    if high is None:
        return Peak.interval(low, None) if low else None
    high = max(high, low)
    if high <= low + 2 * error and is_one_figure(low, high):
        peak = Peak.of_counter(max(low, high - error) if single is None else single, error)
        if peak.certainty is Certainty.EXACT:
            return peak
    return Peak.interval(low, high)


# -- what the processes needed, by page faults

_BASE_PAGE = 4096
"""Bytes that a page fault brings at the least; `gained` is told the size of this machine's."""


def gained(faults: int, huge: int = 0, *, page: int = _BASE_PAGE) -> int:
    """Bytes of anonymous and shared memory that so many page faults can have brought: the **fault ledger**.

    A process gets a new page by a page fault of its own, or of a thread of its own in the kernel (read() into new memory, mlock,
    MAP_POPULATE), and every fault is counted (`min_flt`, `maj_flt`). One fault brings one base page, or a huge page, and
    these the kernel counts for the whole machine: the events since, times their size, are `huge`. So is what is
    collapsed into huge pages without a fault. A fork brings no page, it only makes more entries to those there are. What
    a fault brings of a file is cache, and is counted here all the same: the ledger is never too low for it.

    Example: 25 600 faults, no huge page on the machine meanwhile: at most 100 MiB, however it was shared or copied since.

    | a page without a fault of the tree | so |
    | --- | --- |
    | userfaultfd, a write into it by another program, KVM, KSM, pinned pages at a fork | `is_outside_ledger`, `beyond_ledger` |
    | a memory file's page, written by write() and not mapped | is not in it: `files_in_memory` |

    Args:
        faults: page faults, minor and major.
        huge: bytes of the huge pages that were allocated meanwhile.
        page: bytes of a base page.
    """
    return page * faults + huge


def family_kept(before: int, new: int, held: int | None) -> int:
    """Bytes of the private pages that a family of processes has at one moment.

    A **family** are the processes that descend from each other by fork without an exec: a private page is mapped by
    members of one family only. So all it can have is what it had, and what its members gained since (`gained`); and no
    more than the resident private memory of all its members summed, since each page is mapped by one of them at least. The
    latter needs them all: it is `None` where a child may have been born that has not been found.

    Example: a pool of four forked workers, 100 MiB before the forks, 10 gained by each since: 140 MiB, where the sum
    of resident sizes is 540. A compiler that has freed 200 of 300 MiB: 100.

    Args:
        before: bytes that it had at the earlier moment.
        new: bytes that its members, those that have ended meanwhile included, gained since.
        held: sum of the resident private memory of all its members; `None`: not all are known.
    """
    return before + new if held is None else min(before + new, held)


def family_most(before: int, new: int, watermarks: int | None) -> int:
    """Bytes of private pages that a family never exceeded since an earlier moment.

    What it had then is added to all that it gained since: nothing is taken off for what it gave back, which it may have
    done before or after. Where it was the same processes all the time, and none has executed another program or had a
    child, it never had more than the sum of their watermarks.

    Example: 100 MiB at the earlier moment, then 5 times 20 MiB allocated and freed: 200 MiB by the ledger, 120 by a watermark
    of 120.

    Args:
        before: bytes that it had at the earlier moment.
        new: bytes that its members gained since.
        watermarks: sum of the watermarks of its members, error included; `None`: it was not the same processes.
    """
    return before + new if watermarks is None else min(before + new, watermarks)


def certainly_there(held: int, new: int) -> int:
    """Bytes that a process certainly had at a moment, by what it holds a little later: less what it gained in between.

    What a process holds and did not gain since a moment was there at that moment. So where all processes have been read
    once, then all have been read again, the sum of this over families was there at once, in between; of each family
    only the largest member counts, since all that the others have may be the same pages.

    Example: 300 MiB, and 100 faults between two readings 1 ms apart: 299.6 MiB were there in between.

    Args:
        held: bytes of private memory at the second reading.
        new: bytes that it can have gained between the readings.
    """
    return max(0, held - new)


def own_pages(held: int, least: int, error: int) -> int:
    """Bytes of private memory that a process certainly has for itself: of its forebears it has no more than it had at the least.

    By a fork a process gets pages of its parent, at its birth and never again: what it has beyond the least that it was read
    with since is its own, whoever brought it. A page in swap has no place in what was read, and may be one of the parent's
    when it comes back: the rule is for machines that do not swap meanwhile.

    Example: a worker that was read with 60 MiB, all of its parent's or not, and has 84 now: 24 at least are its own.

    Args:
        held: bytes that it certainly had at the moment.
        least: the least that it was read with until then, in this address space.
        error: of the kernel's counters.
    """
    return max(0, held - least - error)


def family_there(whole: int, own: int) -> int:
    """Bytes of private memory that a family certainly had at a moment.

    One member counts in full, of the others what is certainly their own (`own_pages`): each page is brought by one process.
    The one has none of these pages, if it was there already when the least of the others was read: it can only have
    got them by being forked since. Processes that run in one address space count once.

    Example: a parent with 71 MiB, and three workers which have 24 each that they did not have before: 143 MiB.

    Args:
        whole: bytes that the one certainly had.
        own: sum of the others' own pages.
    """
    return whole + own


def certainly_there_of_shares(shares: int, new: int, lost: int) -> int:
    """Bytes that were certainly there when a sum of proportional sizes began to be read.

    A page that is mapped by several processes counts for each of them with its share, so that the sum has each page once.
    It takes time: what was gained meanwhile was not there at the beginning, and a page that one of its sharers lost after it
    was counted there counts with more than one in the end, by half a page at most.

    Example: 300 MiB of shares, 2 MiB gained and 1 MiB lost while they were read: 297 MiB were there.

    Args:
        shares: the sum.
        new: bytes that the processes can have gained meanwhile.
        lost: bytes that they can have lost: by how much each one's resident size grew less than it gained.
    """
    return max(0, shares - new - lost)


def is_outside_ledger(held_before: int, held: int, new: int, error: int) -> bool:
    """Whether a process got pages that no page fault of the tree has brought, so that the fault ledger says nothing.

    userfaultfd fills, writes by another program, virtual machines, pages unshared by KSM: all bring pages by somebody
    else's hand. They show where a process has more than it had and than all of the tree can have gained meanwhile.

    Example: 10 MiB, and 80 MiB at the next tick, with 200 page faults in all of the tree: it was filled from outside.

    Args:
        held_before: bytes of private memory at a reading.
        held: bytes at the next one.
        new: bytes that the whole tree can have gained meanwhile.
        error: of the kernel's counters, at both readings.
    """
    return held > held_before + new + error


def beyond_ledger(mark: int, before: int, new: int, mapped: int, error: int) -> int:
    """Bytes of a process's watermark that nothing known has brought: it may have been filled from outside and given it back.

    A process has no more than it had, what its page faults brought since, and what it maps more of files and of shared
    memory than before, which one fault may bring many pages of. What its watermark has risen beyond that may be memory
    that userfaultfd or another program filled, gone again before a tick looked; or files that it mapped in between, which
    nobody can tell from it. So it counts as gained. Less than the error of the counters says nothing.

    Example: 5 MiB, then 30 page faults, 1 MiB more of libraries, and a watermark of 30 MiB: 24 MiB were filled, or
    mapped and unmapped.

    | not noticed | |
    | --- | --- |
    | what was filled while the process had less than its watermark | stated |
    | what was filled after pages of files, or those of a parent, had been given back | stated |
    | a fill by a process that nobody saw, and that another one has waited for | stated |

    Args:
        mark: the watermark.
        before: resident memory at the reading before, of all kinds.
        new: bytes that page faults can have brought since.
        mapped: bytes of files and shared memory that it maps more.
        error: of the kernel's counters.
    """
    beyond = mark - before - new - max(0, mapped)
    return beyond if beyond > error else 0


def shared_at_tick(mapped: int, machine: int, rise: int, secret: int = 0) -> int:
    """Bytes of shared memory (shared mappings, memfd, tmpfs) that the tree had at a tick.

    What its processes map, each in full, or what the machine has more than at the least so far, files that nobody maps
    included, if that is more; but no more than all the machine has. Pages of memfd_secret (`secret`) are in no figure of the
    machine, and look like those of a file that is locked in memory.

    Example: four processes that map the same 80 MiB, on a machine that had 8 MiB before: 320 are mapped, 88 there are: 88.

    | what is not in it | so |
    | --- | --- |
    | files written while others give back as much, and not mapped | stated: /proc does not tell whose they are |
    | files that came and went between two ticks by write() | stated |

    Args:
        mapped: sum of the shared resident memory of all processes.
        machine: shared memory of the machine.
        rise: that, less the least of all ticks so far.
        secret: pages of files that processes have locked in memory, summed.
    """
    return min(machine, max(mapped, rise)) + secret


def shared_most(before: int, now: int, new: int) -> int:
    """Bytes of shared memory to be added to what was gained between two ticks (`gained` has what page faults brought).

    Example: 20 MiB at the first tick, 120 at the second, processes map 30 MiB more, and had faults for them: 70 MiB were
    written to files, and 90 are added. Without what they map more nothing is known to be counted: the faults may have
    brought private memory, gone again, beside 100 MiB written to files.

    Args:
        before: bytes at the first tick (`shared_at_tick`).
        now: bytes at the second.
        new: bytes of it that are counted as gained by page faults: no more than processes map more than before.
    """
    return max(before, now - new)


def excludes_memory_files(written: int, high: int) -> bool:
    """Return whether an upper bound without a control group may lack files in memory that came and went between samples.

    A file in /dev/shm, on another tmpfs or of memfd_create takes memory that no process maps, if it is filled by write calls.
    A sample sees it in the machine's shared memory. Between two samples only the bytes of the write calls are counted
    (`wchar`); what went to disk is counted too (`write_bytes`) and taken off.

    The bound is marked, and not raised: the rest also holds pipes, sockets, terminals and /dev/null. `cat big > /dev/null`
    writes some 200 MiB between two samples and needs 1 MiB. The mark is no proof either: fallocate and io_uring take memory
    without a write call.

    Example: 200 MiB written to /dev/shm and removed between two samples, processes with 0.2 to 60.8 MiB: marked. 30 KiB of
    text to a terminal: not marked.

    Args:
        written: the most bytes between two samples that write calls wrote and that did not go to disk.
        high: the upper bound, in bytes.
    """
    return written > 2 * max(EXACT_BYTES, high // EXACT_PARTS)


def with_unseen_fill(high: int, attained: int, file: int | None, floor: int) -> int:
    """An upper bound by page faults, no lower than what one process had, whoever brought it, less the most files of any.

    Example: 3 MiB of page faults, and wait4 told of 60 MiB, when no process was seen with more than 5 MiB of files: 55 MiB
    may have been filled by userfaultfd, between two ticks.

    Args:
        high: the bound by page faults.
        attained: the largest maximum that wait4 told.
        file: the most file pages that a process was seen with; `None`: nobody looked.
        floor: bytes up to which wait4's figure may be that of the launcher.
    """
    return high if attained <= floor else max(high, attained - (file or 0))


def tree_of_processes(low: int, high: int | None, error: int = 0) -> Peak | None:
    """The tree's peak where no control group of its own tells: never EXACT, however near both ends are.

    What processes do not map is in none of these bounds: kernel memory (page tables, pipes, sockets) and files in memory that
    came and went between two ticks. No counter that is kept tells how much of it there was, so that nobody can say that
    it was nothing.

    Example: processes that needed 100 to 101 MiB: between 100 and 101 MiB. With 80 MiB in its sockets, which nothing in
    /proc tells, the tree needed 181. An upper bound is never nearer to the lower one than the counters are true.

    Args:
        low: bytes that were certainly needed at one moment.
        high: bytes that processes certainly did not exceed; `None`: not known.
        error: bytes by which the kernel's counters of one process may be off.
    """
    if high is None:
        return Peak.interval(low, None) if low else None
    return Peak.interval(low, max(low + error, high))


def tree_of_one_process(peak: Peak) -> Peak:
    """The tree's peak from that of the only process there was: the same bounds, and not EXACT (`tree_of_processes`)."""
    if peak.certainty is not Certainty.EXACT:
        return peak
    low = peak.bytes if peak.low is None else peak.low
    return peak._replace(bytes=low, certainty=Certainty.INTERVAL, low=low, estimate=peak.bytes)


def tree_bound_by_group(
    watermark: int | None,
    limits: tuple[int, int] | None,
    *,
    error: int,
    shared: int | None,
    outside: int | None,
    swapped: int | None,
    joined: bool,
) -> int | None:
    """Bytes that the tree never needed, by the control group that it was in with others; `None`: it says nothing.

    Whatever the tree has is charged to the group, so the tree never has more than the group's watermark, of which
    the whole life is as good as the run, and that is never above a hard limit:

        needed  <=  charged  <=  watermark  <=  limit

    Example: 20 programs of 50 MiB in turn, none of which any tick saw, are bounded by 1 GiB by themselves, and below a limit
    of 200 MiB by 200. Pages of files and libraries are charged to the group as cache, or to another group that had them
    first: needed memory is without cache, so that they are not added. A group without a limit is not asked: its watermark
    is that of a whole session or machine, which says little.

    | what may be resident and not charged here | so |
    | --- | --- |
    | memory files (tmpfs) that another group was charged for | as much is added as the tree was seen to have of them |
    | what a process brings with it from another group | no bound where the tree was there before the run |
    | processes that left the group | no bound where one was seen outside |
    | pages in swap, which are needed too | no bound, unless swap was off or unused at all ticks |

    Args:
        watermark: of the group, at the last tick; `None`: this kernel keeps none.
        limits: the smallest and the largest limit that was read at ticks; `None`: there is none.
        error: `charge_error` of the machine.
        shared: the largest sum of shared resident memory of the tree; `None`: not known.
        outside: processes that were seen outside of the group; `None`: nobody looked.
        swapped: most bytes in swap at any tick, of the group or of the machine; `None`: not known.
        joined: whether the tree was there before the run.
    """
    if limits is None or joined or shared is None or outside != 0 or swapped != 0:
        return None
    if watermark is not None:
        return watermark + error + shared
    if limits[0] == limits[1]:
        return limits[0] + error + shared
    return None


# -- the tree in a control group of its own

_CHARGE_BATCH = 64 * 4096
"""Bytes that the kernel charges to a control group ahead of their use, per processor."""

_TOUCHED_PER_SECOND = 5e9
"""Bytes that one processor can bring into memory in a second, generously (measured: 2 with small pages, 5 with huge)."""


def charge_error(cpus: int) -> int:
    """Bytes by which a control group's counters may be off: a batch of 64 pages for each processor (8: 2 MiB)."""
    return _CHARGE_BATCH * cpus


def needed_between_ticks(
    top: int | None,
    ceiling: int | None,
    *,
    file_before: int | None,
    file: int | None,
    locked: int,
    moved: int | None,
    reset_gap: float | None,
    error: int,
    cpus: int,
) -> tuple[int | None, int | None]:
    """What a control group of the run's own needed between two ticks, page cache taken off: at least and at most.

    The group's watermark between the ticks is known, but not how much of it was page cache at that moment. Cache comes from
    storage or becomes dirty, and the kernel counts both for the tree. So with `g` the bytes that the tree moved
    to and from storage around that time, the cache was never more than at the beginning plus `g`, and never less than
    at the end less `g`:

        top - (file_before + g) - error  <=  needed  <=  top - (file - locked - g) + error

    The pages of memfd_secret count as cache and cannot be dropped; the kernel counts them among those that are locked in
    memory, and so some that are no cache: `locked` is at least what is needed of the cache.

    Example: a watermark of 502 MiB, 2 MiB of cache before and after, nothing moved: 500 MiB, to the error.
    Where the cache grew by more than `g` (a file system that does not tell the kernel's accounting), `g` is its growth.
    What came and went between reading a watermark and resetting it is missed; where that took long, as much is
    allowed for as all processors can touch in the time.

    Args:
        top: the watermark between the ticks; `None`: not known, so that nothing is certain from below.
        ceiling: a watermark that reaches further back; with `top`, the same.
        file_before: page cache at the first tick, shared memory not included.
        file: page cache at the second tick.
        locked: pages that cannot be reclaimed at the second tick, of any kind.
        moved: bytes read from and written to storage, from the tick before the first to the tick after the second, since
            the readings of one tick are not of one instant.
        reset_gap: seconds between reading the watermark at the first tick and resetting it.
        error: `charge_error` of the machine.
        cpus: processors of the machine.
    """
    low = high = None
    if file_before is not None and file is not None and moved is not None:
        moved = max(moved, file - file_before)
        if top is not None:
            low = max(0, top - file_before - moved - error)
        if ceiling is not None:
            high = ceiling - max(0, file - locked - moved) + error
    elif ceiling is not None:
        high = ceiling + error
    if high is not None and reset_gap:
        high += touched(reset_gap, cpus)
    return low, high


def needed_between_all_ticks(
    tops: Array,
    ceilings: Array,
    *,
    files_before: Array,
    files: Array,
    locked: Array,
    moved: Array,
    reset_gaps: Array,
    error: int,
    cpus: int,
) -> tuple[Array, Array]:
    """The same of many windows at once, as arrays of one value for each; NaN for `None`, whole numbers below 2**53."""
    import numpy as np

    moved = np.maximum(moved, files - files_before)  # NaN where anything about the cache is not known
    lows = np.maximum(0, tops - files_before - moved - error)
    highs = ceilings - np.nan_to_num(np.maximum(0, files - locked - moved)) + error
    return lows, highs + np.nan_to_num(touched_in_each(reset_gaps, cpus))


def likely_between_ticks(top: int | None, file_before: int | None, file: int | None) -> int | None:
    """What a control group of the run's own most likely needed between two ticks; `None`: not known.

    As if the cache, at the moment of the watermark, had been what it was at the fuller end.

    Example: a watermark of 195 MiB, 20 MiB of cache before and 108 after: 87 MiB, though 195 are not excluded.

    Args:
        top: the watermark between the ticks.
        file_before: page cache at the first tick, shared memory not included.
        file: page cache at the second tick.
    """
    if top is None or file_before is None or file is None:
        return None
    return max(0, top - max(file_before, file))


def touched(seconds: float, cpus: int) -> int:
    """Bytes of memory that all processors together can touch for the first time in so long.

    So much may have come and gone between reading a watermark and resetting it. Example: a monitor that has to wait for its
    processor for 11 ms just then, on two processors: 110 MB.
    """
    return int(seconds * cpus * _TOUCHED_PER_SECOND)


def touched_in_each(seconds: Array, cpus: int) -> Array:
    """The same of many times at once."""
    import numpy as np

    return np.floor(seconds * cpus * _TOUCHED_PER_SECOND)


_UNREAD_FILES = 64 * 1024**2
"""Bytes of file pages that are allowed for in a process that no tick saw: program and libraries of a short command."""

_MAPPED_BY_FAULT = 64 * 1024
"""Bytes of cached files that one page fault maps (`fault_around_bytes` of the kernel)."""


def beyond_files(attained: int, file: int | None, floor: int, faults: int) -> int:
    """Return the bytes of a process's maximum that pages of files do not explain: a sign of memory, and no bound.

    The maximum was between two samples, so its file pages were not read. They can be as many as one page fault maps, for
    each fault. 0 if file pages were never read.

    Example: wait4 reports 200 MiB after 500 faults: 136 MiB beyond 64 MiB for program and libraries. After 4 000 faults,
    250 MiB can all be a mapped log file: 0.

    Args:
        attained: the largest maximum that wait4 reports.
        file: the most file pages of any process at a sample; `None`: not read.
        floor: bytes up to which wait4's figure may be that of the launcher.
        faults: page faults of the tree.
    """
    if file is None or attained <= floor:
        return 0
    return max(0, attained - max(file, _UNREAD_FILES, faults * _MAPPED_BY_FAULT))


def likely_of_any(
    attained: int, file: int | None, floor: int, *, faults: int | None = None, written_by_mapping: int = 0
) -> int:
    """Return the best estimate of what the process with wait4's largest maximum needed; 0: there is none.

    It is no bound: the maximum was between two samples, and nothing says how many of its pages were of files. The first
    row that fits decides:

    | page faults of the tree | the maximum | estimate |
    | --- | --- | --- |
    | not known, and file pages were never read | any | none |
    | cannot have brought it as single pages, but can have mapped it from cached files | any | what both explain together |
    | any | any | the maximum, less the most file pages at a sample, less what was written through a mapping |

    The second row solves memory + files = attained and memory + files / 16 = faults, in pages: one fault maps up to 16
    cached pages of a file, but brings 1 of memory. It is 1/16 of the faults at least, since every program has some memory.
    It takes a short-lived process with as many huge pages as small ones for one that maps a file.

    Example: wait4 reports 200 MiB, the processes at samples had 6 MiB of files: 194 MiB. After 3 300 faults: 0.8 MiB, since
    they can map 206 MiB of a cached file, but bring only 13 MiB of memory.

    Args:
        attained: the largest maximum that wait4 reports.
        file: the most file pages of any process at a sample; `None`: not read.
        floor: bytes up to which wait4's figure may be that of the launcher.
        faults: page faults of the tree; `None`: not known.
        written_by_mapping: bytes that the tree wrote to disk beyond its write calls.
    """
    if (file is None and faults is None) or attained <= floor:
        return 0
    likely = max(0, attained - (file or 0) - written_by_mapping)
    if faults is None or not faults * _BASE_PAGE < likely <= attained <= faults * _MAPPED_BY_FAULT:
        return likely
    brought, around = faults * _BASE_PAGE, _MAPPED_BY_FAULT // _BASE_PAGE
    return max(brought // around, (around * brought - attained) // (around - 1))


_FAULTS_BEFORE = 384
"""Page faults of a command before it is in the run's own group, and some that the group's counter may be behind."""


def left_cgroup(*, seen: bool, charged: int, watermark: int, faults_elsewhere: int, error: int) -> bool:
    """Whether a process used memory outside the run's own control group, so that the group bounds the tree from below only.

    A process can put itself, or be put, into another group: by a write to its file, by systemd-run --scope, cgexec, or a
    container runtime. What it takes there is charged there. Ticks see who is elsewhere; a shorter stay shows by its size,
    since what is in the group cannot have more than the group was ever charged, file pages left out. Both the processes and the
    group count page faults, and memory is taken by faulting: what the group was not told of was taken elsewhere.
    Pages of a file that another group was charged for first are in no figure of this group. So a resident size proves
    nothing unless its file pages were read at the same moment, or its page faults cannot have mapped so many.

    Example: a group that never had more than 1 MiB, and a process of 313 MiB after 500 page faults: it was elsewhere.
    After 5 000 page faults it may have mapped a cached file: it was not.

    | a process | the largest | its memory was counted |
    | --- | --- | --- |
    | was seen outside | any | not all of it |
    | was not | above the watermark and the error | not all of it |
    | | had page faults that the group was not told of | not all of it |
    | | neither | all of it, but for `_FAULTS_BEFORE` pages, which may be huge ones |

    Args:
        seen: whether a tick saw a process outside the group and the groups below it.
        charged: the most anonymous and shared memory of one process at a sample; or what files do not explain of a
            maximum between samples (`beyond_files`), if that is more.
        watermark: of the group, page cache included.
        faults_elsewhere: minor page faults of the tree less all page faults in the group.
        error: bytes by which the group's counters and those of the process may be off.
    """
    return seen or charged > watermark + error or faults_elsewhere > _FAULTS_BEFORE


def tree_around_cgroup(low: int, held: int | None, unmapped: int | None) -> Peak | None:
    """The tree's peak where processes have left the control group of the run's own: never EXACT.

    Args:
        low: bytes that were certainly needed, by the group, or by one process where a tick saw one outside.
        held: bytes that the processes never exceeded together, wherever they were; `None`: not known.
        unmapped: the most that the group held beside the processes; `None`: not known.
    """
    high = None if held is None or unmapped is None else max(low, held + unmapped)
    if high is None and not low:
        return None
    how = "cgroup or largest process" if high is None else "cgroup or largest process, sum of VmHWM"
    return Peak.interval(low, high, how=f"{how}; not all were in the cgroup")


def tree_low_in_cgroup(needed: int | None, watermark: int, process: int, *, still_read: bool) -> int:
    """Bytes that the tree in a control group of its own certainly needed.

    Args:
        needed: lower bound from the group, page cache taken off; `None` or 0: nothing known.
        watermark: of the group.
        process: the most anonymous and shared memory of one process at a sample, which stands in where the group tells
            nothing, or could not be read any more.
        still_read: whether the group could be read at the last tick.
    """
    low = needed or min(process, watermark)
    return low if still_read else max(process, low)


BY_GROUP = "cgroup watermark"
"""How figures begin to be told that are what a control group was charged: with what the kernel takes for the processes."""


def within_limit(high: int, limits: tuple[int, int] | None, error: int) -> int:
    """An upper bound of what a control group of the run's own was charged, where the group has a hard limit.

    Where nobody looked for a while at the moment of a reset, nothing else says that little came meanwhile.

    Example: 120 MiB and 447 MiB that processors can have touched in the 47 ms until the reset, below a limit of 120 MiB: 120 MiB.

    Args:
        high: bytes that were certainly not exceeded otherwise.
        limits: the smallest and the largest limit of the group that was read; `None`: it has none.
        error: bytes by which the group's counters may be off.
    """
    if limits is None or limits[0] != limits[1]:
        return high
    return min(high, limits[0] + error)


def tree_from_cgroup(low: int, high: int, charged: int | None = None, likely: int | None = None) -> Peak:
    """The tree's peak from a control group of its own.

    Two bounds that are near are one figure: that in the middle, which is the least wrong. What the processes had, and the
    shared memory files and kernel memory that ticks saw beside them, is no bound: a memory file may come and go between
    two ticks.

    Example: at least 100 MiB needed, at most 140 (40 of them page cache, or a memory file): between 100 and 140 MiB.

    Args:
        low: bytes that were certainly needed.
        high: bytes that were certainly not exceeded.
        charged: bytes that the group had at most, page cache included, as it was read: what is needed is a part of them, so
            that the middle is not above it.
        likely: the most likely figure, where that is known.
    """
    low = min(low, high)
    middle = (low + high) // 2
    middle = middle if charged is None else max(low, min(middle, charged))
    if is_exact(middle, low, high):
        return Peak(middle, Certainty.EXACT, low, high, how=BY_GROUP)
    estimate = None if likely is None else max(low, min(likely, high))
    return Peak.interval(low, high, how=f"{BY_GROUP} less page cache", estimate=estimate)


# -- a control group's own peak


def lifetime_watermark(before: int, after: int, error: int) -> Peak:
    """The peak during the run of something whose watermark nobody could reset at its start.

    If the watermark rose it was reached in the run: EXACT. If not, the run stayed below: CENSORED. Example: 800 MiB before and
    900 after: 900; 800 before and after: not above 800.
    """
    if after > before:
        return Peak.of_counter(after, error, how="watermark of the cgroup around it, rose during the run")
    return Peak.censored(after, how="watermark of the cgroup around it, not reached")


def stopped_watermark(before: int, after: int, error: int, *, own: bool) -> Peak | None:
    """The peak of a control group that nobody looked at in the end, from its watermark; `None`: that says nothing.

    The watermark of the run's `own` group, and one that rose during the run, was reached in the run; more may have come.
    """
    if not own and after <= before:
        return None
    whose = "cgroup watermark" if own else "watermark of the cgroup around it"
    return Peak.interval(max(0, after - error), None, how=f"{whose}, up to the last tick")


# -- one figure within another


def no_more_than(part: Peak | None, whole: Peak | None) -> Peak | None:
    """A peak of a part of the run, with no upper bound above what the whole certainly did not exceed.

    Example: the tree needed no more than 1.22 GiB; what it needed during one operation, which by itself would be no more than
    1.87 GiB, was no more than 1.22 GiB either.

    | the part's upper bound | the whole's | becomes |
    | --- | --- | --- |
    | above it, or unknown | known | the whole's |
    | anything else | | stays |
    """
    if part is None or whole is None or whole.high is None or part.certainty is Certainty.SAMPLED:
        return part
    if part.high is not None and part.high <= whole.high:
        return part
    low = None if part.low is None else min(part.low, whole.high)
    return part._replace(bytes=min(part.bytes, whole.high), low=low, high=whole.high)


def within_machine(peak: Peak | None, machine: int | None) -> Peak | None:
    """Return a peak with no upper bound above what the machine has: memory and swap.

    Bounds of short-lived processes are sums, and count those of other users too. No run needs more than the machine has.

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
    how = f"{peak.how}, the machine's memory" if peak.how else "the machine's memory"
    if peak.certainty is Certainty.CENSORED:
        return peak._replace(bytes=high, high=high, how=how)
    estimate = None if peak.estimate is None else min(peak.estimate, high)
    return peak._replace(bytes=min(peak.bytes, high), high=high, how=how, estimate=estimate)


def of_one_moment(part: Peak | None, whole: Peak | None) -> Peak | None:
    """The peak of a part of the run in which the whole run's peak was: both are one figure, known as well as both tell.

    Example: the tree needed 49.6 MiB exactly (49.1 to 50.1), at its worst during "Sort", of which its own ticks tell 48.6 (48.0
    to 49.6): in "Sort" it needed 49.6 MiB, exactly, between 49.1 and 49.6.

    | their bounds | becomes |
    | --- | --- |
    | overlap | the whole's figure, within the bounds of both |
    | do not, or are unknown: it was not in this part after all | stays |
    """
    if part is None or whole is None or part.low is None or whole.low is None:
        return part
    if not {part.certainty, whole.certainty} <= {Certainty.EXACT, Certainty.INTERVAL}:
        return part
    low, highs = max(part.low, whole.low), [peak.high for peak in (part, whole) if peak.high is not None]
    high = min(highs, default=None)
    if high is not None and low > high:
        return part
    exact = next((peak for peak in (whole, part) if peak.certainty is Certainty.EXACT), None)
    if exact is None or high is None:
        return part._replace(bytes=low, low=low, high=high)
    figure = max(low, min(exact.bytes, high))
    return part._replace(bytes=figure, certainty=Certainty.EXACT, low=low, high=high)


# -- what several runs needed together


def sum_at_one_instant(low: int, high: int | None, guess: int) -> Peak:
    """The largest sum, over all instants, of what several runs needed: EXACT where both ends are near enough to be one figure.

    Example: between 403 and 405 MiB: 404 MiB, exactly. Between 300 and 405, most likely 380: between 300 and 405 MiB.

    Args:
        low: bytes that all certainly needed together at some instant.
        high: bytes that they never needed together; `None`: not known, as where a record stops early or still goes on.
        guess: the most likely.
    """
    guess = max(low, guess)
    if high is None:
        return Peak.interval(low, None, estimate=guess)
    if is_one_figure(low, high):
        return Peak((low + high) // 2, Certainty.EXACT, low, high)
    return Peak.interval(low, high, estimate=min(guess, high))


# -- a recording that stopped before the run did


def stopped(peak: Peak | None) -> Peak | None:
    """What is left of a peak that may have been exceeded when nobody looked any more; `None`: nothing.

    A lower bound stays true, an upper bound does not: EXACT 500 MiB becomes "at least 500". A sample never had one.
    """
    if peak is None or peak.certainty is Certainty.SAMPLED:
        return peak
    if not peak.low:
        return None
    return Peak.interval(peak.low, None, at=peak.at, pid=peak.pid, operation=peak.operation, how=peak.how)


def is_over(end: float | None, last_tick: float | None, *, anybody_alive: bool) -> bool:
    """Whether a tick after the target's end found none of its processes alive: none can have grown after it."""
    return not (end is None or last_tick is None or anybody_alive or last_tick < end - _TICK_ROUNDING)


def is_after(time: float, last_tick: float) -> bool:
    """Whether something was told of a moment that no tick saw any more."""
    return time > last_tick + _TICK_ROUNDING
