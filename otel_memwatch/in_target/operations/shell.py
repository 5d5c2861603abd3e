"""Phases of a shell script, marked by short-lived processes. Each mark ends the previous phase.

All marks of a shell use one file (`operations-mark-<pid>.jsonl`), which also holds the open phase. The totals are the
shell's from /proc. They include all commands that the shell has waited for.
"""

from __future__ import annotations

import os
from time import monotonic

from otel_memwatch.in_target.operations.journal import Journal, process_start, warn_once
from otel_memwatch.in_target.operations.process_state import read_quietly
from otel_memwatch.in_target.operations.tracing import IdGenerator, root_parent
from otel_memwatch.record.format import RUN_DIRECTORY_VARIABLE
from otel_memwatch.record.operation_writer import (
    UNKNOWN_PEAK,
    clean_name,
    closing_line,
    header_line,
    opening_line,
)
from otel_memwatch.runtime.procfs.process import parse_io, parse_stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from otel_memwatch.in_target.operations.operation_values import CpuTotals, IoTotals

_TAIL = 1 << 16


def mark_phase(name: str | None, shell: int) -> None:
    """Begin a phase of the shell with this PID, and end the previous one; `None` only ends it.

    Does nothing outside a run. If the run directory cannot be written, prints one line.
    """
    directory = os.environ.get(RUN_DIRECTORY_VARIABLE)
    if not directory:
        return
    try:
        journal = Journal(os.path.abspath(directory), f"mark-{shell}")
        try:
            _mark(journal, directory, name, shell)
        finally:
            journal.close()
    except OSError as error:
        warn_once("mark", f"the phase is not recorded: {directory}: {error.strerror}.")


def _mark(journal: Journal, directory: str, name: str | None, shell: int) -> None:
    now = monotonic()
    totals = _shell_totals(shell)
    before = _open_phase(journal.tail(_TAIL))
    if journal.is_new:
        start = process_start(shell)
        program = read_quietly(f"/proc/{shell}/comm").decode("utf-8", "replace").strip()
        journal.write(header_line(pid=shell, start=start, program=program, exact=False))
    if before is not None:
        journal.write(_closing(before, now, totals))
    if name is not None:
        trace, parent = root_parent(directory) or (IdGenerator().trace_id(), None)
        list_of_totals = "null" if totals is None else f"[{','.join(map(repr, totals))}]"
        more = f',"shell":{list_of_totals}}}\n'.encode()
        span, name = IdGenerator().span_id(), clean_name(name)[0]
        journal.write(
            opening_line(
                number=journal.first_id,
                time=now,
                name=name,
                trace=trace,
                span=span,
                parent=parent,
                thread=None,
                rss=None,
                segment=None,
                more=more,
            )
        )


def _open_phase(tail: bytes) -> dict[str, Any] | None:
    """Return the open phase from the last lines of the file. Ignores torn and foreign lines."""
    from json import loads  # this is a separate process, so the import does not slow the program

    found = None
    for text in tail.split(b"\n"):
        try:
            line = loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and "open" in line:
            found = line
        elif isinstance(line, dict) and found is not None and line.get("close") == found["open"]:
            found = None
    return found


def _closing(phase: dict[str, Any], now: float, totals: list[float] | None) -> bytes:
    before = phase.get("shell")
    used: CpuTotals | None = None
    moved: IoTotals | None = None
    if totals is not None and isinstance(before, list) and len(before) == len(totals):
        user, system, *counts = (last - first for first, last in zip(before, totals, strict=True))
        minor, major, read, written, read_chars, written_chars = map(int, counts)
        used, moved = (user, system, minor, major), (read, written, read_chars, written_chars)
    return closing_line(
        number=phase["open"],
        time=now,
        error=None,
        rss=None,
        segment=None,
        peak=UNKNOWN_PEAK,
        used=used,
        moved=moved,
    )


def _shell_totals(pid: int) -> list[float] | None:
    """Return CPU seconds, page faults and bytes of a process and its reaped children; `None` if not readable."""
    try:
        stat = parse_stat(read_quietly(f"/proc/{pid}/stat"))
        io = parse_io(read_quietly(f"/proc/{pid}/io"))
    except ValueError:
        return None
    return [
        stat.cpu_user + stat.child_cpu_user,
        stat.cpu_system + stat.child_cpu_system,
        stat.minor_faults + stat.child_minor_faults,
        stat.major_faults + stat.child_major_faults,
        io.read_bytes,
        io.write_bytes,
        io.read_chars or 0,
        io.write_chars or 0,
    ]
