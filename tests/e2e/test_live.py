"""`live` and `report --follow`: a run while it goes on, seen from another terminal."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios
from typing import TYPE_CHECKING

import pytest

from tests.support.terminal import Terminal
from tests.support.torture import wait_for
from tests.support.wrapped import PROGRAM, environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCREEN, BACK = "\x1b[?1049h", "\x1b[?1049l"
"""What shows another screen, and the one before again."""

WATCHED = """
import pathlib, sys, time
from otel_memwatch import operation
with operation("Train"):
    kept = bytearray(60 << 20)
    pathlib.Path("begun").touch()
    while not pathlib.Path("end").exists():
        time.sleep(0.02)
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory in which a run goes on until the file "end" exists."""
    process = subprocess.Popen(
        [
            *PROGRAM,
            "wrap",
            "--quiet",
            "--no-plot",
            "--out",
            "memwatch-runs/a",
            "--",
            sys.executable,
            "-c",
            WATCHED,
        ],
        cwd=tmp_path,
        env=environment(),
    )
    try:
        wait_for((tmp_path / "begun").exists)
        wait_for(lambda: ticks(tmp_path) > 5)
        yield tmp_path
    finally:
        (tmp_path / "end").touch()
        process.wait(60)


def ticks(place: Path) -> int:
    with contextlib.suppress(OSError):
        return (place / "memwatch-runs/a/samples.jsonl").read_text().count("\n")
    return 0


@contextlib.contextmanager
def watching(place: Path, *words: str) -> Iterator[Terminal]:
    """`live` in a terminal of 90 columns, once its first frame exists."""
    with Terminal(
        [*PROGRAM, "live", *words], place, TERM="xterm-256color", COLUMNS="90", LINES="30"
    ) as terminal:
        fcntl.ioctl(terminal.master, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 90, 0, 0))
        terminal.expect("Press q to leave")
        yield terminal


def rest(terminal: Terminal) -> str:
    """All that comes until the program has ended."""
    while True:
        try:
            part = os.read(terminal.master, 65536)
        except OSError:
            break
        if not part:
            break
        terminal.screen += part.decode(errors="replace")
    terminal.process.wait(60)
    return terminal.screen


def test_the_view_shows_the_run_and_leaves_no_trace(place: Path) -> None:
    run = place / "memwatch-runs/a"
    wait_for((run / "made_of.json").exists)  # the last file that the monitor adds meanwhile
    names = sorted(os.listdir(run))
    with watching(place) as terminal:
        before = termios.tcgetattr(terminal.master)
        for words in ("needed now|resident now", "peak so far", "limit", "processes", "Train"):
            terminal.expect(words)
        assert before[3] & termios.ECHO == 0  # what is typed is not shown
        terminal.type("q")
        screen = rest(terminal)
        assert terminal.process.returncode == 0
    assert screen.count(SCREEN) == screen.count(BACK) == 1
    # One line stays: what was known last.
    (told,) = screen[screen.index(BACK) + len(BACK) :].strip().splitlines()
    assert "peak" in told
    assert sorted(os.listdir(run)) == names


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_gives_the_terminal_back(place: Path, number: signal.Signals) -> None:
    with watching(place, "memwatch-runs/a") as terminal:
        terminal.process.send_signal(number)
        screen = rest(terminal)
        assert terminal.process.returncode == 128 + number
        assert screen.index(SCREEN) < screen.index(BACK)
        assert "\x1b[?25h" in screen[screen.index(SCREEN) :]  # the cursor
        assert "Traceback" not in screen
        mode = termios.tcgetattr(terminal.master)[3]
        assert mode & termios.ECHO
        assert mode & termios.ICANON


def test_when_the_run_ends_its_summary_stays(place: Path) -> None:
    with watching(place, "latest") as terminal:
        (place / "end").touch()
        screen = rest(terminal)
        assert terminal.process.returncode == 0
    told = screen[screen.index(BACK) :]
    assert "exit code 0" in told
    assert "memory" in told


def test_a_process_names_its_run(place: Path) -> None:
    info = json.loads((place / "memwatch-runs/a/run.json").read_text())
    for pid in (info["target"]["pid"], info["monitor"]["pid"]):
        done = call(place, "live", str(pid))
        assert (done.returncode, done.stderr) == (0, "")
        assert "peak so far" in done.stdout
        assert "\x1b" not in done.stdout  # no terminal: one look, as text
    done = call(place, "live", str(os.getpid()))
    assert done.returncode == 2
    assert "belongs to no run" in done.stderr


def call(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *words],
        cwd=place,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_lines_go_on_until_the_end_and_need_no_terminal_library(place: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "blocked/rich"
    blocked.mkdir(parents=True)
    (blocked / "__init__.py").write_text("raise ImportError('blocked')")
    process = subprocess.Popen(
        [*PROGRAM, "report", "--follow", "--every", "0.1"],
        cwd=place,
        env=environment(PYTHONPATH=str(blocked.parent)),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(3)]
    (place / "end").touch()
    told, _ = process.communicate(timeout=60)
    assert all(" MiB  peak " in line and line.rstrip().endswith("in Train") for line in lines)
    assert "exit code 0" in told
    assert process.returncode == 0
