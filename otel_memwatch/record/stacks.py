"""Captured stacks of a run: the file `stacks.json`, written under --stacks.

The file is one object, replaced atomically at each capture, so a kill never leaves a part of it. It is untrusted input:
`read_stacks` bounds its size and the number of captures, threads and frames, and drops every field of a wrong type.
"""

from __future__ import annotations

import os

from otel_memwatch.record.fields import moment, text, texts, whole
from otel_memwatch.record.format import FILE_MODE, SCHEMA, STACKS_FILE
from otel_memwatch.record.jsonl import open_regular, parse
from otel_memwatch.runtime import strict_json
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MOST_CAPTURES = 20
"""Captures that a run keeps."""
MOST_THREADS, MOST_FRAMES, MOST_CHARACTERS = 64, 200, 500
"""Limits of one capture: threads, frames of a thread, characters of a name."""
_MAX_BYTES = 16 << 20


class StackFrame(NamedTuple):
    """One call."""

    function: str
    file: str
    """Path of the source; of a native frame without debug information its library; empty if unknown."""
    line: int
    """0 if unknown."""
    address: int = 0
    """Address of a native call, to look its line up later; not recorded, and 0 for other calls."""


class CapturedThread(NamedTuple):
    """Stack of one thread."""

    id: int
    name: str
    active: bool
    """False if it slept or waited."""
    faults: int | None
    """Page faults while the stack was read, or in 10 ms: the thread that touches memory has most. `None`: unknown."""
    frames: tuple[StackFrame, ...]
    """Innermost call first."""


class Capture(NamedTuple):
    """Stacks of the process that had grown most."""

    time: float
    """Monotonic seconds."""
    level: int
    """Anonymous and shared memory of the whole tree in bytes, pages inherited by fork counted once."""
    pid: int
    command: str
    before: int
    """Anonymous and shared memory of the process in bytes, right before the capture; `after`: after it, at least 10 ms later."""
    after: int
    grown: int
    """Bytes by which the process had grown since the last capture."""
    seconds: float
    """Duration of the capture. The process was stopped for a part of it at most."""
    means: str
    """Name of the tool that read the stacks."""
    threads: tuple[CapturedThread, ...]


class Stacks(NamedTuple):
    """Content of the file."""

    captures: tuple[Capture, ...]
    """By time."""
    highest: int
    """Largest `level` that was seen between captures too."""
    watched: bool
    """True if stacks were requested."""
    problems: tuple[str, ...]


NO_STACKS = Stacks((), 0, False, ())


def write_stacks(directory: Path, stacks: Stacks) -> None:
    """Replace the file. Raises `OSError`."""
    document = {
        "schema": SCHEMA,
        "highest": stacks.highest,
        "problems": stacks.problems,
        "captures": [
            {
                **capture._asdict(),
                "threads": [
                    {**thread._asdict(), "frames": [frame[:3] for frame in thread.frames]}
                    for thread in capture.threads
                ],
            }
            for capture in stacks.captures
        ],
    }
    path = directory / STACKS_FILE
    temporary = directory / f".{STACKS_FILE}.{os.getpid()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(strict_json.dumps(document, separators=(",", ":")).encode())
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise


def read_stacks(directory: str | os.PathLike[str]) -> Stacks:
    """Return the captures of a run; `NO_STACKS` if it has none, or if the file is damaged or too large."""
    try:
        with os.fdopen(open_regular(os.path.join(directory, STACKS_FILE)), "rb") as file:
            if os.fstat(file.fileno()).st_size > _MAX_BYTES:
                return NO_STACKS
            document = parse(file.read(_MAX_BYTES))
    except (OSError, ValueError):
        return NO_STACKS
    if not isinstance(document, dict):
        return NO_STACKS
    listed = document.get("captures")
    found = [_capture(one) for one in (listed if isinstance(listed, list) else [])[-MOST_CAPTURES:]]
    captures = sorted((one for one in found if one is not None), key=lambda one: one.time)
    highest = max([whole(document.get("highest")) or 0, *(one.level for one in captures)])
    return Stacks(tuple(captures), highest, True, texts(document.get("problems"))[:MOST_CAPTURES])


def _capture(value: Any) -> Capture | None:
    if not isinstance(value, dict):
        return None
    time, pid = moment(value.get("time")), whole(value.get("pid"))
    listed = value.get("threads")
    threads = [_thread(one) for one in (listed if isinstance(listed, list) else [])[:MOST_THREADS]]
    kept = tuple(one for one in threads if one is not None and one.frames)
    if time is None or pid is None or not kept:
        return None
    sizes = {key: max(0, whole(value.get(key)) or 0) for key in ("level", "before", "after", "grown")}
    seconds = max(0.0, moment(value.get("seconds")) or 0.0)
    return Capture(
        time=time,
        pid=pid,
        command=_short(value.get("command")),
        seconds=seconds,
        means=_short(value.get("means")),
        threads=kept,
        **sizes,
    )


def _thread(value: Any) -> CapturedThread | None:
    if not isinstance(value, dict):
        return None
    listed = value.get("frames")
    rows = [
        row for row in (listed if isinstance(listed, list) else [])[:MOST_FRAMES] if isinstance(row, list)
    ]
    frames = tuple(
        StackFrame(_short(row[0]), _short(row[1]), max(0, whole(row[2]) or 0))
        for row in rows
        if len(row) == 3
    )
    name = _short(value.get("name"))
    return CapturedThread(
        whole(value.get("id")) or 0, name, value.get("active") is True, whole(value.get("faults")), frames
    )


def _short(value: Any) -> str:
    return (text(value) or "")[:MOST_CHARACTERS]


def bounded(frames: Sequence[StackFrame]) -> tuple[StackFrame, ...]:
    """Return the frames within `MOST_FRAMES`: of a deep recursion the innermost and the outermost calls."""
    if len(frames) > MOST_FRAMES:
        outer = MOST_FRAMES // 4
        frames = [*frames[: MOST_FRAMES - outer], *frames[-outer:]]
    return tuple(
        frame._replace(function=frame.function[:MOST_CHARACTERS], file=frame.file[:MOST_CHARACTERS])
        for frame in frames
    )
