"""Import of other tools' measurements: each of their rows becomes a run directory without samples.

================  =========================================================================  ============================
file              source of the memory figure                                                `by`
================  =========================================================================  ============================
Snakemake         max_needed (of otel-memwatch), or max_pss, or max_rss                      "Snakemake"
Nextflow trace    peak_rss                                                                   "Nextflow"
sacct -P          largest MaxRSS of the job's steps                                          "sacct"
GNU time -v       maximum resident set size: of the largest process, not of the tree         "GNU time"
con-duct          peak_rss of its `info.json`                                                "con-duct"
================  =========================================================================  ============================

Jobs of sacct in state OUT_OF_MEMORY count as killed for memory; running jobs are skipped.

All figures are "sampled": these tools poll, and miss peaks between their samples.
"""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import json
import os
import re
import signal
from pathlib import Path

from otel_memwatch.errors import RunError, UsageError
from otel_memwatch.model import Evidence
from otel_memwatch.record.fields import mapping, number, text, whole
from otel_memwatch.record.format import DIRECTORY_MODE, FILE_MODE, FINISHED, RUN_FILE, SCHEMA
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple
from otel_memwatch.runtime.user_files import read_file
from otel_memwatch.truth.estimates import largest_sample
from otel_memwatch.units import parse_duration, parse_local_time, parse_number, parse_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_LARGEST_FILE = 256 << 20
_GO_ON = ("RUNNING", "PENDING", "SUSPENDED", "REQUEUED", "RESIZING", "CONFIGURING")
_ENDED_BY_SLURM = ("TIMEOUT", "CANCELLED", "DEADLINE", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL")
"""States in which the exit code may be 0:0 although the job did not complete: Slurm sends SIGTERM."""


class ForeignMeasurement(NamedTuple):
    """One execution as another tool measured it; `None`: not recorded."""

    name: str | None
    memory: int
    """Bytes."""
    command: tuple[str, ...] = ()
    seconds: float | None = None
    started: float | None = None
    """Unix seconds."""
    cpu: float | None = None
    read: int | None = None
    written: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    killed_for_memory: bool = False
    tags: Mapping[str, str] = {}
    process: bool = False
    """True if the memory is only the largest process's."""
    identity: str | None = None
    """Identifier that the tool uses in all of its files for this execution; `None`: it has none."""


class ImportResult(NamedTuple):
    """Result of the import of a file."""

    by: str
    added: int
    known: int
    """Rows from earlier imports."""
    left_out: int
    """Rows that are damaged or have no memory figure."""


def import_file(path: str, into: str, tags: Mapping[str, str]) -> ImportResult:
    """Create a run for each row of a file, in the directory `into`. Rows from earlier imports are skipped.

    Raises `RunError` if the file cannot be read or a run cannot be written, and `UsageError` if the format is unknown.
    """
    try:
        content = read_file(path, _LARGEST_FILE, pipe=True).decode("utf-8", "replace")
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}.") from None
    found = next((one for one in _FORMATS if one[1](content)), None)
    if found is None:
        known = ", ".join(name for name, _, _ in _FORMATS)
        raise UsageError(f"{path} is in no format that can be imported.", f"known are {known}")
    by, _, read = found
    added = already = left_out = 0
    changed = os.stat(path).st_mtime
    for index, measured in enumerate(read(content)):
        if measured is None or measured.memory <= 0:
            left_out += 1
            continue
        named = measured.name or (None if measured.command else Path(path).stem)
        tagged = measured._replace(name=named, tags={**measured.tags, **tags})
        if _written(tagged, by, path, into, index=index, changed=changed):
            added += 1
        else:
            already += 1
    return ImportResult(by, added, already, left_out)


