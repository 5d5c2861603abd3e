"""Draws in a process of its own: matplotlib's memory must not become part of what is measured.

`python -m otel_memwatch.compat.draw log LOG IMAGE [TITLE]` draws a memory log;
`python -m otel_memwatch.compat.draw phases IMAGE < DESCRIPTION` a timeline of phases.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from otel_memwatch.errors import MemwatchError

_SECONDS = 300.0


def draw(*arguments: str | Path, description: str = "") -> None:
    """Runs this module. Raises `MemwatchError` when nothing was drawn."""
    package = str(Path(__file__).resolve().parents[2])
    boot = "import sys; sys.path.append(sys.argv.pop(1)); from otel_memwatch.compat.draw import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", boot, package, *map(str, arguments)]
    try:
        done = subprocess.run(
            command,
            input=description,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MemwatchError(f"The picture cannot be drawn: {error}.") from None
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise MemwatchError(f"The picture cannot be drawn: {last[0]}")


def main(arguments: list[str]) -> None:
    """The process's own part."""
    what, *rest = arguments
    try:
        if what == "log":
            from otel_memwatch.reports.monitor_log import plot  # noqa: PLC0415 - one of the two

            plot(Path(rest[0]), Path(rest[1]), rest[2] if len(rest) > 2 else "")
        else:
            from otel_memwatch.reports.phases import from_json  # noqa: PLC0415
            from otel_memwatch.reports.phases.figure import save  # noqa: PLC0415

            save(from_json(sys.stdin.read()), Path(rest[0]))
    except (MemwatchError, OSError) as error:
        sys.exit(str(error))
