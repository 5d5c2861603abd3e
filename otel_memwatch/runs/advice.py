"""How much to ask for: memory, processors and time of a job, from its own runs.

========================  ===========================================================================================
runs                      what they count for
========================  ===========================================================================================
finished, exit code 0     memory, processors, time
killed for memory         memory: it needed more than it was given; where others needed less, the advice is a guess
failed, cut off, running  memory: no less than what they needed until then
measured by others        only where there are none of ours: a poll does not see what is between two looks
on another system         a job of its own: kernels count memory differently
========================  ===========================================================================================
"""

from __future__ import annotations

import math

from otel_memwatch.errors import RunError
from otel_memwatch.record.fields import number
from otel_memwatch.reports.formatting import count, size
from otel_memwatch.runs.prediction import (
    ONE_RUN_MARGIN,
    Interval,
    PredictionBound,
    ScaledBound,
    above_mean,
    mean_of,
    median_of,
    narrowed,
    prediction_bound,
    scaled_bound,
)
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from otel_memwatch.runs.indexed_run import IndexedRun

MIB = 1 << 20
ODDS = 1e-3
"""Of a run that needs more than is advised, where nobody says otherwise."""
KERNEL_SHARE = MIB
"""Bytes added for what the kernel charges beside the pages of processes, where no control group was charged in the runs."""
MONITOR_SHARE, EXPORTING_SHARE = 25 * MIB, 50 * MIB
"""What the monitor takes beside the command where both run in one group: recording only, and exporting."""
KILLED_MARGIN = 1.5
"""What a limit is multiplied by under which the job was killed."""
_DIFFERENT = 4
"""How many times what any run needed a bound may be: beyond, it is that of runs which have little in common."""
POLLED_MARGIN = 0.25
"""Share that is added to what others have polled."""
_TIME_PRIOR = 0.1
"""Scatter that durations have on the whole, as a standard deviation of logarithms."""
_ONE_RUN_TIME = 2.0
_CACHE_WORTH_NAMING = 0.2
"""Share of what was needed from which on page cache beside it is named."""
_LEAST_CACHE = 8 * MIB
_INPUTS = "input"


class Advice(NamedTuple):
    """What one job should ask for. `None`: not known."""

    job: str
    """The command key, the tag or the field that its runs have in common."""
    system: str
    runs: int
    """Those that the memory is from."""
    memory: int | None
    """Bytes of the limit, and of the request."""
    odds: float | None
    """Of a run that needs more; `None`: not to be told."""
    median: int | None
    """Bytes that half of the runs needed."""
    largest: int | None
    """Bytes of the largest high end that counts: one that is far away counts as the better known runs show (`narrowed`)."""
    cores: float | None
    """Processors that are not exceeded in 95 % of the time."""
    seconds: float | None
    """Time that the next run stays within, with the same odds, on this machine."""
    at_least: int | None = None
    """Where there is no advice: no less than this."""
    guess: bool = False
    """Whether it is no more than a guess: runs were killed below it, or polled by others."""
    different: bool = False
    """Whether the runs differ so much that the memory is far above what any of them needed: nothing that a person would ask for."""
    line: ScaledBound | None = None
    """How it grows with the input, where that explains it."""
    input_name: str | None = None
    notes: tuple[str, ...] = ()
    """What a person has to know of it, in sentences."""


