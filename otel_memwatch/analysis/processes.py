"""The processes of a run, each with all that is known of it in the end."""

from __future__ import annotations

from otel_memwatch.analysis.life import Life
from otel_memwatch.analysis.process_bounds import UNREAPED
from otel_memwatch.analysis.results import ProcessFigures
from otel_memwatch.analysis.verdicts import life_peak
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_memwatch.analysis.run_conditions import Basis
    from otel_memwatch.record.operation_lines import OperationLines
    from otel_memwatch.record.reader import Record

_KEPT = (
    "command", "argv", "ppid", "cpu_user", "cpu_system", "read_bytes", "write_bytes", "read_chars", "write_chars",
    "minor_faults", "major_faults", "threads", "exit_code", "signal", "note",
)  # fmt: skip
"""Fields whose last known value stands."""

_COUNTERS = (
    "cpu_user", "cpu_system", "read_bytes", "write_bytes", "read_chars", "write_chars", "minor_faults", "major_faults",
)  # fmt: skip
"""Those of them that a process has counted since its start."""


class LivedProcess(NamedTuple):
    """A process: the last figures of it, and what its memory was bounded by."""

    life: Life
    fields: dict[str, Any]
    before: Mapping[str, Any]
    """The counters when it was first seen, of one that was there before the run; empty for all others."""


def lived_processes(record: Record, basis: Basis, *, whole: bool) -> list[LivedProcess]:
    """Every process of the record, by its start; `whole`: the record reaches to the run's end."""
    found: dict[tuple[int, float], LivedProcess] = {}
    for line in record.process_records():
        key = line.pid, line.start
        lived = found.get(key)
        if lived is None:
            joined = basis.joined and line.start < basis.started
            before = {name: getattr(line, name) for name in _COUNTERS} if joined else {}
            lived = found[key] = LivedProcess(Life(line.pid, line.start, basis), {}, before)
        lived.life.take(line, basis)
        for name in _KEPT:
            value = getattr(line, name)
            if value is not None:
                lived.fields[name] = value
    _add_segments(found.values(), record.operation_lines)
    if not whole:
        for lived in found.values():
            lived.life.reopen()
    return sorted(found.values(), key=lambda lived: (lived.life.start, lived.life.pid))


def _add_segments(lived: Iterable[LivedProcess], files: Iterable[OperationLines]) -> None:
    by_pid: dict[int, list[Life]] = {}
    for entry in lived:
        by_pid.setdefault(entry.life.pid, []).append(entry.life)
    for lines in files:
        for life in by_pid.get(lines.pid, []) if lines.largest is not None else []:
            assert lines.largest is not None
            if lines.start is not None and abs(lines.start - life.start) > 1.0:
                continue
            life.add_segment(*lines.largest)


def bound_of_the_untold(lived: Sequence[LivedProcess]) -> int | None:
    """Upper bound of a process that ended without one of its own, as `Lives.unit`; `None`: there is none."""
    ended = [entry.life for entry in lived if entry.life.end is not None]
    told = [max(life.max_rss or 0, life.bound or 0) for life in ended if life.told]
    if not any(told) or any(life.told and life.bound is None for life in ended):
        return None
    if any(entry.fields.get("note") == UNREAPED for entry in lived):
        return None
    return max([*told, *(life.known for life in ended)])


def process_figures(
    lived: Sequence[LivedProcess], basis: Basis, *, whole: bool
) -> tuple[ProcessFigures, ...]:
    """What reports get of each process; `whole`: the record reaches to the run's end."""
    # Before the end those who live, and wait for others, have not told yet what these had.
    told = whole or all(entry.life.end is not None for entry in lived)
    unit = bound_of_the_untold(lived) if told else None
    return tuple(_figures(entry, basis, unit) for entry in lived)


def _figures(entry: LivedProcess, basis: Basis, unit: int | None) -> ProcessFigures:
    life, fields = entry.life, dict(entry.fields)
    for name, before in entry.before.items():
        if name in fields:
            fields[name] = None if before is None else max(0, fields[name] - before)
    user, system = fields.pop("cpu_user", None), fields.pop("cpu_system", None)
    end = None if life.end is None else round(life.end - basis.started, 4)
    return ProcessFigures(
        pid=life.pid,
        command=fields.pop("command", None),
        argv=fields.pop("argv", None),
        ppid=fields.pop("ppid", None),
        start=round(life.start - basis.started, 4),
        end=end,
        peak=life_peak(life, basis, unit),
        cpu_seconds=None if user is None and system is None else round((user or 0.0) + (system or 0.0), 6),
        **fields,
    )
