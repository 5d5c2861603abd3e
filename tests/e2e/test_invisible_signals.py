"""Signals reach a wrapped command as often as the bare one, wherever they are sent to; and its whole tree is reaped."""

from __future__ import annotations

import ast
import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.prefixes import ALL, COUNTER, GUARD, SUPERVISED, WRAPPERS, finish, run, start
from tests.support.programs import PROGRAMS
from tests.support.wrapped import MIB, environment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the witnesses are read from /proc")

STOPPING = {signal.SIGKILL, signal.SIGSTOP}
EVERY = sorted(set(signal.valid_signals()) - STOPPING)


@pytest.fixture(params=WRAPPERS)
def prefix(request: pytest.FixtureRequest) -> list[str]:
    return WRAPPERS[request.param]


@pytest.fixture(params=ALL)
def any_prefix(request: pytest.FixtureRequest) -> list[str]:
    """The bare command too: where a test states what must hold, it must hold there first."""
    return ALL[request.param]


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def pending(pid: int) -> int:
    """Signals that were sent to a process and not yet taken, as bits."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1], 16) for line in lines if line.startswith("ShdPnd:"))


class Counting:
    """counter.py, started under a prefix; `told` are the signals that it wrote down."""

    def __init__(self, prefix: list[str], cwd: Path, **how: Any) -> None:
        self.process = start([*prefix, *COUNTER], cwd, **how)
        self.told: list[int] = []
        self._rest = b""
        while b"\n" not in self._rest:
            self._read()
        ready, _, self._rest = self._rest.partition(b"\n")
        self.target = int(ready.split()[1])

    def _read(self) -> bool:
        """More of its output; False at its end."""
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], GUARD)[0], (self.told, self._rest)
        part = os.read(self.process.stdout.fileno(), 65536)
        self._rest += part
        return bool(part)

    def expect(self, number: int) -> None:
        """Wait until it has reported that signal once more than before."""
        before = self.told.count(number)
        while self.told.count(number) == before:
            assert self._read(), self.told
            self._note()

    def _note(self) -> None:
        *lines, self._rest = self._rest.split(b"\n")
        self.told += [int(line.split()[0]) for line in lines]

    def settle(self, number: int) -> None:
        """Wait until every process of the session has taken it: the next one is another one."""
        deadline = time.monotonic() + GUARD
        family = [self.process.pid, *children(self.process.pid)]
        while any(pending(pid) >> (number - 1) & 1 for pid in family):
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def end(self) -> list[int]:
        """All that it was sent: it ends after half a second without any."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        while self._read():
            self._note()
        self._note()
        assert self.process.wait(GUARD) == 0
        return self.told


@pytest.fixture
def counting(tmp_path: Path) -> Iterator[Any]:
    begun: list[Counting] = []

    def begin(prefix: list[str], **how: Any) -> Counting:
        begun.append(Counting(prefix, tmp_path, **how))
        return begun[-1]

    yield begin
    for counter in begun:
        finish(counter.process)


def test_each_signal_is_passed_on_once(any_prefix: list[str], counting: Any) -> None:
    """Every signal that can be sent, real-time ones too, in order."""
    counter = counting(any_prefix)
    for number in EVERY:
        os.kill(counter.process.pid, number)
        counter.expect(number)
    assert counter.end() == EVERY


def test_signals_to_the_group_come_once(any_prefix: list[str], counting: Any) -> None:
    """`kill %1`, `os.killpg`, a closing terminal: the command has got it already."""
    counter = counting(any_prefix)
    numbers = [number for number in EVERY if number != signal.SIGCHLD]
    for number in numbers:
        os.killpg(counter.process.pid, number)
        counter.expect(number)
    assert counter.end() == numbers


def test_alternating_to_us_and_to_the_group(any_prefix: list[str], counting: Any) -> None:
    """What the group got earlier must not make us swallow what is sent to us later."""
    counter = counting(any_prefix)
    for send in (os.killpg, os.kill, os.kill, os.killpg, os.kill):
        send(counter.process.pid, signal.SIGUSR1)
        counter.expect(signal.SIGUSR1)
        counter.settle(signal.SIGUSR1)
    assert counter.end() == [signal.SIGUSR1] * 5


def test_queued_signals_are_all_passed_on(any_prefix: list[str], counting: Any) -> None:
    counter = counting(any_prefix)
    for send in (os.kill, os.killpg):
        for _ in range(10):
            send(counter.process.pid, signal.SIGRTMIN + 1)
    assert counter.end() == [signal.SIGRTMIN + 1] * 20


