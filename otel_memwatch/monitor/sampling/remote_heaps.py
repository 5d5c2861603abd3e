"""Allocators' statistics of running Python programs, by `sys.remote_exec` of Python 3.14 (`--remote-exec`).

The interpreter of the target requests it, under the target's user. The main thread of the target then runs `in_target/operations/heap.py`
between two of its instructions, at the end of a system call at the earliest. This is no signal handler. A script that begins after its
deadline does nothing. It stays in the run directory, because a target prints an error if its script has vanished.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import tempfile
import threading
import time

from otel_memwatch.record.fields import mapping
from otel_memwatch.run.heaps import reading_of
from otel_memwatch.runtime.kernel import PAGE_SIZE, read_once
from otel_memwatch.runtime.threads import Thread
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_memwatch.truth.heap import HeapReading

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_DEADLINE, _POLL = 5.0, 0.02
"""Seconds for a reading, and between two looks for its end."""
_FIRST, _LONGEST = 5.0, 600.0
"""Seconds between the first two rounds, and the most between later ones. A round costs 20 ms for each process."""
_LEAST = 32 << 20
"""Resident bytes from which a process is read."""
_PROCESSES = 8
_SUPPORTED = re.compile(r"python3\.(1[4-9]|[2-9]\d)t?d?")
"""Names of interpreters. Another program could take our arguments for something else."""
_FORKED = 0x40
"""Flag PF_FORKNOEXEC of /proc/PID/stat: a thread that is missing in the child may hold a lock."""
_REQUEST = "import sys; [open(path, 'rb').close() for path in sys.argv[2:]]; sys.remote_exec(int(sys.argv[1]), sys.argv[2])"
_SCRIPT = """\
def read():
    import _frozen_importlib, _frozen_importlib_external, time
    if time.monotonic() > {until!r}:
        return
    loader = _frozen_importlib_external.ExtensionFileLoader("_native", {library!r})
    native = loader.create_module(_frozen_importlib.ModuleSpec("_native", loader, origin={library!r}))
    loader.exec_module(native)
    def contents(path):
        with open(path, "rb", 0) as file:
            return file.read()
    space = {{"__name__": "otel_memwatch_heap"}}
    exec(compile(contents({source!r}), {source!r}, "exec"), space)
    reader = space["HeapReader"](native.heap_books, contents)
    text, _ = reader.read() or (b"null", 0)
    with open({answer!r}, "r+b", 0) as file:
        file.write(b'{{"again":%s,"heap":%s}}\\n' % (b"true" if reader.may_read else b"false", text))
try:
    read()
except KeyboardInterrupt:
    import _thread
    _thread.interrupt_main()
except Exception:
    pass
