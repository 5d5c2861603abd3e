"""Parsers of cgroup files, versions 1 and 2, and the processes of a cgroup."""

from __future__ import annotations

import os

from otel_memwatch.runtime.kernel import PAGE_SIZE, read_once
from otel_memwatch.runtime.light import lru_cache, suppress
from otel_memwatch.runtime.procfs.process import parse_stat
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


UNLIMITED = (1 << 63) - PAGE_SIZE
"""Value for "no limit" in version 1: the largest number of whole pages, in bytes."""


class CgroupMembership(NamedTuple):
    """One line of /proc/PID/cgroup."""

    controllers: frozenset[str]
    """Empty for version 2."""
    path: str
    """Path of the cgroup in its hierarchy, as seen from the reader's cgroup namespace."""


def parse_memberships(data: bytes) -> list[CgroupMembership]:
    """Parse /proc/PID/cgroup; the path may contain colons."""
    groups = []
    for line in data.decode("utf-8", "surrogateescape").splitlines():
        _, controllers, path = line.split(":", 2)
        groups.append(CgroupMembership(frozenset(controllers.split(",")) - {""}, path))
    return groups


class Mount(NamedTuple):
    """A mounted cgroup hierarchy, from /proc/PID/mountinfo."""

    version: int
    """1 or 2."""
    root: str
    """Mounted path within the hierarchy, which is not "/" in many containers."""
    point: str
    controllers: frozenset[str]
    """Options of the hierarchy, including its controllers (version 1)."""
    read_only: bool


def _unescape(path: str) -> str:
    """Undo the octal escapes that mountinfo uses for blanks, tabs, newlines and backslashes."""
    first, *rest = path.split("\\")
    return first + "".join(chr(int(part[:3], 8)) + part[3:] for part in rest)


@lru_cache(1)
def parse_mounts(data: bytes) -> tuple[Mount, ...]:
    """Return the cgroup hierarchies in /proc/PID/mountinfo. At the start of a run several readers parse the same text."""
    mounts = []
    for line in data.decode("utf-8", "surrogateescape").splitlines():
        if " - cgroup" not in line:  # of hundreds on some machines
            continue
        left, _, right = line.partition(" - ")
        before, after = left.split(" "), right.split(" ")
        if len(before) < 6 or len(after) < 3 or after[0] not in ("cgroup", "cgroup2"):
            continue
        options = frozenset(after[2].split(","))
        read_only = "ro" in before[5].split(",") or "ro" in options
        version = 2 if after[0] == "cgroup2" else 1
        mounts.append(Mount(version, _unescape(before[3]), _unescape(before[4]), options, read_only))
    return tuple(mounts)


def parse_limit(data: bytes) -> int | None:
    """Return a limit in bytes; `None` for "max" and for version 1's "no limit"."""
    text = data.strip()
    if text == b"max":
        return None
    limit = int(text)
    return None if limit >= UNLIMITED else limit


def parse_keyed(data: bytes) -> dict[str, int]:
    """Parse lines of a name and a number: memory.stat, memory.events, cpu.stat, memory.oom_control ..."""
    pairs = (line.split() for line in data.decode().splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}


def parse_key(data: bytes, name: bytes) -> int | None:
    """Return one number of such a file without parsing the others; `None` if missing."""
    at = data.find(b"\n" + name + b" ")
    if at < 0:
        if not data.startswith(name + b" "):
            return None
        at = -1
    begin = at + len(name) + 2
    end = data.find(b"\n", begin)
    return int(data[begin:] if end < 0 else data[begin:end])


class Location(NamedTuple):
    """Location of a cgroup in the file system."""

    version: int
    point: str
    """Mount point of its hierarchy, which is the highest visible cgroup."""
    path: str
    """Directory of the cgroup."""
    read_only: bool


def locate(
    memberships: list[CgroupMembership], mounts: Sequence[Mount], controller: str | None
) -> Location | None:
    """Return the location of a process's cgroup; `None` if not mounted.

    With a controller, the version 1 hierarchy of that controller is used if mounted, otherwise version 2. Without a
    controller, version 2 is used. In a container that shows paths of the host, the cgroup may be outside the mount; its
    location is then the mounted root.
    """
    candidates = [
        (g, m)
        for g in memberships
        for m in mounts
        if controller and m.version == 1 and controller in m.controllers & g.controllers
    ]
    candidates += [(g, m) for g in memberships for m in mounts if m.version == 2 and not g.controllers]
    for group, mount in candidates:
        root = mount.root.rstrip("/")
        below = "/.." not in group.path and (group.path == root or group.path.startswith(root + "/"))
        inside = group.path[len(root) :].rstrip("/") if below else ""
        return Location(mount.version, mount.point, mount.point.rstrip("/") + inside, mount.read_only)
    return None


def own_location(proc: str | os.PathLike[str] = "/proc") -> Location | None:
    """Return the cgroup that counts this process's memory; `None` if not mounted. Raises `OSError`."""
    memberships = parse_memberships(read_once(f"{proc}/self/cgroup"))
    return locate(memberships, parse_mounts(read_once(f"{proc}/self/mountinfo")), "memory")


def ancestors(location: Location) -> list[str]:
    """Return the directories of the cgroup and its visible ancestors, the cgroup first."""
    point, path = location.point.rstrip("/"), location.path.rstrip("/")
    chain = [path]
    while path != point and path.startswith(point + "/"):
        path = path[: path.rindex("/")]
        chain.append(path)
    return chain


def members(path: str) -> list[int]:
    """Return the PIDs in a group and the groups below it (10 us each); empty if it is gone.

    A process outside our PID namespace has no PID, and is omitted. So is the list of a group that has threads only.
    """
    pids, waiting = [], [path]
    while waiting:
        group = waiting.pop()
        with suppress(OSError):
            pids += [pid for pid in map(int, read_once(f"{group}/cgroup.procs").split()) if pid]
        waiting += groups_below(group)
    return pids


def first_threads(path: str, version: int) -> frozenset[int]:
    """Return the processes with their first thread in the group itself, in one reading; none if it is gone.

    Version 1 lists the threads: a process may have left threads behind.
    """
    with suppress(OSError):
        return frozenset(map(int, read_once(f"{path}/{'tasks' if version == 1 else 'cgroup.procs'}").split()))
    return frozenset()


def groups_below(group: str) -> list[str]:
    """Return the groups directly below one: its directory has two links, and one for each of them."""
    try:
        if os.stat(group).st_nlink == 2:
            return []
        return [entry.path for entry in os.scandir(group) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def oldest_member(path: str, proc: str = "/proc") -> int | None:
    """Return the living process of a group that began first, its main process; `None`: none lives."""
    starts = []
    for pid in members(path):
        try:
            stat = parse_stat(read_once(f"{proc}/{pid}/stat"))
        except (OSError, ValueError):
            continue
        if stat.state not in ("Z", "X"):
            starts.append((stat.start, pid))
    return min(starts)[1] if starts else None
