"""A control group made for one run: its watermark is the exact peak of the whole tree.

It is made only where the hierarchy is ours to use: as a child of our own version 1 group, or in a version 2 subtree that
has been delegated to us. What a service manager owns is never reorganised, and no process but our own is moved. Where
there is no such place, `service_manager` may be given a group to use.
"""

from __future__ import annotations

import contextlib
import os
import select
from pathlib import Path

from otel_memwatch.errors import Unavailable
from otel_memwatch.runtime.procfs.control_group import (
    Location,
    ancestors,
    locate,
    parse_keyed,
    parse_limit,
    parse_memberships,
    parse_mounts,
)
from otel_memwatch.runtime.procfs.process import is_exiting

PREFIX = "memwatch-"
"""Names of our groups: this, the pid of their maker, its pid namespace, and a random part."""
LEAF = "memwatch-monitor-"
"""Names of the groups that we move ourselves to where version 2 demands it."""

_ENTRANCES = {1: "tasks", 2: "cgroup.procs"}
"""Where a process enters. Moving whole processes (cgroup.procs) waits until every processor has passed through the
scheduler (synchronize_rcu under cgroup_threadgroup_rwsem); moving single threads (tasks), of which a process that was
just forked has one, does not. Version 2 has no such file for groups that count memory."""

_NO_LIMIT = {
    "memory.max": "max",
    "memory.high": "max",
    "memory.swap.max": "max",
    "memory.zswap.max": "max",
    "cpu.max": "max",
    "cpu.weight": "100",
    "cpu.idle": "0",
    "cpuset.cpus": "",
    "cpuset.mems": "",
    "io.max": "",
    "io.latency": "",
}
"""How the files of a group begin that limits nothing. pids.max is left out: systemd sets it everywhere."""

_DELEGATED = ("user.delegate", "trusted.delegate")
"""Extended attributes by which systemd marks a delegated subtree."""
_MANAGED = (".slice", ".scope", ".service")
"""Endings of the names of the groups that systemd owns."""


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _write(path: str, text: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text)
    finally:
        os.close(fd)


def _reason(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)


def systemd_runs() -> bool:
    """Whether systemd is what runs this machine or container, by systemd's own sign (sd_booted)."""
    return os.path.isdir("/run/systemd/system")


def _what_would_help() -> str:
    if systemd_runs():
        return "systemd-run --user --scope -p Delegate=yes gives one that may be used"
    return "root, or a control group that root has given to this user"


