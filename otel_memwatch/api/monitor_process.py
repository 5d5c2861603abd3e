"""Start and stop of the monitor of a running program.

The monitor is neither a child of the program nor a member of its session. The program's `wait()` would find a child, and
its figures would include it. Two pipes connect both processes:

- On the first pipe the monitor sends a byte when the first sample is recorded. End of file means that it has ended.
- End of file on the second pipe makes the monitor finish. This also happens when the program is killed.

The program may close its ends of the pipes and open other files under their numbers. This module uses a number only
while it still refers to the pipe. Without the pipes, the recording ends with the program.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import time
from pathlib import Path

from otel_memwatch.config import OPTIONS, as_arguments
from otel_memwatch.in_target import allocators
from otel_memwatch.in_target.operations import RUN_DIRECTORY_VARIABLE, deactivate, record_heap
from otel_memwatch.runtime.own_python import FIND_PACKAGE, PACKAGE_PARENT, interpreter
from otel_memwatch.runtime.owned_descriptor import OwnedDescriptor, move_high
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.runtime.wait_readable import readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_STATUS, _STOP = 832, 896
"""Lowest descriptor numbers for our ends of the pipes, above those of the operations."""
_READY_SECONDS = 3.0
_STOP_SECONDS = 30.0

_MONITOR_PROGRAM = f"""
import os, sys
if os.fork():
    os._exit(0)
os.set_inheritable(int(sys.argv.pop(1)), False)
{FIND_PACKAGE}
afterwards, sys.argv[0] = sys.argv.pop(1), "otel-memwatch"
from otel_memwatch.cli import main
try:
    main()
finally:
    if afterwards:
        from importlib import import_module
        import_module(afterwards).main(sys.argv[1:])
"""
"""Program of the new Python process.

