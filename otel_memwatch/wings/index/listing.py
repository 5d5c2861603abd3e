"""Tables of many runs: for a person, as CSV, as Parquet, and grouped."""

from __future__ import annotations

import csv
import math
import time

from otel_memwatch.errors import Unavailable
from otel_memwatch.model import Certainty
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple
from otel_memwatch.text import (
    CERTAINTY_WORDS,
    clean,
    command_line,
    count,
    digits,
    duration,
    rounds_to_zero,
    share,
    shorten,
    size,
    size_range,
    table,
    within,
)
from otel_memwatch.wings.index.run_fields import COLUMNS, column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from otel_memwatch.wings.index.indexed_run import IndexedRun
    from otel_memwatch.wings.index.run_fields import RunField

_LEAST_COMMAND = 20
"""Smallest width of the command on a terminal, in columns."""
_END = 34
"""Largest width of the end reason. `--columns run,end` shows it whole."""
_LONGEST_COMMAND = 160
"""Largest length of a command as the name of a group."""

HEADER, ALIGNED = ("run", "name", "started", "duration", "memory", "", "end", "command"), "lllrrlll"
GROUP_HEADER = ("runs", "failed", "largest", "median", "spread", "duration", "CPU")

# -- for a person


def lines(rows: Sequence[IndexedRun], width: int | None) -> list[str]:
    """Return the table of the runs. `width`: columns of the terminal; `None`: no terminal, nothing is shortened."""
    shown = [cells(row, None if width is None else _LEAST_COMMAND) for row in rows]
    if width is not None:
        others = table([(*row[:-1], "") for row in shown], HEADER, ALIGNED)
        room = width - max(map(len, others)) - len("  ")
        if room > _LEAST_COMMAND:
            shown = [cells(row, room) for row in rows]
    return table(shown, HEADER, ALIGNED)


def cells(row: IndexedRun, room: int | None) -> tuple[str, ...]:
    """Return a run as a row of the table; `room`: columns for the command."""
    path, name, started = clean(row.path), clean(row.name or ""), local(row.started)
    if row.state == "broken":
        # Only the last column may be long: it does not widen other rows.
        return (path, name, started, "-", "-", "", "broken", clean(row.error or ""))
    certainty = "" if row.certainty is None else CERTAINTY_WORDS[Certainty(row.certainty)]
    if row.by is not None:
        certainty = f"sampled, {clean(row.by)}"
    elif row.certainty == Certainty.INTERVAL.value and row.high is None:
        certainty = "at least" if row.low or row.memory else ""
    elif row.certainty == Certainty.INTERVAL.value and rounds_to_zero(row.low or 0, row.high or 0):
        certainty = "at most"
    elif row.certainty == Certainty.INTERVAL.value:
        certainty = within(row.low or 0, row.high or 0) or certainty
    if row.ratio is not None:
        certainty = f"{certainty}, {digits(row.ratio, 3)} times predicted".lstrip(", ")
    end = row.reason if row.state == "finished" else row.state
    command = command_line(row.command, room)
    if len(end) > _END:
        # A long reason stands in the last column too, or is shortened on a terminal.
        end, command = ("", f"{end}  {command}") if room is None else (shorten(end, _END), command)
    return (path, name, started, duration(row.seconds), memory(row), certainty, end, command)


def memory(row: IndexedRun) -> str:
    """Return a run's memory for a table: one figure, or the bounds."""
    return _between(_joint(_memory_ends([row]), max))


def _memory_ends(rows: Iterable[IndexedRun]) -> list[tuple[float, float]]:
    """Return the bounds of each known memory, in bytes: equal for one figure, infinite without an upper bound."""
    ends: list[tuple[float, float]] = []
    for row in rows:
        if row.memory is None:
            continue
        low: float = row.memory
        high: float = row.memory
        if row.certainty == Certainty.INTERVAL.value:
            low, high = row.memory if row.low is None else row.low, math.inf if row.high is None else row.high
        elif row.certainty == Certainty.CENSORED.value:
            low = row.low or 0
        ends.append((low, high))
    return ends


