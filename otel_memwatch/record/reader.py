"""Content of a run directory in any state.

Damaged content is skipped and listed in `Record.damage`; reading continues. `record.open` finds out which directories
hold a run.
"""

from __future__ import annotations

import os
from itertools import islice

from otel_memwatch import catalog
from otel_memwatch.model import Column, ProcessEvent, ProcessRecord, RecordedOperation, Value
from otel_memwatch.record.fields import mapping, moment, number, text, texts, whole
from otel_memwatch.record.format import OPERATIONS_PREFIX, OPERATIONS_SUFFIX, PROCESSES_FILE, SAMPLES_FILE
from otel_memwatch.record.jsonl import Damage, objects
from otel_memwatch.runtime.light import cached_property
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from otel_memwatch.record.operation_index import OperationTable
    from otel_memwatch.record.operation_lines import OperationLines, OperationRow
    from otel_memwatch.record.samples import Samples
    from otel_memwatch.record.schema import Sample


_LONG = 2 << 20
"""Size of the samples in bytes above which numpy saves more time than its import takes."""
_SAMPLES_TO_READ = 100
"""Samples within which an applicable limit has been read."""


class Record:
    """Content of a run directory; files are read on request.

    Attributes:
        directory: run directory.
        info: `run.json`, see `record.format`.

    """

    def __init__(self, directory: str | os.PathLike[str], info: Mapping[str, Any]) -> None:
        self.directory = os.fspath(directory)
        self.info = info
        self._damage: dict[str, Damage] = {}
        self._samples: Samples | None = None
        self._kept: frozenset[str] | None = frozenset()
        self._lines: Sequence[OperationLines] | None = None

    @cached_property
    def path(self) -> Path:
        """Return the run directory."""
        from pathlib import Path

        return Path(self.directory)

    @property
    def started(self) -> float:
        """Return the start of the run in monotonic seconds; 0 if `run.json` lacks it."""
        return moment(mapping(self.info.get("started")).get("monotonic")) or 0.0

    @property
    def damage(self) -> list[str]:
        """Return messages about the unreadable content so far; a torn last line does not count."""
        return [sentence for name in sorted(self._damage) for sentence in self._damage[name].sentences()]

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """Return all columns of `samples.jsonl`, those of late sources last; none without samples."""
        from otel_memwatch.record.sample_lines import declared_columns

        return declared_columns(f"{self.directory}/{SAMPLES_FILE}")

    def sample_values(self) -> Iterator[tuple[float, tuple[Value, ...]]]:
        """Yield monotonic time and values (for `columns`) of every sample, in the order of the record."""
        width = len(self.columns) + 1
        for rows in self.sample_rows():
            for row in rows:
                yield float(row[0] or 0.0), (*row[1:], *[None] * (width - len(row)))

    def limit(self) -> int | None:
        """Return the cgroup's limit in bytes from the first samples; `None`: unknown."""
        hard = ("memwatch.cgroup.limit.type", "max")
        limits = [
            index
            for index, column in enumerate(self.columns)
            if column.metric == catalog.MEMWATCH_CGROUP_MEMORY_LIMIT
            and (not column.attributes or hard in column.attributes)
        ]
        for _, values in islice(self.sample_values(), _SAMPLES_TO_READ if limits else 0):
            known = [value for value in (values[index] for index in limits) if value is not None]
            if known:
                return int(min(known))
        return None

    def each_sample(self) -> Iterator[Sample]:
        """Yield every sample, in the order of the record."""
        from otel_memwatch.record.schema import sample_maker

        make = sample_maker(self.columns)
        for rows in self.sample_rows():
            yield from map(make, rows)

    def sample_rows(self) -> Iterator[Sequence[Sequence[Value]]]:
        """Yield rows of time and values, a few thousand samples at a time. A row may be shorter: the rest is unknown."""
        from otel_memwatch.record.sample_lines import is_sample, sample_blocks

        indexes: dict[Column, int] = {column: index for index, column in enumerate(self.columns)}
        for columns, read, all_sound in sample_blocks(
            f"{self.directory}/{SAMPLES_FILE}", self._fresh(SAMPLES_FILE)
        ):
            sound = read if all_sound else [row for row in read if is_sample(row)]
            self._damage[SAMPLES_FILE].lines += len(read) - len(sound)
            order = [indexes.get(column) for column in columns]
            if order == list(range(len(order))):  # the usual case: sources that open late come last
                yield sound
            else:
                yield [_reordered(row, order, len(indexes)) for row in sound]

    @property
    def is_long(self) -> bool:
        """Return whether the samples justify the import of numpy."""
        from otel_memwatch.record.sample_files import samples_size

        return samples_size(f"{self.directory}/{SAMPLES_FILE}") > _LONG

    def samples(self, metrics: Iterable[str] | None = None) -> Samples:
        """Return the samples as numpy arrays: the columns of the given metrics, all if `None`.

        The file is read once. A repeated request costs nothing; a request for more columns reads it again.
        """
        from otel_memwatch.record.samples import read_samples

        wanted = None if metrics is None else frozenset(metrics)
        if self._samples is None or not (self._kept is None or (wanted is not None and wanted <= self._kept)):
            wanted = None if wanted is None or self._kept is None else wanted | self._kept
            damage = self._fresh(SAMPLES_FILE)
            self._samples = read_samples(f"{self.directory}/{SAMPLES_FILE}", damage, self.started, wanted)
            self._kept = wanted
        return self._samples

    def process_records(self) -> Iterator[ProcessRecord]:
        """Yield the lines of `processes.jsonl`, one by one."""
        damage = self._fresh(PROCESSES_FILE)
        for line in objects(f"{self.directory}/{PROCESSES_FILE}", damage):
            record = process_record(line)
            if record is None:
                damage.lines += 1
            else:
                yield record

    @cached_property
    def processes(self) -> list[ProcessRecord]:
        """Return the lines of `processes.jsonl`."""
        return list(self.process_records())

    @cached_property
    def operation_table(self) -> OperationTable:
        """Return all operations of all processes by their start, read one by one; unclosed ones have the status "open"."""
        return self._read_operations[0]

    def operation_rows(self) -> Iterator[OperationRow]:
        """Yield the rows of all operations, file by file: the closed ones in the order of their ends, then the others.

        Memory does not grow with their number.
        """
        from otel_memwatch.record.operation_index import lines_of, read_rows
        from otel_memwatch.record.operation_lines import row_of

        files = []
        for name in self._operation_names():
            lines = lines_of(name)
            files.append(lines)
            yield from read_rows(f"{self.directory}/{name}", lines, self._fresh(name))
            yield from map(row_of, lines.still_open())
        self._lines = files

    @property
    def operations(self) -> list[RecordedOperation]:
        """Return the operations as a list, built at each call: a run may have millions of them."""
        return list(self.operation_table)

    def know(
        self,
        table: OperationTable | None,
        lines: Sequence[OperationLines],
        damage: Iterable[tuple[str, int]],
    ) -> None:
        """Use operations that the caller has already read; without a `table` they are read on request."""
        if table is not None:
            self.operation_table = table
        self._lines = lines
        for name, left_out in damage:
            self._fresh(name).lines = left_out

    @property
    def operation_lines(self) -> Sequence[OperationLines]:
        """Return the lines of each file of operations."""
        return self._read_operations[1] if self._lines is None else self._lines

    @property
    def marked(self) -> bool:
        """Return whether any process marked operations. Reads no file."""
        return bool(self._operation_names())

    @property
    def has_operations(self) -> bool:
        """Return whether the files hold any operation. Reads their beginnings, unless all lines have been read."""
        if self.operations_read:
            return any(lines.opened for lines in self.operation_lines)
        return next(iter(self.operation_rows()), None) is not None

    @property
    def operation_table_read(self) -> bool:
        """Return whether `operation_table` is known: asking for it reads nothing."""
        return "operation_table" in vars(self)

    @property
    def operations_read(self) -> bool:
        """Return whether all lines of operations have been read."""
        return self._lines is not None or "_read_operations" in vars(self)

    def _operation_names(self) -> list[str]:
        try:
            names = sorted(os.listdir(self.directory))
        except OSError:
            return []
        return [n for n in names if n.startswith(OPERATIONS_PREFIX) and n.endswith(OPERATIONS_SUFFIX)]

    @cached_property
    def _read_operations(self) -> tuple[OperationTable, Sequence[OperationLines]]:
        from otel_memwatch.record.operation_index import read_operations

        return read_operations(self.directory, self._operation_names(), self._fresh)

    def _fresh(self, name: str) -> Damage:
        damage = self._damage[name] = Damage(name)
        return damage


def _reordered(row: Sequence[Value], order: Sequence[int | None], width: int) -> list[Value]:
    """Return a sample with its values at the positions in `order`."""
    values: list[Value] = [row[0], *[None] * width]
    for index, value in zip(order, row[1:], strict=False):
        if index is not None:
            values[index + 1] = value
    return values


_WHOLES = (
    "ppid", "rss", "peak", "peak_bound", "read_bytes", "write_bytes", "read_chars", "write_chars", "minor_faults",
    "major_faults", "threads", "exit_code", "signal", "max_rss", "file",
    "needed", "beside", "max_rss_error", "placements",
)  # fmt: skip


def process_record(line: Mapping[str, Any]) -> ProcessRecord | None:
    """Return the record of a line; `None` if event, process or time are missing."""
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
