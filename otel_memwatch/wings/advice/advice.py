"""Advice on memory, processors and time of a job, based on its runs.

| runs | use |
| --- | --- |
| finished, exit code 0 | memory, processors, time |
| - without upper bound | memory: best estimate and a margin; if many, "at least" and no odds |
| at a limit that page cache filled | memory: a lower bound; if all are, the limit sufficed |
| slow for lack of memory | memory: a lower bound; if all are, a guess from the memory that was missing |
| killed for memory | memory: the job needed more than the limit; if other runs needed less, a guess |
| failed, cut off, running | memory: a lower bound |
| measured by other tools | only without recorded runs: polling misses spikes |
| on another system | a separate job: kernels count memory differently |

Two sizes result:

* minimum: the needed memory, with the margins above. Below it the kernel kills the job.
* full speed: the minimum plus the most file pages that one process was sampled with, and page cache that read calls used more
  than once. Below it a program may read its code and data from disk again and again. PyTorch, Java, Chromium and SQLite then
  hang, and no OOM kill ends them.

The request is full speed, or the minimum with `tight`. A run without a limit shows which file pages it had, not which of them it
reads again: its working set is a range between both sizes. If the needed memory has only a wide range, because page cache moved,
full speed is at most the high-water mark of the run's cgroup. All that the run touched was charged there at once.

Each size is at least `LEAST_REQUEST`, and at most memory plus swap of the largest machine that the runs were on.
"""

from __future__ import annotations

import math

from otel_memwatch.errors import RunError
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.text import count, size
from otel_memwatch.wings.advice.inputs import scaled
from otel_memwatch.wings.advice.page_cache import CACHE_WORTH_NAMING, LEAST_CACHE, reclaimable, there_before
from otel_memwatch.wings.advice.prediction import (
    ONE_RUN_MARGIN,
    Interval,
    ScaledBound,
    median_of,
    narrowed,
    prediction_bound,
)
from otel_memwatch.wings.advice.time_and_cores import time_needed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from otel_memwatch.wings.index.indexed_run import IndexedRun

MIB = 1 << 20
ODDS = 1e-3
"""Default probability that a run exceeds the advice."""
KERNEL_SHARE = MIB
"""Bytes added for kernel memory if the runs had no cgroup that counts it."""
MONITOR_SHARE, EXPORTING_SHARE = 25 * MIB, 50 * MIB
"""Memory of the monitor if it shares the command's limit: recording only, and exporting."""
KILLED_MARGIN = 1.5
"""Factor on a limit at which the job was killed."""
_DIFFERENT = 4
"""Bound divided by the largest run, above which the runs have too little in common."""
POLLED_MARGIN = 0.25
"""Share added to polled memory."""
UNBOUNDED_MARGIN = 0.25
"""Share that is added to the best estimate of a run without an upper bound. Two of three such jobs stayed within it."""
_FEW_UNBOUNDED = 0.25
"""Share of runs that may lack an upper bound before no odds are given."""
LEAST_REQUEST = 32 * MIB
"""Smallest request in bytes. Slurm limits no job below 30 MB (MinRAMSpace), Docker refuses less than 6 MiB, and runc itself needs
some 10 MiB to start a container."""


class Advice(NamedTuple):
    """Request for one job. `None`: unknown."""

    job: str
    """The command key, the tag or the field that its runs have in common."""
    system: str
    runs: int
    """Number of runs that the memory is based on."""
    memory: int | None
    """Bytes of the request: those for full speed, with `files`; with `tight` the minimum."""
    odds: float | None
    """Probability that a run needs more; `None`: unknown."""
    median: int | None
    """Bytes that half of the runs needed."""
    largest: int | None
    """Bytes of the largest high end that counts, after wide ranges are narrowed (`narrowed`)."""
    cores: float | None
    """Processors that suffice 95 % of the time."""
    seconds: float | None
    """Seconds that the next run stays within, with the same odds, on this machine."""
    at_least: int | None = None
    """Bytes that the job certainly needs, if no run or too few runs have an upper bound; `None`: `memory` rests on upper bounds."""
    guess: bool = False
    """The advice is a guess: runs were killed below it, or only polled."""
    different: bool = False
    """The runs differ so much that the memory is far above all of them."""
    line: ScaledBound | None = None
    """Growth with the input, if that explains the memory."""
    input_name: str | None = None
    notes: tuple[str, ...] = ()
    """Caveats, in sentences."""
    files: int = 0
    """Bytes of `memory` for program files, libraries and mapped files; 0 if `memory` was raised or lowered to a fixed size."""
    basis: str = ""
    """Evidence in a few words: "12 runs; 1 in 1000 would need more"."""
    minimum: int | None = None
    """Bytes below which the job is killed; `None`: unknown."""
    full_speed: int | None = None
    """Bytes from which the job does not wait for file pages; `None`: unknown."""


