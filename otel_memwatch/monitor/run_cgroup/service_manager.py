"""A control group that systemd gives to whoever asks: a transient scope, for a command started in a login session.

It is asked for through systemd's own `busctl`, once the command's process exists and before the program runs in it; the
process waits until it has been moved. The monitor stays where it is. A scope is gone when its last process ends, whatever
became of the monitor.

Only a session's scope (`session-3.scope`) is left for it, and only where nothing is lost or gained by that:

===========================================  ==================================================================
group of the caller                          asked
===========================================  ==================================================================
user-1000.slice/session-3.scope, user 1000   the user's own manager, for a scope in user@1000.service/app.slice
user-0.slice/session-3.scope, root           the system's manager, for a scope beside the session's, in its slice
the same with a limit on the session, or on  nobody: the command would escape from the one limit, or meet the other
the groups that it would be moved into
a service                                    nobody: its manager ends, restarts and accounts for what is in it
a container, a Slurm step, a pod, a group    nobody: whoever made it counts and limits by it
of another run of ours
===========================================  ==================================================================
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import time

from otel_memwatch.errors import Unavailable
from otel_memwatch.monitor.run_cgroup.own_cgroup import PREFIX, OwnCgroup, is_of_a_run, limit_of
from otel_memwatch.runtime import system_calls
from otel_memwatch.runtime.procfs.control_group import locate, parse_memberships, parse_mounts
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PATIENCE = 0.25
"""Seconds that the command waits for the service manager at most.

One that is well (systemd 252) needs 2.5 times as long as `busctl --version`, measured where both are emulated: 15 ms."""
INSISTENCE = 10.0
"""The same where the run must not be without a group of its own."""
_LOOK = 0.0005
"""Seconds between two looks whether the process has been moved."""

_SESSION = re.compile(r"/user\.slice/user-(\d+)\.slice/session-[^/]+\.scope")
_CALL = (
    "call",
    "org.freedesktop.systemd1",
    "/org/freedesktop/systemd1",
    "org.freedesktop.systemd1.Manager",
    "StartTransientUnit",
    "ssa(sv)a(sa(sv))",
)


class Asked(NamedTuple):
    """Whom to ask, and for what."""

    socket: str
    """Path of the bus that the manager is on."""
    unit_slice: str
    """The slice that the scope is to be in."""
    folder: str
    """Directory of the control group of that slice, where its scopes are."""


def decide(group: str, point: str, uid: int, run: str = "/run") -> Asked:
    """Whom to ask for a scope for a process of `uid` in the control group `group` (of version 2, mounted at `point`).

    Raises `Unavailable`, with a hint, where the group must not be left. Reads some twenty small files (0.3 ms).
    """
    owner = _session_owner(group, uid)
    above = f"{point}/user.slice/user-{owner}.slice"
    if uid == 0:
        asked = Asked(f"{run}/dbus/system_bus_socket", f"user-{owner}.slice", above)
        entered: list[str] = []
    else:
        manager = f"{above}/user@{uid}.service"
        folder = f"{manager}/app.slice"
        asked = Asked(f"{run}/user/{uid}/bus", "app.slice", folder)
        entered = [manager, folder]
        if "memory" not in _read(f"{manager}/cgroup.controllers").split():
            raise Unavailable(
                f"The manager of user {uid} counts no memory.", f"Delegate=memory in user@{uid}.service"
            )
    for limited in [f"{point}{group}", *entered]:
        limit = limit_of(limited) or _tasks(limited)
        if limit is not None:
            raise Unavailable(
                f"{limited.rpartition('/')[2]} has a limit of its own ({limit}), to which the command keeps.",
                "systemd-run --scope -p Delegate=yes with the same limit",
            )
    if not os.path.exists(f"{above}/memory.peak"):
        raise Unavailable("This kernel keeps no watermark of a group of version 2.", "Linux 5.19 or newer")
    if not os.path.exists(asked.socket):
        raise Unavailable(f"There is no service manager on {asked.socket}.", "the package dbus-user-session")
    return asked


def _session_owner(group: str, uid: int) -> int:
    """Whose session a group is. Raises `Unavailable` where it is none, or none that `uid` may leave."""
    session = _SESSION.fullmatch(group)
    name = group.rpartition("/")[2] or "/"
    if session is None:
        if is_of_a_run(name):
            raise Unavailable(f"The group {name} is another run's, which is to count this one as well.")
        hint = "systemd-run --user --scope -p Delegate=yes" if uid else "systemd-run --scope -p Delegate=yes"
        if name.endswith(".service"):
            hint = f"Delegate=yes in the unit {name}"
        raise Unavailable(f"The group {name} is not left, as it accounts for what runs in it.", hint)
    owner = int(session[1])
    if uid not in (0, owner):
        raise Unavailable(
            f"The session {name} is of another user.", "log in as the user who runs the command"
        )
    return owner


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _tasks(group: str) -> str | None:
    """A limit on the number of processes, which neither a session nor a user's manager has by itself."""
    value = _read(f"{group}/pids.max")
    return f"pids.max {value}" if value not in ("", "max") else None


