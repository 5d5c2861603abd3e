"""Snakemake's benchmark files from recorded runs: the report `snakemake-benchmark`, and the files of a workflow.

* The columns are Snakemake's (snakemake.benchmark, TSV), with its meaning. Sizes are in MiB; unknown figures are NA.
* `max_rss` is the largest sum of resident sizes, and no less than the largest process: shared pages count once per process.
* `max_uss` and `max_pss` are the largest samples. Snakemake also writes NA if a job was too short for one.
* `max_needed` is added at the end of a row: the memory that the tree needed, each page once.

Snakemake's records connect files and runs:

* A log (`.snakemake/log`) names the outputs and the benchmark file of each job.
* The metadata of an output (`.snakemake/metadata`) contains the shell command that made it, and the time.

A run belongs to a job if its script ends with that command and it started in that time. A file with repeats has one run
for each.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import re
from pathlib import Path

from otel_memwatch import catalog
from otel_memwatch.record.fields import mapping, number, text
from otel_memwatch.runtime.typed import TYPE_CHECKING, BinaryIO, NamedTuple
from otel_memwatch.wings.engines import ORIGINAL, known_bytes, largest_resident, largest_sample, replace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from otel_memwatch.reports import Options
    from otel_memwatch.run import RecordedRun

UNKNOWN, NEEDED = "NA", "max_needed"
_MIB = 1 << 20
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


def render(run: RecordedRun, out: BinaryIO, options: Options) -> None:  # noqa: ARG001 - every report is called alike
    """Write the head and the row."""
    row = benchmark_row(run)
    out.write(("\t".join(row) + "\n" + "\t".join(row.values()) + "\n").encode("ascii"))


def benchmark_row(run: RecordedRun) -> dict[str, str]:
    """Return the row by column, in their order."""
    totals, cpu = run.totals, run.totals.get("cpu_seconds")
    whole = int(run.seconds)
    mebibytes = {
        "rss": largest_resident(run),
        "vms": largest_sample(run, catalog.MEMWATCH_TREE_MEMORY_VIRTUAL) or None,
        "uss": largest_sample(run, catalog.MEMWATCH_TREE_MEMORY_USS) or None,
        "pss": largest_sample(run, catalog.MEMWATCH_TREE_MEMORY_PSS) or None,
        "needed": known_bytes(run.peaks.tree),
        "in": totals.get("read_bytes"),
        "out": totals.get("write_bytes"),
    }
    size = {name: _two(None if value is None else value / _MIB) for name, value in mebibytes.items()}
    return {
        "s": f"{run.seconds:.4f}",
        "h:m:s": f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}",
        "max_rss": size["rss"],
        "max_vms": size["vms"],
        "max_uss": size["uss"],
        "max_pss": size["pss"],
        "io_in": size["in"],
        "io_out": size["out"],
        "mean_load": _two(None if cpu is None or not run.seconds else 100 * cpu / run.seconds),
        "cpu_time": _two(cpu),
        NEEDED: size["needed"],
    }


def _two(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.2f}"


def correct(directory: Path, runs: Sequence[RecordedRun]) -> Iterator[tuple[Path, str]]:
    """Correct the benchmark files of the workflow in `directory`, with runs in the order of their starts."""
    made = dict(_metadata(directory / ".snakemake" / "metadata"))
    for name, outputs in _benchmarks(directory / ".snakemake" / "log").items():
        path = directory / name
        if not path.is_file():
            continue
        how = next((made[output] for output in outputs if output in made), None)
        if how is None:
            yield path, "Snakemake does not say which command it is of"
        else:
            begin, end, command = how.started - _SLACK, how.ended + _SLACK, how.command.strip()
            made_by = [
                run
                for run in runs
                if begin <= run.started_wall <= end
                and run.command
                and run.command[-1].strip().endswith(command)
            ]
            yield path, _correct(path, made_by)


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
            changed = []
            for row, exact in zip(rows, found, strict=True):
                fields = dict(mapping(json.loads(row)))
                known = {name: value for name, value in exact.items() if name in fields or name == NEEDED}
                texts = {name for name, value in known.items() if name == "h:m:s" or value == UNKNOWN}
                fields |= {name: value if name in texts else float(value) for name, value in known.items()}
                changed.append(json.dumps(fields))
        else:
            head = lines[0].split("\t")
            if "max_rss" not in head:
                return "it has no column max_rss"
            changed = [f"{lines[0]}\t{NEEDED}"]
            for row, exact in zip(rows, found, strict=True):
                cells = row.split("\t")
                if len(cells) != len(head):
                    return f"a row has {len(cells)} of {len(head)} columns"
                # Unknown figures become NA: the engine's numbers include the monitor, which it mistook for the job.
                kept = [exact.get(name, cell) for name, cell in zip(head, cells, strict=True)]
                changed.append("\t".join([*kept, exact[NEEDED]]))
        replace(path, "\n".join(changed) + "\n")
    except (OSError, ValueError) as error:
        return str(error)
    return ""


def _benchmarks(logs: Path) -> dict[str, list[str]]:
    """Return the outputs of the job of each benchmark file; the latest log counts."""
    found: dict[str, list[str]] = {}
    for log in sorted(logs.glob("*.log")):
        outputs: list[str] = []
        with contextlib.suppress(OSError), log.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                if _RULE.match(line):
                    outputs = []
                elif field := _FIELD.match(line):
                    if field[1] == "output":
                        outputs = field[2].split(", ")
                    else:
                        found[field[2]] = outputs
    return found


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