def tight(advice: Advice) -> Advice:
    """Return the advice with the minimum as its request."""
    if advice.memory is None or advice.minimum is None or advice.minimum >= advice.memory:
        return advice
    line, files = advice.line, advice.files
    if line is not None:
        line = line._replace(above=line.above - files, least=line.least - files)
    return advice._replace(memory=advice.minimum, files=0, line=line)


def advise(
    rows: Iterable[IndexedRun],
    *,
    by: Callable[[IndexedRun], str],
    odds: float = ODDS,
    feature: str | None = None,
    monitor_share: int = 0,
) -> list[Advice]:
    """Return advice for each job among the runs, the largest memory first.

    Args:
        rows: runs of any jobs.
        by: returns the key that runs of one job share.
        odds: probability that the next run needs more than advised.
        feature: "input", or the name of a tag with a number, that the memory may depend on; `None`: search for one.
        monitor_share: bytes for the monitor, if it will run under the same limit.

    """
    jobs: dict[tuple[str, str], list[IndexedRun]] = {}
    for row in rows:
        if row.state != "broken":
            jobs.setdefault((by(row), row.system), []).append(row)
    advised = [
        _of_job(job, system, members, odds=odds, feature=feature, monitor_share=monitor_share)
        for (job, system), members in jobs.items()
    ]
    return sorted(advised, key=lambda one: (-(one.memory or one.at_least or 0), one.job))


class _Need(NamedTuple):
    """Memory that the runs of one job show. The rules of the table above change it one after the other."""

    value: float = 0.0
    """Bytes."""
    basis: str = ""
    highs: tuple[float, ...] = ()
    """High ends that count."""
    odds: float | None = None
    at_least: int | None = None
    guess: bool = False
    different: bool = False
    line: ScaledBound | None = None
    input_name: str | None = None
    notes: tuple[str, ...] = ()

    def noting(self, note: str) -> _Need:
        """Add a caveat."""
        return self._replace(notes=(*self.notes, note))


def _of_job(
    job: str,
    system: str,
    rows: Sequence[IndexedRun],
    *,
    odds: float,
    feature: str | None,
    monitor_share: int,
) -> Advice:
    """Return the advice for the runs of one job on one system."""
    ours = [row for row in rows if row.by is None]
    polled = not any(ended_well(row) for row in ours)
    used = rows if polled else ours
    succeeded = [row for row in used if ended_well(row)]
    partial = [row for row in used if not ended_well(row) and row.low]
    if not succeeded:
        return _of_failures(job, system, partial, monitor_share)
    limited = [row for row in succeeded if row.limit and (row.short_of_memory or row.bounded_by_limit)]
    whole = [row for row in succeeded if row not in limited] or succeeded
    if whole is not succeeded:
        partial += limited
    need = _predicted(whole, odds, feature)
    predicted = need.value
    need = _with_lower_bounds(need, whole, partial)
    most = max([*need.highs, *(row.low or 0 for row in partial)])
    need = need._replace(
        different=need.line is None and need.odds is not None and need.value > _DIFFERENT * most
    )
    if polled:
        makers = ", ".join(sorted({row.by or "" for row in whole}))
        need = need._replace(
            value=need.value * (1 + POLLED_MARGIN), guess=True, basis=f"a guess: {makers} only polled"
        ).noting(
            f"from what {makers} polled, which misses what happens between two samples; {POLLED_MARGIN:.0%} are added"
        )
    killed = max((_killed_at(row) for row in partial if row.killed_for_memory), default=0)
    if killed and killed >= predicted and killed * KILLED_MARGIN > need.value:
        need = need._replace(
            value=killed * KILLED_MARGIN, guess=True, different=False, line=None, input_name=None,
            basis=f"a guess: a run was killed at {size(killed)}", at_least=max(need.at_least or 0, killed),
        ).noting("runs were killed at a limit above what the others needed; this is a guess from that limit")  # fmt: skip
    files = max(row.library_bytes + row.reread_bytes for row in used)
    if whole is succeeded and limited:
        need, files = _within_limits(need, whole, files)
    elif limited:
        need = need.noting(f"{count(len(limited), 'run')} at a memory limit give only a lower bound")
    beside = monitor_share + (0 if all(row.charged for row in whole) else KERNEL_SHARE)
    for note in reclaimable(whole, files):
        need = need.noting(note)
    if monitor_share:
        need = need.noting(
            f"{monitor_share >> 20} MiB of it are for the monitor, which runs under the same limit"
        )
    if need.line is not None:
        more = beside + files
        need = need._replace(
            line=need.line._replace(above=need.line.above + more, least=need.line.least + more)
        )
    advice = _advice(job, system, whole, need, odds)
    return _finished(advice, math.ceil(need.value) + beside, files, used, basis=need.basis, beside=beside)