def test_wrapper_found_by_its_name(prefix: list[str], counting: Any) -> None:
    """What looks for us by name finds us alone, so killing by name works."""
    counter = counting(prefix)
    own = Path(f"/proc/{counter.process.pid}")
    names = {(own / "comm").read_text(), (own / "cmdline").read_text()}
    others = children(counter.process.pid)
    assert counter.target in others
    for pid in set(others) - {counter.target}:
        assert not any(
            word in Path(f"/proc/{pid}/{file}").read_text() for file in ("comm", "cmdline") for word in names
        )
    counter.end()


def is_told_once(prefix: list[str], script: str, tmp_path: Path) -> None:
    """The script reports one signal, and ends with 3."""
    process = start([*prefix, "sh", "-c", script], tmp_path)
    try:
        out, _ = process.communicate(timeout=GUARD)
        assert (out, process.returncode) == (b"told\n", 3)
    finally:
        finish(process)


def test_signal_from_the_command_itself(any_prefix: list[str], tmp_path: Path) -> None:
    """`kill 0`, the way in which scripts end their helpers, counts once and does not come back."""
    script = "trap 'echo told' USR1; kill -USR1 0; sleep 0.5; exit 3"
    is_told_once(any_prefix, script, tmp_path)


def test_kill_0_of_a_grandchild(any_prefix: list[str], tmp_path: Path) -> None:
    script = "trap 'echo told' USR1; sh -c 'trap : USR1; kill -USR1 0'; sleep 0.5; exit 3"
    is_told_once(any_prefix, script, tmp_path)


def test_a_command_that_signals_its_group_at_once(tmp_path: Path) -> None:
    """However early it comes: the group has got it, so it is not passed on."""
    script = "trap 'echo told' USR1; sh -c 'trap : USR1; kill -USR1 0'; sleep 0.1; exit 3"
    for _ in range(20):
        is_told_once(WRAPPERS["supervise"], script, tmp_path)


def test_command_that_ignores_sigterm(any_prefix: list[str], tmp_path: Path) -> None:
    """Neither ends; a handler's exit code comes through."""
    script = "trap '' TERM; trap 'exit 9' USR1; echo ready; while :; do sleep 0.05; done"
    process = start([*any_prefix, "sh", "-c", script], tmp_path)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        for _ in range(3):
            process.terminate()
        time.sleep(0.3)
        assert process.poll() is None
        process.send_signal(signal.SIGUSR1)
        assert process.wait(GUARD) == 9
    finally:
        finish(process)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGRTMAX])
def test_killed_through_us(any_prefix: list[str], number: signal.Signals, tmp_path: Path) -> None:
    """A signal that the command does not handle ends it, and us in the same way."""
    process = start([*any_prefix, "sh", "-c", "echo ready; exec sleep 1000"], tmp_path)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.wait(GUARD) == -number
    finally:
        finish(process)


def test_timeout_ends_it(any_prefix: list[str], tmp_path: Path) -> None:
    """`timeout` signals its child and then its group."""
    assert run(["timeout", "1", *any_prefix, "sleep", "1000"], tmp_path).returncode == 124


def test_nohup(prefix: list[str], tmp_path: Path) -> None:
    """Ignored through us: the command survives a hang-up that is sent to us."""
    bare, wrapped = (
        run(
            ["nohup", *argv, "grep", "SigIgn", "/proc/self/status"], tmp_path, stdin=subprocess.DEVNULL
        ).stdout
        for argv in ([], prefix)
    )
    assert wrapped == bare
    assert int(bare.split()[1], 16) == 1 << signal.SIGHUP - 1
    script = "echo ready; read x; echo alive"
    process = start(["nohup", *prefix, "sh", "-c", script], tmp_path)
    try:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGHUP)
        # A nohup'ed stdin is the pipe here, as it is no terminal.
        assert process.communicate(b"\n", timeout=GUARD)[0] == b"alive\n"
        assert process.returncode == 0
    finally:
        finish(process)


def test_background_job_of_a_script(any_prefix: list[str], tmp_path: Path) -> None:
    """A shell without job control has its background jobs ignore SIGINT and SIGQUIT."""
    script = '"$@" sh -c "grep SigIgn /proc/self/status; kill -INT \\$\\$; echo alive" & wait $!; echo $?'
    done = run(["sh", "-c", script, "sh", *any_prefix], tmp_path)
    assert done.stdout == b"SigIgn:\t0000000000000006\nalive\n0\n"


