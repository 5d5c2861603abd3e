"""`attach`: record a running process."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING

import click

from otel_memwatch.cli.command_group import CommandWithSettings, setting_options
from otel_memwatch.config import parse_seconds, settings
from otel_memwatch.errors import UsageError
from otel_memwatch.monitor.run.attach import attach, attach_group, attach_named
from otel_memwatch.monitor.run_cgroup.target_groups import KINDS, find_group
from otel_memwatch.reports.phrases import process_name
from otel_memwatch.runtime.own_python import command_line
from otel_memwatch.runtime.terminal import say

if TYPE_CHECKING:
    from collections.abc import Mapping

_LISTED = 5
_NAME = 60


@click.command(cls=CommandWithSettings)
@setting_options("attach")
@click.option("--cgroup", metavar="PATH", help="Record all processes of this cgroup.")
@click.option("--unit", metavar="NAME", help="Record a systemd unit: nginx, nginx.service, run-1.scope.")
@click.option(
    "--container", metavar="NAME|ID", help="Record a container of Docker, podman, containerd or CRI-O."
)
@click.option("--pod", metavar="NAME|UID", help="Record a pod of Kubernetes or podman.")
@click.option("--job", metavar="ID", help="Record the part of a Slurm job on this machine.")
@click.option(
    "--restart-wait",
    metavar="SECONDS",
    help="Wait this long for the target to start again, and record it as a further run; 0: do not wait. "
    "--out names one run, and so turns this off. Default: 60 for a unit, container, pod or job, 0 for a NAME.",
)
@click.option(
    "--remote-exec",
    is_flag=True,
    help="Run a script in targets of Python 3.14 and later that reads how much memory the allocator keeps: at most "
    "once in 5 s, later once in 10 minutes. Nothing runs in a target without this option. "
    "Requires the right to trace it.",
)
@click.option("--ready-fd", type=int, hidden=True, help="Descriptor that gets a byte after the first sample.")
@click.option("--stop-fd", type=int, hidden=True, help="Descriptor: its end of file ends the recording.")
@click.option("--prepared", is_flag=True, hidden=True, help="The run directory exists and is for this run.")
@click.argument("process", metavar="[PID|NAME]", required=False)
def command(
    process: str | None,
    ready_fd: int | None,
    stop_fd: int | None,
    restart_wait: str | None,
    *,
    prepared: bool,
    remote_exec: bool,
    **given: object,
) -> None:
    """Record process PID and its descendants until it ends, or until Ctrl-C.

    Earlier peaks are included if the kernel keeps them. The process is not disturbed. NAME is that of a running program
    or script. Workers that share the name of their parent belong to it.

    For a unit, container, pod or job, the run covers its cgroup: all processes in it, and the memory that the
    kernel limits. The group's high-water mark is read and never reset.
    """
    asked = {kind: str(name) for kind in KINDS if (name := given.pop(kind)) is not None}
    if len(asked) + (process is not None) != 1:
        raise UsageError(
            "attach needs one target.", f"pass a PID, a NAME, or one of --{', --'.join(KINDS)}; see --help"
        )
    # No variable of the environment may run code in a target, so this is no setting.
    options = settings("attach", given) | {"remote_exec": remote_exec}
    try:
        patience = parse_seconds(restart_wait or ("60" if asked else "0"))
    except ValueError as error:
        raise UsageError(f"--restart-wait: {error}.") from None
    if options["out"] or "cgroup" in asked:  # a path has no manager that starts it again
        patience = 0.0
    if asked:
        ((kind, name),) = asked.items()
        again = attach_group(find_group(kind, name), options, say, patience)
    elif patience and process is not None and not _is_pid(process):
        again = attach_named(process, partial(_find, process), options, say, patience)
    else:
        assert process is not None
        pid = int(process) if _is_pid(process) else _find(process)
        attach(pid, options, say, ready_fd=ready_fd, stop_fd=stop_fd, prepared=prepared)
        again = False
    if again:
        # A new process: a recording leaves threads, signal handlers and memory behind.
        run_again = command_line(*sys.argv[1:])
        os.execv(run_again[0], run_again)  # noqa: S606 - there is no shell to start it with


def _is_pid(process: str) -> bool:
    return process.isascii() and process.isdecimal()


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
        raise UsageError(f'No process has the name "{name}".', "pass a PID; ps lists them")
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