def _predicted(whole: Sequence[IndexedRun], odds: float, feature: str | None) -> _Need:
    """Return the prediction from the successful runs with an upper bound; 0 bytes without such runs."""
    bounded = [row for row in whole if row.upper_bound is not None]
    known = [Interval(row.low or row.memory or 1, row.upper_bound) for row in bounded]
    highs = [float(max(row.low or 0, row.memory or 0)) for row in whole if row.upper_bound is None]
    bound = prediction_bound(known, odds)
    if bound is None:
        return _Need(basis="from one run", highs=tuple(highs))
    notes = []
    if bound.runs == 1:
        notes.append(f"based on one run: {ONE_RUN_MARGIN:.0%} headroom, no probability estimate")
    if bound.lowered:
        have = "has only a wide range" if bound.lowered == 1 else "have only wide ranges"
        notes.append(
            f"{count(bound.lowered, 'run')} {have}; assumed to be as high in it as the precisely measured runs"
        )
    if bound.wide:
        have, whose = (
            ("has", "its upper end counts") if bound.wide == 1 else ("have", "their upper ends count")
        )
        notes.append(
            f"{count(bound.wide, 'run')} {have} only a wide range; {whose}, with {ONE_RUN_MARGIN:.0%} headroom and no probability"
            " estimate"
        )
    if bound.odd:
        notes.append("the runs look like a mixture or have outliers; the odds are approximate")
    narrow = [interval.high or interval.low for interval in narrowed(known)]
    line, input_name = scaled(bounded, narrow, feature, odds, notes)
    basis = "from one run"
    if bound.wide:
        basis = f"{count(len(whole), 'run')}, {bound.wide} of them with a wide range"
    if bound.odds is not None:
        basis = f"{count(len(whole), 'run')}; 1 in {1 / bound.odds:.0f} would need more"
    return _Need(
        value=bound.value if line is None else line.at(line.largest),  # enough for the measured inputs
        basis=basis, highs=(*highs, *narrow), odds=bound.odds, line=line, input_name=input_name, notes=tuple(notes),
    )  # fmt: skip


def _with_lower_bounds(need: _Need, whole: Sequence[IndexedRun], partial: Sequence[IndexedRun]) -> _Need:
    """Return "at least" if a lower bound exceeds the prediction, or if many runs have no upper bound."""
    unbounded = [row for row in whole if row.upper_bound is None]
    floor = max((row.low or 0 for row in (*partial, *unbounded)), default=0)
    if floor <= need.value and len(unbounded) <= _FEW_UNBOUNDED * len(whole):
        return need
    runs = count(len(whole), "run")
    if not unbounded:
        basis = f"{runs}; one that failed or was killed needed more"
    elif len(unbounded) == len(whole):
        basis = f"{runs}, no upper bound"
    else:
        basis = f"{runs}, {len(unbounded)} of them with no upper bound"
    margins = [max(row.low or 0, row.memory or 0) * (1 + UNBOUNDED_MARGIN) for row in unbounded]
    need = need._replace(
        value=max([need.value, floor * (1 + ONE_RUN_MARGIN), *margins]), basis=basis, odds=None, line=None, input_name=None,
        at_least=max(row.low or 0 for row in (*whole, *partial)),
    )  # fmt: skip
    if not unbounded:
        return need
    return need.noting(f"{UNBOUNDED_MARGIN:.0%} are added to runs without an upper bound; they may need more")


