"""Search for the cgroup of a unit, a container, a pod or a batch job.

A group is found by the cgroups of running processes (/proc/PID/cgroup, readable by every user). No service manager or
container engine is asked. Only names of containers and pods come from files that their engines keep:

| engine | file |
| --- | --- |
| Docker | /var/lib/docker/containers/ID/config.v2.json; root reads it |
| podman, CRI-O | containers.json of containers/storage, of root or of the user |
| nerdctl | /var/lib/nerdctl/ADDRESS/names/NAMESPACE/NAME |
| Kubernetes | /var/log/containers/POD_NAMESPACE_CONTAINER-ID.log, /var/log/pods/NAMESPACE_POD_UID |
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from glob import glob
from pathlib import Path

from otel_memwatch.errors import UsageError
from otel_memwatch.monitor.run_cgroup.own_cgroup import systemd_runs
from otel_memwatch.runtime.kernel import read_once
from otel_memwatch.runtime.procfs.control_group import (
    Location,
    Mount,
    groups_below,
    locate,
    parse_memberships,
    parse_mounts,
)
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


KINDS = ("cgroup", "unit", "container", "pod", "job")
"""Kinds of targets, as the options of `attach` name them."""

_SHOWN = 5
_ID = re.compile(r"(?:^|[-:])([0-9a-f]{64})(?:\.scope)?$")
"""Component of a container: docker-ID.scope, libpod-ID.scope, cri-containerd-ID.scope, crio-ID.scope, or the plain ID."""
_MONITORS = ("libpod-conmon-", "crio-conmon-")
"""Prefixes of scopes for the process beside a container that waits for it."""
_POD = re.compile(
    r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})(?:\.slice)?$"
)
"""Component of a Kubernetes pod, with its UID."""
_PODMAN_POD = re.compile(r"(?:libpod_pod_|^)([0-9a-f]{64})(?:\.slice)?$")
"""Component of a podman pod: a slice of systemd, or the plain ID."""
_SHORTEST_ID = 4
_HEXADECIMAL = re.compile(r"[0-9a-f-]+")


class TargetGroup(NamedTuple):
    """A cgroup as target."""

    kind: str
    """One of `KINDS`."""
    name: str
    """Name by which the user asked for it, with the suffix of a unit."""
    path: str
    """Directory of the group."""
    version: int
    born: bool = False
    """It began during the run, empty."""


def container_of(path: str) -> str | None:
    """Return the ID of the container with this group, or `None`."""
    part = os.path.basename(path)
    found = None if part.startswith(_MONITORS) else _ID.search(part)
    return None if found is None else found[1]


def find_group(kind: str, name: str, proc: str = "/proc") -> TargetGroup:
    """Return the group. Raises `UsageError` if none, or several, have the name, or if memory is not counted for it."""
    mounts = parse_mounts(read_once(f"{proc}/self/mountinfo"))
    if kind == "cgroup":
        return _at(name, mounts)
    if kind == "unit" and "." not in name:
        name += ".service"
    matches = _matcher(kind, name)
    found: dict[str, Location] = {}
    elsewhere = False
    for data in _memberships(proc):
        memberships = parse_memberships(data)
        location = locate(memberships, mounts, "memory")
        path = None if location is None else cut(location, matches)
        if location is not None and path is not None:
            found[path] = location
        elsewhere = elsewhere or any(
            any(matches(part) for part in membership.path.split("/") if part) for membership in memberships
        )
    if not found:
        raise _absent(kind, name, in_other_hierarchy=elsewhere)
    if len(found) > 1:
        listed = ", ".join(sorted(found)[:_SHOWN]) + (" ..." if len(found) > _SHOWN else "")
        raise UsageError(
            f'Cannot attach to {kind} "{name}": {len(found)} cgroups match ({listed}).',
            "pass one of these with --cgroup",
        )
    path, location = found.popitem()
    return TargetGroup(kind, name, innermost(path), location.version)


def _memberships(proc: str) -> Iterable[bytes]:
    """Yield /proc/PID/cgroup of each process, each content once."""
    seen = set()
    for entry in os.listdir(proc):
        if entry.isdigit():
            try:
                data = read_once(f"{proc}/{entry}/cgroup")
            except OSError:
                continue
            if data not in seen:
                seen.add(data)
                yield data


def _matcher(kind: str, name: str) -> Callable[[str], bool]:
    """Return a test of one component of a group's path."""
    if kind == "unit":
        return lambda part: part == name
    if kind == "job":
        return lambda part: part == f"job_{name}"

    by_id = len(name) >= _SHORTEST_ID and _HEXADECIMAL.fullmatch(name) is not None
    if kind == "container":
        ids = ids_of_container(name)

        def is_container(part: str) -> bool:
            found = container_of(part)
            return found is not None and (found in ids or (by_id and found.startswith(name)))

        return is_container
    uids = uids_of_pod(name)

    def is_pod(part: str) -> bool:
        found = _POD.search(part) or _PODMAN_POD.search(part)
        uid = None if found is None else found[1].replace("_", "-")
        return uid is not None and (uid in uids or (by_id and uid.startswith(name)))

    return is_pod


