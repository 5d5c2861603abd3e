"""Reads a run directory, whatever state it was left in.

A directory that is no run, or that cannot be understood, raises `RunError`: one sentence and what to do. Damage
inside a run is left out and told in `Record.damage`; reading goes on.
"""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path

from otel_memwatch.errors import RunError
from otel_memwatch.model import Column, Operation, ProcessEvent, ProcessRecord, Value
from otel_memwatch.record.fields import mapping, moment, number, text, texts, whole
from otel_memwatch.record.format import (
    METRICS_OTLP_FILE,
    OPERATIONS_PREFIX,
    OPERATIONS_SUFFIX,
    PROCESSES_FILE,
    RUN_FILE,
    SAMPLES_FILE,
    SCHEMA,
    TRACES_OTLP_FILE,
)
from otel_memwatch.record.lines import Damage, objects, parse
from otel_memwatch.record.regular import open_regular
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from otel_memwatch.record.operation_lines import OperationLines
    from otel_memwatch.record.samples import Samples

__all__ = ["Record", "read_described", "read_info", "read_run"]

_MAX_INFO = 16 * 1024 * 1024
"""Bytes of the largest `run.json` that is read: the longest command that Linux starts has 6 MiB of arguments."""


class Record:
    """A run directory's content; files are read when they are asked for.

    Attributes:
        path: the directory.
        info: `run.json`, see `record.format`.

    """

    def __init__(self, path: Path, info: Mapping[str, Any]) -> None:
        self.path = path
        self.info = info
        self._damage: dict[str, Damage] = {}
        self._samples: Samples | None = None
        self._kept: frozenset[str] | None = frozenset()

    @property
    def started(self) -> float:
        """Start of the run in monotonic seconds; 0 when `run.json` does not tell."""
        return moment(mapping(self.info.get("started")).get("monotonic")) or 0.0

    @property
    def damage(self) -> list[str]:
        """What could not be read so far, in sentences; a torn last line is none."""
        return [sentence for name in sorted(self._damage) for sentence in self._damage[name].sentences()]

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """All columns of `samples.jsonl`, those of sources that opened late last; none when there are no samples."""
        from otel_memwatch.record.samples import declared_columns

        return declared_columns(self.path / SAMPLES_FILE)

    def ticks(self) -> Iterator[tuple[float, tuple[Value, ...]]]:
        """Monotonic time and values (for `columns`) of every tick, in the order of the record."""
        from otel_memwatch.record.samples import is_tick, tick_blocks

        places: dict[Column, int] = {column: place for place, column in enumerate(self.columns)}
        for columns, rows in tick_blocks(self.path / SAMPLES_FILE, self._fresh(SAMPLES_FILE)):
            order = [places.get(column) for column in columns]
            for row in rows:
                if not is_tick(row):
                    self._damage[SAMPLES_FILE].lines += 1
                    continue
                values: list[Value] = [None] * len(places)
                for place, value in zip(order, row[1:], strict=False):
                    if place is not None:
                        values[place] = value
                assert row[0] is not None
                yield float(row[0]), tuple(values)

    def samples(self, metrics: Iterable[str] | None = None) -> Samples:
        """The ticks as numpy arrays: those columns whose metric is named, all when `None`.

        Read once: asking again for what is there costs nothing, asking for more reads the file again.
        """
        from otel_memwatch.record.samples import read_samples

        wanted = None if metrics is None else frozenset(metrics)
        if self._samples is None or not (self._kept is None or (wanted is not None and wanted <= self._kept)):
            wanted = None if wanted is None or self._kept is None else wanted | self._kept
            damage = self._fresh(SAMPLES_FILE)
            self._samples = read_samples(self.path / SAMPLES_FILE, damage, self.started, wanted)
            self._kept = wanted
        return self._samples

    def process_records(self) -> Iterator[ProcessRecord]:
        """The lines of `processes.jsonl`, one by one."""
        damage = self._fresh(PROCESSES_FILE)
        for line in objects(self.path / PROCESSES_FILE, damage):
            record = _process_record(line)
            if record is None:
                damage.lines += 1
            else:
                yield record

    @cached_property
    def processes(self) -> list[ProcessRecord]:
        """The lines of `processes.jsonl`."""
        return list(self.process_records())

    @cached_property
    def operations(self) -> list[Operation]:
        """All operations of all processes, by their start; those never closed have the status "open"."""
        return sorted(
            (op for _, operations in self._operation_files for op in operations), key=lambda op: op.start
        )

    @cached_property
    def operation_lines(self) -> list[OperationLines]:
        """What each file of operations says of its process."""
        return [lines for lines, _ in self._operation_files]

    @property
    def marked(self) -> bool:
        """Whether any process told of operations. Reads no file."""
        return bool(self._operation_names())

    def _operation_names(self) -> list[str]:
        try:
            names = sorted(os.listdir(self.path))
        except OSError:
            return []
        return [n for n in names if n.startswith(OPERATIONS_PREFIX) and n.endswith(OPERATIONS_SUFFIX)]

    @cached_property
    def _operation_files(self) -> list[tuple[OperationLines, list[Operation]]]:
        return [self._operation_file(name) for name in self._operation_names()]

    def _operation_file(self, name: str) -> tuple[OperationLines, list[Operation]]:
        from otel_memwatch.record.operation_lines import OperationLines

        digits = name.removeprefix(OPERATIONS_PREFIX).removesuffix(OPERATIONS_SUFFIX).rpartition("-")[2]
        lines = OperationLines(
            int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 12 else 0
        )
        closed = []
        damage = self._fresh(name)
        for line in objects(self.path / name, damage):
            try:
                operation = lines.take(line)
            except ValueError:
                damage.lines += 1
                continue
            if operation is not None:
                closed.append(operation)
        return lines, closed + lines.still_open()

    def _fresh(self, name: str) -> Damage:
        damage = self._damage[name] = Damage(name)
        return damage


