"""Snakemake's benchmark files, from exact figures.

Snakemake's records connect files and runs:

* A log (`.snakemake/log`) names the outputs and the benchmark file of each job.
* The metadata of an output (`.snakemake/metadata`) contains the shell command that made it, and the time.

A run belongs to a job if its script ends with that command and it started in that time. A file with repeats has one run
for each.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from otel_memwatch.record.fields import mapping, number, text
from otel_memwatch.run import RecordedRun
from otel_memwatch.runtime.typed import NamedTuple
from otel_memwatch.wings.engines import ORIGINAL, Corrected, replace
from otel_memwatch.wings.engines.snakemake_benchmark import UNKNOWN, benchmark_row

_RULE = re.compile(r"^(?:local)?(?:rule|checkpoint) \S+:$")
_FIELD = re.compile(r"^    (output|benchmark): (.+)$")
_LARGEST = 64 << 20
_SLACK = 2.0
"""Seconds by which the clocks of a file system and of a machine may differ."""


class _Made(NamedTuple):
    """Origin of an output."""

    command: str
    started: float
    """Unix seconds; `ended` too."""
    ended: float


def correct(directory: Path, runs: Sequence[RecordedRun]) -> Corrected:
    """Correct the benchmark files of the workflow in `directory`, with runs in the order of their starts."""
    made = dict(_metadata(directory / ".snakemake" / "metadata"))
    exact: list[Path] = []
    left_out: list[tuple[Path, str]] = []
    for name, outputs in _benchmarks(directory / ".snakemake" / "log").items():
        path = directory / name
        if not path.is_file():
            continue
        how = next((made[output] for output in outputs if output in made), None)
        if how is None:
            left_out.append((path, "Snakemake does not say which command it is of"))
            continue
        why = _correct(path, [run for run in runs if _is_of(run, how)])
        if why:
            left_out.append((path, why))
        else:
            exact.append(path)
    return Corrected(tuple(exact), tuple(left_out))


def _is_of(run: RecordedRun, how: _Made) -> bool:
    script = run.command[-1].strip() if run.command else ""
    return script.endswith(how.command.strip()) and (
        how.started - _SLACK <= run.started_wall <= how.ended + _SLACK
    )


def _correct(path: Path, runs: Sequence[RecordedRun]) -> str:
    """Correct one file. Return the reason if that fails, else an empty text."""
    original = path.with_name(path.name + ORIGINAL)
    try:
        before = (original if original.is_file() else path).read_text(encoding="utf-8")
        lines = before.splitlines()
        extended = before.startswith("{")
        rows = lines if extended else lines[1:]
        if not runs:
            return "no run of its command"
        if len(rows) != len(runs) or not before.endswith("\n"):
            return f"it has {len(rows)} rows, and there are {len(runs)} runs of its command"
        found = [benchmark_row(run) for run in runs]
        if extended:
            changed = [_object(row, exact) for row, exact in zip(rows, found, strict=True)]
        else:
            head = lines[0].split("\t")
            if "max_rss" not in head:
                return "it has no column max_rss"
            changed = [lines[0], *(_row(head, row, exact) for row, exact in zip(rows, found, strict=True))]
        replace(path, "\n".join(changed) + "\n")
    except (OSError, ValueError) as error:
        return str(error)
    return ""


def _row(head: Sequence[str], row: str, exact: dict[str, str]) -> str:
    cells = row.split("\t")
    if len(cells) != len(head):
        raise ValueError(f"a row has {len(cells)} of {len(head)} columns")
    # Unknown figures become NA: the engine's numbers include the monitor, which it mistook for the job.
    return "\t".join(exact.get(name, cell) for name, cell in zip(head, cells, strict=True))


def _object(row: str, exact: dict[str, str]) -> str:
    found = dict(mapping(json.loads(row)))
    for name, value in exact.items():
        if name in found:
            found[name] = value if name == "h:m:s" or value == UNKNOWN else float(value)
    return json.dumps(found)


def _benchmarks(logs: Path) -> dict[str, list[str]]:
    """Return the outputs of the job of each benchmark file; the latest log counts."""
    found: dict[str, list[str]] = {}
    for log in sorted(logs.glob("*.log")):
        outputs: list[str] = []
        for line in _lines(log):
            if _RULE.match(line):
                outputs = []
            elif field := _FIELD.match(line):
                if field[1] == "output":
                    outputs = field[2].split(", ")
                else:
                    found[field[2]] = outputs
    return found


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                yield line.rstrip("\n")
    except OSError:
        return


def _metadata(folder: Path) -> Iterator[tuple[str, _Made]]:
    """Yield the origin of each output.

    The name of a metadata file is the output's name in base64; long names are split into parts that begin with @.
    """
    for path in folder.rglob("*"):
        try:
            if not path.is_file() or path.stat().st_size > _LARGEST:
                continue
            encoded = "".join(part.removeprefix("@") for part in path.relative_to(folder).parts)
            output = base64.urlsafe_b64decode(encoded).decode()
            fields = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, binascii.Error):
            continue
        if not isinstance(fields, dict) or fields.get("incomplete"):
            continue
        command, started, ended = (
            text(fields.get("shellcmd")),
            number(fields.get("starttime")),
            number(fields.get("endtime")),
        )
        if command and started is not None and ended is not None:
            yield output, _Made(command, started, ended)
