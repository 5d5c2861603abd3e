"""Stacks of Python 3.14 and later, read by another process of the program's own interpreter.

Only the same version of Python knows the layout of its frames (`_remote_debugging`). The program is neither stopped nor does
it run code for this. The start of an interpreter takes 30 ms or more, a reading 0.3 ms: a reader of each interpreter stays
until its stdin is closed, which the end of our process does.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time

from otel_memwatch.monitor.sampling.stacks.tools import PATIENCE, NoStackError, NotPermittedError, json_output
from otel_memwatch.record.stacks import CapturedThread, StackFrame, bounded
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.runtime.wait_readable import readable

if TYPE_CHECKING:
    from otel_memwatch.runtime.typed import Any

NAME = "_remote_debugging"
_PYTHON = re.compile(r"python(\d+)\.(\d+)")

_PROGRAM = """
import json, sys, time
from _remote_debugging import RemoteUnwinder
def line(frame):
    place = frame[1]
    return place if isinstance(place, int) else place[0] if place else 0
def read(pid):
    traced = RemoteUnwinder(pid, all_threads=True).get_stack_trace()
    # 3.15 lists interpreters with threads, 3.14 only threads.
    threads = [one for entry in traced for one in getattr(entry, "threads", [entry])]
    return [[one[0], [[frame[2], frame[0], line(frame)] for frame in one[-1]]] for one in threads]
def answer(pid):
    # A running program may change its stack during a reading.
    for attempt in range(3):
        try:
            return {"threads": read(pid)}
        except Exception as error:
            failure = error
    chain = [failure]
    while chain[-1].__context__ is not None:
        chain.append(chain[-1].__context__)
    refused = any(isinstance(one, PermissionError) for one in chain)
    return {"error": f"{type(failure).__name__}: {failure}", "refused": refused}
for pid in sys.stdin:
    print(json.dumps({**answer(int(pid)), "cpu": time.process_time()}), flush=True)
"""


class Reader:
    """A process of an interpreter that reads stacks."""

    def __init__(self, path: str) -> None:
        self._process = subprocess.Popen(
            [path, "-I", "-S", "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        self.cpu = 0.0
        """CPU seconds of the process at its last answer."""

    def read(self, pid: int) -> list[CapturedThread]:
        """Return the threads of a process. Raises `NoStackError`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if self._process.returncode is not None:
            raise NoStackError(f"{NAME}: the reader has ended")
        output, deadline, line = self._process.stdout.fileno(), time.monotonic() + PATIENCE, b""
        with contextlib.suppress(OSError):  # if it has ended, the end of its output shows this
            self._process.stdin.write(b"%d\n" % pid)
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            data = os.read(output, 1 << 16) if left > 0 and readable([output], left) else b""
            if not data:
                self.end()
                raise NoStackError(f"{NAME}: no answer")
            line += data
        answer = json_output(line.decode())
        self.cpu = float(answer["cpu"])
        if "error" in answer:
            raise (NotPermittedError if answer["refused"] else NoStackError)(f"{NAME}: {answer['error']}")
        return [_thread(*one) for one in answer["threads"]]

    def end(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.communicate()


def _thread(number: Any, frames: Any) -> CapturedThread:
    calls = [StackFrame(str(name), str(file), int(line or 0)) for name, file, line in frames]
    return CapturedThread(int(number), "", False, None, bounded(calls))


_readers: dict[str, Reader] = {}
"""Readers of this process by the path of their interpreter."""


def find(pid: int) -> str | None:
    """Return the interpreter of a process, if its version can read stacks itself and the file is the same here."""
    try:
        path = os.readlink(f"/proc/{pid}/exe")
        found = _PYTHON.search(os.path.basename(path))
        same = os.path.samefile(path, f"/proc/{pid}/exe")
    except OSError:
        return None
    return path if same and found and (int(found[1]), int(found[2])) >= (3, 14) else None


def prepare(pid: int) -> None:
    """Start the reader of this process before the first capture, which would come late otherwise."""
    with contextlib.suppress(NoStackError):
        if (path := find(pid)) is not None:
            _reader(path)


def read(path: str, pid: int) -> list[CapturedThread]:
    """Read the threads of a process with its interpreter. Raises `NoStackError`."""
    return _reader(path).read(pid)


def _reader(path: str) -> Reader:
    if path not in _readers:
        try:
            _readers[path] = Reader(path)
        except OSError as error:
            raise NoStackError(f"{NAME}: {error}") from None
    return _readers[path]


def end() -> None:
    """End the readers. Those that outlived this process would become children of the monitor, and so part of the run."""
    for reader in _readers.values():
        reader.end()


def cpu() -> float:
    """Return the CPU seconds of all readers."""
    return sum(one.cpu for one in _readers.values())
