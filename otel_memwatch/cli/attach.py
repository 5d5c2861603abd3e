"""`attach`: record a running process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from otel_memwatch.cli.click_options import CommandWithSettings, setting_options
from otel_memwatch.config import settings
from otel_memwatch.errors import UsageError
from otel_memwatch.monitor.run.attach import attach
from otel_memwatch.reports.phrases import process_name
from otel_memwatch.runtime.terminal import say

if TYPE_CHECKING:
    from collections.abc import Mapping

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

    Earlier peaks are included if the kernel keeps them. The process is not disturbed. NAME is that of a running program
    or script. Workers that share the name of their parent belong to it.
    """
    pid = int(process) if process.isascii() and process.isdecimal() else _find(process)
    attach(pid, settings("attach", given), say, ready_fd=ready_fd, stop_fd=stop_fd, prepared=prepared)


def _find(name: str) -> int:
    """Return the PID of the program or script of this name: the topmost, if its descendants share the name.

    Raises `UsageError` if no process has the name, or if several unrelated ones have it.
    """
    import psutil

    argv_of: dict[int, list[str]] = {}
    parents: dict[int, int] = {}
    ours = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    for process in psutil.process_iter(["pid", "ppid", "name", "cmdline"]):
        details = process.info
        pid, argv = details["pid"], details["cmdline"] or []
        parents[pid] = details["ppid"] or 0
        # Name of the program, and of the script after its interpreter.
        names = {details["name"], *(os.path.basename(word) for word in argv[:2])}
        if name in names and pid not in ours:
            argv_of[pid] = argv or [details["name"]]
    found = [pid for pid in argv_of if not _descends_from_any(pid, argv_of, parents)]
    if not found:
        raise UsageError(f"No process of the name {name!r} runs.", "attach wants a PID; ps lists them")
    if len(found) > 1:
        listed = ", ".join(f"{pid}: {process_name(None, argv_of[pid], _NAME)}" for pid in found[:_LISTED])
        more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
        raise UsageError(
            f'Cannot attach to "{name}": {len(found)} unrelated processes have this name ({listed}{more}).',
            "pass one of these PIDs",
        )
    return found[0]


def _descends_from_any(pid: int, ancestors: Mapping[int, object], parents: Mapping[int, int]) -> bool:
    """Return whether an ancestor of the process is in `ancestors`. Processes are read one by one, so loops are possible."""
    seen = {pid}
    while (pid := parents.get(pid, 0)) and pid not in seen:
        if pid in ancestors:
            return True
        seen.add(pid)
    return False