It forks at once and its first process ends, so the monitor is not a child of the program. Then it runs the command line,
and afterwards `main` of an optional module with the same arguments. The monitor's children do not inherit the end of
the pipe that stays open until the monitor ends.
"""


class MonitorProcess:
    """A process that records process `pid`, which may be this process. Raises `OSError` if it cannot be started.

    Args:
        pid: the process to record.
        directory: the run directory.
        settings: settings of the recording.
        wait: wait for the first sample. If false, the caller must call `launched`, and the directory must exist so
            operations can be recorded at once.
        afterwards: module with a `main` that the monitor calls after completing the record, with the arguments of `attach`.

    Attributes:
        ready: true if the first sample was recorded within three seconds.
        dead: true if the monitor ended before that.

    """

    def __init__(
        self,
        pid: int,
        directory: Path,
        settings: Mapping[str, Any],
        *,
        wait: bool = True,
        afterwards: str = "",
    ) -> None:
        self.ready = False
        self.dead = False
        self._owner = os.getpid()
        self._watches_us = pid == self._owner
        more = [] if wait else ["--prepared"]
        self._status, self._stop, self._launcher = self._start(pid, directory, settings, more, afterwards)
        _keep(self)
        if wait:
            self.launched()
            said = self._read_status(_READY_SECONDS)
            self.ready, self.dead = bool(said), said == b""
            if self.dead:
                self._close()
        # Operations and processes that the program starts from now on belong to this run.
        if self._watches_us and not self.dead:
            self._environment = os.environ.get(RUN_DIRECTORY_VARIABLE)
            os.environ[RUN_DIRECTORY_VARIABLE] = str(directory)
            self._exact_gpu = OPTIONS["exact_gpu"].parse(str(settings.get("exact_gpu", False)))
            if self._exact_gpu:
                allocators.be_exact(wanted=True)
            if OPTIONS["torch_snapshot"].parse(str(settings.get("torch_snapshot", False))):
                from otel_memwatch.in_target.torch_snapshot.finder import wait_for_torch

                wait_for_torch(str(directory))

    @property
    def launcher_pid(self) -> int:
        """Return the PID of the child that starts the monitor and ends at once. A sample may find it as a zombie."""
        return self._launcher.pid

    def launched(self) -> None:
        """Wait until the launcher has ended and the monitor is not a descendant: about 20 ms after the start."""
        self._launcher.wait()

    def _start(
        self, pid: int, directory: Path, settings: Mapping[str, Any], more: Iterable[str], afterwards: str
    ) -> tuple[OwnedDescriptor, OwnedDescriptor, subprocess.Popen[bytes]]:
        """Start the monitor; return our ends of the two pipes, and the launcher process."""
        with contextlib.ExitStack() as opened:
            status, ready = _open_pipe(opened)
            stop_seen, stop = _open_pipe(opened)
            # The monitor closes `ready` after its byte. It holds a second descriptor of that end, so end of file in
            # `status` comes only when the monitor ends.
            alive = OwnedDescriptor(os.dup(ready.number))
            opened.callback(alive.close)
            program = [*interpreter(), "-W", "ignore", "-c", _MONITOR_PROGRAM]
            words = ["attach", str(pid), f"--out={directory}", *as_arguments(settings, "attach"), *more]
            words += [f"--ready-fd={ready.number}", f"--stop-fd={stop_seen.number}"]
            launcher = subprocess.Popen(
                [*program, str(alive.number), PACKAGE_PARENT, afterwards, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(alive.number, ready.number, stop_seen.number),
                start_new_session=True,
                env={name: value for name, value in os.environ.items() if name != RUN_DIRECTORY_VARIABLE},
            )
            ours = (
                OwnedDescriptor(move_high(status.number, _STATUS)),
                OwnedDescriptor(move_high(stop.number, _STOP)),
            )
            status.number = stop.number = -1
        return *ours, launcher

    def _read_status(self, seconds: float) -> bytes | None:
        """Return bytes from the monitor; empty if it has ended; `None` if it sends nothing in time or the pipe is lost."""
        try:
            if self._status.is_ours() and readable([self._status.number], max(0.0, seconds)):
                return os.read(self._status.number, 64)
        except OSError:  # another thread of the program has just closed it
            pass
        return None

    def stop(self, timeout: float = _STOP_SECONDS) -> bool:
        """End the recording and wait until the record and its report are complete. Return false on a timeout.

        Returns false at once if the program has closed a pipe to the monitor; then the recording ends with the program.
        Does nothing in a forked child. Never raises `OSError`.
        """
        if os.getpid() != self._owner or self not in _running:
            return True
        if self._watches_us:
            record_heap()
            deactivate()
            if self._environment is None:
                os.environ.pop(RUN_DIRECTORY_VARIABLE, None)
            else:
                os.environ[RUN_DIRECTORY_VARIABLE] = self._environment
            if self._exact_gpu:
                allocators.be_exact(wanted=False)
        if self._stop.is_ours():
            with contextlib.suppress(OSError):  # the monitor has already ended
                os.write(self._stop.number, b"1")
        self._stop.close()
        deadline = time.monotonic() + timeout
        said: bytes | None = b"1"
        while said:
            said = self._read_status(deadline - time.monotonic())
        self._close()
        return said == b""

    def _close(self) -> None:
        """Close the descriptors, which releases the monitor."""
        self._stop.close()
        self._status.close()
        _running.discard(self)

    def leave(self) -> None:
        """Close the pipes in a forked child, because the recording must end with the parent, not with the child."""
        self._close()


def _open_pipe(opened: contextlib.ExitStack) -> tuple[OwnedDescriptor, OwnedDescriptor]:
    """Open a pipe; `opened` closes both of its ends."""
    reading, writing = map(OwnedDescriptor, os.pipe())
    opened.callback(reading.close)
    opened.callback(writing.close)
    return reading, writing


_running: set[MonitorProcess] = set()
_hooks_are_set = False


def _keep(monitor: MonitorProcess) -> None:
    """Stop the monitor at the end of the program, and detach it in forked children."""

    def leave_all() -> None:
        for one in list(_running):
            one.leave()

    def stop_all() -> None:
        for one in list(_running):
            one.stop()

    global _hooks_are_set  # noqa: PLW0603 - hooks cannot be removed, so they are set once
    _running.add(monitor)
    if not _hooks_are_set:
        _hooks_are_set = True
        os.register_at_fork(after_in_child=leave_all)
        atexit.register(stop_all)