def _within_limits(need: _Need, rows: Sequence[IndexedRun], files: int) -> tuple[_Need, int]:
    """Return need and files if page cache filled the limit of all runs: their upper bounds repeat the limit.

    Runs that were not slow show that the limit suffices. Runs that read files again also needed the memory that was missing.
    """
    limit = max(row.limit or 0 for row in rows)
    value = min(need.value, limit)
    slow = [row for row in rows if row.short_of_memory]
    if len(slow) < len(rows):
        quick = min(row.limit or limit for row in rows if not row.short_of_memory)
        known = any(row.starved is not None for row in rows)
        said = "without reading files again" if known else "perhaps slower than without it"
        note = f"page cache filled the limit of {size(quick)}; the job ran in it {said}"
        need = need._replace(value=min(value, quick), odds=None, line=None, input_name=None).noting(note)
        return need, max(0, quick - math.ceil(need.value)) if known else files
    enough = max(
        (row.limit or 0) + row.short if row.short else (row.limit or 0) * KILLED_MARGIN for row in slow
    )
    enough *= 1 + ONE_RUN_MARGIN
    share = max(row.starved or 0 for row in slow)
    need = need._replace(
        value=value, guess=True, different=False, odds=None, line=None, input_name=None,
        basis=f"a guess: at its limit of {size(limit)}, it was short of memory {100 * share:.0f} % of the time",
    ).noting("all runs were slow for lack of memory; this is a guess from the files that they read again")  # fmt: skip
    return need, max(files, math.ceil(enough - value))


def _of_failures(job: str, system: str, rows: Sequence[IndexedRun], monitor_share: int) -> Advice:
    """Return the advice if no run ended well: a guess if the OOM killer was there, else only a lower bound."""
    floor = max((row.low or 0 for row in rows), default=0)
    killed = max((_killed_at(row) for row in rows if row.killed_for_memory), default=0)
    if not killed:
        need = _Need(at_least=floor or None).noting("no successful run yet; this is a lower bound")
        return _advice(job, system, rows, need)
    need = _Need(at_least=max(floor, killed), guess=True)
    need = need.noting("no successful run yet; this is a guess from the limit that runs were killed at")
    needed = round(max(floor, killed) * KILLED_MARGIN) + monitor_share
    files = max(row.library_bytes for row in rows)
    basis = f"a guess: a run was killed at {size(killed)}"
    return _finished(_advice(job, system, rows, need), needed, files, rows, basis=basis)


def _finished(
    advice: Advice, needed: int, files: int, rows: Sequence[IndexedRun], *, basis: str, beside: int = 0
) -> Advice:
    """Return the advice with both sizes and its request, within the limits of schedulers and machines.

    `needed` includes `beside`: bytes for the kernel and the monitor.
    """
    memory, notes = needed + files, list(advice.notes)
    charged = _all_charged(advice, rows)
    if charged is not None and charged + beside < memory:
        memory = charged + beside
        needed = min(needed, memory)
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
    if memory - minimum >= max(CACHE_WORTH_NAMING * minimum, LEAST_CACHE):
        notes.append(
            f"{size(memory - minimum)} of it keep program files, libraries and data files in memory; with less the job "
            "reads them from disk again and may hang"
        )
        notes.append(_range_of_files(rows, minimum, memory))
    return advice._replace(
        memory=memory, files=memory - minimum if files else 0, notes=tuple(notes), basis=basis,
        minimum=minimum, full_speed=memory,
    )  # fmt: skip


def _all_charged(advice: Advice, rows: Sequence[IndexedRun]) -> int | None:
    """Return a bound within which the next run reclaims nothing; `None`: the cgroups of the runs do not show it.

    The high-water mark of a run's cgroup includes each file page that the run brought into memory. File pages that were there
    before the run are charged to others; at most the largest process mapped them. On many processors the mark may be off by more
    than the file pages, but the bound is never below the needed memory's.
    """
    if advice.guess or advice.at_least is not None or advice.line is not None:
        return None
    free = [row for row in rows if ended_well(row) and not row.at_limit]
    if any(not row.own_group or row.cgroup is None or row.memory is None for row in free):
        return None
    charged = [
        float(max((row.cgroup or 0) + there_before(row), row.low or 0, row.upper_bound or 0)) for row in free
    ]
    bound = prediction_bound([Interval(value, value) for value in charged], advice.odds or ODDS)
    return None if bound is None else math.ceil(bound.value)


