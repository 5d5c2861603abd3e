"""Advice for one job, as other modules read it, and its line in a summary."""

from __future__ import annotations

import math

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.text import count, duration, size

if TYPE_CHECKING:
    from otel_memwatch.wings.advice.prediction import ScaledBound

MIB = 1 << 20
_FILES_WORTH_NAMING = 0.05
"""Least share of the request at which its line names program files."""
_MINUTE = 60.0
FULL_SPEED = "full speed"
"""First words of notes on this size."""
MAY_NEED = f"{FULL_SPEED} may also need"
"""First words of notes on page cache that no record shows."""


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
    at_most: int | None
    """Bytes of the largest upper bound of a run; `None`: a run has none."""
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


def processors(advice: Advice) -> int:
    """Return the whole processors of the request, at least one."""
    return max(1, math.ceil((advice.cores or 1.0) - 0.1))


def sentence(advice: Advice) -> str:
    """Return the advice in one line: `request 520 MiB (12 runs; 1 in 1000 would need more), 1 processor, 5 min`."""
    if advice.memory is None:
        return (
            f"needs at least {size(advice.at_least)}; no successful run yet"
            if advice.at_least
            else "nothing is known"
        )
    return f"no figure to request: {difference(advice)}" if advice.different else request(advice)


def difference(advice: Advice) -> str:
    """Return the reason why `different` runs give no useful figure."""
    return f"{count(advice.runs, 'run')} of up to {size(advice.largest)} differ too much (wrap --name tells jobs apart)"


def request(advice: Advice) -> str:
    """Return the request with its parts, even if it is of little use."""
    assert advice.memory is not None
    memory, files = mebibytes(advice.memory), mebibytes(advice.files)
    least = "at least " if advice.at_least is not None and not advice.guess else ""
    parts = ""
    if files and files >= _FILES_WORTH_NAMING * memory:
        minimum = mebibytes(advice.memory - advice.files)
        parts = f": minimum {minimum} MiB + {memory - minimum} MiB of files"
    more = [count(processors(advice), "processor")] if advice.cores is not None else []
    more += [duration(advice.seconds)] if advice.seconds is not None and advice.seconds >= _MINUTE else []
    unknown = any(note.startswith(MAY_NEED) for note in advice.notes)
    basis = f"{advice.basis}; {FULL_SPEED} may need more" if unknown else advice.basis
    return ", ".join([f"request {least}{memory} MiB{parts} ({basis})", *more])