def advise(
    rows: Iterable[IndexedRun],
    *,
    by: Callable[[IndexedRun], str],
    odds: float = ODDS,
    feature: str | None = None,
    monitor_share: int = 0,
) -> list[Advice]:
    """Advice for each job among the runs, the one that needs most first.

    Args:
        rows: runs of any jobs.
        by: what runs of one job have in common.
        odds: of the next run needing more than is advised.
        feature: "input", or the name of a tag with a number, that the memory may depend on; `None`: what explains it is looked for.
        monitor_share: bytes for the monitor, where it will run under the same limit.

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


def _of_job(
    job: str,
    system: str,
    rows: Sequence[IndexedRun],
    *,
    odds: float,
    feature: str | None,
    monitor_share: int,
) -> Advice:
    ours = [row for row in rows if row.by is None]
    polled = not any(_whole(row) for row in ours)
    used = rows if polled else ours
    whole = [row for row in used if _whole(row)]
    partial = [row for row in used if not _whole(row) and row.low]
    notes: list[str] = []
    if not whole:
        floor = max((row.low or 0 for row in partial), default=0)
        killed = max((_killed_at(row) for row in partial if row.killed_for_memory), default=0)
        if killed:
            notes.append(
                "no run has come to its end: this is a guess, from the limit that runs were killed under"
            )
            return _advice(
                job,
                system,
                partial,
                round(max(floor, killed) * KILLED_MARGIN) + monitor_share,
                notes,
                guess=True,
            )
        notes.append("no run has ended well: no less than this is needed")
        return _advice(job, system, partial, None, notes, at_least=floor or None)

    known = [Interval(row.low or row.memory or 1, row.high or row.memory) for row in whole]
    bound = prediction_bound([*known, *(Interval(row.low or 1, None) for row in partial)], odds)
    assert bound is not None
    value = bound.value
    notes += _about(bound)
    highs = [interval.high or interval.low for interval in narrowed(known)]
    line, input_name = _scaled(whole, highs, feature, odds, notes)
    if line is not None:
        value = line.at(line.largest)  # enough for the inputs that were measured
    most = max([*highs, *(row.low or 0 for row in partial)])
    different = line is None and bound.odds is not None and value > _DIFFERENT * most
    guess = polled
    if polled:
        value *= 1 + POLLED_MARGIN
        makers = ", ".join(sorted({row.by or "" for row in whole}))
        notes.append(
            f"from what {makers} polled: what was between two looks is not in it; {POLLED_MARGIN:.0%} are added"
        )
    killed = max((_killed_at(row) for row in partial if row.killed_for_memory), default=0)
    if killed and killed >= value:
        value, guess, different, line, input_name = killed * KILLED_MARGIN, True, False, None, None
        notes.append(
            "runs were killed under a limit above what the others needed: this is a guess, from that limit"
        )
    beside = monitor_share + (0 if all(row.charged for row in whole) else KERNEL_SHARE)
    memory = math.ceil(value) + beside
    notes += _adapting(whole)
    if monitor_share:
        notes.append(f"{monitor_share >> 20} MiB of it are for the monitor, which runs under the same limit")
    return _advice(
        job, system, whole, memory, notes, guess=guess, odds=None if guess else bound.odds, target_odds=odds,
        line=line and line._replace(above=line.above + beside, least=line.least + beside),
        input_name=input_name, largest=max(highs), different=different,
    )  # fmt: skip


def _advice(
    job: str,
    system: str,
    rows: Sequence[IndexedRun],
    memory: int | None,
    notes: Sequence[str],
    *,
    odds: float | None = None,
    target_odds: float = ODDS,
    guess: bool = False,
    different: bool = False,
    at_least: int | None = None,
    line: ScaledBound | None = None,
    input_name: str | None = None,
    largest: float | None = None,
) -> Advice:
    if largest is None:
        largest = max((row.high or row.memory or 0 for row in rows), default=None)
    needed = [row.memory for row in rows if row.memory is not None]
    return Advice(
        job, system, len(rows), memory, odds,
        median=round(median_of(needed)) if needed else None,
        largest=None if largest is None else round(largest),
        cores=cores_needed(rows),
        seconds=_time_needed([row.seconds for row in rows if row.seconds], target_odds),
        at_least=at_least, guess=guess, different=different, line=line, input_name=input_name, notes=tuple(notes),
    )  # fmt: skip


def job_of(row: IndexedRun) -> str:
    """What runs of one job have in common where nobody says it: an engine's rule, else their name, else the command key."""
    return row.tags.get("rule") or row.name or row.key


def settings_export(rows: Sequence[IndexedRun]) -> bool:
    """Whether the newest run was exported while it was recorded, for which the monitor needs more."""
    from pathlib import Path

    from otel_memwatch.record.fields import mapping
    from otel_memwatch.record.format import RUN_FILE
    from otel_memwatch.record.open import read_info

    try:
        settings = mapping(read_info(Path(rows[-1].path) / RUN_FILE).get("settings"))
    except RunError:
        return False
    return any(settings.get(name) for name in ("prometheus", "otlp", "textfile", "receive_otlp"))


def _whole(row: IndexedRun) -> bool:
    """Whether it came to its end as it should, so that its peak is what the job needs."""
    return (
        row.state == "finished"
        and not row.exit_code
        and row.signal is None
        and not row.oom_kills
        and bool(row.memory)
    )


def _killed_at(row: IndexedRun) -> int:
    """Bytes that a run that was killed for memory needed at least: what it had, or was allowed to have."""
    return max(row.low or 0, min(row.limit or 0, row.cgroup or row.limit or 0))


