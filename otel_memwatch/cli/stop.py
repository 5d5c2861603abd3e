"""`stop`: stop recording a process that keeps running."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import click

from otel_memwatch.errors import RunError, UsageError
from otel_memwatch.record.format import RUN_FILE, RUNNING
from otel_memwatch.record.open import read_info
from otel_memwatch.record.run_info_schema import RunInfo
from otel_memwatch.run.ending import is_monitor_visible, monitor_lives, state_of
from otel_memwatch.text import from_here
from otel_memwatch.wings.index.find import find_running
from otel_memwatch.wings.index.run_search import run_directories

_PATIENCE = 60.0
"""Longest wait for the end of the record, in seconds."""
_POLL_SECONDS = 0.05


@click.command()
@click.argument("run", required=False)
def command(run: str | None) -> None:
    """Stop recording RUN, a run of `attach` or watch(). The recorded process keeps running.

    RUN is a run directory, the name of a run, or the PID of the recorded process. Without RUN, it is the newest run. The record
    is complete when the command returns. If the target has ended and `attach` waits for it to start again, it waits no longer.
    """
    path = find_running(run)
    here = from_here(path)
    fields = RunInfo.of(read_info(path / RUN_FILE))
    waits = (state := state_of(fields, path)) == "finished" and _waits(path, fields)
    if state != "running" and not waits:
        why = "its monitor died" if state == "incomplete" else "it is finished"
        raise UsageError(f"{here} is not being recorded: {why}.")
    pid = fields.monitor.pid
    if not is_monitor_visible(fields) or pid is None:
        raise UsageError(f"{here} is recorded on another machine or in another container.", "stop it there")
    if fields.monitor.mode not in ("attach", "watch"):
        # wrap passes the signal on to its command.
        raise UsageError(
            f"{here} is recorded by wrap, which ends with its command.", f"kill {fields.target.pid} ends both"
        )
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        pass  # it has just ended
    except PermissionError:
        raise UsageError(
            f"The monitor of {here} (PID {pid}) belongs to another user.", "run stop as that user"
        ) from None
    deadline = time.monotonic() + _PATIENCE
    while (
        monitor_lives(fields)
        if waits
        else state_of(RunInfo.of(read_info(path / RUN_FILE)), path) == "running"
    ):
        if time.monotonic() > deadline:
            raise UsageError(f"The monitor of {here} (PID {pid}) has not ended within {_PATIENCE:.0f} s.")
        time.sleep(_POLL_SECONDS)
    click.echo(f"Stopped. otel-memwatch report {here}")


def _waits(path: Path, fields: RunInfo) -> bool:
    """Return whether the monitor of a finished run waits for another process, and has not begun a further run."""
    if fields.monitor.mode != "attach" or not is_monitor_visible(fields) or not monitor_lives(fields):
        return False
    for other in run_directories(str(path.parent)):
        with contextlib.suppress(RunError):
            found = RunInfo.of(read_info(Path(other, RUN_FILE)))
            if found.state == RUNNING and found.monitor.pid == fields.monitor.pid:
                return False
    return True
