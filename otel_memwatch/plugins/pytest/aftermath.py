"""What the monitor says when the tests were killed: which one was running, and what it had."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from otel_memwatch.record.format import OPERATIONS_PREFIX, OPERATIONS_SUFFIX
from otel_memwatch.record.jsonl import parse
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_TAIL = 1 << 16
"""Bytes of the end of a process's operations in which what is open has to begin."""


def main(arguments: Sequence[str]) -> None:
    """Prints one line on stderr where the process ended in the middle of a test; `arguments` are those of `attach`."""
    directory = next(a.partition("=")[2] for a in arguments if a.startswith("--out="))
    pid = next(a for a in arguments if a.isdecimal())
    if _is_open(os.path.join(directory, f"{OPERATIONS_PREFIX}{pid}{OPERATIONS_SUFFIX}")):
        text = words_about(Path(directory))
        if text is not None:
            sys.stderr.write(f"otel-memwatch: pytest {text}\n")


def _is_open(path: str) -> bool:
    """Whether the last operations of a file were never closed."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            lines = file.read().split(b"\n")
    except OSError:
        return False
    opened = set()
    for text in lines:
        line = parse(text) if text else None
        if isinstance(line, dict):
            opened.add(line.get("open"))
            opened.discard(line.get("close"))
    return bool(opened - {None})


def words_about(directory: Path) -> str | None:
    """How the process that was recorded there ended, in which test and with how much memory; `None`: in none."""
    from otel_memwatch.analysis import load
    from otel_memwatch.errors import MemwatchError
    from otel_memwatch.reports.formatting import peak_sentence, shell_word

    try:
        run = load(directory)
        still_open = [figures for figures in run.operations if figures.operation.status == "open"]
        if not still_open:
            return None
        innermost = still_open[-1]
        kills = run.ending.oom_kills
    except MemwatchError:
        return None
    how = "was killed by the kernel's OOM killer" if kills else "ended"
    peak = innermost.tree_peak or innermost.operation.peak
    return (
        f"{how} in the middle of {innermost.operation.name}, which had {peak_sentence(peak)}: "
        f"otel-memwatch report {shell_word(str(directory))}"
    )
