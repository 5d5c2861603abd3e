"""Transient systemd scope, as the cgroup of a command started in a login session.

We request it through systemd's `busctl`, once the command's process exists and before it executes the program. The process
waits until systemd has moved it; the monitor does not move. A scope vanishes with its last process, whatever happens to
the monitor.

The command leaves only a session's scope (`session-3.scope`), and only if it neither escapes nor gains a limit:

| cgroup of the caller | manager to ask |
| --- | --- |
| user-1000.slice/session-3.scope, user 1000 | the user's, for a scope in user@1000.service/app.slice |
| user-0.slice/session-3.scope, root | the system's, for a scope beside the session's, in its slice |
| one of these, if it or the new place has a limit | none: the command would escape from it, or gain it |
| a service | none: its manager ends, restarts and accounts for its processes |
| a container, a Slurm step, a pod, a cgroup of another run | none: its maker uses it to count and limit |
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import time

from otel_memwatch.errors import Unavailable
from otel_memwatch.monitor.run_cgroup.own_cgroup import PREFIX, OwnCgroup, is_of_a_run, limit_of, own_faults
from otel_memwatch.runtime import system_calls
from otel_memwatch.runtime.kernel import read_once
from otel_memwatch.runtime.procfs.control_group import own_location
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

PATIENCE = 0.25
"""Longest wait of the command for the service manager, in seconds.

A healthy systemd 252 takes 15 ms. That is 2.5 times as long as `busctl --version`, measured with both emulated.
"""
INSISTENCE = 10.0
"""`PATIENCE` of a run that requires its cgroup."""
_POLL_SECONDS = 0.0005
"""Seconds between two checks for the end of the move."""

_SESSION = re.compile(r"/user\.slice/user-(\d+)\.slice/session-[^/]+\.scope")
_CALL = (
    "call",
    "org.freedesktop.systemd1",
    "/org/freedesktop/systemd1",
    "org.freedesktop.systemd1.Manager",
    "StartTransientUnit",
    "ssa(sv)a(sa(sv))",
)


class ScopeRequest(NamedTuple):
    """Service manager to ask, and the requested place of the scope."""

    socket: str
    """Path of the manager's bus."""
    unit_slice: str
    """Slice of the scope."""
    folder: str
    """Cgroup directory of that slice, which holds its scopes."""


def decide(group: str, point: str, uid: int, run: str = "/run") -> ScopeRequest:
    """Return the manager to ask for a scope for a process of `uid` in `group`, a version 2 cgroup mounted at `point`.

    Raises `Unavailable`, with a hint, if the process must not leave the cgroup. Reads about 20 small files (0.3 ms).
    """
    owner = _session_owner(group, uid)
    above = f"{point}/user.slice/user-{owner}.slice"
    if uid == 0:
        asked = ScopeRequest(f"{run}/dbus/system_bus_socket", f"user-{owner}.slice", above)
        entered: list[str] = []
    else:
        manager = f"{above}/user@{uid}.service"
        folder = f"{manager}/app.slice"
        asked = ScopeRequest(f"{run}/user/{uid}/bus", "app.slice", folder)
        entered = [manager, folder]
        if "memory" not in _read(f"{manager}/cgroup.controllers").split():
            raise Unavailable(
                f"The service manager of user {uid} counts no memory.",
                f"set Delegate=memory in user@{uid}.service",
            )
    for limited in [f"{point}{group}", *entered]:
        # Sessions and users' managers do not limit the number of processes by default.
        processes = _read(f"{limited}/pids.max")
        limit = limit_of(limited) or (f"pids.max {processes}" if processes not in ("", "max") else None)
        if limit is not None:
            raise Unavailable(
                f"{limited.rpartition('/')[2]} has a limit ({limit}), which the command must not escape.",
                "systemd-run --scope -p Delegate=yes with the same limit",
            )
    if not os.path.exists(f"{above}/memory.peak"):
        raise Unavailable(
            "This kernel has no high-water mark for cgroups of version 2.", "use Linux 5.19 or newer"
        )
    if not os.path.exists(asked.socket):
        raise Unavailable(
            f"There is no service manager on {asked.socket}.", "install the package dbus-user-session"
        )
    return asked


