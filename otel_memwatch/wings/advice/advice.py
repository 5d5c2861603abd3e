"""Advice on memory, processors and time of a job, based on its runs.

| runs | use |
| --- | --- |
| finished, exit code 0 | memory, processors, time |
| - with a wide range, because page cache moved | memory: the bound by the processes (`likely_high`) |
| - without upper bound | memory: best estimate and a margin; if many, "at least" and no odds |
| at a limit that page cache filled | memory: a lower bound; if all are, the limit sufficed |
| at a limit, and not slow | full speed: no more than this limit |
| slow for lack of memory | memory: a lower bound; if all are, a guess from the memory that was missing |
| killed for memory | memory: the job needed more than the limit; if other runs needed less, a guess |
| failed, cut off, running | memory: a lower bound |
| measured by other tools | only without recorded runs: polling misses spikes |
| on another system | a separate job: kernels count memory differently |

Two sizes result:

* minimum: the needed memory, with the margins above. Below it the kernel kills the job.
* full speed: at least the minimum, and the largest sum over time of needed memory and files in use (`truth.working_set`). Below
  it a program may read its code and data from disk again and again. PyTorch, Java, Chromium and SQLite then hang, and no OOM
  kill ends them.

The request is full speed, or the minimum with `tight`. A run without a limit shows which file pages it had, not which of them it
reads again. Its working set is a range between both sizes (`sizes`).
"""

from __future__ import annotations

import math