def test_command_survives_our_death(prefix: list[str], tmp_path: Path) -> None:
    """Killed with SIGKILL we leave the command running, and no process of ours."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    process = start([*prefix, "sh", "-c", "echo $$; read x < fifo; echo $x"], tmp_path)
    try:
        assert process.stdout is not None
        target = int(process.stdout.readline())
        family = children(process.pid)
        process.kill()
        process.wait(GUARD)
        for pid in set(family) - {target}:
            wait_until_gone(pid)
        fifo.write_text("survived\n")
        assert process.stdout.read() == b"survived\n"
    finally:
        finish(process)


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + GUARD
    while os.path.exists(f"/proc/{pid}"):
        assert time.monotonic() < deadline, pid
        time.sleep(0.01)


@pytest.mark.parametrize("job", [True, False])
def test_stop_and_continue_through_us(any_prefix: list[str], job: bool, tmp_path: Path) -> None:
    """Stop signals and SIGCONT sent to us by kill reach the command. We stop with it when we are a job of a shell."""
    os.mkfifo(tmp_path / "pids")
    argv = [*any_prefix, "sh", "-c", "echo $$ $PPID > pids; exec sleep 1000"]
    script = ["sh", "-c", '"$@"; exit $?', "sh"]
    # A group whose leader has its parent in another group of the session: not orphaned, so it can stop.
    process = subprocess.Popen(
        argv if job else [*script, *argv],
        cwd=tmp_path,
        preexec_fn=lambda: os.setpgid(0, 0),  # noqa: PLW1509 - no threads here
        env=environment(),
    )
    try:
        target, parent = map(int, (tmp_path / "pids").read_text().split())
        us = parent if any_prefix else target
        for number in (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGTSTP):
            os.kill(us, number)
            expect_state(target, "T")
            expect_state(us, "T" if job or us == target else "S")
            os.kill(us, signal.SIGCONT)
            expect_state(target, "S")
            expect_state(us, "S")
        os.kill(us, signal.SIGTERM)
        assert process.wait(GUARD) == (-signal.SIGTERM if job else 128 + signal.SIGTERM)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(GUARD)


def expect_state(pid: int, state: str) -> None:
    """Wait for the letter that the kernel gives for it."""
    deadline = time.monotonic() + GUARD
    while (now := Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]) != state:
        assert time.monotonic() < deadline, now
        time.sleep(0.01)


# -- the tree


def reaped(argv: list[str], cwd: Path, **how: Any) -> list[dict[str, Any]]:
    """Results of supervision for every process of the tree that it reaped."""
    return [end for end in told(argv, cwd, **how) if not end["helper"]]


def told(argv: list[str], cwd: Path, **how: Any) -> list[dict[str, Any]]:
    """Results of supervision for every process that it reaped."""
    log = cwd / "reaped"
    done = run([*SUPERVISED, "--log", str(log), *argv], cwd, **how)
    assert done.returncode == 0, done.stderr
    return [ast.literal_eval(line) for line in log.read_text().splitlines()]


def test_figures_of_the_target(tmp_path: Path) -> None:
    """CPU, faults, peak and the zombie's own files, for the target with its children."""
    script = "import os; x = bytearray(64 << 20); y = sum(i * i for i in range(300_000)); os.system('true')"
    (end,) = reaped([sys.executable, "-c", script], tmp_path)
    assert end["main"]
    assert (end["exit_code"], end["signal"]) == (0, None)
    assert 64 * MIB < end["max_rss"] < 128 * MIB
    assert end["cpu_user"] > 0
    assert end["minor_faults"] > 1000
    assert end["stat"].startswith(b"%d (" % end["pid"])
    assert b") Z %d " % end["monitor"] in end["stat"]
    assert end["io"].startswith(b"rchar: ")
    assert time.monotonic() - GUARD < end["start"] <= end["time"] <= time.monotonic()


@pytest.mark.parametrize("command", ["true", "/bin/true"])
def test_floor_bounds_what_the_target_has_from_us(command: str, tmp_path: Path) -> None:
    """A program that needs next to nothing is reported with our memory: no more than the floor says."""
    (end,) = reaped([command], tmp_path)
    assert end["floor"] - 2 * MIB < end["max_rss"] <= end["floor"]