def _session_owner(group: str, uid: int) -> int:
    """Return the owner of a session's cgroup. Raises `Unavailable` for another cgroup, or one that `uid` must not leave."""
    session = _SESSION.fullmatch(group)
    name = group.rpartition("/")[2] or "/"
    if session is None:
        if is_of_a_run(name):
            raise Unavailable(f"The cgroup {name} is another run's, which must count this run as well.")
        hint = "systemd-run --user --scope -p Delegate=yes" if uid else "systemd-run --scope -p Delegate=yes"
        if name.endswith(".service"):
            hint = f"set Delegate=yes in the unit {name}"
        raise Unavailable(
            f"The command must stay in the cgroup {name}, which accounts for its processes.", hint
        )
    owner = int(session[1])
    if uid not in (0, owner):
        raise Unavailable(
            f"The session {name} belongs to another user.", "log in as the user who runs the command"
        )
    return owner


def _read(path: str) -> str:
    try:
        return read_once(path).decode("ascii", "replace").strip()
    except OSError:
        return ""


def find() -> ScopeRequest | None:
    """Return the manager to ask for a scope for a child of this process; `None` if version 2 does not count memory.

    Raises `Unavailable` if no manager can be asked, or if the process must not leave its cgroup.
    """
    # A manager of another pid namespace would move another process with the same pid.
    if _read("/proc/1/comm") != "systemd":
        raise Unavailable("Process 1 is not systemd.", "run outside of the container")
    if _busctl() is None:
        raise Unavailable("systemd's busctl is not installed.", "install the package systemd")
    try:
        location = own_location()
    except OSError as error:
        raise Unavailable(f"{error.filename}: {error.strerror}.") from None
    if location is None or location.version != 2:
        return None
    return decide(location.path.removeprefix(location.point), location.point, os.getuid())


def _busctl() -> str | None:
    """Return the path of the system's busctl. The first in PATH may belong to another systemd (conda has one)."""
    paths = ("/usr/bin/busctl", "/bin/busctl", "/run/current-system/sw/bin/busctl")
    return next((path for path in paths if os.access(path, os.X_OK)), None)


class Scope:
    """Scope for one process. The parent requests it after the fork; the child waits for it."""

    def __init__(self, asked: ScopeRequest, patience: float, limit: int | None = None) -> None:
        """Prepare the request. `limit`: bytes, including swap; `None`: no limit."""
        self._asked = asked
        self._limit = limit
        self._patience = patience
        base = f"{PREFIX}{os.getpid()}-{os.urandom(4).hex()}"
        # systemd before 253 needs a second request, and each request needs a new name.
        self.names = (f"{base}.scope", f"{base}-a.scope")
        self._answers, self._answer = os.pipe()
        self._asking: int | None = None
        self._held = -1
        self.holder: int | None = None
        """PID of a small process that keeps a limited scope in existence until we end: the kernel kills larger ones first."""

    def ask(self, pids: Sequence[int]) -> None:
        """Request a move of our processes into the scope. The parent calls this; it does not wait (1 ms)."""
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            if self._limit is not None:
                reader, self._held = os.pipe()
                try:
                    self.holder = _spawn(["/bin/cat"], reader, null)
                finally:
                    os.close(reader)
                pids = [*pids, self.holder]
            commands = (
                self._command(self.names[0], pids, newer=True),
                self._command(self.names[1], pids, newer=False),
            )
            script = " || ".join(" ".join(f"'{word}'" for word in words) for words in commands)
            self._asking = _spawn(["/bin/sh", "-c", script], null, self._answer)
        finally:
            os.close(null)
            os.close(self._answer)
            self._answer = -1

    def _command(self, name: str, pids: Sequence[int], *, newer: bool) -> tuple[str, ...]:
        """Return the call to systemd, for a scope that treats its processes as the session's scope does."""
        properties = [
            ("Description", "s", "recorded by otel-memwatch"),
            ("Slice", "s", self._asked.unit_slice),
            ("PIDs", "au", str(len(pids)), *map(str, pids)),
            ("DelegateControllers", "as", "1", "memory"),
            ("TasksMax", "t", str(2**64 - 1)),
            ("CollectMode", "s", "inactive-or-failed"),
        ]
        if self._limit is not None:
            properties += [("MemoryMax", "t", str(self._limit)), ("MemorySwapMax", "t", "0")]
        if newer:
            # Without OOMPolicy (253), systemd ends the whole scope after an OOM kill of one process. Without
            # ManagedOOMPreference (248), systemd-oomd, which ignores sessions, may kill the scope.
            properties += [("OOMPolicy", "s", "continue"), ("ManagedOOMPreference", "s", "omit")]
        words = [word for one in properties for word in one]
        return (
            _busctl() or "busctl",
            f"--address=unix:path={self._asked.socket}",
            f"--timeout={int(self._patience * 1000)}ms",
            "--allow-interactive-authorization=no",  # never prompt for a password
            *_CALL,
            name,
            "fail",
            str(len(properties)),
            *words,
            "0",
        )

    def entered(self) -> int:
        """Wait until the calling process is in the scope, at most `PATIENCE`. Return its page faults until it noticed that.

        The child calls this before the program replaces it. Raises `Unavailable` if the wait fails.
        """
        os.close(self._answer)
        end = time.monotonic() + self._patience
        poll = select.poll()
        poll.register(self._answers, select.POLLIN)
        output, ended = b"", False
        faults: int | None = None
        # Wait for the end of busctl too. The parent then does not have to end it or separate its children from the target's.
        while True:
            if faults is None and self._inside():
                faults = own_faults()
            if faults is not None and (ended or time.monotonic() > end):
                return faults
            if time.monotonic() > end:
                raise Unavailable(f"the service manager gave no cgroup within {self._patience:g} s")
            if ended:
                time.sleep(_POLL_SECONDS)
            elif poll.poll(1):
                part = os.read(self._answers, 4096)
                output, ended = output + part, not part
                if ended and b'o "' not in output:
                    lines = output.decode("utf-8", "replace").split("\n")
                    raise Unavailable(f"the service manager gave no cgroup: {' '.join(lines[-2:]).strip()}")

    def _inside(self) -> bool:
        group = read_once("/proc/self/cgroup").rstrip().rpartition(b"/")[2].decode("utf-8", "replace")
        return group in self.names

    def group(self) -> OwnCgroup:
        """Return the scope's cgroup, once a process has entered it. Raises `OSError` if it does not exist."""
        folder = self._asked.folder
        name = next((name for name in self.names if os.path.isdir(f"{folder}/{name}")), self.names[0])
        return OwnCgroup(f"{folder}/{name}", 2, given=True)

    def release(self) -> None:
        """End the process that holds a limited scope; the scope vanishes with its last process."""
        if self.holder is not None:
            os.close(self._held)
            with contextlib.suppress(OSError):  # it is dead and reaped
                if os.waitpid(self.holder, os.WNOHANG)[0] == 0:
                    os.kill(self.holder, signal.SIGKILL)
                    os.waitpid(self.holder, 0)
            self.holder = None

    def close(self) -> None:
        """End the request. The scope itself stays until its last process ends."""
        for fd in (self._answers, self._answer):
            if fd >= 0:
                os.close(fd)
        self._answers = self._answer = -1
        if self._asking is not None:
            with contextlib.suppress(OSError):
                os.killpg(self._asking, signal.SIGKILL)
            # Reap the shell and its children, which are ours now.
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-self._asking, 0):
                    pass
            self._asking = None


