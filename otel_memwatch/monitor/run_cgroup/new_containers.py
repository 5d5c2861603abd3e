"""Search for the container that a client starts: `docker run`, `podman run`, `nerdctl run`, `kubectl run`.

A daemon may start the container, so it is no descendant of the client. It is a cgroup with a main process younger
than the client. Others may start containers at the same time, so one of these has to identify it:

| engine | sign |
| --- | --- |
| podman | its process beside the container becomes our child |
| docker, nerdctl | `--cidfile`, else `--name`, else image and command, as files of the engine show them |
| kubectl | the name of the pod, if it runs on this machine |
"""

from __future__ import annotations

import os
import re
from itertools import pairwise
from pathlib import Path

from otel_memwatch.errors import UsageError
from otel_memwatch.monitor.run_cgroup.target_groups import (
    TargetGroup,
    container_of,
    find_group,
    ids_of_command,
    ids_of_container,
    innermost,
)
from otel_memwatch.runtime.kernel import read_once
from otel_memwatch.runtime.procfs.control_group import (
    ancestors,
    locate,
    oldest_member,
    parse_memberships,
    parse_mounts,
)
from otel_memwatch.runtime.procfs.process import parse_stat
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_memwatch.run.container_client import Client

_SHORT_ID = 12
_OF_POD = re.compile(rb"[0-9a-f]{12}-infra")
"""Name that podman gives the container that holds a pod's namespaces."""


def find_new(client: Client, pid: int, proc: str = "/proc") -> TargetGroup | None:
    """Return the cgroup that the client has started; `None`: none yet, or no sign that one is of the client."""
    if client.engine == "kubectl":
        try:
            return None if client.name is None else find_group("pod", client.name, proc)
        except UsageError:
            return None
    found = _begun_since(pid, proc)
    ids = _ids(client) if found and client.engine != "podman" else set()
    for path, version in found.items():
        container = container_of(path) or ""
        if container in ids or (client.engine == "podman" and _descends(path, os.getppid(), proc)):
            name = client.name or container[:_SHORT_ID]
            return TargetGroup("container", name, innermost(path), version, born=True)
    return None


def _ids(client: Client) -> set[str]:
    """Return the IDs that a container of the client can have."""
    file = client.option("--cidfile")
    if file is not None:
        try:
            return {Path(file).read_text("utf-8", "replace").strip()}
        except OSError:  # it is not written yet
            return set()
    return ids_of_command(client.words) if client.name is None else ids_of_container(client.name)


def _begun_since(pid: int, proc: str) -> dict[str, int]:
    """Return the groups of containers with a main process younger than a process, with their versions."""
    began = _start(pid, proc)
    mounts = parse_mounts(read_once(f"{proc}/self/mountinfo"))
    found = {}
    for entry in os.listdir(proc):
        # The kernel assigns PIDs in rising order, and starts again at the end of their range.
        if not entry.isdigit() or (int(entry) < pid and int(entry) > 1000):
            continue
        try:
            location = locate(parse_memberships(read_once(f"{proc}/{entry}/cgroup")), mounts, "memory")
        except (OSError, ValueError):
            continue
        if location is None:
            continue
        # The innermost one: a pod of podman, and a container around all of us, have such names too.
        path = next((group for group in ancestors(location) if container_of(group)), None)
        main = None if path is None else oldest_member(path, proc)
        start = None if main is None or _is_conmon(main, proc) else _start(main, proc)
        if path is not None and began is not None and start is not None and start >= began:
            found[path] = location.version
    return found


def _is_conmon(pid: int, proc: str) -> bool:
    """Return whether a process is podman's own beside a container, which a pod without systemd has in its group."""
    try:
        return read_once(f"{proc}/{pid}/comm") == b"conmon\n"
    except OSError:
        return False


def _start(pid: int, proc: str) -> int | None:
    try:
        return parse_stat(read_once(f"{proc}/{pid}/stat")).start
    except (OSError, ValueError):
        return None


def _descends(path: str, ancestor: int, proc: str) -> bool:
    """Return whether a container's main process descends from a process: podman's do, a daemon's do not.

    The container that holds a pod's namespaces (`podman run --pod new:NAME`) does not count. It has no command of the client.
    """
    pid = oldest_member(path, proc)
    while pid is not None and pid > 1:
        try:
            pid = parse_stat(read_once(f"{proc}/{pid}/stat")).ppid
        except (OSError, ValueError):
            return False
        if pid == ancestor:
            return True
        if _is_of_pod(pid, proc):
            return False
    return False


def _is_of_pod(pid: int, proc: str) -> bool:
    """Return whether a process is podman's conmon of the container that holds a pod's namespaces, by the container's name."""
    try:
        words = read_once(f"{proc}/{pid}/cmdline").split(b"\0")
    except OSError:
        return False
    return any(flag == b"-n" and _OF_POD.fullmatch(name) for flag, name in pairwise(words))
