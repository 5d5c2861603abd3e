"""`sys.remote_exec` of a real Python 3.14: on PATH, or the one that runs the tests (`sh tests/run.sh pythons`)."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from otel_memwatch.monitor.sampling import remote_heaps
from otel_memwatch.monitor.sampling.remote_heaps import RemoteHeaps
from tests.support.wrapped import PROGRAM, call, environment

if TYPE_CHECKING:
    from collections.abc import Iterator

PYTHON = os.path.realpath(sys.executable) if sys.version_info >= (3, 14) else shutil.which("python3.14")
pytestmark = pytest.mark.skipif(PYTHON is None, reason="Debian 12 has no Python 3.14")

KEEP = """
import os, sys
blocks = [bytes(4000) for _ in range(50_000)]
kept = blocks[::200]
del blocks
if len(sys.argv) > 1:
    child = os.fork()
print(os.getpid(), flush=True)
while line := sys.stdin.readline():
    print(sum(range(100_000)), flush=True)
"""


@contextlib.contextmanager
def target(*words: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A program that keeps 190 MiB of free memory, and runs an instruction for each line of its stdin."""
    process = subprocess.Popen(
        [str(PYTHON), "-c", KEEP, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(PYTHONMALLOC="malloc", **variables),
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def wake(process: subprocess.Popen[str]) -> None:
    """Have the program run a few instructions."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "4999950000\n"


def test_attach_says_what_the_allocator_keeps(tmp_path: Path) -> None:
    with target() as process:
        words = ["attach", str(process.pid), "--remote-exec", "--out", "run"]
        with subprocess.Popen(
            [*PROGRAM, *words], cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True
        ) as monitor:
            run = tmp_path / "run" / "run.json"
            while not run.exists() or not json.loads(run.read_text()).get("heaps"):
                assert monitor.poll() is None
                wake(process)
                time.sleep(0.05)
            monitor.send_signal(signal.SIGINT)
            _, written = monitor.communicate()
        wake(process)
        process.kill()
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert "is free memory of glibc" in written
    assert "Anonymous memory\n" in call("report", "run", cwd=tmp_path).stdout
    assert not list((tmp_path / "run").glob("remote-*.json"))


def test_a_target_in_a_system_call_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_heaps, "_DEADLINE", 3.0)
    problems: list[str] = []
    heaps = RemoteHeaps(str(tmp_path), problems.append)
    with target() as process:
        heaps._round([process.pid])
        assert heaps._found == []
        assert "no answer within 3 s" in problems[0]
        wake(process)
        process.kill()
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_a_program_may_refuse(tmp_path: Path) -> None:
    problems: list[str] = []
    heaps = RemoteHeaps(str(tmp_path), problems.append)
    with target(PYTHON_DISABLE_REMOTE_DEBUG="1") as process:
        for _ in range(2):
            heaps._round([process.pid])
        wake(process)
    assert problems == [
        f"--remote-exec: process {process.pid}: Remote debugging is not enabled in the remote process."
    ]


def test_nothing_runs_in_a_forked_child(tmp_path: Path) -> None:
    with target("fork") as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        problems: list[str] = []
        heaps = RemoteHeaps(str(tmp_path), problems.append)
        heaps._round([int(child) for child in children])
        (child,) = children
        assert problems == [
            f"--remote-exec: process {child}: it was forked without exec, and runs no code of ours."
        ]
        assert not list(tmp_path.iterdir())
        os.kill(int(child), signal.SIGKILL)
