"""A baseline: the figures of some runs in a small file, fit for committing. No command line, no path, no environment.

A JSON object: "schema" 1, "conditions" (each once), and "runs": of each when it began, the number of its conditions, and
its figures by name as [value, certainty, low, high, alone, basis].
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from otel_memwatch.errors import UsageError
from otel_memwatch.model import Certainty
from otel_memwatch.record.fields import number
from otel_memwatch.runs.figures import Conditions, Figure, RunFigures
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

SCHEMA = 1

_GIT = "git:"
"""What a baseline's name begins with that is looked for in a commit."""


def save(path: str | os.PathLike[str], runs: Sequence[RunFigures]) -> None:
    """Writes the figures of the runs, whole or not at all. Raises `UsageError` where that cannot be done."""
    conditions = list(dict.fromkeys(run.conditions for run in runs))
    document = {
        "schema": SCHEMA,
        "conditions": [one._asdict() for one in conditions],
        "runs": [
            {
                "started": round(run.started, 3),
                "conditions": conditions.index(run.conditions),
                "figures": {
                    name: [f.value, f.certainty.value, f.low, f.high, f.alone, f.basis]
                    for name, f in run.figures.items()
                },
            }
            for run in runs
        ],
    }
    lines = json.dumps(document, indent=1, allow_nan=False)
    part = Path(f"{os.fspath(path)}.part")
    try:
        part.write_text(one_line_a_figure(lines) + "\n", encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise UsageError(f"The baseline {path} cannot be written: {error.strerror}.") from None


def one_line_a_figure(text: str) -> str:
    """The lists of figures in one line each, so that a change of one is a line of a diff."""
    import re

    return re.sub(
        r"\[\n\s+([^\[\]{}]+?)\n\s+\]", lambda found: "[" + re.sub(r"\n\s+", " ", found[1]) + "]", text
    )


def load(path: str | os.PathLike[str]) -> list[RunFigures]:
    """The runs of a baseline: a file, or "git:REF:PATH", a file of a commit.

    Raises `UsageError` where it is none, or one of a later version.
    """
    try:
        text = _of_commit(str(path)) if str(path).startswith(_GIT) else Path(path).read_text(encoding="utf-8")
        document = json.loads(text)
    except OSError as error:
        raise UsageError(f"The baseline {path} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise UsageError(
            f"{path} is no baseline: it is not JSON.", "check --save-baseline writes one"
        ) from None
    return parse(document, str(path))


def _of_commit(name: str) -> str:
    done = subprocess.run(
        ["git", "show", "--end-of-options", name.removeprefix(_GIT)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.strip().removeprefix("fatal: ").splitlines()
        raise UsageError(f"The baseline {name} cannot be read: {said[0] if said else 'git failed'}.")
    return done.stdout


def parse(document: Any, where: str) -> list[RunFigures]:
    """The runs of a baseline that has been read from `where`. Raises `UsageError` as `load` does."""
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        later = isinstance(schema, int) and schema > SCHEMA
        raise UsageError(
            f"{where} is {'a baseline of a later version' if later else 'no baseline'}.",
            "check --save-baseline writes one",
        )
    try:
        conditions = [Conditions(**one) for one in document["conditions"]]
        return [
            RunFigures(
                {str(name): _figure(fields) for name, fields in run["figures"].items()},
                conditions[run["conditions"]],
                float(run["started"]),
                f"run {index + 1} of {where}",
            )
            for index, run in enumerate(document["runs"])
        ]
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"The baseline {where} is damaged: {type(error).__name__} {error}.") from None


def _figure(fields: Any) -> Figure:
    value, certainty, low, high, alone, basis = fields
    ends = [None if end is None else number(end) for end in (low, high)]
    known = number(value)
    if known is None or (low is not None and ends[0] is None) or (high is not None and ends[1] is None):
        raise ValueError(f"{fields!r} is no figure")
    return Figure(known, Certainty(certainty), ends[0], ends[1], bool(alone), str(basis))
