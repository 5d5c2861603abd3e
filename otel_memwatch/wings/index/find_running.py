"""Search for the run of a process, for commands about a running job."""

from __future__ import annotations

import os
from pathlib import Path

from otel_memwatch.errors import RunError, UsageError
from otel_memwatch.record.fields import mapping, whole
from otel_memwatch.record.format import RUN_DIRECTORY_VARIABLE, RUN_FILE, RUNNING
from otel_memwatch.record.open import read_info
from otel_memwatch.wings.index.find import find_run
from otel_memwatch.wings.index.index import runs_home
from otel_memwatch.wings.index.tree import run_directories

_VARIABLE = f"{RUN_DIRECTORY_VARIABLE}=".encode()


def find_running(given: str | None) -> Path:
    """Return the run directory of a path, the run of a recorded process or monitor given by PID, or the newest run.

    Raises `UsageError` if no run belongs to the process.
    """
    if given is None or not (given.isascii() and given.isdecimal()) or os.path.isdir(given):
        return find_run(given)
    pid = int(given)
    found = _of_environment(pid) or _of_record(pid)
    if found is None:
        raise UsageError(
            f"Process {pid} belongs to no run that can be found from here.",
            f"name its run directory, or record it with: otel-memwatch attach {pid}",
        )
    return found


def _of_environment(pid: int) -> Path | None:
    """Return the run named in the process's environment, which `wrap` sets for its command."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:
        return None
    for variable in variables:
        if variable.startswith(_VARIABLE):
            path = Path(os.fsdecode(variable.removeprefix(_VARIABLE)))
            return path if os.path.isfile(path / RUN_FILE) else None
    return None


def _of_record(pid: int) -> Path | None:
    """Return the run below the default directory with this process as target or monitor."""
    try:
        runs = [Path(path) for path in run_directories(runs_home())]
    except RunError:
        return None
    for path in runs:
        try:
            info = read_info(path / RUN_FILE)
        except RunError:
            continue
        pids = {whole(mapping(info.get(name)).get("pid")) for name in ("target", "monitor")}
        if info.get("state") == RUNNING and pid in pids:
            return path
    return None
