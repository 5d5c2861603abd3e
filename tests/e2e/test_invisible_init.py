"""As PID 1, the init of a container: signals are passed on, every orphan is reaped, the exit code says it all."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.control_group import memory_parent
from tests.support.prefixes import GUARD, WRAPPERS, finish, run, start
from tests.support.programs import PROGRAMS
from tests.support.wrapped import environment

UNSHARE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


def can_unshare() -> bool:
    return (
        shutil.which("unshare") is not None
        and subprocess.run([*UNSHARE, "true"], check=False, capture_output=True, timeout=GUARD).returncode
        == 0
    )


pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="pid namespaces are Linux's"),
    pytest.mark.skipif(not os.environ.get("CI") and not can_unshare(), reason="may not make a pid namespace"),
]


@pytest.fixture(params=WRAPPERS)
def init(request: pytest.FixtureRequest) -> list[str]:
    """The command line that makes the wrapper PID 1."""
    return [*UNSHARE, *WRAPPERS[request.param]]


@pytest.mark.parametrize("code", [0, 3, 255])
def test_exit_code(init: list[str], code: int, tmp_path: Path) -> None:
    done = run([*init, "sh", "-c", f"[ $PPID = 1 ] && exit {code}; exit 99"], tmp_path)
    assert done.returncode == code, done.stderr


@pytest.mark.parametrize("name", ["TERM", "KILL", "SEGV", "INT"])
def test_death_by_signal_becomes_a_code(init: list[str], name: str, tmp_path: Path) -> None:
    """No signal that it sends to itself ends PID 1: 128 + the signal, as a shell has it."""
    done = run([*init, "sh", "-c", f"kill -{name} $$"], tmp_path)
    assert done.returncode == 128 + getattr(signal, f"SIG{name}"), done.stderr


def test_not_found(init: list[str], tmp_path: Path) -> None:
    assert run([*init, "no-such-command-at-all"], tmp_path).returncode == 127


def test_cgroups_of_monitors_outside_stay(tmp_path: Path) -> None:
    """From inside, no process outside is visible, so a monitor there looks dead."""
    inside_of = Path("/proc/self/ns/pid").readlink().name.removeprefix("pid:[").removesuffix("]")
    outside = memory_parent() / f"memwatch-{os.getpid()}-{inside_of}-abcdef"
    outside.mkdir()
    try:
        assert run([*UNSHARE, *WRAPPERS["wrap"], "true"], tmp_path).returncode == 0
        assert outside.exists()
    finally:
        if outside.exists():
            outside.rmdir()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signals_from_outside(init: list[str], number: signal.Signals, tmp_path: Path) -> None:
    """`docker stop` signals PID 1 from outside of its namespace, where the sender has no number."""
    name = number.name.removeprefix("SIG")
    script = f"trap 'echo told; exit 9' {name}; echo ready; while :; do sleep 0.05; done"
    process = start([*init, "sh", "-c", script], tmp_path)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        os.kill(first_child(process.pid), number)
        assert process.stdout.read() == b"told\n"
        assert process.wait(GUARD) == 9
    finally:
        finish(process)


def test_signal_that_the_command_does_not_handle(init: list[str], tmp_path: Path) -> None:
    process = start([*init, "sh", "-c", "echo ready; exec sleep 1000"], tmp_path)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        os.kill(first_child(process.pid), signal.SIGTERM)
        assert process.wait(GUARD) == 128 + signal.SIGTERM
    finally:
        finish(process)


def first_child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def test_no_zombie_stays(init: list[str], tmp_path: Path) -> None:
    """Orphans of every kind, in quick succession, are reaped by us while the command goes on."""
    assert run([*init, sys.executable, PROGRAMS / "orphans.py"], tmp_path).returncode == 0


def test_outside_the_parent_is_not_found(init: list[str], tmp_path: Path) -> None:
    """A parent in another namespace cannot be asked what it ignores: the defaults hold."""
    done = run([*init, "grep", "-E", "Sig(Ign|Blk)", "/proc/self/status"], tmp_path, env=environment())
    assert done.stdout == b"SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n", done.stderr


def test_daemons_end_with_the_namespace(init: list[str], tmp_path: Path) -> None:
    """The command's end is the container's end: what it left behind is not waited for (`run` would not wait so long)."""
    done = run([*init, "sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 </dev/null & exit 4"], tmp_path)
    assert done.returncode == 4