def _spawn(command: list[str], reads: int, writes: int) -> int:
    """Start a helper program; return its pid.

    It keeps none of the target's files open: a pipe that the command closes must end then.
    """
    actions: list[tuple[int, int, int] | tuple[int, int]] = [
        (os.POSIX_SPAWN_DUP2, reads, 0),
        (os.POSIX_SPAWN_DUP2, writes, 1),
        (os.POSIX_SPAWN_DUP2, writes, 2),
    ]
    for fd in system_calls.open_files():
        with contextlib.suppress(OSError):
            if fd > 2 and os.get_inheritable(fd):
                actions.append((os.POSIX_SPAWN_CLOSE, fd))
    return os.posix_spawn(
        command[0],
        command,
        {"PATH": "/usr/bin:/bin"},
        file_actions=actions,
        setpgroup=0,  # keeps the terminal's keys away from it
        setsigmask=[],
        setsigdef=[signal.SIGPIPE, signal.SIGTERM, signal.SIGINT],
    )


def trial(asked: ScopeRequest) -> tuple[str, float]:
    """Request a scope for an idle process; return its path and the seconds that it took.

    Raises `Unavailable` if none is available.
    """
    scope = Scope(asked, INSISTENCE)
    begun = time.monotonic()
    entered, enter = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            scope.entered()
            os.write(enter, b".")
            signal.pause()
        os._exit(0)
    os.close(enter)
    try:
        scope.ask([pid])
        if not os.read(entered, 1):
            raise Unavailable(
                "The service manager gave no cgroup.",
                "for the reason, run: otel-memwatch wrap --cgroup require -- true",
            )
        seconds = time.monotonic() - begun
        group = scope.group()
        group.remove()
        return group.path, seconds
    except OSError as error:
        raise Unavailable(f"The service manager's cgroup cannot be read: {error.strerror}.") from None
    finally:
        os.close(entered)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        scope.close()
