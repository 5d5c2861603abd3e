"""Kinds of memory at a peak: the file `made_of.json`, replaced atomically at each reading.

It is untrusted input: `read_made_of` bounds its size and drops fields of a wrong type.
"""

from __future__ import annotations

import os

from otel_memwatch.record.fields import moment, text, whole
from otel_memwatch.record.format import FILE_MODE, MADE_OF_FILE, SCHEMA
from otel_memwatch.record.jsonl import open_regular, parse
from otel_memwatch.runtime import strict_json
from otel_memwatch.runtime.typed import Any, NamedTuple

MOST_PARTS, MOST_PROCESSES = 24, 16
KINDS = frozenset(
    {"heap", "anonymous mappings", "private copies of file pages", "file", "shared memory", "stacks", "page tables",
     "kernel stacks"}
)  # fmt: skip
"""Kinds of `runtime.procfs.mappings`, and those of memory in the kernel."""
_MOST_CHARACTERS, _MAX_BYTES = 500, 1 << 20


class MemoryPart(NamedTuple):
    """Memory of one kind."""

    kind: str
    """One of `KINDS`."""
    name: str
    """Path of a mapped file or of shared memory; empty for other kinds, and for all other files together."""
    bytes: int


class ProcessParts(NamedTuple):
    """Resident memory of one process by kind."""

    pid: int
    parts: tuple[MemoryPart, ...]


class MadeOf(NamedTuple):
    """Content of the file."""

    time: float
    """Monotonic seconds."""
    level: int
    """Resident memory of all processes, summed, in bytes."""
    tree: tuple[MemoryPart, ...]
    """Memory of the processes that were read: a shared page counts once, divided among the processes that map it."""
    processes: tuple[ProcessParts, ...]
    """The largest processes, the largest first."""
    unread: int
    """Number of processes that are in `level` only: they are small, or of another user."""


def write_made_of(directory: str | os.PathLike[str], found: MadeOf) -> None:
    """Replace the file. Raises `OSError`."""
    document = {
        "schema": SCHEMA,
        **found._asdict(),
        "tree": list(map(list, found.tree)),
        "processes": [{"pid": one.pid, "parts": list(map(list, one.parts))} for one in found.processes],
    }
    temporary = f"{os.fspath(directory)}/.{MADE_OF_FILE}.{os.getpid()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(strict_json.dumps(document, separators=(",", ":")).encode())
        os.replace(temporary, f"{os.fspath(directory)}/{MADE_OF_FILE}")
    except OSError:
        os.unlink(temporary)
        raise


def read_made_of(directory: str | os.PathLike[str]) -> MadeOf | None:
    """Return the last reading of a run; `None` if it has none, or if the file is damaged."""
    try:
        with os.fdopen(open_regular(os.path.join(directory, MADE_OF_FILE)), "rb") as file:
            document = parse(file.read(_MAX_BYTES))
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict):
        return None
    time, level, tree = (
        moment(document.get("time")),
        whole(document.get("level")),
        _parts(document.get("tree")),
    )
    if time is None or level is None or level <= 0 or not tree:
        return None
    listed = document.get("processes")
    processes = [
        ProcessParts(pid, _parts(one.get("parts")))
        for one in (listed if isinstance(listed, list) else [])[:MOST_PROCESSES]
        if isinstance(one, dict) and (pid := whole(one.get("pid"))) is not None
    ]
    return MadeOf(time, level, tree, tuple(processes), max(0, whole(document.get("unread")) or 0))


def _parts(value: Any) -> tuple[MemoryPart, ...]:
    rows = [row for row in (value if isinstance(value, list) else [])[:MOST_PARTS] if isinstance(row, list)]
    return tuple(
        MemoryPart((text(row[0]) or "")[:_MOST_CHARACTERS], (text(row[1]) or "")[:_MOST_CHARACTERS], size)
        for row in rows
        if len(row) == 3 and (size := whole(row[2]) or 0) > 0
    )