def _about(bound: PredictionBound) -> list[str]:
    notes = []
    if bound.runs == 1:
        notes.append(f"from one run: {ONE_RUN_MARGIN:.0%} are added, and no odds can be told")
    if bound.lowered:
        notes.append(
            f"{count(bound.lowered, 'run')} known between wide bounds only: taken to be as far above the lower one as the better known"
        )
    if bound.odd:
        notes.append("the runs are of more than one kind, or have outliers: the odds are rough")
    return notes


def _scaled(
    rows: Sequence[IndexedRun],
    highs: Sequence[float],
    feature: str | None,
    odds: float,
    notes: list[str],
) -> tuple[ScaledBound | None, str | None]:
    """The line over the input that explains the memory best; one that was asked for and does not is told in a note."""
    candidates = (
        [feature] if feature else [_INPUTS, *sorted({f"tag.{name}" for row in rows for name in row.tags})]
    )
    best: tuple[ScaledBound | None, str | None] = None, None
    for name in candidates:
        pairs = [
            (amount, high)
            for row, high in zip(rows, highs, strict=True)
            if (amount := input_of(row, name)) is not None
        ]
        line = (
            scaled_bound([a for a, _ in pairs], [b for _, b in pairs], odds)
            if len(pairs) == len(rows)
            else None
        )
        if line is not None and (best[0] is None or line.explained > best[0].explained):
            best = line, name
    if feature and best[0] is None:
        notes.append(f"{feature} does not explain what was needed: the advice is one for all inputs")
    return best


def input_of(row: IndexedRun, name: str) -> float | None:
    """The number that a run has under the name of an input: "input", a tag, with or without "tag." before it."""
    if name == _INPUTS:
        return row.input_bytes
    try:
        return number(float(row.tags.get(name.removeprefix("tag."), "")))
    except ValueError:
        return None


def _adapting(rows: Sequence[IndexedRun]) -> list[str]:
    """What the job used beside what it needed, and would do with less of."""
    pairs = [(row.memory, beside) for row in rows if row.memory and (beside := _page_cache(row)) is not None]
    if not pairs:
        return []
    typical, needed = median_of([beside for _, beside in pairs]), median_of([memory for memory, _ in pairs])
    if typical < max(_CACHE_WORTH_NAMING * needed, _LEAST_CACHE):
        return []
    return [
        f"{size(typical)} of page cache (files, programs, libraries), which give way, are not in it: with less of it files are read again"
    ]


def _page_cache(row: IndexedRun) -> int | None:
    """Bytes that were used beside what was needed: the group's, or file pages of the largest process that others were charged."""
    used = [figure for figure in (row.cgroup, row.process_low) if figure is not None]
    return max(used) - row.memory if used and row.memory else None


def cores_needed(rows: Sequence[IndexedRun]) -> float | None:
    """Processors by the averages of the runs: what `cores_over_time` says where the ticks cannot be read."""
    used = sorted(row.cores for row in rows if row.cores is not None)
    return used[min(len(used) - 1, math.ceil(0.95 * len(used)) - 1)] if used else None


def cores_over_time(rows: Sequence[IndexedRun], most: int = 10) -> float | None:
    """The 95th percentile of the processors that the newest runs used in each of their seconds.

    Cost: a run's ticks are read, 10 ms for a minute's. `None`: not known of any.
    """
    import numpy as np

    from otel_memwatch import catalog
    from otel_memwatch.analysis import load

    seconds: list[float] = []
    for row in rows[-most:]:
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


def _time_needed(seconds: Sequence[float], odds: float) -> float | None:
    if not seconds:
        return None
    if len(seconds) == 1:
        return seconds[0] * _ONE_RUN_TIME
    logarithms = [math.log(max(value, 1e-3)) for value in seconds]
    above, _ = above_mean(logarithms, odds, _TIME_PRIOR)
    return max(math.exp(mean_of(logarithms) + above), *seconds)


def to_json(advice: Advice, others: Mapping[str, Mapping[str, float]] | None = None) -> dict[str, object]:
    """The advice as a document, in the words of a recommender of Kubernetes where it has them; bytes and seconds."""
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
        },
        "cpu": {"target": advice.cores},
        "seconds": advice.seconds,
        "input": None
        if line is None
        else {"name": advice.input_name, "base": line.base + line.above, "slope": line.slope, "least": line.least,
              "explained": line.explained, "measured": [line.smallest, line.largest]},
        "notes": list(advice.notes),
        **({"others": {name: dict(said) for name, said in others.items()}} if others else {}),
    }  # fmt: skip