def _written(
    measured: ForeignMeasurement, by: str, source: str, into: str, *, index: int, changed: float
) -> bool:
    """Write the run directory of one row; return False if it exists."""
    place = measured.identity or [os.path.basename(source), index]
    identity = json.dumps([by, place, measured], sort_keys=True)
    digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
    started = measured.started or changed
    plain = re.sub(
        r"[^A-Za-z0-9._+-]+", "_", measured.name or (measured.command[0] if measured.command else "job")
    ).strip("._")
    directory = Path(into) / f"imported-{plain[:60] or 'job'}-{digest}"
    evidence = (Evidence.LARGEST_PROCESS,) if measured.process else ()
    peak = largest_sample(measured.memory, *evidence, source=by).to_json()
    seconds = measured.seconds or 0.0
    reason = "ended" if measured.exit_code is None else f"exit code {measured.exit_code}"
    if measured.killed_for_memory:
        reason = "killed for memory"
    elif measured.signal is not None:
        reason = f"killed by signal {measured.signal}"
    info = {
        "schema": SCHEMA, "marks": [], "state": FINISHED, "id": directory.name, "name": measured.name, "tags": dict(measured.tags),
        "measured_by": by, "imported_from": os.path.abspath(source), "command": list(measured.command), "cwd": None,
        "started": {"wall": started, "monotonic": 0.0}, "ended": {"wall": started + seconds, "monotonic": seconds},
        "exit": {"exit_code": measured.exit_code, "signal": measured.signal, "oom_kills": 1 if measured.killed_for_memory else None,
                 "reason": reason},
        "peaks": {"main": None, "process": peak if measured.process else None, "tree": peak, "cgroup": None, "gpu": {}, "hugetlb": None},
        "totals": {"cpu_seconds": measured.cpu, "read_bytes": measured.read, "write_bytes": measured.written},
        "quality": {"ticks": 0},
    }  # fmt: skip
    try:
        os.makedirs(into, exist_ok=True)
        try:
            os.mkdir(directory, DIRECTORY_MODE)
        except FileExistsError:
            return False
        descriptor = os.open(directory / RUN_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        with os.fdopen(descriptor, "w") as file:
            json.dump(info, file, indent=1)
    except OSError as error:
        raise RunError(f"{directory} cannot be written: {error.strerror}.") from None
    return True


# -- values


def _bytes(value: Any) -> int | None:
    """Return bytes of "12.5 MB", "812K" or "1024": units are powers of 1024, as all of these tools define them."""
    text = str(value or "").strip().upper()
    try:
        return parse_size(text.removesuffix("B").removesuffix("I"))
    except ValueError:
        return None


def _float(value: Any) -> float | None:
    try:
        return parse_number(str(value))
    except ValueError:
        return None


def _clock(value: str) -> float | None:
    """Return the seconds of "1-02:03:04", "02:03:04" or "03:04.5"."""
    days, _, rest = value.strip().rpartition("-")
    try:
        seconds = 0.0
        for part in rest.split(":"):
            seconds = seconds * 60 + float(part)
        return seconds + 86400 * int(days or 0)
    except ValueError:
        return None


def _duration(value: str) -> float | None:
    """Return the seconds of "1h 2m 3.5s" or "120ms"; a bare number is in milliseconds, as in a raw trace."""
    if value.strip().isdigit():
        return int(value) / 1000
    try:
        return parse_duration(value)
    except ValueError:
        return None


def _moment(value: str) -> float | None:
    """Return the Unix seconds of "2026-11-01 10:00:00.123", "2026-11-01T10:00:00", or milliseconds."""
    if value.strip().isdigit():
        return int(value) / 1000
    return parse_local_time(value.strip()[:19])


def _table(content: str, delimiter: str) -> Iterator[dict[str, str]]:
    """Yield rows with as many fields as the header; others are empty, to be counted."""
    lines = csv.reader(io.StringIO(content), delimiter=delimiter, quoting=csv.QUOTE_NONE)
    header = next(lines, [])
    for line in lines:
        if line:
            yield dict(zip(header, line, strict=True)) if len(line) == len(header) else {}


def _head(content: str) -> str:
    return content[: content.find("\n") if "\n" in content else None]


# -- formats


def _snakemake(content: str) -> Iterator[ForeignMeasurement | None]:
    rows: Iterator[Mapping[str, Any]] = _table(content, "\t")
    if content.startswith("{"):
        rows = (_object(line) for line in content.splitlines() if line.strip())
    for row in rows:
        mebibytes = next(
            filter(None, (_float(row.get(f"max_{size}")) for size in ("needed", "pss", "rss"))), None
        )
        rule = text(row.get("rule_name")) or None  # only `--benchmark-extended` writes it
        tags = {
            name: str(row[key])
            for key, name in (("rule_name", "rule"), ("wildcards", "wildcards"))
            if row.get(key)
        }
        read, written = _float(row.get("io_in")), _float(row.get("io_out"))
        yield None if not mebibytes else ForeignMeasurement(
            rule, round(mebibytes * 2**20), seconds=_float(row.get("s")), cpu=_float(row.get("cpu_time")),
            read=None if read is None else round(read * 2**20), written=None if written is None else round(written * 2**20),
            exit_code=0, tags=tags,
        )  # fmt: skip


def _nextflow(content: str) -> Iterator[ForeignMeasurement | None]:
    for row in _table(content, "\t"):
        memory = _bytes(row.get("peak_rss"))
        if not memory:
            yield None
            continue
        name = row.get("name", "")
        process = (row.get("process") or name.partition(" (")[0]).rpartition(":")[2]
        seconds, share = _duration(row.get("realtime", "")), _float(row.get("%cpu", "").rstrip("%"))
        code, state = row.get("exit", ""), row.get("status", "")
        tags = {"rule": process, "nextflow.task": name} | (
            {"attempt": row["attempt"]} if row.get("attempt", "").isdigit() else {}
        )
        yield ForeignMeasurement(
            process or None, memory, seconds=seconds, started=_moment(row.get("start") or row.get("submit", "")),
            cpu=seconds * share / 100 if seconds is not None and share is not None else None,
            read=_bytes(row.get("read_bytes")), written=_bytes(row.get("write_bytes")),
            exit_code=int(code) if code.isdigit() and int(code) < 128 else 1 if state == "FAILED" else None,
            signal=int(code) - 128 if code.isdigit() and 128 < int(code) < 193 else signal.SIGTERM if state == "ABORTED" else None,
            # A cached task is also a row of each later trace.
            tags=tags, identity=" ".join((row.get("hash", ""), row.get("native_id", ""), row.get("submit", ""))).strip() or None,
        )  # fmt: skip


def _sacct(content: str) -> Iterator[ForeignMeasurement | None]:
    jobs: dict[str, list[dict[str, str]]] = {}
    for row in _table(content, "|"):
        if row.get("JobID"):
            jobs.setdefault(row["JobID"].partition(".")[0], []).append(row)
        else:
            yield None
    for job, rows in jobs.items():
        head = rows[0]
        memory = max((_bytes(row.get("MaxRSS")) or 0 for row in rows), default=0)
        state, code = head.get("State", ""), head.get("ExitCode", "").partition(":")
        if state.startswith(_GO_ON):
            yield None
            continue
        killed = any(row.get("State", "").startswith("OUT_OF_ME") for row in rows)
        number_of_signal = int(code[2]) if code[2].isdigit() else 0
        if state.startswith(_ENDED_BY_SLURM) and code[0] in ("", "0"):
            number_of_signal = number_of_signal or signal.SIGTERM
        array, _, task = job.partition("_")
        tags = {"slurm.job": job} | ({"slurm.array": array, "slurm.task": task} if task else {})
        yield None if not memory else ForeignMeasurement(
            head.get("JobName") or None, memory, seconds=_clock(head.get("Elapsed", "")), started=_moment(head.get("Start", "")),
            cpu=_clock(head.get("TotalCPU", "")),
            exit_code=None if number_of_signal or killed else int(code[0]) if code[0].isdigit() else None if state != "COMPLETED" else 0,
            signal=number_of_signal or None, killed_for_memory=killed, tags=tags, identity=f"{job} {head.get('Start', '')}",
        )  # fmt: skip


def _gnu_time(content: str) -> Iterator[ForeignMeasurement | None]:
    # A command's signal is in front of its block; its exit status is inside.
    for before, block in itertools.pairwise(content.split("Command being timed:")):
        values = dict(line.strip().rpartition(": ")[::2] for line in block.splitlines() if ": " in line)
        memory = whole(_float(values.get("Maximum resident set size (kbytes)")))
        # GNU time writes the words of the command with blanks between them, in quotes.
        command = tuple(block.splitlines()[0].strip().strip('"').split())
        user, system = _float(values.get("User time (seconds)")), _float(values.get("System time (seconds)"))
        code = re.search(r"Exit status: (\d+)", block)
        killed = re.search(r"terminated by signal (\d+)\s*\Z", before)
        yield None if not memory else ForeignMeasurement(
            None, memory * 1024, command, process=True,
            seconds=_clock(values.get("Elapsed (wall clock) time (h:mm:ss or m:ss)", "")),
            cpu=None if user is None or system is None else user + system,
            read=_blocks(values.get("File system inputs")), written=_blocks(values.get("File system outputs")),
            exit_code=None if killed or not code else int(code[1]), signal=int(killed[1]) if killed else None,
        )  # fmt: skip


def _blocks(value: str | None) -> int | None:
    amount = _float(value)
    return None if amount is None else round(amount * 512)


def _con_duct(content: str) -> Iterator[ForeignMeasurement | None]:
    info = _object(content)
    summary = mapping(info.get("execution_summary"))
    memory = whole(_float(summary.get("peak_rss")))
    command = info.get("command") or summary.get("command")
    yield None if not memory else ForeignMeasurement(
        None, memory, tuple(str(command).split()) if command else (), seconds=number(_float(summary.get("wall_clock_time"))),
        started=_float(summary.get("start_time")), exit_code=whole(summary.get("exit_code")),
    )  # fmt: skip


def _object(content: str) -> Mapping[str, Any]:
    try:
        return mapping(json.loads(content))
    except (ValueError, RecursionError):
        return {}


_FORMATS: tuple[
    tuple[str, Callable[[str], bool], Callable[[str], Iterator[ForeignMeasurement | None]]], ...
] = (
    ("con-duct", lambda content: "execution_summary" in _object(content), _con_duct),
    ("Snakemake", lambda content: "max_rss" in _head(content), _snakemake),
    ("Nextflow", lambda content: "peak_rss" in _head(content) and "\t" in _head(content), _nextflow),
    (
        "sacct",
        lambda content: "JobID" in _head(content).split("|") and "MaxRSS" in _head(content).split("|"),
        _sacct,
    ),
    ("GNU time", lambda content: "Maximum resident set size (kbytes)" in content, _gnu_time),
)
"""Each format: the tool, a test of the content, and the reader of its rows (`None`: unusable)."""