from otel_memwatch.errors import RunError
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.text import count, share, size, size_range
from otel_memwatch.wings.advice.inputs import scaled
from otel_memwatch.wings.advice.prediction import (
    ONE_RUN_MARGIN,
    Interval,
    ScaledBound,
    median_of,
    narrowed,
    prediction_bound,
)
from otel_memwatch.wings.advice.recommendation import MIB, Advice
from otel_memwatch.wings.advice.sizes import (
    ODDS,
    finished,
    in_memory,
    read_from_memory,
    reclaimable,
    time_needed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from otel_memwatch.wings.index.indexed_run import IndexedRun

KERNEL_SHARE = MIB
"""Bytes added for kernel memory if the runs had no cgroup that counts it."""
MONITOR_SHARE, EXPORTING_SHARE = 25 * MIB, 50 * MIB
"""Memory of the monitor if it shares the command's limit: recording only, and exporting."""
KILLED_MARGIN = 1.5
"""Factor on a limit at which the job was killed."""
_DIFFERENT = 4
"""Bound divided by the largest run, above which the runs have too little in common."""
_WIDE_RUN = 0.25
"""Width of the range of a single run, as a share of its low end, above which the advice shows the range; not below 4 MiB."""
POLLED_MARGIN = 0.25
"""Share added to polled memory."""
UNBOUNDED_MARGIN = 0.25
"""Share that is added to the best estimate of a run without an upper bound. Two of three such jobs stayed within it."""
_FEW_UNBOUNDED = 0.25
"""Share of runs that may lack an upper bound before no odds are given."""


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
    polled = not any(row.ended_well for row in ours)
    used = rows if polled else ours
    succeeded = [row for row in used if row.ended_well]
    partial = [row for row in used if not row.ended_well and row.low]
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
        need = _with_margin_of_polling(need, ", ".join(sorted({row.by or "" for row in whole})))
    need = _above_kills(need, partial, predicted)
    files = max(row.files_for_speed for row in used)
    if whole is succeeded and limited:
        need, files = _within_limits(need, whole, files)
    elif limited:
        gives = "gives" if len(limited) == 1 else "give"
        need = need.noting(f"{count(len(limited), 'run')} at a memory limit {gives} only a lower bound")
    need, files = _within_proven_limit(need, succeeded, files)
    beside = monitor_share + (0 if all(row.charged for row in whole) else KERNEL_SHARE)
    swapped = max(row.swap or 0 for row in used)
    beside += swapped
    if swapped:
        need = need.noting(f"{size(swapped)} of it were in swap at a sample")
    for note in (*reclaimable(whole, files), *in_memory(whole), *read_from_memory(whole)):
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
    return finished(advice, math.ceil(need.value) + beside, files, used, basis=need.basis, beside=beside)


def _with_margin_of_polling(need: _Need, makers: str) -> _Need:
    """Raise the need by the margin for runs that `makers` measured: they only polled."""
    note = f"from what {makers} polled, which misses what happens between two samples; {share(POLLED_MARGIN, 1)} are added"
    raised = need.value * (1 + POLLED_MARGIN)
    return need._replace(value=raised, guess=True, basis=f"a guess: {makers} only polled").noting(note)


def _above_kills(need: _Need, partial: Sequence[IndexedRun], predicted: float) -> _Need:
    """Raise the need above the largest limit at which a run was killed, unless runs that needed more succeeded.

    `predicted`: bytes, from the successful runs alone.
    """
    killed = max((_killed_at(row) for row in partial if row.killed_for_memory), default=0)
    if killed and killed >= predicted and killed * KILLED_MARGIN > need.value:
        need = need._replace(
            value=killed * KILLED_MARGIN, guess=True, different=False, line=None, input_name=None,
            basis=f"a guess: a run was killed at {size(killed)}", at_least=max(need.at_least or 0, killed),
        ).noting("runs were killed at a limit above what the others needed; this is a guess from that limit")  # fmt: skip
    return need


def _predicted(whole: Sequence[IndexedRun], odds: float, feature: str | None) -> _Need:
    """Return the prediction from the successful runs with an upper bound; 0 bytes without such runs."""
    bounded = [row for row in whole if row.upper_bound is not None]
    known = [Interval(row.low or row.memory or 1, row.likely_high) for row in bounded]
    highs = [float(max(row.low or 0, row.memory or 0)) for row in whole if row.upper_bound is None]
    bound = prediction_bound(known, odds)
    if bound is None:
        return _Need(basis="from one run", highs=tuple(highs))
    notes = []
    if bound.runs == 1:
        notes.append(f"based on one run: {share(ONE_RUN_MARGIN, 1)} headroom, no probability estimate")
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
            f"{count(bound.wide, 'run')} {have} only a wide range; {whose}, with {share(ONE_RUN_MARGIN, 1)} headroom and no probability"
            " estimate"
        )
    if bound.odd:
        notes.append("the runs look like a mixture or have outliers; the odds are approximate")
    narrow = [interval.high or interval.low for interval in narrowed(known)]
    line, input_name = scaled(bounded, narrow, feature, odds, notes)
    basis, best = "from one run", max(known, key=lambda interval: interval.high or 0)
    high = best.high or 0
    if bound.runs == 1 and high - best.low > max(_WIDE_RUN * best.low, 4 * MIB):
        basis = f"from one run of {size_range(best.low, high, '-')}"
        notes.append(
            f"the run needed between {size(best.low)} and {size(high)}; the upper end counts ("
            + (
                "a shorter --interval narrows the range)"
                if bounded[0].own_cgroup
                else "a run as root or in its own cgroup has an exact figure)"
            )
        )
    if bound.wide:
        basis = f"{count(len(whole), 'run')}, {bound.wide} of them with a wide range"
    if bound.odds is not None:
        basis = f"{count(len(whole), 'run')}; 1 in {1 / bound.odds:.0f} would need more"
    return _Need(
        value=bound.value if line is None else line.at(line.largest),  # enough for the measured inputs
        basis=basis, highs=(*highs, *narrow), odds=bound.odds, line=line, input_name=input_name, notes=tuple(notes),
    )  # fmt: skip


