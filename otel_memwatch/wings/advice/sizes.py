"""Two sizes of an advice and its request, within the limits of schedulers and machines; page cache, time and processors.

* minimum: below it the kernel kills the job
* full speed: below it the job may read its files again

Each is at least `LEAST_REQUEST`, and at most memory plus swap of the largest machine that the runs were on. If page cache
moved, needed memory has only a wide range. Full speed is then at most the high-water mark of the run's cgroup.
"""

from __future__ import annotations

import math

from otel_memwatch.errors import RunError
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import count, size
from otel_memwatch.wings.advice.prediction import Interval, above_mean, mean_of, median_of, prediction_bound
from otel_memwatch.wings.advice.recommendation import FULL_SPEED, MAY_NEED, MIB, mebibytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.wings.advice.recommendation import Advice
    from otel_memwatch.wings.index.indexed_run import IndexedRun


ODDS = 1e-3
"""Default probability that a run exceeds the advice."""
LEAST_REQUEST = 32 * MIB
"""Smallest request in bytes. Slurm limits no job below 30 MB (MinRAMSpace), Docker refuses less than 6 MiB, and runc itself needs
some 10 MiB to start a container."""

_FILES_MARGIN = 0.05
"""Share added to file pages: near a limit, the kernel reclaims some of them. Random reads of 256 MiB need 7 % more for 95 % of
their speed."""


def finished(
    advice: Advice, needed: int, files: int, rows: Sequence[IndexedRun], *, basis: str, beside: int = 0
) -> Advice:
    """Return the advice with both sizes and its request, within the limits of schedulers and machines.

    `needed` includes `beside`: bytes for the kernel and the monitor.
    """
    memory, notes, estimated = needed + files, list(advice.notes), files
    charged = _in_use(advice, rows)
    if charged is not None and charged + beside < memory:
        memory = max(needed, charged + beside)
        files = min(files, memory - needed)
        advice = advice._replace(different=False)
    machines = [found for row in rows if (found := row.machine_bytes) is not None]
    if machines and memory > max(machines):
        # Swap was not recorded by older versions: a run may have needed more than the memory of its machine.
        memory = max(*machines, *(row.low or 0 for row in rows))
        notes.append(f"limited to memory and swap of the machine, {size(memory)}; the runs leave more open")
        return advice._replace(
            memory=memory, odds=None, line=None, input_name=None, notes=tuple(notes),
            basis=f"{count(advice.runs, 'run')}; all that the machine has",
            minimum=min(needed, memory), full_speed=memory,
        )  # fmt: skip
    if memory < LEAST_REQUEST:
        notes.append(f"{size(LEAST_REQUEST)} is the smallest request: schedulers start no job in less")
        return advice._replace(
            memory=LEAST_REQUEST, notes=tuple(notes), basis=basis, minimum=LEAST_REQUEST, full_speed=LEAST_REQUEST,
        )  # fmt: skip
    minimum = min(memory, max(LEAST_REQUEST, needed))
    worth_naming = max(CACHE_WORTH_NAMING * minimum, LEAST_CACHE)
    if memory - minimum >= worth_naming:
        unwritten = min(memory - minimum, max((row.unwritten_bytes for row in rows), default=0))
        if unwritten >= LEAST_CACHE:
            notes.append(
                f"{FULL_SPEED} includes {size(unwritten)} of data that waits to be written; with less the job waits for the disk"
            )
        if memory - minimum - unwritten >= LEAST_CACHE:
            notes.append(
                f"{FULL_SPEED} includes {size(memory - minimum - unwritten)} of program files, libraries and data files; with less "
                "the job reads them from disk again and may hang"
            )
    if estimated >= worth_naming:  # even if a wide range has raised the minimum above it
        notes.append(_estimate_of_files(rows, memory))
    return advice._replace(
        memory=memory, files=memory - minimum if files else 0, notes=tuple(notes), basis=basis,
        minimum=minimum, full_speed=memory,
    )  # fmt: skip


def _in_use(advice: Advice, rows: Sequence[IndexedRun]) -> int | None:
    """Return the memory for full speed by best estimates and by the charge; `None`: the cgroups of the runs do not show it.

    A wide range of needed memory only raises the minimum. Within the high-water mark of a run's cgroup, the next run reclaims
    nothing: it includes each file page that the run brought into memory. File pages that were there before the run are charged to
    others; at most the largest process mapped them. The files have less headroom than the needed memory: a program has the same
    ones in each run.
    """
    if advice.guess or advice.at_least is not None or advice.line is not None:
        return None
    free = [row for row in rows if row.ended_well and not row.at_limit]
    if any(not row.own_cgroup or row.cgroup is None or row.memory is None for row in free):
        return None
    needs = [float(row.memory or 1) for row in free]
    bound = prediction_bound([Interval(need, need) for need in needs], advice.odds or ODDS)
    files = max((_charged_files(row) for row in free), default=0)
    return None if bound is None else math.ceil(bound.value + files * (1 + _FILES_MARGIN))


def _charged_files(row: IndexedRun) -> int:
    """Return the file pages for full speed, limited by the cgroup's high-water mark."""
    known = row.files_beside_peak is not None
    whole = max((row.cgroup or 0) + there_before(row), row.low or 0, 0 if known else row.upper_bound or 0)
    files = max(0, whole - (row.memory or 1))
    return min(files, row.files_for_speed) if known else files


