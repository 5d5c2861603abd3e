"""Stacks of Python programs, read from their memory."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from glob import glob
from typing import TYPE_CHECKING

import pytest

from otel_memwatch.monitor.sampling.stacks import python_memory
from otel_memwatch.monitor.sampling.stacks.tools import NoStackError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAM = """\
import sys, threading, time
class Loader:
    def deep(self, calls):
        if calls:
            return self.deep(calls - 1)
        return wait()
def wait():
    print("ready", flush=True)
    return [
        sys.stdin.readline(
        )
    ]
def generator():
    yield Loader().deep(300)
def \u00fcbung\u4e16():
    for _ in generator():
        pass
worker = threading.Thread(target=\u00fcbung\u4e16)
worker.start()
list(map(lambda _: worker.join(), [1]))
"""


def _interpreters() -> list[str]:
    """Paths of this interpreter, and of others that are installed."""
    found = {sys.version_info[:2]: sys.executable}
    for minor in range(11, 16):
        paths = [
            shutil.which(f"python3.{minor}"),
            *glob(os.path.expanduser(f"~/.pyenv/versions/3.{minor}.*/bin/python3")),
        ]
        for path in filter(None, paths):
            # A shim of pyenv may not lead to an interpreter.
            if subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
                found.setdefault((3, minor), path)
    return [path for version, path in sorted(found.items()) if (3, 11) <= version <= (3, 15)]


@pytest.fixture(params=_interpreters())
def waiting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A program whose thread waits in `readline` of `wait`."""
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    with subprocess.Popen(
        [request.param, str(tmp_path / "program.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def test_all_threads_of_a_program_are_read(waiting: subprocess.Popen[str]) -> None:
    interpreter = python_memory.find(waiting.pid)
    assert interpreter is not None
    # The main thread may not wait for the other one yet, and `wait` may not have called `readline`.
    while True:
        threads = {one.id: one for one in python_memory.read(interpreter, waiting.pid)}
        calls = [(frame.function, frame.line) for frame in threads.pop(waiting.pid).frames]
        (other,) = threads.values()
        seen = [(frame.function.rpartition(".<")[0] or frame.function, frame.line) for frame in other.frames]
        if "Thread.join" in dict(calls) and seen[0][1] == 10:
            break
    assert calls[-2:] == [("<lambda>", 20), ("<module>", 20)]
    assert seen[0][0] == "wait"
    assert seen.count(("Loader.deep", 5)) > 100  # `bounded` omits some of 300
    assert seen[-5:-3] == [("generator", 14), ("\u00fcbung\u4e16", 16)]
    assert [one[0] for one in seen[-3:]] == ["Thread.run", "Thread._bootstrap_inner", "Thread._bootstrap"]
    assert os.path.basename(other.frames[0].file) == "program.py"
    assert not other.active


@pytest.mark.skipif(not _interpreters(), reason="Python 3.11 or later is not installed")
def test_a_program_that_never_stops_is_read() -> None:
    source = "def busy():\n    while True:\n        sum(x for x in range(50))\nprint(1, flush=True)\nbusy()\n"
    with subprocess.Popen([_interpreters()[0], "-c", source], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        interpreter = python_memory.find(process.pid)
        assert interpreter is not None
        functions: set[str] = set()
        while "busy" not in functions:
            read = python_memory.read(interpreter, process.pid)
            functions = {frame.function for one in read for frame in one.frames}
        process.kill()
        process.wait()
        with pytest.raises(NoStackError):
            python_memory.read(interpreter, process.pid)


def test_a_pointer_that_leads_nowhere_is_a_failure() -> None:
    layout = python_memory._LAYOUTS[b"3.13"]
    for address in (0, os.getpid(), 1 << 47, 1 << 63, (1 << 64) - 64):
        with pytest.raises(NoStackError):
            python_memory.read(python_memory.RemoteInterpreter(layout, address, 0), os.getpid())


def test_a_list_of_threads_without_an_end_is_a_failure() -> None:
    layout = python_memory._LAYOUTS[b"3.13"]
    memory = (ctypes.c_uint64 * 4096)()
    start = ctypes.addressof(memory)
    for at in (layout.interpreters, layout.threads, python_memory._NEXT_THREAD):
        memory[at // 8] = start  # runtime, interpreter and thread in one; no frame
    with pytest.raises(NoStackError, match="too large"):
        python_memory.read(python_memory.RemoteInterpreter(layout, start, 0), os.getpid())


def test_a_program_that_is_not_python_is_not_understood() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        assert python_memory.find(process.pid) is None
        process.kill()
    assert python_memory.find(process.pid) is None
