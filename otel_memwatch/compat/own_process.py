"""Reports and pictures made in a process of their own: what that needs must not become part of what is measured."""

from __future__ import annotations

import subprocess
from pathlib import Path

from otel_memwatch.errors import MemwatchError
from otel_memwatch.runtime.own_python import python_command

_SECONDS = 600.0


def run_in_own_process(module: str, *arguments: str | Path, description: str = "") -> str:
    """Calls `main(arguments)` of a module in a new Python, with `description` on its stdin; gives what it printed.

    Raises `MemwatchError` when it failed: with the last line that it wrote to stderr.
    """
    command = python_command(module, *map(str, arguments))
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
