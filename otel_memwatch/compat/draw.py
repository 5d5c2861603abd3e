"""Draws and reports in a process of its own: what that needs must not become part of what is measured.

Its arguments: `log LOG IMAGE [TITLE]` draws a memory log; `phases IMAGE` and `phases-report` draw and print the timeline
of the selection on stdin (JSON: a run directory, and the fields of `qefficient.phases.timeline.Selection`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from otel_memwatch.errors import MemwatchError
from otel_memwatch.runtime.own_python import python_command

if TYPE_CHECKING:
    from otel_memwatch.compat.qefficient.phases import Timeline

_SECONDS = 600.0


def run_out_of_process(*arguments: str | Path, description: str = "") -> str:
    """Runs this module and gives what it printed. Raises `MemwatchError` when it failed."""
    command = python_command(__name__, *map(str, arguments))
    try:
        done = subprocess.run(
            command, input=description.encode(), capture_output=True, check=False, timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MemwatchError(f"The report cannot be made: {error}.") from None
    if done.returncode != 0:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or [
            f"exit code {done.returncode}"
        ]
        raise MemwatchError(f"The report cannot be made: {last[0]}")
    return done.stdout.decode()


def draw(*arguments: str | Path, description: str = "") -> None:
    """Draws. Raises `MemwatchError` when nothing was drawn."""
    run_out_of_process(*arguments, description=description)


def main(arguments: list[str]) -> None:
    """The process's own part."""
    what, *rest = arguments
    try:
        if what == "log":
            from otel_memwatch.compat.nncf.monitor_log import plot

            plot(Path(rest[0]), Path(rest[1]), rest[2] if len(rest) > 2 else "")
        elif what == "phases":
            from otel_memwatch.compat.qefficient.phases.figure import save

            save(_timeline(), Path(rest[0]))
        else:
            from otel_memwatch.compat.qefficient.phases.text import report

            sys.stdout.buffer.write(report(_timeline()).encode())
    except (MemwatchError, OSError) as error:
        sys.exit(str(error))


def _timeline() -> Timeline:
    from otel_memwatch.analysis import load
    from otel_memwatch.compat.qefficient.phases.timeline import Selection, timeline

    fields = json.load(sys.stdin)
    run = load(fields.pop("run"))
    return timeline(run, Selection(**fields))
