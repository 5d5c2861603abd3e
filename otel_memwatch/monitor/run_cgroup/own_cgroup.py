"""Cgroup made for one run. Its high-water mark is the exact peak of the whole tree.

- We create it only in a hierarchy that we may use: below our version 1 cgroup, or in a version 2 subtree delegated to us.
- We never reorganise a service manager's cgroups and move only our own process.
- If no such place exists, `service_manager` may request a cgroup.
"""

from __future__ import annotations

import errno
import gc
import os
import resource
import select
import time

from otel_memwatch.errors import Unavailable
from otel_memwatch.runtime.kernel import packets, read_once
from otel_memwatch.runtime.light import suppress
from otel_memwatch.runtime.procfs.control_group import (
    Location,
    ancestors,
    first_threads,
    own_location,
    parse_keyed,
    parse_limit,
)
from otel_memwatch.runtime.procfs.process import is_exiting

PREFIX = "memwatch-"
"""Prefix of our cgroups' names. The maker's pid, its pid namespace and a random part follow."""
LEAF = "memwatch-monitor-"
"""Prefix of the cgroups that we move ourselves to if version 2 requires it."""

_ENTRANCES = {1: "tasks", 2: "cgroup.procs"}
"""File through which a process enters.

Moving a whole process (cgroup.procs) waits until every processor has passed through the scheduler (synchronize_rcu under
cgroup_threadgroup_rwsem). Moving a single thread (tasks) does not, and a process that was just forked has only one.
Version 2 has no such file for cgroups that count memory."""

_LIMIT_FILES = {1: "memory.limit_in_bytes", 2: "memory.max"}

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
"""Initial text of the files of a cgroup without limits. systemd sets pids.max everywhere, so it is omitted."""

_DYING_SECONDS = 0.5
"""Longest wait for processes that are ending, before the cgroup is left to the next run."""
_SWAP_ROOM = 1 << 20
"""Bytes by which memory with swap may exceed the limit (version 1). It is charged first, but new kernels (seen with
6.18) do not count there what fails. `kills_at_limit` needs the count, so the limit without swap has to be the smaller one."""
_INITIAL_NAMESPACE = "4026531836"
"""Number of the machine's first pid namespace (PROC_PID_INIT_INO of the kernel)."""
_DELEGATED = ("user.delegate", "trusted.delegate")
"""Extended attributes by which systemd marks a delegated subtree."""
_MANAGED = (".slice", ".scope", ".service")
"""Suffixes of systemd's cgroups."""
_DELEGATING = "systemd-run --user --scope -p Delegate=yes otel-memwatch ..."
"""Command that gets a delegated cgroup."""


def _write(path: str, text: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text)
    finally:
        os.close(fd)


def _reason(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)


_ROUNDS = 20
"""Most counts of page faults until one is like the one before."""


