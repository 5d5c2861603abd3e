"""Memory as a line over a number that describes a run: bytes of its input, or a tag."""

from __future__ import annotations

from otel_memwatch.record.fields import number
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.wings.advice.prediction import LEAST_SCALED, ScaledBound, scaled_bound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.wings.index.indexed_run import IndexedRun

INPUT, FILES = "input", "files"
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


def scaled(
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
        notes.append(f"{_unexplained(rows, feature)}; the advice is for all inputs")
    return best


def _unexplained(rows: Sequence[IndexedRun], feature: str) -> str:
    """Return the reason that an input does not explain the memory."""
    amounts = [input_of(row, feature) for row in rows]
    known = len(amounts) - amounts.count(None)
    if not known:
        return f"no run has a number for {feature}"
    if known < len(rows):
        return f"{known} of {len(rows)} runs have a number for {feature}"
    if known < LEAST_SCALED:
        return f"{feature} needs at least {LEAST_SCALED} runs"
    return f"{feature} does not explain the memory needed"


def input_of(row: IndexedRun, name: str) -> float | None:
    """Return the number of a run's input by name: "input", "files", or a tag, with or without "tag." before it."""
    if name in (INPUT, FILES):
        return row.input_bytes if name == INPUT else row.files
    try:
        return number(float(row.tags.get(name.removeprefix("tag."), "")))
    except ValueError:
        return None