def _estimate_of_files(rows: Sequence[IndexedRun], full_speed: int) -> str:
    """Return a note on the evidence for full speed.

    The high-water mark of a cgroup has all that was read ahead. It is no bound for the next run: Chromium held 477 MiB once, and
    its knee in other runs is 494.
    """
    before = max((there_before(row) for row in rows), default=0)
    free = [row for row in rows if not (row.limit and (row.short_of_memory or row.bounded_by_limit))]
    held = ""
    if not free:
        why = "runs at a memory limit show only a part of the files that they need"
    elif any(not row.own_cgroup or row.cgroup is None for row in free):
        why = "only a dedicated cgroup shows all of the page cache"
    else:
        most = max(row.cgroup or 0 for row in free)
        why = "runs without a limit do not show which pages are needed again"
        held = f"; {'the run' if len(free) == 1 else 'a run'} held {mebibytes(most)} MiB with all pages that were read ahead"
    there = f"; {size(before)} of its files were in memory before a run" if before >= LEAST_CACHE else ""
    more = "three runs are safer, and " if len(rows) == 1 else ""
    return f"{FULL_SPEED} is estimated at {mebibytes(full_speed)} MiB: {why}{held}{there}; {more}--trade measures it"


CACHE_WORTH_NAMING = 0.2
"""Page cache is mentioned from this share of the memory needed."""
LEAST_CACHE = 8 << 20
"""Bytes below which page cache is not mentioned."""


def reclaimable(rows: Sequence[IndexedRun], files: int) -> list[str]:
    """Return a note on page cache beside the request. Only a dedicated cgroup separates the run's cache from other programs'."""
    pairs = [
        (row.memory, row.cgroup - row.memory - files)
        for row in rows
        if row.own_cgroup and row.memory and row.cgroup is not None
    ]
    if not pairs:
        return []
    typical, needed = median_of([beside for _, beside in pairs]), median_of([memory for memory, _ in pairs])
    if typical < max(CACHE_WORTH_NAMING * needed, LEAST_CACHE):
        return []
    return [
        f"{size(typical)} of reclaimable page cache are not in it; with less memory the job may read some files again"
    ]


def in_memory(rows: Sequence[IndexedRun]) -> list[str]:
    """Return a note on files in memory and pipes that no upper bound includes."""
    most = max((row.excluded for row in rows), default=0)
    if not most:
        return []
    held = f"at most {size(most)} in files in memory (/dev/shm) and pipes between two samples is not in it"
    return [f"{held}; a run in a dedicated cgroup measures it"]


def read_from_memory(rows: Sequence[IndexedRun]) -> list[str]:
    """Return a note on files that calls read from memory, or that no cgroup shows: full speed may need them in its page cache."""
    most = hidden = 0
    for row in rows:
        if not row.own_cgroup:
            calls = max(0, (row.read_chars or 0) - (row.write_chars or 0))
            hidden = max(hidden, max(row.read or 0, calls) - row.files_for_speed)
        elif None not in (row.cgroup, row.memory, row.read, row.read_chars):
            cache, read = (row.cgroup or 0) - (row.memory or 0), row.read or 0
            calls = (row.read_chars or 0) - (row.write_chars or 0) - read
            if max(cache, read) < LEAST_CACHE <= calls:
                most = max(most, calls)
    if hidden >= LEAST_CACHE:
        return [
            (
                f"{MAY_NEED} page cache, which only a dedicated cgroup shows: the job read {size(hidden)} beside its mapped files;"
                " --trade measures it"
            )
        ]
    if not most:
        return []
    return [
        f"{MAY_NEED} {size(most)} that calls read from files in memory; they were there before the run; --trade measures it"
    ]


def there_before(row: IndexedRun) -> int:
    """Return bytes of the run's file pages that were in memory before it, as far as its cgroup shows them."""
    if not row.own_cgroup or row.cgroup is None or row.memory is None:
        return 0
    return max(0, row.library_bytes - max(0, row.cgroup - row.memory))


_TIME_PRIOR = 0.1
"""Usual scatter of durations: standard deviation of their logarithms."""
_ONE_RUN_TIME = 2.0


_CORES_FROM = 10
"""Number of the newest runs that show how many processors a job uses."""


def cores_over_time(rows: Sequence[IndexedRun]) -> float | None:
    """Return the 95th percentile of the processors that the newest runs used in each second; `None`: unknown.

    Reading the samples of one minute costs 10 ms.
    """
    import numpy as np

    from otel_memwatch import catalog
    from otel_memwatch.run import load

    seconds: list[float] = []
    for row in rows[-_CORES_FROM:]:
        try:
            samples = load(row.path).samples([catalog.MEMWATCH_TREE_CPU_TIME])
        except RunError:
            continue
        columns = [column for column in samples.columns if column.metric == catalog.MEMWATCH_TREE_CPU_TIME]
        if len(samples) < 2 or not columns or samples.time[-1] < 1.0:
            seconds += [row.cores] if row.cores is not None else []
            continue
        used = sum(np.nan_to_num(samples.values(column)) for column in columns)
        at = np.arange(0.0, float(samples.time[-1]) + 1e-9, 1.0)
        seconds += np.diff(np.interp(at, samples.time, used)).tolist()
    return float(np.percentile(seconds, 95)) if seconds else None


def time_needed(seconds: Sequence[float], odds: float) -> float | None:
    """Return the seconds that the next run stays within, with these odds; `None`: no duration is known."""
    if not seconds:
        return None
    if len(seconds) == 1:
        return seconds[0] * _ONE_RUN_TIME
    logarithms = [math.log(max(value, 1e-3)) for value in seconds]
    above = above_mean(logarithms, odds, _TIME_PRIOR)
    return max(math.exp(mean_of(logarithms) + above), *seconds)