def read_run(path: str | os.PathLike[str]) -> Record:
    """Opens a run directory.

    Raises `RunError` when there is none, or it is not one that this version can read.
    """
    directory = Path(path)
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        raise RunError(
            f"There is no run {directory}.", "name a run directory; `otel-memwatch runs` lists them"
        ) from None
    except NotADirectoryError:
        return _otlp_file(directory)
    except (OSError, ValueError) as error:
        raise RunError(f"The run {str(directory)!r} cannot be read: {_reason(error)}.") from None
    lines = {METRICS_OTLP_FILE, TRACES_OTLP_FILE} & set(names)
    if RUN_FILE not in names:
        if not lines:
            _refuse_foreign(directory, names)
        return _otlp_record(directory, None)
    info = read_info(directory / RUN_FILE)
    schema = whole(info.get("schema"))
    if schema is None:
        raise RunError(
            f"{directory / RUN_FILE} does not describe a run of otel-memwatch.", "name another directory"
        )
    if schema > SCHEMA:
        raise RunError(
            f"The run {directory} was recorded by a newer version (schema {schema}, known is {SCHEMA}).",
            "upgrade otel-memwatch",
        )
    if lines:
        return _otlp_record(directory, info, recorded=SAMPLES_FILE in names)
    return Record(directory, info)


def read_described(path: Path, info: Mapping[str, Any]) -> Record:
    """The run of a directory whose `run.json` the caller knows: it may lack there, or be older."""
    if os.path.isfile(path / TRACES_OTLP_FILE):
        return _otlp_record(path, info, recorded=True)
    return Record(path, info)


def _otlp_file(path: Path) -> Record:
    """A file that is named for itself: it has to be of OTLP JSON lines."""
    if path.name in {RUN_FILE, SAMPLES_FILE, PROCESSES_FILE}:
        raise RunError(f"{path} is a file, not a run directory.", "name the directory that it lies in")
    return _otlp_record(path, None)


def _otlp_record(path: Path, info: Mapping[str, Any] | None, *, recorded: bool = False) -> Record:
    """A run whose ticks (or, where it was `recorded`, whose spans) lie in OTLP JSON lines."""
    from otel_memwatch.record.otlp_file import OtlpRecord, SpannedRecord

    if recorded and info is not None:
        return SpannedRecord(path, info) if os.path.isfile(path / TRACES_OTLP_FILE) else Record(path, info)
    return OtlpRecord(path, info)


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _refuse_foreign(directory: Path, names: list[str]) -> NoReturn:
    if not names:
        raise RunError(
            f"The run directory {directory} is empty.", "a run was prepared there but never started"
        )
    nested = sorted(n for n in names if os.path.isfile(directory / n / RUN_FILE))
    if nested:
        raise RunError(
            f"{directory} holds {len(nested)} run(s) but is none itself.",
            f"name one, as {directory / nested[-1]}",
        )
    raise RunError(
        f"{directory} is not a run directory: it has no {RUN_FILE}.", "`otel-memwatch runs` lists runs"
    )


def read_info(path: Path) -> Mapping[str, Any]:
    """The object in a `run.json`. Raises `RunError` for what is none: no regular file, too large, damaged."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            # Asked for more, it takes the memory first, whatever the file holds.
            size = os.fstat(file.fileno()).st_size
            data = file.read(min(size, _MAX_INFO))
    except OSError as error:
        raise RunError(f"{path} cannot be read: {_reason(error)}.") from None
    if size > _MAX_INFO:
        raise RunError(
            f"{path} has more than {_MAX_INFO >> 20} MiB: none of ours has.", "restore it from a copy"
        )
    if not data.strip(b"\0 \r\n\t"):
        raise RunError(
            f"{path} is empty.", "the machine or the disk failed while it was written; the run is lost"
        )
    info = parse(data)
    if info is None:
        raise RunError(f"{path} is damaged: it is not complete JSON.", "restore it from a copy")
    if not isinstance(info, dict):
        raise RunError(f"{path} does not describe a run of otel-memwatch.", "name another directory")
    return info


_WHOLES = (
    "ppid", "rss", "peak", "peak_bound", "read_bytes", "write_bytes", "read_chars", "write_chars", "minor_faults",
    "major_faults", "threads", "exit_code", "signal", "max_rss",
)  # fmt: skip


def _process_record(line: Mapping[str, Any]) -> ProcessRecord | None:
    """The record of a line; `None` when it does not say which process, when."""
    try:
        event = ProcessEvent(line.get("event"))
    except ValueError:
        return None
    time, pid, start = moment(line.get("time")), whole(line.get("pid")), moment(line.get("start"))
    if time is None or pid is None or start is None:
        return None
    argv = line.get("argv")
    return ProcessRecord(
        event,
        time,
        pid,
        start,
        command=text(line.get("command")),
        argv=texts(argv) if isinstance(argv, list) else None,
        cpu_user=number(line.get("cpu_user")),
        cpu_system=number(line.get("cpu_system")),
        note=text(line.get("note")),
        childless=childless if isinstance(childless := line.get("childless"), bool) else None,
        **{name: whole(line.get(name)) for name in _WHOLES},
    )
