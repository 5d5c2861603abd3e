"""Advice on memory, processors and time of a job, based on its runs.

| runs | use |
| --- | --- |
| finished, exit code 0 | memory, processors, time |
| - without upper bound | memory: best estimate and a margin; if many, "at least" and no odds |
| killed for memory | memory: the job needed more than the limit; if other runs needed less, a guess |
| failed, cut off, running | memory: a lower bound |
| measured by other tools | only without recorded runs: polling misses spikes |
| on another system | a separate job: kernels count memory differently |

The request is the needed memory, with the margins above, plus the most file pages that one process was sampled with. Below that
sum, a program reads its code from disk again and again. PyTorch, Java and Chromium then hang, and no OOM kill ends them. The
request is at least `LEAST_REQUEST`, and at most memory plus swap of the largest machine that the runs were on.
"""

from __future__ import annotations

import math

from otel_memwatch.errors import RunError
from otel_memwatch.record.fields import number
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.text import count, size
from otel_memwatch.wings.advice.prediction import (
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
_TIME_PRIOR = 0.1
"""Usual scatter of durations: standard deviation of their logarithms."""
_ONE_RUN_TIME = 2.0
_CACHE_WORTH_NAMING = 0.2
"""Page cache is mentioned from this share of the memory needed."""
_LEAST_CACHE = 8 * MIB
INPUT = "input"
_NUMBERED_BY_ENGINES = (
    "slurm.",
    "github.",
    "gitlab.",
    "mlflow.",
    "wandb.",
    "k8s.",
    "nextflow.",
    "attempt",
    "commit",
    "branch",
)
"""Prefixes of tags that engines set: numbers of jobs and tasks. They explain memory only with --feature."""


class Advice(NamedTuple):
    """Request for one job. `None`: unknown."""

    job: str
    """The command key, the tag or the field that its runs have in common."""
    system: str
    runs: int
    """Number of runs that the memory is based on."""
    memory: int | None
    """Bytes of the limit, and of the request; `files` are part of it."""
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
    polled = not any(ended_well(row) for row in ours)
    used = rows if polled else ours
    whole = [row for row in used if ended_well(row)]
    partial = [row for row in used if not ended_well(row) and row.low]
    notes: list[str] = []
    if not whole:
        return _of_failures(job, system, partial, monitor_share)
    files = max(row.library_bytes for row in used)
    killed = max((_killed_at(row) for row in partial if row.killed_for_memory), default=0)
    bounded = [row for row in whole if row.upper_bound is not None]
    unbounded = [row for row in whole if row.upper_bound is None]
    known = [Interval(row.low or row.memory or 1, row.upper_bound) for row in bounded]
    bound = prediction_bound(known, odds)
    line, input_name = None, None
    value, highs = 0.0, [float(max(row.low or 0, row.memory or 0)) for row in unbounded]
    if bound is not None:
        value = bound.value
        notes += _about(bound)
        narrow = [interval.high or interval.low for interval in narrowed(known)]
        highs += narrow
        line, input_name = _scaled(bounded, narrow, feature, odds, notes)
        if line is not None:
            value = line.at(line.largest)  # enough for the inputs that were measured
    predicted = value
    floor = max((row.low or 0 for row in (*partial, *unbounded)), default=0)
    basis, at_least = _basis(len(whole), None if bound is None else bound.odds), None
    if floor > value or len(unbounded) > _FEW_UNBOUNDED * len(whole):
        at_least = max(row.low or 0 for row in (*whole, *partial))
        margins = [max(row.low or 0, row.memory or 0) * (1 + UNBOUNDED_MARGIN) for row in unbounded]
        value = max([value, floor * (1 + ONE_RUN_MARGIN), *margins])
        basis, line, input_name = _unbounded(len(whole), len(unbounded)), None, None
        if unbounded:
            notes.append(
                f"{UNBOUNDED_MARGIN:.0%} are added to runs without an upper bound; they may need more"
            )
    most = max([*highs, *(row.low or 0 for row in partial)])
    different = (
        line is None
        and at_least is None
        and bound is not None
        and bound.odds is not None
        and value > _DIFFERENT * most
    )
    guess = polled
    if polled:
        value *= 1 + POLLED_MARGIN
        makers = ", ".join(sorted({row.by or "" for row in whole}))
        notes.append(
            f"from what {makers} polled, which misses what happens between two samples; {POLLED_MARGIN:.0%} are added"
        )
        basis = f"a guess: {makers} only polled"
    if killed and killed >= predicted and killed * KILLED_MARGIN > value:
        value, guess, different, line, input_name = killed * KILLED_MARGIN, True, False, None, None
        notes.append(
            "runs were killed at a limit above what the others needed; this is a guess from that limit"
        )
        basis, at_least = f"a guess: a run was killed at {size(killed)}", max(at_least or 0, killed)
    beside = monitor_share + (0 if all(row.charged for row in whole) else KERNEL_SHARE)
    notes += _reclaimable(whole, files)
    if monitor_share:
        notes.append(f"{monitor_share >> 20} MiB of it are for the monitor, which runs under the same limit")
    advice = _advice(
        job, system, whole, notes, guess=guess,
        odds=None if guess or at_least is not None or bound is None else bound.odds, target_odds=odds,
        line=line and line._replace(above=line.above + beside + files, least=line.least + beside + files),
        input_name=input_name, largest=max(highs), different=different, at_least=at_least,
    )  # fmt: skip
    return _finished(advice, math.ceil(value) + beside, files, used, basis=basis)


def _of_failures(job: str, system: str, rows: Sequence[IndexedRun], monitor_share: int) -> Advice:
    """Return the advice if no run ended well: a guess if the OOM killer was there, else only a lower bound."""
    floor = max((row.low or 0 for row in rows), default=0)
    killed = max((_killed_at(row) for row in rows if row.killed_for_memory), default=0)
    if not killed:
        notes = ["no successful run yet; this is a lower bound"]
        return _advice(job, system, rows, notes, at_least=floor or None)
    notes = ["no successful run yet; this is a guess from the limit that runs were killed at"]
    advice = _advice(job, system, rows, notes, at_least=max(floor, killed), guess=True)
    needed = round(max(floor, killed) * KILLED_MARGIN) + monitor_share
    files = max(row.library_bytes for row in rows)
    return _finished(advice, needed, files, rows, basis=f"a guess: a run was killed at {size(killed)}")


def _finished(advice: Advice, needed: int, files: int, rows: Sequence[IndexedRun], *, basis: str) -> Advice:
    """Return the advice with its request: needed memory plus files, within the limits of schedulers and machines."""
    memory, notes = needed + files, list(advice.notes)
    machines = [found for row in rows if (found := row.machine_bytes) is not None]
    if machines and memory > max(machines):
        # Swap was not recorded by older versions: a run may have needed more than the memory of its machine.
        memory = max(*machines, *(row.low or 0 for row in rows))
        notes.append(f"limited to memory and swap of the machine, {size(memory)}; the runs leave more open")
        return advice._replace(
            memory=memory, odds=None, line=None, input_name=None, notes=tuple(notes),
            basis=f"{count(advice.runs, 'run')}; all that the machine has",
        )  # fmt: skip
    if memory < LEAST_REQUEST:
        notes.append(f"{size(LEAST_REQUEST)} is the smallest request: schedulers start no job in less")
        return advice._replace(memory=LEAST_REQUEST, notes=tuple(notes), basis=basis)
    if files >= max(_CACHE_WORTH_NAMING * needed, _LEAST_CACHE):
        notes.append(
            f"{size(files)} of it keep program files, libraries and mapped files in memory; with less the job "
            "reads them from disk again and may hang"
        )
    return advice._replace(memory=memory, files=files, notes=tuple(notes), basis=basis)


def _basis(runs: int, odds: float | None) -> str:
    if odds is None:
        return "from one run"
    return f"{count(runs, 'run')}; 1 in {1 / odds:.0f} would need more"


def _unbounded(runs: int, unbounded: int) -> str:
    if not unbounded:
        return f"{count(runs, 'run')}; one that failed or was killed needed more"
    if unbounded == runs:
        return f"{count(runs, 'run')}, no upper bound"
    return f"{count(runs, 'run')}, {unbounded} of them with no upper bound"


def _advice(
    job: str,
    system: str,
    rows: Sequence[IndexedRun],
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
        largest = max((row.upper_bound or row.memory or 0 for row in rows), default=None)
    needed = [row.memory for row in rows if row.memory is not None]
    return Advice(
        job, system, len(rows), None, odds,
        median=round(median_of(needed)) if needed else None,
        largest=None if largest is None else round(largest),
        cores=cores_needed(rows),
        seconds=_time_needed([row.seconds for row in rows if row.seconds], target_odds),
        at_least=at_least, guess=guess, different=different, line=line, input_name=input_name, notes=tuple(notes),
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


def _about(bound: PredictionBound) -> list[str]:
    notes = []
    if bound.runs == 1:
        notes.append(f"based on one run: {ONE_RUN_MARGIN:.0%} headroom, no probability estimate")
    if bound.lowered:
        have = "has only a wide range" if bound.lowered == 1 else "have only wide ranges"
        notes.append(
            f"{count(bound.lowered, 'run')} {have}; assumed to be as high in it as the precisely measured runs"
        )
    if bound.odd:
        notes.append("the runs look like a mixture or have outliers; the odds are approximate")
    return notes


def _scaled(
    rows: Sequence[IndexedRun],
    highs: Sequence[float],
    feature: str | None,
    odds: float,
    notes: list[str],
) -> tuple[ScaledBound | None, str | None]:
    """Return the line over the input that explains the memory best.

    If the requested input does not explain it, add a note.
    """
    tags = {name for row in rows for name in row.tags if not name.startswith(_NUMBERED_BY_ENGINES)}
    candidates = [feature] if feature else [INPUT, *sorted(f"tag.{name}" for name in tags)]
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
        notes.append(f"{feature} does not explain the memory needed; the advice is for all inputs")
    return best


def input_of(row: IndexedRun, name: str) -> float | None:
    """Return the number of a run's input by name: "input", or a tag, with or without "tag." before it."""
    if name == INPUT:
        return row.input_bytes
    try:
        return number(float(row.tags.get(name.removeprefix("tag."), "")))
    except ValueError:
        return None


def _reclaimable(rows: Sequence[IndexedRun], files: int) -> list[str]:
    """Return a note on page cache beside the request. Only a dedicated cgroup separates the run's cache from other programs'."""
    pairs = [
        (row.memory, row.cgroup - row.memory - files)
        for row in rows
        if row.own_group and row.memory and row.cgroup is not None
    ]
    if not pairs:
        return []
    typical, needed = median_of([beside for _, beside in pairs]), median_of([memory for memory, _ in pairs])
    if typical < max(_CACHE_WORTH_NAMING * needed, _LEAST_CACHE):
        return []
    return [
        f"{size(typical)} of reclaimable page cache are not in it; with less memory the job reads files again"
    ]


def cores_needed(rows: Sequence[IndexedRun]) -> float | None:
    """Return processors from the averages of the runs: a substitute for `cores_over_time` without samples."""
    used = sorted(row.cores for row in rows if row.cores is not None)
    return used[min(len(used) - 1, math.ceil(0.95 * len(used)) - 1)] if used else None


def cores_over_time(rows: Sequence[IndexedRun], most: int = 10) -> float | None:
    """Return the 95th percentile of the processors that the newest runs used in each second; `None`: unknown.

    Reading the samples of one minute costs 10 ms.
    """
    import numpy as np

    from otel_memwatch import catalog
    from otel_memwatch.run import load

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
        },
        "cpu": {"target": advice.cores},
        "seconds": advice.seconds,
        "input": None
        if line is None
        else {"name": advice.input_name, "base": line.base + line.above, "slope": line.slope, "least": line.least,
              "explained": line.explained, "measured": [line.smallest, line.largest]},
        "notes": list(advice.notes),
    }  # fmt: skip