def _range_of_files(rows: Sequence[IndexedRun], minimum: int, full_speed: int) -> str:
    """Return a note on the range of memory for full speed."""
    before = max((there_before(row) for row in rows), default=0)
    there = f"; {size(before)} of them were in memory before the run" if before >= LEAST_CACHE else ""
    return (
        f"full speed needs between {mebibytes(minimum)} and {mebibytes(full_speed)} MiB: runs without a limit do not show "
        f"which files are read again{there}; --trade measures it"
    )


def mebibytes(value: float) -> int:
    """Return bytes as whole MiB, rounded up."""
    return math.ceil(value / MIB)


def _advice(job: str, system: str, rows: Sequence[IndexedRun], need: _Need, odds: float = ODDS) -> Advice:
    """Return the advice without its request; the time is one that the next run stays within, with these odds."""
    highs = need.highs or [row.upper_bound or row.memory or 0 for row in rows]
    known = [row.memory for row in rows if row.memory is not None]
    used = sorted(row.cores for row in rows if row.cores is not None)
    return Advice(
        job, system, len(rows), None,
        odds=None if need.guess or need.at_least is not None else need.odds,
        median=round(median_of(known)) if known else None,
        largest=round(max(highs)) if highs else None,
        # From the averages of the runs: `cores_over_time` reads samples.
        cores=used[min(len(used) - 1, math.ceil(0.95 * len(used)) - 1)] if used else None,
        seconds=time_needed([row.seconds for row in rows if row.seconds], odds),
        at_least=need.at_least, guess=need.guess, different=need.different,
        line=need.line, input_name=need.input_name, notes=need.notes,
    )  # fmt: skip


def job_of(row: IndexedRun) -> str:
    """Return the default key of a job: the engine's rule, else the run's name, else the command key."""
    return row.tags.get("rule") or row.name or row.key


def settings_export(rows: Sequence[IndexedRun]) -> bool:
    """Return whether the newest run was exported during the recording: the monitor then needs more memory."""
    from pathlib import Path

    from otel_memwatch.record.format import RUN_FILE
    from otel_memwatch.record.open import read_info
    from otel_memwatch.record.run_info_schema import RunInfo

    try:
        settings = RunInfo.of(read_info(Path(rows[-1].path) / RUN_FILE)).settings
    except RunError:
        return False
    return any(settings.get(name) for name in ("prometheus", "otlp", "textfile", "receive_otlp"))


def ended_well(row: IndexedRun) -> bool:
    """Return whether a run succeeded, so its peak is the memory that the job needs."""
    return (
        row.state == "finished"
        and not row.exit_code
        and row.signal is None
        and not row.oom_kills
        and bool(row.memory or row.high)
    )


def _killed_at(row: IndexedRun) -> int:
    """Return the bytes that a run killed for memory needed at least: its peak or its limit."""
    return max(row.low or 0, min(row.limit or 0, row.cgroup or row.limit or 0))


def to_json(advice: Advice) -> dict[str, object]:
    """Return the advice as a document, in bytes and seconds. Names follow the recommender of Kubernetes if it has one."""
    line = advice.line
    return {
        "job": advice.job,
        "system": advice.system,
        "runs": advice.runs,
        "odds": advice.odds,
        "guess": advice.guess,
        "memory": {
            "target": advice.memory,
            "lowerBound": advice.largest,
            "median": advice.median,
            "at_least": advice.at_least,
            "needed": None if advice.memory is None else advice.memory - advice.files,
            "files": advice.files,
            "minimum": advice.minimum,
            "full_speed": advice.full_speed,
        },
        "cpu": {"target": advice.cores},
        "seconds": advice.seconds,
        "input": None
        if line is None
        else {"name": advice.input_name, "base": line.base + line.above, "slope": line.slope, "least": line.least,
              "explained": line.explained, "measured": [line.smallest, line.largest]},
        "notes": list(advice.notes),
    }  # fmt: skip
