"""At a terminal a wrapped command behaves as the bare one: Ctrl-C, Ctrl-Z, fg, bg, jobs, hang-up."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import signal
import struct
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.support.prefixes import ALL, COUNTER, GUARD, SUPERVISED
from tests.support.terminal import END, INTERRUPT, SUSPEND, Terminal
from tests.support.wrapped import environment

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the witnesses are read from /proc"),
    pytest.mark.skipif(not shutil.which("bash") and not environment().get("CI"), reason="needs bash"),
]


POLL = """
import select
def poll():
    while not select.select([0], [], [], 0.05)[0]: pass
"""
"""Waits for input in short steps: Python runs no handler of a signal that comes right before a long system call."""


@pytest.fixture(params=ALL)
def prefix(request: pytest.FixtureRequest) -> list[str]:
    """Bare too: what is stated here must hold there first."""
    return ALL[request.param]


def line(*words: str) -> str:
    """The words as typed into a shell, with Return."""
    return shlex.join(words) + "\n"


def python(script: str) -> list[str]:
    return [sys.executable, "-c", script]


def test_interrupt_comes_once(prefix: list[str], tmp_path: Path) -> None:
    with Terminal.bash(tmp_path) as terminal:
        terminal.type(line(*prefix, *COUNTER))
        terminal.expect(r"ready \d+")
        for _ in range(3):
            terminal.type(INTERRUPT)
            terminal.expect(r"(?<!\d)2 0\r")
        terminal.type(END)
        terminal.expect("<prompt>")
        assert terminal.screen.count("2 0\r") == 3
        terminal.type("echo code $?\n")
        terminal.expect("code 0\r")


@pytest.mark.parametrize("interactive", [True, False])
def test_interrupt_stops_a_loop(prefix: list[str], interactive: bool, tmp_path: Path) -> None:
    """A shell ends its loop when what it waits for has died of SIGINT."""
    loop = f"for i in 1 2 3; do {line(*prefix, 'sh', '-c', 'echo started; exec sleep 1000').strip()}; echo next; done"
    with (
        Terminal.bash(tmp_path)
        if interactive
        else Terminal(["bash", "-c", f"{loop}; echo after"], tmp_path) as terminal
    ):
        if interactive:
            terminal.expect("<prompt>")
            terminal.type(f"{loop}\n")
        terminal.expect("started\r")
        terminal.type(INTERRUPT)
        if interactive:
            terminal.expect("<prompt>")
            terminal.type("echo code $?\n")
            terminal.expect("code 130\r")
        else:
            assert terminal.process.wait(GUARD) == -signal.SIGINT
        assert "\nnext" not in terminal.screen
        assert "\nafter" not in terminal.screen


def test_interrupt_that_the_command_handles(prefix: list[str], tmp_path: Path) -> None:
    """One that goes on after Ctrl-C goes on, and its exit code comes through."""
    script = f"{POLL}try:\n print('started', flush=True); poll()\nexcept KeyboardInterrupt: print('tidied'); raise SystemExit(5)"
    with Terminal.bash(tmp_path) as terminal:
        terminal.type(line(*prefix, *python(script)))
        terminal.expect("started\r")
        terminal.type(INTERRUPT)
        terminal.expect("tidied\r")
        terminal.expect("<prompt>")
        terminal.type("echo code $?\n")
        terminal.expect("code 5\r")


def test_suspend_and_foreground(prefix: list[str], tmp_path: Path) -> None:
    """Ctrl-Z gives the prompt, `jobs` shows it stopped, `fg` and `bg` continue it, with the terminal for its input."""
    script = "echo started; read x; echo got $x; read y; echo got $y; exit 8"
    with Terminal.bash(tmp_path) as terminal:
        terminal.type(line(*prefix, "sh", "-c", script))
        terminal.expect("started\r")
        terminal.type(SUSPEND)
        terminal.expect("Stopped")
        terminal.expect("<prompt>")
        terminal.type("jobs; echo shell has it\n")
        terminal.expect(r"\[1\]\+\s+Stopped[^\n]*\n")
        terminal.expect("shell has it\r")
        terminal.expect("<prompt>")
        terminal.type("fg\n")
        terminal.expect("read y")
        terminal.type("first\n")
        terminal.expect("got first\r")
        terminal.type(SUSPEND)
        terminal.expect("Stopped")
        terminal.expect("<prompt>")
        terminal.type("%1\n")
        terminal.expect("read y")
        terminal.type("second\n")
        terminal.expect("got second\r")
        terminal.expect("<prompt>")
        terminal.type("echo code $?\n")
        terminal.expect("code 8\r")


def test_suspend_before_the_command_runs(tmp_path: Path) -> None:
    """The child has the key's signal, but stops only when it becomes the command. The shell must get the terminal back."""
    with Terminal.bash(tmp_path) as terminal:
        terminal.type(line(*SUPERVISED, "--slow", "sh", "-c", "echo started; exit 8"))
        terminal.expect("entering\r")
        terminal.type(SUSPEND)
        terminal.expect("Stopped")
        terminal.expect("<prompt>")
        assert "started\r" not in terminal.screen
        terminal.type("fg\n")
        terminal.expect("started\r")
        terminal.expect("<prompt>")
        terminal.type("echo code $?\n")
        terminal.expect("code 8\r")