def cut(location: Location, matches: Callable[[str], bool]) -> str | None:
    """Return the directory of the outermost matching component; `None`: none matches."""
    point = location.point.rstrip("/")
    path = point
    for part in location.path[len(point) :].split("/"):
        path = f"{path}/{part}" if part else path
        if part and matches(part):
            return path
    return None


def innermost(path: str) -> str:
    """Return the only group below that holds all processes, or the group itself.

    podman runs a container in a group "container" of its scope. Counts of the innermost group are never late. Processes that
    begin or end there do not matter.
    """
    while len(below := groups_below(path)) == 1 and not _has_processes(path):
        path = below[0]
    return path


def _has_processes(path: str) -> bool:
    """Return whether processes are in the group itself, not below it."""
    with contextlib.suppress(OSError):
        return bool(read_once(f"{path}/cgroup.procs").strip())
    return False


def _absent(kind: str, name: str, *, in_other_hierarchy: bool) -> UsageError:
    if in_other_hierarchy:
        return UsageError(
            f'The memory of {kind} "{name}" is not counted separately.',
            "for a unit, set MemoryAccounting=yes and restart it",
        )
    if kind == "unit" and not systemd_runs():
        return UsageError(f'systemd does not run here, so there is no unit "{name}".', "pass a PID or a NAME")
    hints = {
        "unit": "systemctl list-units lists them",
        "container": "pass its ID, or run as the user that started it",
        "pod": "pass its UID: kubectl get pod NAME -o jsonpath={.metadata.uid}; of podman, its ID: podman pod ps",
        "job": "run this on a node of the job; Slurm needs TaskPlugin=task/cgroup",
    }
    return UsageError(f'No process of {kind} "{name}" runs here.', hints[kind])


def _at(path: str, mounts: Sequence[Mount]) -> TargetGroup:
    """Return the group at a path: its directory, or its path below the mount of its hierarchy."""
    hierarchies = [mount for mount in mounts if mount.version == 2 or "memory" in mount.controllers]
    for mount in hierarchies:
        for directory in (os.path.realpath(path), os.path.normpath(f"{mount.point}/{path}")):
            inside = directory.startswith(f"{mount.point.rstrip('/')}/")
            usage = "memory.usage_in_bytes" if mount.version == 1 else "memory.current"
            if inside and os.access(f"{directory}/{usage}", os.R_OK):
                return TargetGroup("cgroup", path, directory, mount.version)
    if not os.path.isdir(path):
        raise UsageError(f"There is no cgroup {path}.", "pass a directory below /sys/fs/cgroup")
    raise UsageError(
        f"{path} does not count memory.", "pass a cgroup with the memory controller, below the root"
    )


_LARGEST = 64 << 20
"""Bytes of a file of an engine that is read."""


def ids_of_container(name: str, root: str = "/") -> set[str]:
    """Return the IDs of containers of this name; several engines may have one. In Kubernetes, also "pod/container"."""
    return {found for found, names in _containers(Path(root)) if name in names}


def ids_of_command(words: Sequence[str], root: str = "/") -> set[str]:
    """Return the IDs of Docker's containers with an image among the words of `docker run`, and the command after it."""
    found = set()
    for path in Path(root).glob("var/lib/docker/containers/*/config.v2.json"):
        content = _json(path)
        config = content.get("Config") if isinstance(content, dict) else None
        image = config.get("Image") if isinstance(config, dict) else None
        if isinstance(config, dict) and isinstance(image, str) and image in words:
            command = list(words[words.index(image) + 1 :])
            if not command or command == config.get("Cmd"):
                found.add(path.parent.name)
    return found


def uids_of_pod(name: str, root: str = "/") -> set[str]:
    """Return the UIDs of pods of this name, or "namespace/name"."""
    uids = set()
    for entry in glob(f"{root}/var/log/pods/*_*_*"):
        namespace, pod, uid = os.path.basename(entry).split("_", 2)
        if name in (pod, f"{namespace}/{pod}"):
            uids.add(uid)
    return uids


def _containers(root: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the ID of each container with its names."""
    for path in root.glob("var/lib/docker/containers/*/config.v2.json"):
        config = _json(path)
        if isinstance(config, dict) and isinstance(config.get("Name"), str):
            yield path.parent.name, (config["Name"].lstrip("/"),)
    data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    for storage in (root / "var/lib/containers/storage", root / data.lstrip("/") / "containers/storage"):
        for path in storage.glob("*-containers/*containers.json"):
            entries = _json(path)
            for entry in entries if isinstance(entries, list) else ():
                if isinstance(entry, dict) and isinstance(entry.get("id"), str):
                    yield entry["id"], tuple(filter(_is_text, entry.get("names") or ()))
    for path in root.glob("var/lib/nerdctl/*/names/*/*"):
        with contextlib.suppress(OSError):
            yield path.read_text("utf-8", "replace").strip(), (path.name,)
    for path in root.glob("var/log/containers/*_*_*-*.log"):
        pod, _, rest = path.name.removesuffix(".log").split("_", 2)
        container, _, found = rest.rpartition("-")
        yield found, (container, f"{pod}/{container}")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _json(path: Path) -> object:
    """Return the content of a file; `None` if it is unreadable, too large or no JSON."""
    try:
        return None if path.stat().st_size > _LARGEST else json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
