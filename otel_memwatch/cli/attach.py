"""`attach`: record a running process."""

from __future__ import annotations

import os

import click

from otel_memwatch.cli.click_options import CommandWithSettings, setting_options
from otel_memwatch.config import settings
from otel_memwatch.errors import UsageError
from otel_memwatch.monitor.run.attach import attach
from otel_memwatch.reports.phrases import process_name
from otel_memwatch.runtime.terminal import say

_LISTED = 5
_NAME = 60


@click.command(cls=CommandWithSettings)
@setting_options("attach")
@click.option("--ready-fd", type=int, hidden=True, help="Descriptor that gets a byte after the first sample.")
@click.option("--stop-fd", type=int, hidden=True, help="Descriptor: its end of file ends the recording.")
@click.option("--prepared", is_flag=True, hidden=True, help="The run directory exists and is for this run.")
@click.argument("process", metavar="PID|NAME")
def command(
    process: str, ready_fd: int | None, stop_fd: int | None, *, prepared: bool, **given: object
) -> None:
    """Record process PID and its descendants until it ends, or until Ctrl-C.

    Earlier peaks are included if the kernel keeps them. The process is not disturbed. NAME must match exactly one running
    program or script.
    """
    pid = int(process) if process.isascii() and process.isdecimal() else _find(process)
    attach(pid, settings("attach", given), say, ready_fd=ready_fd, stop_fd=stop_fd, prepared=prepared)


def _find(name: str) -> int:
    """Return the PID of the only process of a program or script. Raises `UsageError` unless there is exactly one."""
    import psutil

    found: list[tuple[int, list[str]]] = []
    ours = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    for process in psutil.process_iter(["pid", "name", "cmdline"]):
        details = process.info
        argv = details["cmdline"] or []
        # Name of the program, and of the script after its interpreter.
        names = {details["name"], *(os.path.basename(word) for word in argv[:2])}
        if name in names and details["pid"] not in ours:
            found.append((details["pid"], argv or [details["name"]]))
    if not found:
        raise UsageError(f"No process of the name {name!r} runs.", "attach wants a PID; ps lists them")
    if len(found) > 1:
        listed = ", ".join(f"{pid}: {process_name(None, argv, _NAME)}" for pid, argv in found[:_LISTED])
        more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
        raise UsageError(
            f"{len(found)} processes are called {name!r}.", f"name one by its PID: {listed}{more}"
        )
    return found[0][0]
