"""Which control group may be left for a scope of the service manager's, on hierarchies of ordinary files."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from otel_memwatch.errors import Unavailable
from otel_memwatch.monitor.run_cgroup import service_manager
from otel_memwatch.monitor.run_cgroup.service_manager import Scope, ScopeRequest, decide

USER_SLICE = "/user.slice/user-1000.slice"
SESSION = f"{USER_SLICE}/session-c1.scope"
MANAGER = f"{USER_SLICE}/user@1000.service"
# As systemd 252 leaves them on Linux 6.12: a session's scope has the files of the controllers that are on in its slice.
UNLIMITED = {
    "memory.max": "max\n",
    "memory.high": "max\n",
    "memory.swap.max": "max\n",
    "memory.zswap.max": "max\n",
    "memory.peak": "8650752\n",
    "pids.max": "max\n",
}


class Machine:
    """A hierarchy of version 2 with one session and its user's manager, and the sockets of both buses."""

    def __init__(self, folder: Path) -> None:
        self.point = folder / "cgroup"
        self.run = folder / "run"
        for group in (
            USER_SLICE,
            SESSION,
            MANAGER,
            f"{MANAGER}/app.slice",
            "/user.slice/user-0.slice/session-2.scope",
        ):
            self.write(group, UNLIMITED)
        self.write("/user.slice/user-0.slice", UNLIMITED)
        # TasksMax of the slice of users is 33 % by default, and holds for both places.
        self.write(USER_SLICE, {"pids.max": "7500\n"})
        self.write(MANAGER, {"cgroup.controllers": "memory pids\n"})
        for bus in ("dbus/system_bus_socket", "user/1000/bus"):
            (self.run / bus).parent.mkdir(parents=True)
            (self.run / bus).touch()

    def write(self, group: str, files: dict[str, str]) -> None:
        folder = self.point / group.strip("/")
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text)

    def decide(self, group: str, uid: int) -> ScopeRequest:
        return decide(group, str(self.point), uid, str(self.run))

    def refusal(self, group: str, uid: int) -> Unavailable:
        with pytest.raises(Unavailable) as caught:
            self.decide(group, uid)
        return caught.value


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_user_in_a_login_session_asks_their_own_manager(machine: Machine) -> None:
    asked = machine.decide(SESSION, 1000)
    assert asked.socket == f"{machine.run}/user/1000/bus"
    assert (asked.unit_slice, asked.folder) == ("app.slice", f"{machine.point}{MANAGER}/app.slice")


@pytest.mark.parametrize(
    ("group", "unit_slice"),
    [
        ("/user.slice/user-0.slice/session-2.scope", "user-0.slice"),
        (SESSION, "user-1000.slice"),  # sudo: the user's limits stay
    ],
)
def test_root_in_a_session_asks_the_system_and_stays_in_the_slice(
    machine: Machine, group: str, unit_slice: str
) -> None:
    asked = machine.decide(group, 0)
    assert asked.socket == f"{machine.run}/dbus/system_bus_socket"
    assert asked.unit_slice == unit_slice
    assert asked.folder == f"{machine.point}/user.slice/{unit_slice}"


@pytest.mark.parametrize("uid", [0, 1000])
@pytest.mark.parametrize(
    "group",
    [
        "/",
        "",
        "/../../session-c1.scope",
        "/init.scope",
        "/system.slice/job.service",
        "/system.slice/cron.service",
        "/system.slice/run-u12.scope",
        "/system.slice/slurmstepd.scope/job_7/step_batch/user/task_0",
        "/system.slice/docker-5b6c1e.scope",
        "/machine.slice/libpod-9f2a.scope/container",
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/cri-containerd-9f.scope",
        "/kubepods/besteffort/pod1/9f",
        f"{MANAGER}/user.slice/libpod-9f2a.scope/container",
        f"{MANAGER}/app.slice/run-u3.service",
        f"/tenant{SESSION}",
        "/user.slice/user-1000.slice",
        "/user.slice/user-1000.slice/run-u5.scope",
    ],
)
def test_what_accounts_for_the_caller_is_not_left(machine: Machine, group: str, uid: int) -> None:
    refusal = machine.refusal(group, uid)
    assert "accounts" in refusal.message
    assert "Delegate=yes" in (refusal.hint or "")


@pytest.mark.parametrize(
    "group", [f"{MANAGER}/app.slice/memwatch-7-abc.scope", "/job.scope/memwatch-7-4026531836-abc"]
)
def test_another_run_s_group_is_not_left_and_no_hint_is_given(machine: Machine, group: str) -> None:
    refusal = machine.refusal(group, 1000)
    assert "another run's" in refusal.message
    assert refusal.hint is None


def test_the_hint_for_a_service_names_its_unit(machine: Machine) -> None:
    for unit in ("job.service", "memwatch-job.service"):
        assert machine.refusal(f"/system.slice/{unit}", 0).hint == f"set Delegate=yes in the unit {unit}"


@pytest.mark.parametrize("group", [SESSION, MANAGER, f"{MANAGER}/app.slice"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("memory.max", "1073741824"),
        ("memory.high", "1073741824"),
        ("memory.swap.max", "0"),
        ("cpu.max", "200000 100000"),
        ("cpu.weight", "20"),
        ("cpu.idle", "1"),
        ("cpuset.cpus", "0-3"),
        ("io.max", "8:0 rbps=1048576 wbps=max riops=max wiops=max"),
        ("pids.max", "100"),
    ],
)
def test_no_limit_is_escaped_from_and_none_is_met(
    machine: Machine, group: str, name: str, value: str
) -> None:
    machine.write(group, {name: f"{value}\n"})
    refusal = machine.refusal(SESSION, 1000)
    assert f"{name} {value}" in refusal.message
    assert group.rpartition("/")[2] in refusal.message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cpu.max", "max 100000"),
        ("cpu.weight", "100"),
        ("cpuset.cpus", ""),
        ("io.max", ""),
        ("pids.max", "max"),
    ],
)
def test_a_controller_that_is_on_is_no_limit(machine: Machine, name: str, value: str) -> None:
    machine.write(SESSION, {name: f"{value}\n"})
    assert machine.decide(SESSION, 1000).unit_slice == "app.slice"