def _joint(ends: Sequence[tuple[float, float]], of: Callable[[Iterable[float]], float]) -> Range | None:
    """Return the bounds of the largest memory, or of another figure that rises with each; `None`: none is known."""
    if not ends:
        return None
    low, high = of([low for low, _ in ends]), of([high for _, high in ends])
    return low, None if math.isinf(high) else high


def _between(bounds: Range | None) -> str:
    if bounds is None:
        return "-"
    low, high = bounds
    if high is None:
        return f">= {size(low)}" if low else "-"
    return f"<= {size(high)}" if rounds_to_zero(low, high) else size_range(low, high, "-")


def local(unix: float) -> str:
    """Format a moment in the local time zone."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix))
    except (OverflowError, ValueError, OSError):
        return "-"


def column_lines(rows: Sequence[IndexedRun], columns: Sequence[RunField]) -> list[str]:
    """Return a table of some fields of the runs."""
    right = "".join("l" if column.kind in ("text", "moment") else "r" for column in columns)
    # Unknown values are blanks: a requested column appears even if it has no values.
    cells = [tuple(shown(column, column.of(row)) or " " for column in columns) for row in rows]
    return table(cells, [column.name for column in columns], right)


def shown(column: RunField, value: Any) -> str:
    """Format a field's value for people."""
    if value is None:
        return ""
    if column.kind == "size":
        return size(value)
    if column.kind == "duration":
        return duration(value)
    if column.kind == "moment":
        return local(value)
    if column.kind == "rounded":
        return digits(round(value, 3), 3)
    return clean(str(value)) if column.kind == "text" else digits(value, 6)


def totals(rows: Sequence[IndexedRun]) -> str:
    """Summarize all runs: "72 runs, 3 failed, the largest 1.20 GiB, 4 h 03 min in all, 3 h 10 min of CPU"."""
    failures = sum(1 for row in rows if failed(row))
    broken = sum(1 for row in rows if row.state == "broken")
    peaks = _memory_ends(rows)
    parts = [count(len(rows), "run")]
    parts += [f"{failures} failed"] if failures else []
    parts += [f"{broken} broken"] if broken else []
    parts += [f"the largest {_between(_joint(peaks, max))}"] if peaks else []
    parts.append(f"{duration(sum(row.seconds or 0.0 for row in rows))} in all")
    used = [row.cpu for row in rows if row.cpu is not None]
    parts += [f"{duration(sum(used))} of CPU"] if used else []
    return ", ".join(parts)


def unused(rows: Sequence[IndexedRun]) -> str:
    """Summarize requests: "12 runs left 31.4 GiB-hours and 210 core-hours unused"."""
    memory, cores = (sum(hours or 0.0 for hours in column) for column in (
        [row.unused_gib_hours for row in rows], [row.unused_core_hours for row in rows],
    ))  # fmt: skip
    hours = f"{digits(round(memory, 3), 3)} GiB-hours and {digits(round(cores, 3), 3)} core-hours"
    return f"{count(len(rows), 'run')} left {hours} unused"


def failed(row: IndexedRun) -> bool:
    """Return whether the run failed or a process of it was killed for memory."""
    return bool(row.exit_code) or row.signal is not None or bool(row.oom_kills)


# -- groups


Range = tuple[float, "float | None"]
"""Lower and upper bound in bytes; equal for one figure. Without an upper bound, the second is `None`."""


class RunGroup(NamedTuple):
    """Figures of runs with the same values of some fields; `None`: unknown for all of them."""

    value: str
    runs: int
    failed: int
    largest: int | None
    """Largest memory of a run, in bytes."""
    median: float | None
    """Median memory of the runs, in bytes."""
    spread: float | None
    """Standard deviation of the memory as a share of its mean; `None` with fewer than two runs."""
    seconds: float | None
    """Median duration."""
    cpu: float | None
    """CPU seconds of all runs."""
    largest_range: Range | None
    """Lower and upper bound of the largest memory."""
    median_range: Range | None
    """Lower and upper bound of the median."""