def test_interrupt_before_the_command_runs(tmp_path: Path) -> None:
    with Terminal.bash(tmp_path) as terminal:
        terminal.type(line(*SUPERVISED, "--slow", "sh", "-c", "echo started"))
        terminal.expect("entering\r")
        terminal.type(INTERRUPT)
        terminal.expect("<prompt>")
        terminal.type("echo code $?\n")
        terminal.expect("code 130\r")
        assert "started\r" not in terminal.screen


def test_stopped_job_is_killed(prefix: list[str], tmp_path: Path) -> None:
    """`kill %1` of a stopped job ends it, and the shell says by which signal."""
    with Terminal.bash(tmp_path) as terminal:
        terminal.type(line(*prefix, "sh", "-c", "echo started; exec sleep 1000"))
        terminal.expect("started\r")
        terminal.type(SUSPEND)
        terminal.expect("Stopped")
        terminal.expect("<prompt>")
        terminal.type("p=$(jobs -p); kill %1; while kill -0 $p 2>/dev/null; do sleep 0.05; done\n\n")
        terminal.expect(r"\[1\][+-]\s+Terminated")


def test_suspend_that_the_command_ignores(prefix: list[str], tmp_path: Path) -> None:
    """The shell must not take the terminal back from a command that does not stop."""
    script = "trap '' TSTP; echo started; read x; echo got $x"
    with Terminal.bash(tmp_path) as terminal:
        terminal.type(line(*prefix, "sh", "-c", script))
        terminal.expect("started\r")
        terminal.type(SUSPEND)
        terminal.type("typed\n")
        terminal.expect("got typed\r")
        assert "Stopped" not in terminal.screen


def test_suspend_that_the_command_prepares_for(prefix: list[str], tmp_path: Path) -> None:
    """An editor restores the screen before it stops: the shell may not speak before that."""
    script = """
import os, signal, time
def stop(number, frame):
    time.sleep(0.5)
    print("tidied", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    print("resumed", flush=True)
signal.signal(signal.SIGTSTP, stop)
print("started", flush=True)
poll()
"""
    (tmp_path / "editor.py").write_text(POLL + script)
    with Terminal.bash(tmp_path) as terminal:
        terminal.type(line(*prefix, sys.executable, "editor.py"))
        terminal.expect("started\r")
        terminal.type(SUSPEND)
        terminal.expect("tidied\r")
        terminal.expect("Stopped")
        assert terminal.screen.count("Stopped") == 1
        terminal.expect("<prompt>")
        terminal.type("fg\n")
        terminal.expect("resumed\r")
        terminal.type("\n")
        terminal.expect("<prompt>")


@pytest.mark.quiet  # what is typed meets the shell's own words in the middle on a busy machine
def test_background_job_that_reads(prefix: list[str], tmp_path: Path) -> None:
    """It stops until it is brought to the foreground."""
    with Terminal.bash(tmp_path) as terminal:
        terminal.type(line(*prefix, "sh", "-c", "read x; echo got $x").replace("\n", " &\n"))
        terminal.expect(r"\[1\]")
        terminal.type("sleep 0.2; wait -n; jobs\n")
        terminal.expect("Stopped")
        terminal.type("fg\n")
        terminal.expect("\nfg\r|fg\r")
        terminal.type("typed\n")
        terminal.expect("got typed\r")


