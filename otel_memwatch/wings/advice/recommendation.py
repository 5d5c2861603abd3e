"""Advice for one job, as other modules read it."""

from __future__ import annotations

import math

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from otel_memwatch.wings.advice.prediction import ScaledBound

MIB = 1 << 20
FULL_SPEED = "full speed"
"""First words of notes on this size."""


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
    """Return the advice with the minimum as its request, and one note on files instead of those on full speed."""
    if advice.memory is None or advice.minimum is None or advice.minimum >= advice.memory:
        return advice
    line, files = advice.line, advice.files
    if line is not None:
        line = line._replace(above=line.above - files, least=line.least - files)
    notes = [note for note in advice.notes if not note.startswith(FULL_SPEED)]
    if len(notes) < len(advice.notes):
        notes.append("the job may read files from disk again, or wait for the disk to write, and may hang")
    return advice._replace(memory=advice.minimum, files=0, line=line, notes=tuple(notes))


def mebibytes(value: float) -> int:
    """Return bytes as whole MiB, rounded up."""
    return math.ceil(value / MIB)


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