def test_a_limit_on_the_manager_does_not_concern_root(machine: Machine) -> None:
    machine.write(MANAGER, {"memory.max": "1073741824\n"})
    assert machine.decide(SESSION, 0).unit_slice == "user-1000.slice"


def test_a_session_of_another_user_is_not_left(machine: Machine) -> None:
    assert "another user" in machine.refusal(SESSION, 1001).message


def test_nothing_is_asked_where_no_process_answers_or_nothing_would_be_counted(machine: Machine) -> None:
    machine.write(MANAGER, {"cgroup.controllers": "pids\n"})
    assert "counts no memory" in machine.refusal(SESSION, 1000).message
    machine.write(MANAGER, {"cgroup.controllers": "cpu memory pids\n"})
    (machine.run / "user/1000/bus").unlink()
    assert "no service manager" in machine.refusal(SESSION, 1000).message
    (machine.point / USER_SLICE.strip("/") / "memory.peak").unlink()
    assert "high-water mark" in machine.refusal(SESSION, 1000).message


class Asking:
    """A process that waits to be moved, beside what is in place of systemd's busctl: a script."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, script: str, limit: int | None = None
    ) -> None:
        busctl = folder / "busctl"
        busctl.write_text(f"#!/bin/sh\n{script}\n")
        busctl.chmod(0o755)
        monkeypatch.setattr(service_manager, "_busctl", lambda: str(busctl))
        self.scope = Scope(ScopeRequest(str(folder / "bus"), "app.slice", str(folder)), 0.3, limit)

    def outcome(self) -> str:
        """The settings of the process."""
        reader, writer = os.pipe()
        self.pid = pid = os.fork()
        if pid == 0:
            try:
                self.scope.entered()
                os.write(writer, b"entered")
            except Unavailable as why:
                os.write(writer, why.message.encode())
            finally:
                os._exit(0)
        os.close(writer)
        self.scope.ask([pid])
        with os.fdopen(reader, "rb") as told:
            text = told.read().decode()
        os.waitpid(pid, 0)
        self.scope.close()
        self.scope.release()
        with pytest.raises(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
        return text


def test_a_scope_is_asked_for_with_its_limit(tmp_path: Path) -> None:
    asked = ScopeRequest(str(tmp_path / "bus"), "app.slice", str(tmp_path))
    for newer in (True, False):
        limited = Scope(asked, 0.3, 1 << 30)._command("a.scope", [1], newer=newer)
        free = Scope(asked, 0.3)._command("a.scope", [1], newer=newer)
        at = limited.index("MemoryMax")
        assert limited[at : at + 6] == ("MemoryMax", "t", "1073741824", "MemorySwapMax", "t", "0")
        assert "MemoryMax" not in free
        # The number of properties stands before them.
        assert int(limited[limited.index("fail") + 1]) == int(free[free.index("fail") + 1]) + 2


@pytest.mark.parametrize("killed", [False, True])
def test_a_limited_scope_outlives_the_helper_that_the_kernel_kills_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    asking = Asking(tmp_path, monkeypatch, f'echo "$*" >>{tmp_path}/calls; sleep 60', 1 << 30)
    release = asking.scope.release

    def end() -> None:
        assert asking.scope.holder is not None
        if killed:
            os.kill(asking.scope.holder, signal.SIGKILL)
            os.waitpid(asking.scope.holder, 0)
        moved.append(asking.scope.holder)
        release()

    moved: list[int] = []
    monkeypatch.setattr(asking.scope, "release", end)
    asking.outcome()
    assert asking.scope.holder is None
    assert f" au 2 {asking.pid} {moved[0]} " in (tmp_path / "calls").read_text().splitlines()[0]


def test_a_refusal_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asking = Asking(tmp_path, monkeypatch, "echo 'Call failed: Access denied' >&2; exit 1")
    assert asking.outcome() == "the service manager gave no cgroup: Call failed: Access denied"


@pytest.mark.parametrize("script", ["sleep 60", "echo 'o \"/org/freedesktop/systemd1/job/7\"'"])
def test_the_command_waits_no_longer_than_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    """Neither for an answer nor for what the answer has promised."""
    assert (
        Asking(tmp_path, monkeypatch, script).outcome() == "the service manager gave no cgroup within 0.3 s"
    )


def test_an_older_manager_is_asked_once_more_without_what_it_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = f'echo "$*" >> {tmp_path}/calls; case "$*" in *OOMPolicy*) exit 1 ;; esac; sleep 60'
    asking = Asking(tmp_path, monkeypatch, script)
    asking.outcome()
    first, second = (tmp_path / "calls").read_text().splitlines()
    assert asking.scope.names[0] in first
    assert asking.scope.names[1] in second
    assert "OOMPolicy" in first
    assert "OOMPolicy" not in second
    assert all(f"--address=unix:path={tmp_path}/bus --timeout=300ms" in call for call in (first, second))


def test_nothing_of_the_targets_is_held_open_by_what_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    asking = Asking(tmp_path, monkeypatch, f"ls -l /proc/$$/fd > {tmp_path}/files; sleep 60")
    link = os.readlink(f"/proc/self/fd/{writer}")
    asking.outcome()
    os.close(writer)
    os.close(reader)
    assert link not in (tmp_path / "files").read_text()
