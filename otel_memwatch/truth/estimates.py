"""Best estimates and samples: figures that no bound rests on. Those of a tree at one sample are in `tree_estimates`."""

from __future__ import annotations

from otel_memwatch.model import Evidence, Peak
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.truth.exact import is_one_figure
from otel_memwatch.truth.faults import BASE_PAGE
from otel_memwatch.truth.outside_faults import MAPPED_BY_FAULT

if TYPE_CHECKING:
    from collections.abc import Sequence

_STARTED = 3 << 19
"""Bytes that one page for each fault exceeds the memory of a program that only starts. Measured with a cgroup: 1.4 MiB for
`git --version`, 1.5 for `sqlite3`, 0.7 for `true`. The other faults are those of its files and libraries."""


def largest_sample(value: int, *evidence: Evidence, at: float | None = None, source: str = "") -> Peak:
    """Return the largest of the samples, in bytes: no bound.

    Args:
        value: in bytes.
        evidence: of the samples.
        at: seconds after the start of the run.
        source: name of the program that measured, if it was not this one.
    """
    return Peak.sampled(value, at=at, source=source, evidence=evidence)


def middle_of_runs(values: Sequence[int], low: int, high: int | None) -> Peak:
    """Return the peak of several runs of one variant: their median, between the lowest and the highest bound of any."""
    from statistics import median

    peak = Peak.interval(low, high, source=f"{len(values)} runs")
    return peak._replace(bytes=round(median(values)))


def likely_cache(file: int | None, usage: int | None, private: int | None) -> int | None:
    """Return the best estimate of the page cache in the run's cgroup at a sample, in bytes; `None`: unknown.

    The count of page cache is late while there are cgroups below the run's: a container, another `wrap`. All memory but
    the private one is assumed to be cache then.

    Example: 107 MiB are charged, and 106 are private memory of the cgroup and those below it: 1 MiB.

    Args:
        file: page cache, without shared memory; `None`: late.
        usage: charged memory, in bytes; `None`: unknown.
        private: private memory, in bytes; `None`: unknown.
    """
    if file is not None or usage is None or private is None:
        return file
    return max(0, usage - private)


def likely_between_samples(top: int | None, file_before: int | None, file: int | None) -> int | None:
    """Return the best estimate of the memory that the run's cgroup needed between two samples; `None`: unknown.

    It assumes the page cache of the fuller end at the moment of the peak.

    Example: a peak of 195 MiB, 20 MiB of cache before and 108 after: 87 MiB, though 195 are not excluded.

    Args:
        top: the peak between the samples, in bytes.
        file_before: page cache at the first sample, without shared memory.
        file: page cache at the second sample.
    """
    if top is None or file_before is None or file is None:
        return None
    return max(0, top - max(file_before, file))


def likely_in_operation(low: int, peak: int, mapped: int) -> int:
    """Return the best estimate of the tree's needed memory during an operation, from its process's peak.

    File pages were not read at the peak: the most at any sample is subtracted.

    Args:
        low: bytes that the tree certainly needed.
        peak: lower bound of the process's peak, file pages included.
        mapped: the most file pages at any sample, in bytes.
    """
    return max(low, peak - mapped)