def test_background_job_gets_one_signal(prefix: list[str], tmp_path: Path) -> None:
    """`kill %1` goes to the whole group."""
    with Terminal.bash(tmp_path) as terminal:
        terminal.type(f"exec 3< <(sleep 2); {line(*prefix, *COUNTER).strip()} > told <&3 &\n")
        terminal.type(
            "while ! grep -q ready told; do sleep 0.05; done; kill -USR1 %1; wait %1; echo code $?\n"
        )
        terminal.expect("code 0\r")
    told = (tmp_path / "told").read_text().splitlines()
    assert [int(entry.split()[0]) for entry in told[1:]] == [signal.SIGUSR1]


def test_closed_window(prefix: list[str], tmp_path: Path) -> None:
    """As leader of the session we alone get the hang-up from the kernel: the command must get it once."""
    os.mkfifo(tmp_path / "input")
    held = os.open(tmp_path / "input", os.O_RDWR)
    script = f"exec {line(*prefix, *COUNTER).strip()} > told 2>&1 < input"
    try:
        with Terminal(["sh", "-c", script], tmp_path) as terminal:
            wait_for(tmp_path / "told", "ready")
            terminal.hang_up()
            wait_for(tmp_path / "told", f"\n{int(signal.SIGHUP)} ")
            os.close(held)
            held = -1
            assert terminal.process.wait(GUARD) == 0
    finally:
        if held >= 0:
            os.close(held)
    told = [int(entry.split()[0]) for entry in (tmp_path / "told").read_text().splitlines()[1:]]
    assert told.count(signal.SIGHUP) == 1


def wait_for(file: Path, text: str) -> None:
    deadline = time.monotonic() + GUARD
    while not file.exists() or text not in file.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_window_that_changes_size(prefix: list[str], tmp_path: Path) -> None:
    """SIGWINCH comes once, and the command sees the new size."""
    with Terminal.bash(tmp_path) as terminal:
        terminal.type(line(*prefix, *COUNTER))
        terminal.expect(r"ready \d+")
        for columns in (81, 82):
            fcntl.ioctl(terminal.master, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
            terminal.expect(rf"(?<!\d){int(signal.SIGWINCH)} 0\r")
        terminal.type(END)
        terminal.expect("<prompt>")
        assert terminal.screen.count(f"{int(signal.SIGWINCH)} 0\r") == 2


def test_the_terminal_is_the_commands(prefix: list[str], tmp_path: Path) -> None:
    """It may open /dev/tty, is in the foreground, and reads what is typed."""
    script = "import os, sys; t = open('/dev/tty'); print(os.tcgetpgrp(t.fileno()) == os.getpgrp(), os.isatty(0), os.isatty(1), input())"
    with Terminal.bash(tmp_path) as terminal:
        terminal.type(line(*prefix, *python(script)))
        terminal.expect("<prompt>")
        terminal.type("typed\n")
        terminal.expect("True True True typed\r")


def test_shell_with_job_control_inside(prefix: list[str], tmp_path: Path) -> None:
    """An interactive shell as the command: it takes the terminal, runs jobs, gives it back."""
    with Terminal.bash(tmp_path) as terminal:
        terminal.type(
            "PS1='<in''ner>' " + line(*prefix, "bash", "--norc", "--noprofile", "--noediting", "-i")
        )
        terminal.expect("<inner>")
        terminal.type("sh -c 'echo run''ning; exec sleep 1000'\n")
        terminal.expect("running\r")
        terminal.type(SUSPEND)
        terminal.expect("Stopped")
        terminal.type(
            "p=$(jobs -p); kill %1; while kill -0 $p 2>/dev/null; do sleep 0.05; done; echo in''side\n"
        )
        terminal.expect("inside\r")
        terminal.type("exit 6\n")
        terminal.expect("<prompt>")
        terminal.type("echo code $?\n")
        terminal.expect("code 6\r")