def group_name(row: IndexedRun, by: Sequence[RunField] | None) -> str:
    """Return the group of a run: the values of the fields; without fields its name, or its command."""
    if by is None:
        return row.name or command_line(row.command, _LONGEST_COMMAND) or row.key or "(none)"
    return ", ".join(shown(field, field.of(row)) for field in by) or "(none)"


def groups(rows: Iterable[IndexedRun], by: Sequence[RunField] | None) -> list[RunGroup]:
    """Group the runs by some fields, or as `group_name` does; the group with the largest memory first."""
    import statistics  # 5 ms to load, for groups only

    together: dict[str, list[IndexedRun]] = {}
    for row in rows:
        together.setdefault(group_name(row, by), []).append(row)
    made = []
    for name, members in together.items():
        memory, ends = [row.memory for row in members if row.memory is not None], _memory_ends(members)
        seconds = [row.seconds for row in members if row.seconds is not None]
        cpu = [row.cpu for row in members if row.cpu is not None]
        several = len(memory) > 1 and any(memory)
        made.append(
            RunGroup(
                value=name,
                runs=len(members),
                failed=sum(1 for row in members if failed(row)),
                largest=max(memory, default=None),
                median=statistics.median(memory) if memory else None,
                largest_range=_joint(ends, max),
                median_range=_joint(ends, statistics.median),
                spread=statistics.stdev(memory) / statistics.fmean(memory) if several else None,
                seconds=statistics.median(seconds) if seconds else None,
                cpu=sum(cpu) if cpu else None,
            )
        )
    return sorted(made, key=lambda group: (-(group.largest or 0), group.value))


def group_lines(found: Sequence[RunGroup], title: str) -> list[str]:
    """Return the table of groups."""
    return table(group_cells(found), (title, *GROUP_HEADER), "lrrrrrrr")


def group_cells(found: Sequence[RunGroup]) -> list[tuple[str, ...]]:
    """Return the groups as rows of a table."""
    return [
        (
            group.value,
            str(group.runs),
            str(group.failed) if group.failed else "-",
            _between(group.largest_range),
            _between(group.median_range),
            "-" if group.spread is None else share(group.spread, 1),
            "-" if group.seconds is None else duration(group.seconds),
            "-" if group.cpu is None else duration(group.cpu),
        )
        for group in found
    ]


# -- for other programs


def fields(row: IndexedRun, columns: Sequence[RunField]) -> dict[str, Any]:
    """Return fields of a run by name, in bytes, seconds and Unix seconds."""
    return {column.name: column.of(row) for column in columns}


def exported_columns(rows: Iterable[IndexedRun]) -> list[RunField]:
    """Return all fields, and one for each tag of the runs."""
    tags = sorted({name for row in rows if row.tags_json != "{}" for name in row.tags})
    return [*COLUMNS.values(), *(found for name in tags if (found := column(f"tag.{name}")) is not None)]


def write_csv(rows: Sequence[IndexedRun], columns: Sequence[RunField], out: Any) -> None:
    """Write a line of names and a line for each run; unknown values are empty."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.name for column in columns])
    for row in rows:
        writer.writerow(["" if (value := column.of(row)) is None else value for column in columns])


def write_parquet(rows: Sequence[IndexedRun], columns: Sequence[RunField], out: Any) -> None:
    """Write one row group with all runs. Raises `Unavailable` without pyarrow."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise Unavailable("pyarrow is not installed.", "pip install 'otel-memwatch[parquet]'") from None
    kinds: Mapping[str, Any] = {
        "text": pa.string(),
        "size": pa.int64(),
        "duration": pa.float64(),
        "moment": pa.float64(),
    }
    arrays = [
        pa.array([column.of(row) for row in rows], type=kinds.get(column.kind, pa.float64()))
        for column in columns
    ]
    pq.write_table(pa.table(arrays, names=[column.name for column in columns]), out)