def find() -> Asked | None:
    """Whom to ask for a scope for a child of this process; `None` where memory is not counted by version 2.

    Raises `Unavailable` where nobody can be asked, or the group must not be left.
    """
    # A manager of another pid namespace would move somebody else's process.
    if _read("/proc/1/comm") != "systemd":
        raise Unavailable("The first process that can be seen is not systemd.", "outside of the container")
    if _busctl() is None:
        raise Unavailable("systemd's busctl is not installed.", "the package systemd")
    try:
        with open("/proc/self/cgroup", "rb") as groups, open("/proc/self/mountinfo", "rb") as mounts:
            location = locate(parse_memberships(groups.read()), parse_mounts(mounts.read()), "memory")
    except OSError as error:
        raise Unavailable(f"{error.filename}: {error.strerror}.") from None
    if location is None or location.version != 2:
        return None
    return decide(location.path.removeprefix(location.point), location.point, os.getuid())


def _busctl() -> str | None:
    """Path of the machine's own: one that PATH finds first may be of another systemd (conda has one)."""
    paths = ("/usr/bin/busctl", "/bin/busctl", "/run/current-system/sw/bin/busctl")
    return next((path for path in paths if os.access(path, os.X_OK)), None)


class Scope:
    """A scope for one process: made before it is forked, asked for by its parent, waited for by itself."""

    def __init__(self, asked: Asked, patience: float, limit: int | None = None) -> None:
        """`limit`: bytes that the scope may have, swap among them; `None`: no limit."""
        self._asked = asked
        self._limit = limit
        self._patience = patience
        base = f"{PREFIX}{os.getpid()}-{os.urandom(4).hex()}"
        # Two names, since systemd before 253 has to be asked a second time, and one name is good for one attempt.
        self.names = (f"{base}.scope", f"{base}-a.scope")
        self._answers, self._answer = os.pipe()
        self._asking: int | None = None

    def ask(self, pids: Sequence[int]) -> None:
        """Begin to have processes of ours moved into the scope. Called by their parent; does not wait (1 ms)."""
        commands = (
            self._command(self.names[0], pids, newer=True),
            self._command(self.names[1], pids, newer=False),
        )
        script = " || ".join(" ".join(f"'{word}'" for word in words) for words in commands)
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        # Nothing of the target's is held open by it: a pipe that the command closes has its end then.
        actions: list[tuple[int, int, int] | tuple[int, int]] = [
            (os.POSIX_SPAWN_DUP2, null, 0),
            (os.POSIX_SPAWN_DUP2, self._answer, 1),
            (os.POSIX_SPAWN_DUP2, self._answer, 2),
        ]
        for fd in system_calls.open_files():
            with contextlib.suppress(OSError):
                if fd > 2 and os.get_inheritable(fd):
                    actions.append((os.POSIX_SPAWN_CLOSE, fd))
        try:
            self._asking = os.posix_spawn(
                "/bin/sh",
                ["sh", "-c", script],
                {"PATH": "/usr/bin:/bin"},
                file_actions=actions,
                setpgroup=0,  # the terminal's keys are not for it
                setsigmask=[],
                setsigdef=[signal.SIGPIPE, signal.SIGTERM, signal.SIGINT],
            )
        finally:
            os.close(null)
            os.close(self._answer)
            self._answer = -1

    def _command(self, name: str, pids: Sequence[int], *, newer: bool) -> tuple[str, ...]:
        """The call of systemd's, for a scope that is to its processes as the session's is."""
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
            # Else all of the scope would be ended where one process of it was killed for want of memory (253), and
            # systemd-oomd, which does not look into sessions, would (248).
            properties += [("OOMPolicy", "s", "continue"), ("ManagedOOMPreference", "s", "omit")]
        words = [word for one in properties for word in one]
        return (
            _busctl() or "busctl",
            f"--address=unix:path={self._asked.socket}",
            f"--timeout={int(self._patience * 1000)}ms",
            "--allow-interactive-authorization=no",  # nobody is asked for a password on our account
            *_CALL,
            name,
            "fail",
            str(len(properties)),
            *words,
            "0",
        )

    def entered(self) -> None:
        """Wait until the calling process is in the scope. Raises `Unavailable` when it is not going to be.

        Called in the child before the program replaces it; `PATIENCE` at most.
        """
        os.close(self._answer)
        end = time.monotonic() + self._patience
        poll = select.poll()
        poll.register(self._answers, select.POLLIN)
        said, over = b"", False
        # Until it is over too: then our parent need not end it, and has no children of it to tell from the target's.
        while not (self._inside() and over):
            if time.monotonic() > end:
                if self._inside():
                    return
                raise Unavailable(f"the service manager gave no group within {self._patience:g} s")
            if over:
                time.sleep(_LOOK)
            elif poll.poll(1):
                part = os.read(self._answers, 4096)
                said, over = said + part, not part
                if over and b'o "' not in said:
                    lines = said.decode("utf-8", "replace").split("\n")
                    raise Unavailable(f"the service manager gave no group: {' '.join(lines[-2:]).strip()}")

    def _inside(self) -> bool:
        with open("/proc/self/cgroup", "rb") as file:
            group = file.read().rstrip().rpartition(b"/")[2].decode("utf-8", "replace")
        return group in self.names

    def group(self) -> OwnCgroup:
        """The scope's control group, once a process has entered it. Raises `OSError` when it is not there."""
        folder = self._asked.folder
        name = next((name for name in self.names if os.path.isdir(f"{folder}/{name}")), self.names[0])
        return OwnCgroup(f"{folder}/{name}", 2, given=True)

    def close(self) -> None:
        """Let go of what asked. What it asked for stays: it ends with the last process in it."""
        for fd in (self._answers, self._answer):
            if fd >= 0:
                os.close(fd)
        self._answers = self._answer = -1
        if self._asking is not None:
            with contextlib.suppress(OSError):
                os.killpg(self._asking, signal.SIGKILL)
            # The shell, and what it had started, which is our child now.
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-self._asking, 0):
                    pass
            self._asking = None


def trial(asked: Asked) -> tuple[Path, float]:
    """Ask for a scope for a process that does nothing: where it is, and the seconds that it took.

    Raises `Unavailable` where there is none to be had.
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
            raise Unavailable("The service manager gave no group.", "wrap --cgroup require -- true tells why")
        seconds = time.monotonic() - begun
        group = scope.group()
        group.remove()
        return group.path, seconds
    except OSError as error:
        raise Unavailable(
            f"The group that the service manager gave cannot be read: {error.strerror}."
        ) from None
    finally:
        os.close(entered)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        scope.close()