class OwnCgroup:
    """The run's own control group. Made by `create`, entered by the target's `add_self`, ended by `remove`.

    `given`: it is a service manager's, which has moved the target into it and removes it.
    """

    def __init__(self, path: str, version: int, leaf: str | None = None, *, given: bool = False) -> None:
        self.path = Path(path)
        self.version = version
        self._leaf = leaf
        self._given = given
        self._entrance = os.open(f"{path}/{_ENTRANCES[version]}", os.O_WRONLY | os.O_CLOEXEC)
        peak, self._events = (
            ("memory.max_usage_in_bytes", "memory.oom_control")
            if version == 1
            else ("memory.peak", "memory.events")
        )
        try:
            self._peak = os.open(f"{path}/{peak}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            os.close(self._entrance)
            raise

    @classmethod
    def create(
        cls,
        proc: Path = Path("/proc"),
        sys: Path = Path("/sys"),  # noqa: ARG003 - as all sources
        *,
        limit: int | None = None,
    ) -> OwnCgroup:
        """Make the group, with a `limit` in bytes. Raises `Unavailable` where there can be none. Cost: a millisecond, once."""
        try:
            memberships = parse_memberships(_read(f"{proc}/self/cgroup"))
            mounts = parse_mounts(_read(f"{proc}/self/mountinfo"))
            group = _make(locate(memberships, mounts, "memory"))
            if limit is not None:
                try:
                    group.set_limit(limit)
                except Unavailable:
                    group.remove()
                    raise
            return group
        except OSError as error:
            raise Unavailable(
                f"A control group of the run's own could not be made: {_reason(error)}.",
                _what_would_help(),
            ) from None

    def add_self(self) -> None:
        """Put the calling process, which has one thread, into the group. Raises `OSError` where the kernel refuses.

        One write: 30 us on version 1, about 12 ms and at times 100 ms of waiting on version 2.
        """
        os.write(self._entrance, b"0")

    def holds(self, pid: int, proc: Path = Path("/proc")) -> bool | None:
        """Whether a process is in the group or in one below it; `None`: it has ended, or is about to.

        Version 1 tells of a process that is ending that it is in the root group, wherever it was. Cost: 13 us for one that
        is in it, 26 us for one that is not.
        """
        try:
            if self._is_on(_read(f"{proc}/{pid}/cgroup")):
                return True
            return None if is_exiting(_read(f"{proc}/{pid}/stat")) else False
        except OSError:
            return None

    def held(self, cgroup: bytes | None) -> bool | None:
        """As `holds`, of a process that has ended, by its zombie's /proc/PID/cgroup; `None`: version 1 does not tell."""
        return None if cgroup is None or self.version == 1 else self._is_on(cgroup)

    def _is_on(self, cgroup: bytes) -> bool:
        # The name has a random part, so that no other group on the path can be meant.
        return b"/" + os.fsencode(self.path.name) in cgroup

    def pids(self) -> list[int]:
        """Processes in the group itself; none where it is gone."""
        with contextlib.suppress(OSError):
            return [int(pid) for pid in _read(f"{self.path}/cgroup.procs").split()]
        return []

    def all_pids(self) -> list[int]:
        """Processes in the group and in the groups below it."""
        pids = []
        for folder, _, _ in os.walk(self.path):
            with contextlib.suppress(OSError):
                pids += [int(pid) for pid in _read(f"{folder}/cgroup.procs").split()]
        return pids

    def set_limit(self, size: int) -> None:
        """Let it have `size` bytes, swap among them, at most; a smaller limit that it has already stays.

        Raises `Unavailable` where the kernel refuses.
        """
        try:
            now = self.limit()
            size = size if now is None else min(size, now)
            if self.version == 1:
                _write(f"{self.path}/memory.limit_in_bytes", str(size).encode())
                with contextlib.suppress(
                    OSError
                ):  # a kernel may keep no account of swap; then nothing goes there
                    _write(f"{self.path}/memory.swappiness", b"0")
                with contextlib.suppress(FileNotFoundError):
                    _write(f"{self.path}/memory.memsw.limit_in_bytes", str(size).encode())
                return
            _write(f"{self.path}/memory.max", str(size).encode())
            with contextlib.suppress(FileNotFoundError):
                _write(f"{self.path}/memory.swap.max", b"0")
        except OSError as error:
            raise Unavailable(f"The control group takes no limit: {_reason(error)}.") from None

    def tells_of_kills(self) -> tuple[int, int]:
        """A descriptor that becomes readable when the group has no memory left, and the events to poll it for.

        It may do so for want of memory of a group above too: `oom_kills` tells whether somebody was killed. Raises `OSError`.
        """
        if self.version == 2:
            descriptor = os.open(f"{self.path}/{self._events}", os.O_RDONLY | os.O_CLOEXEC)
            os.read(descriptor, 4096)  # what it says by now is no news
            return descriptor, select.POLLPRI
        told = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            control = os.open(f"{self.path}/{self._events}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                _write(f"{self.path}/cgroup.event_control", f"{told} {control}".encode())
            finally:
                os.close(control)
        except OSError:
            os.close(told)
            raise
        return told, select.POLLIN

    def peak(self) -> int:
        """Largest memory charged to the group, in bytes: page cache and kernel memory included, shared pages once.

        Since the last reset, on version 1: the source `cgroup` resets the watermark of a group of the run's own at
        every tick, and its column memwatch.cgroup.memory.peak keeps the maximum of all.
        """
        return int(os.pread(self._peak, 64, 0))

    def oom_kills(self) -> int:
        """Processes of the group that the kernel's OOM killer has killed; 0 on kernels that do not count (before 4.13)."""
        return parse_keyed(_read(f"{self.path}/{self._events}")).get("oom_kill", 0)

    def limit(self) -> int | None:
        """The group's own limit in bytes, as copied from the group above; `None`: none."""
        name = "memory.limit_in_bytes" if self.version == 1 else "memory.max"
        return parse_limit(_read(f"{self.path}/{name}"))

    def remove(self) -> tuple[int, ...]:
        """Remove the group if nothing is left in it; returns the pids that are, which keep it. Idempotent."""
        for fd in (self._entrance, self._peak):
            with contextlib.suppress(OSError):
                os.close(fd)
        self._entrance = self._peak = -1
        try:
            if self._given:
                return tuple(self.pids())
            _remove_tree(str(self.path))
        except OSError:
            return tuple(self.pids())
        if self._leaf is not None:
            _leave(self._leaf)
            self._leaf = None
        return ()


def _remove_tree(path: str) -> None:
    """Remove an empty group and the empty groups that the target made below it. Raises `OSError` when one is in use."""
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(path):
            below = f"{path}/{name}"
            if os.path.isdir(below):
                _remove_tree(below)
        os.rmdir(path)


def _sweep(parent: str) -> None:
    """Remove the empty groups of monitors that were killed."""
    for name in os.listdir(parent):
        maker, _, rest = name.removeprefix(PREFIX).partition("-")
        if name.startswith(PREFIX) and maker.isdigit() and not _lives(maker, rest.partition("-")[0]):
            with contextlib.suppress(OSError):
                os.rmdir(f"{parent}/{name}")


def _lives(pid: str, namespace: str) -> bool:
    """Whether the maker of a group may be alive. Of another pid namespace, its end shows when nobody is left in it."""
    if namespace == _namespace("self"):
        return os.path.exists(f"/proc/{pid}")
    return any(_namespace(name) == namespace for name in os.listdir("/proc") if name.isdigit())


def _namespace(pid: str) -> str:
    """Number of a process's pid namespace; empty where it cannot be read."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid").removeprefix("pid:[").removesuffix("]")
    except OSError:
        return ""


def _make_group(parent: str) -> str:
    path = f"{parent}/{PREFIX}{os.getpid()}-{_namespace('self')}-{os.urandom(3).hex()}"
    os.mkdir(path, 0o755)
    return path


def _make(location: Location | None) -> OwnCgroup:
    if location is None:
        raise Unavailable("No memory control group is mounted.", "mount cgroup2 on /sys/fs/cgroup")
    if location.read_only:
        raise Unavailable(
            f"{location.point} is mounted read-only.", "in a container: mount /sys/fs/cgroup writable"
        )
    return _make_v1(location) if location.version == 1 else _make_v2(location)


def _make_v1(location: Location) -> OwnCgroup:
    parent = location.path
    if _managed(parent) and not _delegated(location):
        raise Unavailable(
            f"{parent} belongs to systemd.", "systemd-run --scope -p Delegate=yes gives a group of one's own"
        )
    if _read(f"{parent}/memory.use_hierarchy").strip() != b"1":
        raise Unavailable(f"{parent} does not count what its children use (memory.use_hierarchy is 0).")
    _sweep(parent)
    path = _make_group(parent)
    try:
        limits = [parse_limit(_read(f"{above}/memory.limit_in_bytes")) for above in ancestors(location)]
        finite = [limit for limit in limits if limit is not None]
        if finite:
            _write(f"{path}/memory.limit_in_bytes", str(min(finite)).encode())
        return OwnCgroup(path, 1)
    except OSError:
        os.rmdir(path)
        raise


def _make_v2(location: Location) -> OwnCgroup:
    if not _delegated(location):
        raise Unavailable(
            f"{location.path} has not been delegated to us.",
            "systemd-run --user --scope -p Delegate=yes COMMAND delegates",
        )
    parent, leaf = _parent_v2(location)
    try:
        _sweep(parent)
        path = _make_group(parent)
        try:
            finite = [limit for above in ancestors(location) if (limit := _max(above)) is not None]
            if finite:
                _write(f"{path}/memory.max", str(min(finite)).encode())
            return OwnCgroup(path, 2, leaf)
        except OSError:
            os.rmdir(path)
            raise
    except OSError:
        if leaf is not None:
            _leave(leaf)
        raise


def _max(group: str) -> int | None:
    try:
        return parse_limit(_read(f"{group}/memory.max"))
    except OSError:
        return None


def _parent_v2(location: Location) -> tuple[str, str | None]:
    """The group to make ours in, and the leaf that we had to move to so that it could be one."""
    ours = location.path
    for group in ancestors(location):
        if b"memory" in _read(f"{group}/cgroup.subtree_control").split():
            if os.access(group, os.W_OK) and os.access(f"{group}/cgroup.procs", os.W_OK):
                return group, None
            break
        if any(_attribute(group, name) for name in _DELEGATED) or _is_kept_to(group):
            break
    if b"memory" not in _read(f"{ours}/cgroup.controllers").split():
        raise Unavailable(
            f"{ours} has no memory controller.", "enable it in cgroup.subtree_control of the group above"
        )
    if _read(f"{ours}/cgroup.procs").split() != [str(os.getpid()).encode()]:
        raise Unavailable(
            f"{ours} holds other processes than ours, which we do not move.", "start in a scope of one's own"
        )
    leaf = f"{ours}/{LEAF}{os.getpid()}"
    os.mkdir(leaf, 0o755)
    try:
        _write(f"{leaf}/cgroup.procs", b"0")
        _write(f"{ours}/cgroup.subtree_control", b"+memory")
    except OSError:
        _leave(leaf)
        raise
    return ours, leaf


def _is_kept_to(group: str) -> bool:
    """Whether the target must not be beside a group, but below it: there it would be neither counted nor limited by it.

    A service is restarted and ended as the group that it is; a group of ours is another run's; a limit was set by somebody.
    """
    name = group.rpartition("/")[2]
    return name.endswith(".service") or is_of_a_run(name) or limit_of(group) is not None


def is_of_a_run(name: str) -> bool:
    """Whether a group of this name was made for a run, of whichever monitor."""
    return name.startswith(PREFIX) and name.removeprefix(PREFIX)[:1].isdigit()


def limit_of(group: str) -> str | None:
    """The first limit that a group of version 2 sets, as "file value"; `None`: none."""
    for name, none in _NO_LIMIT.items():
        try:
            value = _read(f"{group}/{name}").decode("ascii", "replace").strip()
        except OSError:  # the controller is off
            continue
        if not value.startswith(none) if none else value:
            return f"{name} {value}"
    return None


def _leave(leaf: str) -> None:
    """Move ourselves back from the leaf to the group above, as it was."""
    above = leaf[: leaf.rindex("/")]
    with contextlib.suppress(OSError):
        _write(f"{above}/cgroup.subtree_control", b"-memory")
        _write(f"{above}/cgroup.procs", b"0")
    with contextlib.suppress(OSError):
        os.rmdir(leaf)


def _managed(path: str) -> bool:
    return any(part.endswith(_MANAGED) for part in path.split("/"))


def _attribute(path: str, name: str) -> bool:
    try:
        return os.getxattr(path, name) == b"1"
    except OSError:
        return False


def _delegated(location: Location) -> bool:
    """Whether the group, or one above it, was given to us: marked by systemd, or the writable root of a container."""
    if any(_attribute(group, name) for group in ancestors(location) for name in _DELEGATED):
        return True
    container_root = location.path == location.point.rstrip("/") and os.path.exists(
        f"{location.path}/cgroup.type"
    )
    return (
        container_root and os.access(f"{location.path}/cgroup.procs", os.W_OK) and not _managed(location.path)
    )