"""


class NoReadingError(Exception):
    """A process that cannot be read; the reason in words."""


class RemoteHeaps:
    """Reader of the Python programs of a tree, in a thread.

    Args:
        directory: run directory.
        problem: prints a sentence.

    """

    def __init__(self, directory: str, problem: Callable[[str], None]) -> None:
        self._directory, self._problem = directory, problem
        self._shared = ""
        """Directory for targets of other users."""
        self._next, self._pause = 0.0, _FIRST
        self._found: list[HeapReading] = []
        self._excluded: set[int] = set()
        self._late: set[int] = set()
        """Processes that may still run their script."""
        self._reasons: set[str] = set()
        self._closed = threading.Event()
        self._thread: Thread | None = None

    def read(self, pids: Callable[[], Sequence[int]], now: float) -> list[HeapReading]:
        """Begin a round if one is due. Return the readings since the last call."""
        if now >= self._next and (self._thread is None or not self._thread.is_alive()):
            self._next, self._pause = now + self._pause, min(_LONGEST, 2 * self._pause)
            self._thread = Thread(self._round, "otel-memwatch-remote", (tuple(pids()),))
            self._thread.start()
        found, self._found = self._found, []
        return found

    def close(self) -> None:
        """End the round in progress."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
        if self._shared:
            with contextlib.suppress(OSError):  # a script that may still run stays
                os.rmdir(self._shared)

    def _round(self, pids: Sequence[int]) -> None:
        supported = False
        for pid in [one for one in pids if one not in self._excluded][:_PROCESSES]:
            reason = ""
            try:
                executable = os.readlink(f"/proc/{pid}/exe")
                if not _SUPPORTED.fullmatch(os.path.basename(executable)):
                    continue
                supported = True
                if _is_worth_reading(pid):
                    _check_surroundings(pid)
                    reading = self._reading(pid, executable)
                    self._found += [reading] if reading is not None else []
            except (FileNotFoundError, ProcessLookupError):  # it has ended
                continue
            except NoReadingError as error:
                reason = str(error)
            except (OSError, ValueError, RecursionError) as error:
                reason = getattr(error, "strerror", None) or str(error)
            if reason:
                self._exclude(pid, reason)
        if not supported and not self._excluded:
            self._report("no process of the target is Python 3.14 or later")

    def _exclude(self, pid: int, reason: str) -> None:
        self._excluded.add(pid)
        self._report(reason, f"process {pid}: ")

    def _report(self, reason: str, of: str = "") -> None:
        """Print a reason, of the first process that has it."""
        if reason not in self._reasons and len(self._reasons) < _PROCESSES:
            self._reasons.add(reason)
            self._problem(f"--remote-exec: {of}{reason}.")

    def _reading(self, pid: int, executable: str) -> HeapReading | None:
        """Have a process read its allocators; `None`: it has not answered in time."""
        if executable.rstrip("d").endswith("t"):
            raise NoReadingError("its Python has no GIL, for which there is no compiled code")
        room = os.path.join(_PACKAGE, "in_target", "operations")
        source, library = os.path.join(room, "heap.py"), os.path.join(room, "_native.abi3.so")
        if not os.path.exists(library):
            raise NoReadingError("otel-memwatch was installed without compiled code")
        owner = os.stat(f"/proc/{pid}")
        folder = self._folder(owner)
        script, answer = (os.path.join(folder, f"remote-{pid}.{end}") for end in ("py", "json"))
        until = time.monotonic() + _DEADLINE
        with open(answer, "w+b", 0) as answered:
            os.fchown(answered.fileno(), owner.st_uid, owner.st_gid)
            with open(f"{script}.new", "w", encoding="utf-8") as file:
                file.write(_SCRIPT.format(until=until, library=library, source=source, answer=answer))
            os.replace(f"{script}.new", script)  # a target that is late may read it now
            words = [executable, "-I", "-S", "-c", _REQUEST, str(pid), script, source, library]
            try:
                text = self._answer(words, owner, answered.fileno(), until)
                if not text:
                    self._late.add(pid)
            finally:
                os.unlink(answer)
                if pid not in self._late:
                    os.unlink(script)
        if not text:
            if not self._closed.is_set():
                self._report(
                    f"no answer within {_DEADLINE:g} s; it may be in a system call", f"process {pid}: "
                )
            return None
        found = mapping(json.loads(text))
        if found.get("again") is not True:
            self._excluded.add(pid)
        if found.get("heap") is None:
            raise NoReadingError("its allocator has no known statistics")
        return reading_of(pid, found["heap"])

    def _folder(self, owner: os.stat_result) -> str:
        """Return a directory of ours that the target can read: the run directory only if it has our user."""
        if owner.st_uid == os.geteuid():
            return self._directory
        if not self._shared:
            self._shared = tempfile.mkdtemp(prefix="otel-memwatch-")
            os.chmod(self._shared, 0o711)  # noqa: S103 - the target's user must find its script
        return self._shared

    def _answer(self, words: Sequence[str], owner: os.stat_result, answered: int, until: float) -> bytes:
        """Have a process run its script. Return the answer, empty if it is late."""
        self._request(words, owner, until)
        text = b""
        while not text.endswith(b"\n") and time.monotonic() < until and not self._closed.wait(_POLL):
            text = os.pread(answered, 4096, 0)
        return text if text.endswith(b"\n") else b""

    def _request(self, words: Sequence[str], owner: os.stat_result, until: float) -> None:
        """Run the target's interpreter. Raises `NoReadingError` if it fails."""
        others = owner.st_uid != os.geteuid()
        with subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={},
            start_new_session=True,
            user=owner.st_uid if others else None,
            group=owner.st_gid if others else None,
            extra_groups=[] if others else None,
        ) as process:
            assert process.stderr is not None
            os.set_blocking(process.stderr.fileno(), False)
            while process.poll() is None and time.monotonic() < until and not self._closed.wait(_POLL):
                pass
            if process.poll() is None:
                process.kill()
            elif process.returncode:
                written = process.stderr.read(4096) or b""
                raise NoReadingError(_last_line(written.decode(errors="replace")))


def _last_line(traceback: str) -> str:
    """Return the message of an exception, without its class and its period."""
    line = traceback.strip().rpartition("\n")[2]
    return (line.partition(": ")[2] or line).rstrip(".")[:200]


def _is_worth_reading(pid: int) -> bool:
    """Return whether a process is large. Raises `NoReadingError` if nothing may run in it."""
    if int(read_once(f"/proc/{pid}/statm").split()[1]) * PAGE_SIZE < _LEAST:
        return False
    if int(read_once(f"/proc/{pid}/stat").rpartition(b")")[2].split()[6]) & _FORKED:
        raise NoReadingError("it was forked without exec, and runs no code of ours")
    return True


def _check_surroundings(pid: int) -> None:
    """Raise `NoReadingError` unless paths and PIDs are the same for this process and for us."""
    for kind in ("mnt", "pid", "time"):
        with contextlib.suppress(FileNotFoundError):  # a kernel without these namespaces
            if os.stat(f"/proc/{pid}/ns/{kind}").st_ino != os.stat(f"/proc/self/ns/{kind}").st_ino:
                raise NoReadingError("it runs in a container; run otel-memwatch there")
    if not os.path.samestat(os.stat(f"/proc/{pid}/root"), os.stat("/")):
        raise NoReadingError("it has another root directory")
