"""Recorded runs that can be judged."""

from __future__ import annotations

from otel_memwatch.errors import RunError
from otel_memwatch.run import load
from otel_memwatch.run.figures import figures_of
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.truth.stalls import is_worth_naming

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from otel_memwatch.run import RecordedRun
    from otel_memwatch.run.figures import RunFigures


class LeftOut(NamedTuple):
    """A run that is not judged."""

    name: str
    why: str


def usable(paths: Iterable[Path]) -> tuple[list[RecordedRun], list[LeftOut]]:
    """Return the runs that have ended and can be read, and the others, each with the reason."""
    runs, left_out = [], []
    for path in paths:
        try:
            run = load(path)
            run.peaks  # noqa: B018 - raises for a broken record
        except RunError as error:
            left_out.append(LeftOut(str(path), error.message))
            continue
        if run.state == "finished" and not run.damage:
            runs.append(run)
        else:
            why = "still running" if run.state == "running" else "its record was cut off"
            left_out.append(LeftOut(str(path), why if run.state != "finished" else run.damage[0]))
    return runs, left_out


def comparable(runs: Iterable[RecordedRun]) -> tuple[list[RunFigures], list[LeftOut]]:
    """Return the figures of the runs with undamaged records, and the other runs, each with the reason."""
    found, left_out = [], []
    for run in runs:
        try:
            figures = figures_of(run)
        except RunError as error:
            left_out.append(LeftOut(str(run.path), error.message))
            continue
        if run.damage:
            left_out.append(LeftOut(str(run.path), run.damage[0]))
        else:
            found.append(figures)
    return found, left_out


def successful(runs: Sequence[RecordedRun], *, must: bool = False) -> tuple[list[RecordedRun], list[LeftOut]]:
    """Return the runs that ended with exit code 0, and the others.

    The need of an aborted run says nothing about a complete one. If no run ended with 0, all are returned: a search
    that finds nothing also fails. With `must`, they are excluded even then, because the baseline's runs succeeded.
    """
    if not must and not any(run.ending.exit_code == 0 for run in runs):
        return list(runs), []
    kept = [run for run in runs if run.ending.exit_code == 0]
    return kept, [
        LeftOut(str(run.path), f"run failed ({run.ending.reason})")
        for run in runs
        if run.ending.exit_code != 0
    ]


def fed(runs: Sequence[RecordedRun]) -> tuple[list[RecordedRun], list[LeftOut]]:
    """Return the runs that got the memory they needed, and the others, which needed less only because they got less."""
    starved = {run.path: why for run in runs if (why := _starved(run))}
    left_out = [LeftOut(str(path), why) for path, why in starved.items()]
    return [run for run in runs if run.path not in starved], left_out


def _starved(run: RecordedRun) -> str | None:
    """Return why a run got less memory than it needed; `None`: it did not, as far as is known."""
    if run.ending.oom_kills:
        return f"out of memory ({run.ending.reason})"
    if run.verdict not in (None, "finished", "killed"):
        return f"ended by otel-memwatch ({run.verdict})"
    share = run.stalls.memory
    if share is not None and is_worth_naming(share, run.seconds):
        return f"short of memory {100 * share:.0f} % of the time"
    return None
