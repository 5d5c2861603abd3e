"""A baseline: the figures of some runs in a small file, fit for committing. No command line, no path, no environment.

The file holds a JSON object:

* "schema": 1.
* "conditions": each distinct set of conditions once.
* "runs": for each run its start, its commit if known, the index of its conditions, and its figures by name. A figure is
  [value, certainty, low, high, alone, basis].
"""

from __future__ import annotations

import errno
import json
import os
import subprocess

from otel_memwatch.errors import UsageError
from otel_memwatch.model import Certainty
from otel_memwatch.record.fields import moment, number, text
from otel_memwatch.run.figures import Conditions, Figure, RunFigures
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.runtime.user_files import read_file, replace_file
from otel_memwatch.text import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

SCHEMA = 1

_LARGEST = 64 << 20
"""Bytes of the largest baseline: half a million figures of about 100 bytes."""

_FARTHEST = 2.0**63
"""Largest figure that is not damage: it exceeds any machine's memory in bytes, and its age in seconds."""

_QUOTED = 80
"""Characters of damaged content that an error quotes."""

_CONDITIONS: dict[str, tuple[type, ...]] = {
    "system": (str,),
    "cpus": (int, type(None)),
    "memory_bytes": (int, type(None)),
    "allocator": (str,),
    "host": (str,),
}

_GIT = "git:"
"""Prefix of a baseline that is read from a commit."""


def save(path: str | os.PathLike[str], runs: Sequence[RunFigures]) -> None:
    """Write the figures of the runs atomically. Raises `UsageError` if the file cannot be written."""
    conditions = list(dict.fromkeys(run.conditions for run in runs))
    document = {
        "schema": SCHEMA,
        "conditions": [one._asdict() for one in conditions],
        "runs": [
            {
                "started": round(run.started, 3),
                **({"commit": run.commit} if run.commit else {}),
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
    try:
        replace_file(path, (one_line_a_figure(lines) + "\n").encode())
    except OSError as error:
        raise UsageError(f"The baseline {path} cannot be written: {error.strerror}.") from None


def one_line_a_figure(text: str) -> str:
    """Put each figure on one line: a changed figure is then one line of a diff."""
    import re

    return re.sub(
        r"\[\n\s+([^\[\]{}]+?)\n\s+\]", lambda found: "[" + re.sub(r"\n\s+", " ", found[1]) + "]", text
    )


def load(path: str | os.PathLike[str], *, pipe: bool = False) -> list[RunFigures]:
    """Return the runs of a baseline: a file, or "git:REF:PATH" for a file in a commit.

    With `pipe`, the file may be a pipe, which can be read only once. Raises `UsageError` for a file that is not a
    baseline, and for a baseline of a later version.
    """
    where = clean(str(path))
    try:
        git = str(path).startswith(_GIT)
        data = _of_commit(str(path), where) if git else read_file(path, _LARGEST, pipe=pipe)
        document = json.loads(data)
    except OSError as error:
        raise UsageError(f"The baseline {where} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise UsageError(
            f"{where} is no baseline: it is not JSON.", "check --save-baseline writes one"
        ) from None
    except RecursionError:
        raise UsageError(
            f"{where} is no baseline: it is nested too deeply.", "check --save-baseline writes one"
        ) from None
    return parse(document, where)


def _of_commit(name: str, where: str) -> bytes:
    argv = ["git", "show", "--end-of-options", name.removeprefix(_GIT)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as git:
        assert git.stdout is not None
        assert git.stderr is not None
        data = git.stdout.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            git.kill()
            raise OSError(errno.EFBIG, f"it is larger than {_LARGEST >> 20} MiB", name)
        said = git.stderr.read().decode("utf-8", "replace").strip().removeprefix("fatal: ").splitlines()
    if git.returncode != 0:
        reason = clean(said[0]) if said else "git failed"
        raise UsageError(f"The baseline {where} cannot be read: {reason}.")
    return data


def parse(document: Any, where: str) -> list[RunFigures]:
    """Return the runs of a baseline that was read from `where`. Raises `UsageError` as `load` does."""
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        later = isinstance(schema, int) and schema > SCHEMA
        raise UsageError(
            f"{where} is {'a baseline of a later version' if later else 'no baseline'}.",
            "check --save-baseline writes one",
        )
    try:
        conditions = [_conditions(one) for one in document["conditions"]]
        return [
            _run(fields, conditions, f"run {number} of {where}")
            for number, fields in enumerate(document["runs"], 1)
        ]
    except KeyError as error:
        raise UsageError(f"The baseline {where} is damaged: it has no {error}.") from None
    except (IndexError, TypeError, ValueError, AttributeError) as error:
        reason = clean(str(error))[:_QUOTED]
        raise UsageError(f"The baseline {where} is damaged: {reason}.") from None


def _conditions(fields: Any) -> Conditions:
    for name, value in fields.items():
        kinds = _CONDITIONS.get(name, ())
        if type(value) not in kinds or (type(value) is int and not 0 <= value <= _FARTHEST):
            raise ValueError(f"the condition {name!r} is {str(value)[:_QUOTED]!r}")
    return Conditions(**fields)


def _run(fields: Any, conditions: Sequence[Conditions], name: str) -> RunFigures:
    position, started = fields["conditions"], moment(fields["started"])
    figures = {str(key): _figure(value) for key, value in fields["figures"].items()}
    if type(position) is not int or position < 0:
        raise ValueError(f"{str(position)[:_QUOTED]!r} is not the number of a condition")
    if started is None:
        raise ValueError(f"{str(fields['started'])[:_QUOTED]!r} is not a time")
    commit = text(fields.get("commit")) or ""
    return RunFigures(figures, conditions[position], started, name, commit=commit)


_OLD_BASES = {"the control group": "the cgroup", "sizes at ticks": "sizes at samples"}
"""Words of older baselines for a way of measuring."""


def _figure(fields: Any) -> Figure:
    value, certainty, low, high, alone, basis = fields
    for one in (value, low, high):
        if one is not None and (number(one) is None or abs(one) > _FARTHEST):
            raise ValueError(f"{str(one)[:_QUOTED]} is not a number of bytes or seconds")
    if value is None or type(alone) is not bool or not isinstance(basis, str):
        raise ValueError(f"{str(fields)[:_QUOTED]} is not a figure")
    basis = _OLD_BASES.get(basis, basis)
    return Figure(float(value), Certainty(certainty), number(low), number(high), alone, basis)