def _with_lower_bounds(need: _Need, whole: Sequence[IndexedRun], partial: Sequence[IndexedRun]) -> _Need:
    """Return "at least" if a run needed or may have needed more than the prediction, or if many have no upper bound."""
    unbounded = [row for row in whole if row.upper_bound is None]
    floors = [row.low or 0 for row in partial] + [max(row.low or 0, row.memory or 0) for row in unbounded]
    floor = max(floors, default=0)
    if floor <= need.value and len(unbounded) <= _FEW_UNBOUNDED * len(whole):
        return need
    runs = count(len(whole), "run")
    if not unbounded:
        basis = f"{runs}; one that failed or was killed needed more"
    elif len(unbounded) == len(whole):
        basis = f"{runs}, no upper bound"
    else:
        basis = f"{runs}, {len(unbounded)} of them with no upper bound"
    margins = [known * (1 + UNBOUNDED_MARGIN) for known in floors[len(partial) :]]
    need = need._replace(
        value=max([need.value, floor * (1 + ONE_RUN_MARGIN), *margins]), basis=basis, odds=None, line=None, input_name=None,
        at_least=max(row.low or 0 for row in (*whole, *partial)),
    )  # fmt: skip
    if not unbounded:
        return need
    return need.noting(
        f"{share(UNBOUNDED_MARGIN, 1)} are added to runs without an upper bound; they may need more"
    )


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


def _within_proven_limit(need: _Need, rows: Sequence[IndexedRun], files: int) -> tuple[_Need, int]:
    """Return need and files, which a run that reached its limit and lost no time bounds."""
    proven = [
        row.limit or 0 for row in rows if row.at_limit and row.starved is not None and not row.short_of_memory
    ]
    enough = min((limit for limit in proven if limit >= need.value), default=None)
    if enough is None or enough >= need.value + files:
        return need, files
    need = need.noting(
        f"a run at its limit of {size(enough)} was not short of memory, so full speed needs no more"
    )
    return need, math.floor(enough - need.value)


def _of_failures(job: str, system: str, rows: Sequence[IndexedRun], monitor_share: int) -> Advice:
    """Return the advice if no run ended well: a guess if the OOM killer was there, else only a lower bound."""
    floor = max((row.low or 0 for row in rows), default=0)
    killed = max((_killed_at(row) for row in rows if row.killed_for_memory), default=0)
    if not killed:
        need = _Need(at_least=floor or None).noting(
            "no successful run yet" + (f", so {size(floor)} is a lower bound" if floor else "")
        )
        return _advice(job, system, rows, need)
    need = _Need(at_least=max(floor, killed), guess=True)
    need = need.noting("no successful run yet; this is a guess from the limit that runs were killed at")
    needed = round(max(floor, killed) * KILLED_MARGIN) + monitor_share
    files = max(row.files_for_speed for row in rows)
    basis = f"a guess: a run was killed at {size(killed)}"
    return finished(_advice(job, system, rows, need), needed, files, rows, basis=basis)


def _advice(job: str, system: str, rows: Sequence[IndexedRun], need: _Need, odds: float = ODDS) -> Advice:
    """Return the advice without its request; the time is one that the next run stays within, with these odds."""
    highs = need.highs or [row.likely_high or row.memory or 0 for row in rows]
    known = [row.memory for row in rows if row.memory is not None]
    bounds = [row.upper_bound for row in rows]
    used = sorted(row.cores for row in rows if row.cores is not None)
    return Advice(
        job, system, len(rows), None,
        odds=None if need.guess or need.at_least is not None else need.odds,
        median=round(median_of(known)) if known else None,
        largest=round(max(highs)) if highs else None,
        at_most=None if None in bounds else max((bound for bound in bounds if bound is not None), default=None),
        # From the averages of the runs: `cores_over_time` reads samples.
        cores=used[min(len(used) - 1, math.ceil(0.95 * len(used)) - 1)] if used else None,
        # A recording of a running process shows no duration of the job.
        seconds=time_needed([row.seconds for row in rows if row.seconds and row.mode != "attach"], odds),
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


def _killed_at(row: IndexedRun) -> int:
    """Return the bytes that a run killed for memory needed at least: its peak or its limit."""
    return max(row.low or 0, min(row.limit or 0, row.cgroup or row.limit or 0))
