"""Report of a killed test process: the running test and its memory. The monitor or the xdist controller prints it."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from pathlib import Path

from otel_memwatch.record.format import OPERATIONS_PREFIX, OPERATIONS_SUFFIX, RUN_FILE
from otel_memwatch.record.jsonl import parse
from otel_memwatch.record.operation_line import decode
from otel_memwatch.record.operation_lines import OperationLines
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.model import Peak

_TAIL = 1 << 16
"""Bytes at the end of a process's operations file. Open operations must begin within them."""
_END_SECONDS = 3.0
"""Time limit for the record of a dead process to become complete."""


def main(arguments: Sequence[str]) -> None:
    """Print one line on stderr if the process died during a test; `arguments` are those of `attach`."""
    directory = Path(next(a.partition("=")[2] for a in arguments if a.startswith("--out=")))
    pid = int(next(a for a in arguments if a.isdecimal()))
    death = death_in(directory, pid)
    if death is not None:
        say(f"otel-memwatch: pytest {death.words}\n")


def say(line: str, stderr: int = 2) -> None:
    """Write a line to pytest's stderr; to a file at its end, and not at all if another program has truncated the file.

    pytest has ended, so its shell may have opened the same file again for the next command. A write at the old offset
    would then overwrite the output of that command, or leave a hole of zero bytes before the line.
    """
    status = os.fstat(stderr)
    if stat.S_ISREG(status.st_mode):
        if os.lseek(stderr, 0, os.SEEK_CUR) > status.st_size:
            return
        # Permissions may forbid a second descriptor.
        with contextlib.suppress(OSError), open(f"/proc/self/fd/{stderr}", "ab") as file:
            file.write(os.fsencode(line))
            return
    os.write(stderr, os.fsencode(line))


class KilledTest(NamedTuple):
    """A test during which its process ended."""

    words: str
    peak: Peak | None
    """Memory of the test with its children; `None` if unknown."""


def death_in(directory: Path, pid: int | None = None) -> KilledTest | None:
    """Return the test during which a recorded process ended, with its memory; `None` if no test was running.

    `pid` selects the process; `None` selects any.
    """
    from otel_memwatch.text import peak_sentence, shell_word

    name = "*" if pid is None else pid
    for path in directory.glob(f"{OPERATIONS_PREFIX}{name}{OPERATIONS_SUFFIX}"):
        found = _left_open(path)
        if found is not None:
            test, peak = found
            kills, whole = _of_record(directory, test)
            how = "was killed by the kernel's OOM killer" if kills else "ended"
            memory = whole or peak
            size = "unknown" if memory is None else peak_sentence(memory._replace(source="", evidence=()))
            words = f"{how} during {test}; memory: {size}"
            return KilledTest(f"{words}; recorded in {shell_word(str(directory))}", memory)
    return None


def wait_for_end(directory: Path) -> None:
    """Wait until the record of a process that has just died is complete, because the cause of death is written last.

    Waits at most 3 s, and not at all if there is no record or its monitor was killed too.
    """
    from otel_memwatch.record.run_info_schema import RunInfo
    from otel_memwatch.run.ending import state_of

    until = time.monotonic() + _END_SECONDS
    while time.monotonic() < until:
        try:
            info = parse((directory / RUN_FILE).read_bytes())
        except OSError:
            return
        if not isinstance(info, dict) or state_of(RunInfo.of(info), directory) != "running":
            return
        time.sleep(0.02)


def _left_open(path: Path) -> tuple[str, Peak | None] | None:
    """Return name and last known peak of the innermost operation that was never closed."""
    lines = OperationLines(0)
    try:
        with open(path, "rb") as file:
            header = file.readline()
            size = file.seek(0, 2)
            file.seek(max(len(header), size - _TAIL))
            texts = [header, *file.read().split(b"\n")]
    except OSError:
        return None
    # Damaged: a partial line, or the end of an operation that began before the tail.
    lines.add(decode([text for text in texts if text.strip()]))
    still_open = lines.still_open()
    return (still_open[-1].name, still_open[-1].peak) if still_open else None


def _of_record(directory: Path, test: str) -> tuple[int | None, Peak | None]:
    """Return the number of OOM kills and the peak of the test and its children; `None` without a complete record."""
    from otel_memwatch.errors import MemwatchError
    from otel_memwatch.run import load

    if not (directory / RUN_FILE).is_file():
        return None, None
    try:
        run = load(directory)
        peaks = [figures.tree_peak for figures in run.operations if figures.operation.name == test]
        return run.ending.oom_kills, peaks[-1] if peaks else None
    except MemwatchError:
        return None, None