def own_faults() -> int:
    """Return the page faults of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_minflt + usage.ru_majflt


def enter(entrance: int) -> int:
    """Put the calling process, which has one thread, into the cgroup of this descriptor. Return its page faults before that.

    The process becomes another program next, and collects no garbage until then. One write: 30 us on version 1, about 12 ms
    on version 2, with occasional waits of 100 ms. Raises `OSError` if the kernel refuses.
    """
    # After a fork, each first use of a page is a fault. The last round, with a pipe, had none between count and entry.
    gc.disable()
    reader, writer = os.pipe()
    faults, before = own_faults(), -1
    for _ in range(_ROUNDS):
        if faults == before:
            break
        os.write(writer, b"0")
        before, faults = faults, own_faults()
    os.write(entrance, b"0")
    os.close(reader)
    os.close(writer)
    return faults


def systemd_runs() -> bool:
    """Return whether systemd manages this machine or container, checked as sd_booted(3) does."""
    return os.path.isdir("/run/systemd/system")


class UnusableDelegation(Unavailable):
    """A cgroup that is delegated to us, but cannot be divided. More delegation would not help."""


class OwnCgroup:
    """Cgroup of the run: `create` makes it, the target enters it with `add_self`, `remove` ends it.

    `given`: it belongs to a service manager, which moves the target into it and removes it.
    """

    def __init__(self, path: str, version: int, leaf: str | None = None, *, given: bool = False) -> None:
        self.path = path
        """Directory of the cgroup."""
        self.version = version
        self._leaf = leaf
        self._given = given
        self.entrance = os.open(f"{path}/{_ENTRANCES[version]}", os.O_WRONLY | os.O_CLOEXEC)
        """Descriptor of the file through which processes enter."""
        self.packets = packets() if version == 2 else None
        """`packets` before the run; `None`: the kernel does not charge them to the cgroup."""
        peak, self._events = (
            ("memory.max_usage_in_bytes", "memory.oom_control")
            if version == 1
            else ("memory.peak", "memory.events")
        )
        try:
            self._peak = os.open(f"{path}/{peak}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            os.close(self.entrance)
            raise

    @classmethod
    def create(
        cls,
        proc: str | os.PathLike[str] = "/proc",
        *,
        limit: int | None = None,
    ) -> OwnCgroup:
        """Make the cgroup, with a `limit` in bytes. Raises `Unavailable` if that is impossible. Costs 1 ms, once."""
        try:
            group = _make(own_location(proc))
            if limit is not None:
                try:
                    group.set_limit(limit)
                except Unavailable:
                    group.remove()
                    raise
            return group
        except OSError as error:
            hint = _DELEGATING if systemd_runs() else "run as root, or in a cgroup delegated to you"
            if isinstance(error, PermissionError):
                raise Unavailable("This user may not create cgroups.", hint) from None
            raise Unavailable(f"Cannot create a cgroup for the run: {_reason(error)}.", hint) from None

    def add_self(self) -> int:
        """Put the calling process into the cgroup (`enter`)."""
        return enter(self.entrance)

    def holds(self, pid: int, proc: str | os.PathLike[str] = "/proc") -> bool | None:
        """Return whether a process is in the cgroup or below it; `None`: it has ended, or is about to.

        Version 1 reports the root cgroup for an ending process. Costs 13 us for a process inside, 26 us for one outside.
        """
        try:
            if self._is_on(read_once(f"{proc}/{pid}/cgroup")):
                return True
            return None if is_exiting(read_once(f"{proc}/{pid}/stat")) else False
        except OSError:
            return None

    def held(self, cgroup: bytes | None) -> bool | None:
        """Return `holds` for an ended process, from its zombie's /proc/PID/cgroup; `None`: unknown (version 1)."""
        return None if cgroup is None or self.version == 1 else self._is_on(cgroup)

    def _is_on(self, cgroup: bytes) -> bool:
        # The random part of the name excludes any other cgroup on the path.
        return b"/" + os.fsencode(self.path.rpartition("/")[2]) in cgroup

    def pids(self) -> list[int]:
        """Return the processes in the cgroup itself; none if it is gone."""
        with suppress(OSError):
            return [int(pid) for pid in read_once(f"{self.path}/cgroup.procs").split()]
        return []

    def first_threads(self) -> frozenset[int]:
        """Return the processes with their first thread in the cgroup itself, in one reading; none if it is gone."""
        return first_threads(self.path, self.version)

    def all_pids(self) -> list[int]:
        """Return the processes in the cgroup and below it."""
        return _pids_below(self.path)

    def kill(self) -> None:
        """Kill all processes in the cgroup and below it at once, if the kernel can do that (version 2, since 5.14)."""
        if self.version == 2:
            with suppress(OSError):
                _write(f"{self.path}/cgroup.kill", b"1")

    def freeze(self, *, frozen: bool) -> None:
        """Stop all processes in the cgroup and below it, or let them go on (version 2). SIGKILL ends a stopped one."""
        if self.version == 2:
            with suppress(OSError):
                _write(f"{self.path}/cgroup.freeze", b"1" if frozen else b"0")

    def set_limit(self, size: int) -> None:
        """Limit the cgroup to `size` bytes, including swap. A smaller existing limit stays.

        Raises `Unavailable` if the kernel refuses.
        """
        try:
            now = self.limit()
            size = size if now is None else min(size, now)
            _write(f"{self.path}/{_LIMIT_FILES[self.version]}", str(size).encode())
            if self.version == 1:
                # The kernel may not account for swap. Then the cgroup uses none.
                with suppress(OSError):
                    _write(f"{self.path}/memory.swappiness", b"0")
                with suppress(FileNotFoundError):
                    _write(f"{self.path}/memory.memsw.limit_in_bytes", str(size + _SWAP_ROOM).encode())
                return
            with suppress(FileNotFoundError):
                _write(f"{self.path}/memory.swap.max", b"0")
        except OSError as error:
            raise Unavailable(f"The cgroup takes no limit: {_reason(error)}.") from None

    def out_of_memory_events(self) -> tuple[int, int]:
        """Return a descriptor that becomes readable when the cgroup runs out of memory, and the events to poll it for.

        A shortage in an enclosing cgroup triggers it too: check `kills_at_limit`. Raises `OSError`.
        """
        if self.version == 2:
            descriptor = os.open(f"{self.path}/{self._events}", os.O_RDONLY | os.O_CLOEXEC)
            os.read(descriptor, 4096)  # consume the events so far
            return descriptor, select.POLLPRI
        event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            control = os.open(f"{self.path}/{self._events}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                _write(f"{self.path}/cgroup.event_control", f"{event} {control}".encode())
            finally:
                os.close(control)
        except OSError:
            os.close(event)
            raise
        return event, select.POLLIN

    @staticmethod
    def read_events(descriptor: int) -> dict[str, int]:
        """Read a descriptor of `out_of_memory_events`, which reports again only then; return the counts (version 2)."""
        with suppress(OSError, ValueError):
            os.lseek(descriptor, 0, os.SEEK_SET)
            return parse_keyed(os.read(descriptor, 4096))
        return {}

    def peak(self) -> int:
        """Return the largest memory charged to the cgroup, in bytes, with page cache and kernel memory, shared pages once.

        On version 1 it counts since the last reset. The source `cgroup` resets the high-water mark of the run's cgroup at
        every sample; its column memwatch.cgroup.memory.peak keeps the overall maximum.
        """
        return int(os.pread(self._peak, 64, 0))

    def oom_kills(self) -> int:
        """Return the number of processes that the OOM killer killed here; 0 on kernels that do not count (before 4.13)."""
        return parse_keyed(read_once(f"{self.path}/{self._events}")).get("oom_kill", 0)

    def kills_at_limit(self) -> int:
        """Return `oom_kills` if memory ran out at this cgroup's limit; 0 if only at an enclosing limit. Raises `OSError`.

        Version 1 does not count this, only how often the limit was reached. Memory may have been reclaimed then: if a limit
        around it is exceeded later, its kills are counted too.
        """
        counts = parse_keyed(read_once(f"{self.path}/{self._events}"))
        reached = counts.get("oom", 0)
        if self.version == 1:
            reached = int(read_once(f"{self.path}/memory.failcnt"))
        return counts.get("oom_kill", 0) if reached else 0

    def limit(self) -> int | None:
        """Return the cgroup's limit in bytes, as copied from its parents; `None`: none."""
        return parse_limit(read_once(f"{self.path}/{_LIMIT_FILES[self.version]}"))

    def remove(self) -> tuple[int, ...]:
        """Remove the cgroup if it is empty, else return the pids that keep it. Idempotent."""
        for fd in (self.entrance, self._peak):
            with suppress(OSError):
                os.close(fd)
        self.entrance = self._peak = -1
        if self._given:
            return tuple(self.pids())
        until = time.monotonic() + _DYING_SECONDS
        while True:
            try:
                _remove_tree(self.path)
                break
            except OSError as error:
                # A process that is ending keeps its cgroup, and cgroup.procs no longer lists it.
                pids = tuple(self.pids())
                if pids or error.errno != errno.EBUSY or time.monotonic() >= until:
                    return pids
                time.sleep(0.002)
        if self._leaf is not None:
            _leave(self._leaf)
            self._leaf = None
        return ()


def _pids_below(path: str) -> list[int]:
    """Return the processes in a cgroup and below it."""
    pids = []
    for folder, _, _ in os.walk(path):
        with suppress(OSError):
            pids += [int(pid) for pid in read_once(f"{folder}/cgroup.procs").split()]
    return pids


def _remove_tree(path: str) -> None:
    """Remove an empty cgroup and the empty ones that the target made below it. Raises `OSError` if one is in use."""
    with suppress(FileNotFoundError):
        try:
            os.rmdir(path)  # mostly there is none below: a cgroup of version 1 lists 31 files
        except OSError:
            for name in os.listdir(path):
                below = f"{path}/{name}"
                if os.path.isdir(below):
                    _remove_tree(below)
            os.rmdir(path)


def sweep(parent: str) -> None:
    """Remove the cgroups of killed monitors, with all cgroups below them, unless a process is in one of these.

    A monitor that was killed while it ended its run may have left the processes frozen (version 2): they go on.
    """
    for name in os.listdir(parent):
        maker, _, rest = name.removeprefix(PREFIX).partition("-")
        if name.startswith(PREFIX) and maker.isdigit() and not _lives(maker, rest.partition("-")[0]):
            path = f"{parent}/{name}"
            with suppress(OSError):
                if not _pids_below(path):
                    _remove_tree(path)
                elif read_once(f"{path}/cgroup.freeze").strip() == b"1":
                    _write(f"{path}/cgroup.freeze", b"0")


def _lives(pid: str, namespace: str) -> bool:
    """Return whether the maker of a cgroup may be alive: in another pid namespace, while any process of it may be.

    Only the initial namespace shows the processes of all. A container that can write to the machine's cgroups must not
    take the monitors outside for dead. A process with an unreadable namespace may be of any, except the first process.
    """
    ours = _namespace("self")
    if namespace == ours != "":
        return os.path.exists(f"/proc/{pid}")
    if ours != _INITIAL_NAMESPACE:
        return True
    others = [name for name in os.listdir("/proc") if name.isdigit() and name != "1"]
    return any(_namespace(name) in (namespace, "") for name in others)


def _namespace(pid: str) -> str:
    """Return the number of a process's pid namespace; empty if unreadable."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid").removeprefix("pid:[").removesuffix("]")
    except OSError:
        return ""


def _make(location: Location | None) -> OwnCgroup:
    if location is None:
        raise Unavailable("No cgroup with a memory controller is mounted.", "mount cgroup2 on /sys/fs/cgroup")
    if location.read_only:
        raise Unavailable(
            f"{location.point} is mounted read-only.", "in a container: mount /sys/fs/cgroup writable"
        )
    if location.version != 1:
        return _make_v2(location)
    parent = location.path
    if _managed(parent) and not _delegated(location):
        raise Unavailable(
            f"{parent} belongs to systemd.", "systemd-run --scope -p Delegate=yes otel-memwatch ..."
        )
    if read_once(f"{parent}/memory.use_hierarchy").strip() != b"1":
        raise Unavailable(f"{parent} does not count its children's memory (memory.use_hierarchy is 0).")
    return _make_below(parent, location)


def _make_v2(location: Location) -> OwnCgroup:
    if not _delegated(location):
        raise Unavailable(
            f"{location.path} is not delegated to this user.",
            _DELEGATING,
        )
    parent, leaf = _parent_v2(location)
    try:
        return _make_below(parent, location, leaf)
    except OSError:
        if leaf is not None:
            _leave(leaf)
        raise


def _make_below(parent: str, location: Location, leaf: str | None = None) -> OwnCgroup:
    """Make the run's cgroup below `parent`, with the smallest limit of our cgroup and its ancestors."""
    sweep(parent)
    path = f"{parent}/{PREFIX}{os.getpid()}-{_namespace('self')}-{os.urandom(3).hex()}"
    os.mkdir(path, 0o755)
    file = _LIMIT_FILES[location.version]
    limits = []
    try:
        for above in ancestors(location):
            with suppress(OSError):  # the root of version 2 has no such file
                limits.append(parse_limit(read_once(f"{above}/{file}")))
        finite = [limit for limit in limits if limit is not None]
        if finite:
            _write(f"{path}/{file}", str(min(finite)).encode())
        return OwnCgroup(path, location.version, leaf)
    except OSError:
        os.rmdir(path)
        raise


def _parent_v2(location: Location) -> tuple[str, str | None]:
    """Return the cgroup to make ours in, and the leaf that we had to move to for it."""
    ours = location.path
    for group in ancestors(location):
        if b"memory" in read_once(f"{group}/cgroup.subtree_control").split():
            if os.access(group, os.W_OK) and os.access(f"{group}/cgroup.procs", os.W_OK):
                return group, None
            break
        # systemd 252 marks no delegated unit of a user's manager.
        if any(_attribute(group, name) for name in _DELEGATED) or _is_kept_to(group):
            if group != ours and _divide(group):
                return group, None
            break
    if b"memory" not in read_once(f"{ours}/cgroup.controllers").split():
        raise UnusableDelegation(
            f"{ours} has no memory controller.", "enable it in cgroup.subtree_control of the parent cgroup"
        )
    if read_once(f"{ours}/cgroup.procs").split() != [str(os.getpid()).encode()]:
        raise UnusableDelegation(
            f"{ours} holds other processes, which we do not move.",
            "start otel-memwatch as the only process of its unit, container or scope, or in a child cgroup, with DelegateSubgroup=",
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


def _divide(group: str) -> bool:
    """Let the cgroup of a unit without processes count the memory of its children; return whether it does.

    A harness in a child cgroup may start several runs at once, so no run switches the controller off again. A service
    manager divides its slices itself, and the cgroup that has an init.scope.
    """
    try:
        managed = group.endswith(".slice") or os.path.exists(f"{group}/init.scope")
        if managed or read_once(f"{group}/cgroup.procs").split():
            return False
        _write(f"{group}/cgroup.subtree_control", b"+memory")
    except OSError:
        return False
    return True


def _is_kept_to(group: str) -> bool:
    """Return whether the target must stay below a cgroup: beside it, the cgroup would neither count nor limit it.

    That holds for:

    - a service, which systemd restarts and ends as a cgroup
    - one of our cgroups, which is another run's
    - a cgroup with a limit
    """
    name = group.rpartition("/")[2]
    return name.endswith(".service") or is_of_a_run(name) or limit_of(group) is not None


def is_of_a_run(name: str) -> bool:
    """Return whether a monitor made the cgroup of this name for a run."""
    return name.startswith(PREFIX) and name.removeprefix(PREFIX)[:1].isdigit()


def limit_of(group: str) -> str | None:
    """Return the first limit of a version 2 cgroup, as "file value"; `None`: none."""
    for name, none in _NO_LIMIT.items():
        try:
            value = read_once(f"{group}/{name}").decode("ascii", "replace").strip()
        except OSError:  # the controller is off
            continue
        if not value.startswith(none) if none else value:
            return f"{name} {value}"
    return None


def _leave(leaf: str) -> None:
    """Move ourselves back from the leaf to its parent, and restore that."""
    above = leaf[: leaf.rindex("/")]
    with suppress(OSError):
        _write(f"{above}/cgroup.subtree_control", b"-memory")
        _write(f"{above}/cgroup.procs", b"0")
    with suppress(OSError):
        os.rmdir(leaf)


def _managed(path: str) -> bool:
    return any(part.endswith(_MANAGED) for part in path.split("/"))


def _attribute(path: str, name: str) -> bool:
    try:
        return os.getxattr(path, name) == b"1"
    except OSError:
        return False


def _delegated(location: Location) -> bool:
    """Return whether we may use the cgroup: systemd marks it or a parent as delegated, or it is a container's writable root."""
    if any(_attribute(group, name) for group in ancestors(location) for name in _DELEGATED):
        return True
    container_root = location.path == location.point.rstrip("/") and os.path.exists(
        f"{location.path}/cgroup.type"
    )
    return (
        container_root and os.access(f"{location.path}/cgroup.procs", os.W_OK) and not _managed(location.path)
    )