def likely_of_any(
    attained: int,
    file: int | None,
    floor: int,
    *,
    faults: int | None = None,
    bound: int | None = None,
    written_by_mapping: int = 0,
    alone: bool = False,
) -> int:
    """Return the best estimate of the memory of the process with wait4's largest maximum; 0: none.

    It is no bound: the maximum was between two samples, and no counter reports its file pages. The first row that fits
    decides:

    | page faults of the tree | the maximum | estimate |
    | --- | --- | --- |
    | known, and the tree was one process | not above the floor | a page for each fault, less those of a program's start |
    | any | not above the floor | none |
    | not known, and file pages were never read | any | none |
    | cannot have brought it as single pages, but can have mapped it from cached files | any | memory and mapped files together |
    | any | any | the maximum, less the most file pages at a sample, less bytes written through a mapping |

    The fourth row solves two equations, in pages: memory + files = attained, and memory + files / 16 = faults. One fault
    maps up to 16 cached pages of a file, but brings 1 of memory. The estimate is at least 1/16 of the faults, since every
    program has some memory. It mistakes a short-lived process with as many huge as small pages for one that maps a file.
    More than all page faults can have brought is files (`beside_large_folios`).

    Example: wait4 reports 200 MiB, the processes at samples had 6 MiB of files: 194 MiB. After 3 300 faults: 0.8 MiB, since
    they can map 206 MiB of a cached file, but bring only 13 MiB of memory.

    Args:
        attained: the largest maximum that wait4 reports.
        file: the most file pages of any process at a sample; `None`: not read.
        floor: bytes up to which wait4's figure may be that of the launcher.
        faults: page faults of the tree; `None`: not known.
        bound: bytes that page faults of the tree can have brought, huge pages among them; `None`: not known.
        written_by_mapping: bytes that the tree wrote to disk beyond its write calls.
        alone: whether the tree was one process.
    """
    if attained <= floor and alone and faults is not None:
        return max(faults * BASE_PAGE * BASE_PAGE // MAPPED_BY_FAULT, faults * BASE_PAGE - _STARTED)
    if (file is None and faults is None) or attained <= floor:
        return 0
    likely = max(0, attained - (file or 0) - written_by_mapping)
    if faults is None:
        return likely
    brought = faults * BASE_PAGE
    likely = beside_cached_files(likely, attained, brought)
    return likely if bound is None else beside_large_folios(likely, bound, brought)


def beside_cached_files(likely: int, attained: int, brought: int, huge: int = 0) -> int:
    """Return the memory in a maximum that includes cached files, mapped by 16 pages a fault; `likely` if no such file fits.

    Huge pages may be those of other programs. They count only if they can have brought the whole estimate.

    Args:
        likely: best estimate so far, in bytes.
        attained: the maximum, in bytes.
        brought: bytes that the page faults brought, a page for each.
        huge: bytes of huge pages that the machine allocated meanwhile.
    """
    around = MAPPED_BY_FAULT // BASE_PAGE
    if not brought + huge < likely <= attained <= around * brought + huge:
        return likely
    return max(brought // around, (around * brought - attained) // (around - 1))


def beside_large_folios(likely: int, bound: int, brought: int) -> int:
    """Return the memory in a maximum beyond all that page faults can have brought: half of a page for each fault.

    The rest is pages of cached files. Since Linux 6.18 a fault maps a whole large folio of them, up to 2 MiB. So the number of
    faults for files is unknown, and the estimate is the middle of what remains possible.

    Example: Python reads a mapped file of 300 MiB with 300 page faults, after 1 500 others: 3.5 MiB, not 300.

    Args:
        likely: best estimate so far, in bytes.
        bound: bytes that page faults can have brought, huge pages among them.
        brought: bytes that page faults brought, a page for each.
    """
    return likely if likely <= bound else min(bound, brought) // 2


def most_by_faults(faults: int | None, anonymous: int) -> int | None:
    """Return the memory that a tree's page faults brought if each brought a single page; `None`: some brought huge pages.

    It is no bound: huge pages may come and go between two samples. A program that uses them shows more anonymous memory at
    samples than its faults explain.

    Example: `grep` reads 256 MiB with 520 faults, 0.5 MiB anonymous at samples: 2 MiB, however much the page cache moved.

    Args:
        faults: page faults of the tree; `None`: not known.
        anonymous: the most at a sample, in bytes.
    """
    return None if faults is None or anonymous > faults * BASE_PAGE else faults * BASE_PAGE


def with_estimate(peak: Peak, seen: int, at: float | None, between_samples: int) -> Peak:
    """Return a range with its best estimate: the larger of two, within the bounds.

    Example: between 80 and 300 MiB, 85 estimated at 3.5 s, 194 for a short-lived process: best estimate 194 MiB, at an unknown
    moment. Without that process: 85 MiB at 3.5 s. If the 80 MiB were seen at another moment, either may be the peak's.

    Args:
        peak: a range with an upper bound.
        seen: best estimate at samples, in bytes; 0: there is none.
        at: time of that sample, in seconds after the start of the run.
        between_samples: best estimate of a process between two samples (`likely_of_any`), in bytes.
    """
    low, high = peak.low or 0, peak.bytes if peak.high is None else peak.high
    sampled = max(low, seen)
    estimate = max(low, min(high, max(between_samples, sampled)))
    if not is_one_figure(sampled, estimate):
        at = None  # it was between two samples: at none of them was there so much
    elif seen <= low:
        at = peak.at
    return peak._replace(at=at, estimate=estimate, low_at=None if peak.at == at else peak.at)