def test_daemon_that_ends_first_is_reaped(tmp_path: Path) -> None:
    """A daemonised grandchild is adopted, and its rusage and exit code are reported."""
    daemon = "import os, sys; x = bytearray(100 << 20); open('pid', 'w').write(str(os.getpid())); sys.exit(5)"
    script = f'(setsid {sys.executable} -c "{daemon}" &) ; while ! [ -s pid ]; do sleep 0.05; done; sleep 1'
    ends = reaped(["sh", "-c", script], tmp_path)
    pid = int((tmp_path / "pid").read_text())
    (end,) = [end for end in ends if end["pid"] == pid]
    assert not end["main"]
    assert end["exit_code"] == 5
    assert 100 * MIB < end["max_rss"] < 160 * MIB
    assert [end["main"] for end in ends][-1]


def test_daemon_is_not_waited_for(any_prefix: list[str], tmp_path: Path) -> None:
    """As bare: the command is over when its main process is, though its stdout may be held open."""
    script = "setsid sh -c 'echo $$ > daemon; read x < fifo; echo done > over' >/dev/null 2>&1 & while ! [ -s daemon ]; do sleep 0.05; done; exit 4"
    os.mkfifo(tmp_path / "fifo")
    done = run([*any_prefix, "sh", "-c", script], tmp_path)
    assert done.returncode == 4
    daemon = int((tmp_path / "daemon").read_text())
    assert os.path.exists(f"/proc/{daemon}")
    (tmp_path / "fifo").write_text("end\n")
    wait_until_gone(daemon)
    assert (tmp_path / "over").exists()


def test_300_orphans(tmp_path: Path) -> None:
    """Every one of a crowd of orphans is reaped and reported, and none is left as a zombie."""
    script = """
import os, time
for number in range(300):
    if os.fork() == 0:
        if os.fork() == 0:
            os._exit(number % 256)
        os._exit(0)
    os.wait()
children = f"/proc/{os.getppid()}/task/{os.getppid()}/children"
while len(open(children).read().split()) > 2:
    time.sleep(0.01)
"""
    ends = reaped([sys.executable, "-c", script], tmp_path)
    codes = sorted(end["exit_code"] for end in ends if not end["main"])
    assert codes == sorted(number % 256 for number in range(300))
    assert all(end["stat"] and end["io"] for end in ends)


def test_children_that_are_not_the_targets(tmp_path: Path) -> None:
    """Who becomes us by exec may have children: they are reported as such, and so is our own helper."""
    script = 'sh -c "exit 77" & exec "$@"'
    log = tmp_path / "reaped"
    argv = [*SUPERVISED, "--log", str(log), "sleep", "0.3"]
    assert run(["sh", "-c", script, "sh", *argv], tmp_path).returncode == 0
    ends = [ast.literal_eval(line) for line in log.read_text().splitlines()]
    assert [end["exit_code"] for end in ends if not end["helper"]] == [0]
    helpers = [end["exit_code"] for end in ends if end["helper"]]
    assert len(helpers) == 2
    assert 77 in helpers


def test_gate_runs_in_the_child_and_its_trouble_does_not_stop_the_command(tmp_path: Path) -> None:
    script = """
import os, sys
from otel_memwatch.monitor.run.supervise import end_like, launch
def gate():
    open("gate", "w").write(str(os.getpid()))
    raise OSError("no such group")
target = launch(["sh", "-c", "exit 6"], variables={}, before_exec=gate)
assert int(open("gate").read()) == target.pid
assert "no such group" in target.misplaced
end_like(target.wait(lambda dead: None))
"""
    done = run([sys.executable, "-c", script], tmp_path, env=environment())
    assert done.returncode == 6, done.stderr


@pytest.mark.parametrize("keep", [False, True])
def test_who_is_to_be_placed_is_reported_and_the_witness_stays_where_it_is_kept(
    tmp_path: Path, keep: bool
) -> None:
    program = [sys.executable, PROGRAMS / "kept_witness.py", str(int(keep))]
    done = run(program, tmp_path, env=environment())
    assert done.returncode == 6, done.stderr


def test_nothing_changes_when_nothing_was_started(tmp_path: Path) -> None:
    """After `CommandNotStarted` signals end the caller as ever, and no child is left."""
    script = """
import os, signal
from otel_memwatch.errors import CommandNotStarted
from otel_memwatch.monitor.run.supervise import launch
try:
    launch(["./absent"], variables={})
except CommandNotStarted:
    pass
assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])
try:
    os.wait()
except ChildProcessError:
    os.kill(os.getpid(), signal.SIGTERM)
"""
    assert run([sys.executable, "-c", script], tmp_path).returncode == -signal.SIGTERM
