"""Where a run is recorded, and what it is called."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from otel_memwatch.errors import UsageError
from otel_memwatch.record.directory import create_directory

RUNS_DIRECTORY = "memwatch-runs"
"""Default parent of run directories, in the working directory."""


def run_name(program: str) -> str:
    """A name that no other run has: UTC time to the second, program, our pid."""
    base = re.sub(r"[^A-Za-z0-9._+-]+", "_", os.path.basename(program)).strip("._") or "run"
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{base[:60]}-{os.getpid()}"


def make_run_directory(out: str | None, argv: Sequence[str], say: Callable[[str], None]) -> Path:
    """Creates the run directory and gives its absolute path.

    A directory that was asked for has to be possible: `UsageError` where it is not. The default one gives way to
    one in the temporary directory, told in one line, where the working directory cannot be written: that must
    not keep the command from running.
    """
    if out is not None:
        path = Path(os.path.abspath(out))
        create_directory(path)
        return path
    name = run_name(argv[0])
    path = Path(os.path.abspath(RUNS_DIRECTORY)) / name
    try:
        create_directory(path)
    except UsageError as refused:
        import tempfile

        path = Path(tempfile.gettempdir()) / f"{RUNS_DIRECTORY}-{os.getuid()}" / name
        create_directory(path)
        say(f"otel-memwatch: {refused.message} Recording in {path}.")
    return path
