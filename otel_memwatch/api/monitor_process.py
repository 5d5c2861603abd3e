"""The monitor beside a running program: how it is started, how it is told to stop.

It is no child of the program (it would be found by the program's own `wait()`, and counted as part of it) and no
member of its session. Two pipes connect them: a byte says that the first sample is recorded, and its end of file that
the monitor is gone; the end of file of the other one, which also comes when the program is killed, that it may go.
"""

from __future__ import annotations

import atexit
import os
import select
import subprocess
import sys
import time
from pathlib import Path

from otel_memwatch.config import OPTIONS
from otel_memwatch.in_target import allocators
from otel_memwatch.in_target.operations import RUN_DIRECTORY_VARIABLE, deactivate
from otel_memwatch.runtime.own_python import PATH, PLACE
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_READY_SECONDS = 3.0
_STOP_SECONDS = 30.0

_BOOT = f"""
import os, sys
if os.fork():
    os._exit(0)
os.set_inheritable(int(sys.argv.pop(1)), False)
{PATH}
sys.argv[0] = "otel-memwatch"
from otel_memwatch.cli import main
main()
"""
"""Leaves the program at once, then runs the command line; the working directory is no place to import from."""


class Monitor:
    """A monitor process that records process `pid`. Raises `OSError` when it cannot be started.

    Attributes:
        ready: the first sample is recorded.
        dead: it ended before that.

    """

    def __init__(self, pid: int, directory: Path, settings: Mapping[str, Any]) -> None:
        self.ready = False
        self.dead = False
        self._owner = os.getpid()
        self._watches_us = pid == self._owner
        self._told, self._stop = self._start(pid, directory, settings)
        _keep(self)
        self._wait_until_ready()
        if self._watches_us and not self.dead:
            self._environment = os.environ.get(RUN_DIRECTORY_VARIABLE)
            os.environ[RUN_DIRECTORY_VARIABLE] = str(directory)
            self._exact_gpu = OPTIONS["exact_gpu"].parse(str(settings.get("exact_gpu", False)))
            if self._exact_gpu:
                allocators.be_exact(wanted=True)

    def _start(self, pid: int, directory: Path, settings: Mapping[str, Any]) -> tuple[int, int]:
        told, tell = os.pipe()
        stopped, stop = os.pipe()
        alive = os.dup(tell)  # held open until the monitor is gone: the other one it closes after its byte
        argv = [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            _BOOT,
            str(alive),
            PLACE,
        ]
        argv += ["attach", str(pid), f"--out={directory}", *options(settings)]
        argv += [f"--ready-fd={tell}", f"--stop-fd={stopped}"]
        environment = {name: value for name, value in os.environ.items() if name != RUN_DIRECTORY_VARIABLE}
        try:
            subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(tell, alive, stopped),
                start_new_session=True,
                env=environment,
            ).wait()
        except OSError:
            os.close(told)
            os.close(stop)
            raise
        finally:
            for descriptor in (tell, alive, stopped):
                os.close(descriptor)
        return told, stop

    def _wait_until_ready(self) -> None:
        if _readable(self._told, _READY_SECONDS):
            self.ready = os.read(self._told, 1) != b""
            self.dead = not self.ready
        if self.dead:
            self._close()

    def stop(self, timeout: float = _STOP_SECONDS) -> bool:
        """End the recording and wait until the record and its report are complete; false when that takes too long.

        In a process forked from the one that started it nothing happens.
        """
        if os.getpid() != self._owner or self._stop < 0:
            return True
        if self._watches_us:
            deactivate()
            if self._environment is None:
                os.environ.pop(RUN_DIRECTORY_VARIABLE, None)
            else:
                os.environ[RUN_DIRECTORY_VARIABLE] = self._environment
            if self._exact_gpu:
                allocators.be_exact(wanted=False)
        os.close(self._stop)
        self._stop = -1
        deadline = time.monotonic() + timeout
        gone = False
        while not gone and _readable(self._told, deadline - time.monotonic()):
            gone = os.read(self._told, 64) == b""
        self._close()
        return gone

    def _close(self) -> None:
        """Give the descriptors back, and so let the monitor go."""
        for descriptor in (self._stop, self._told):
            if descriptor >= 0:
                os.close(descriptor)
        self._stop = self._told = -1
        _running.discard(self)

    def leave(self) -> None:
        """In a forked child: the recording is the parent's, and must not go on because the child lives."""
        self._close()


def options(settings: Mapping[str, Any]) -> list[str]:
    """Settings as options of the command line."""
    words: list[str] = []
    for name, value in settings.items():
        option = OPTIONS[name]
        if "attach" not in option.commands:
            continue  # of this process, not of the monitor
        if option.metavar is not None:
            words.append(f"{option.flag}={value}")
        else:
            words.append(option.flag if option.parse(str(value)) else f"--no-{option.flag[2:]}")
    return words


def _readable(descriptor: int, seconds: float) -> bool:
    """Whether there is something to read, or the end of the file, within so many seconds."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0.0, seconds) * 1000))


_running: set[Monitor] = set()
_hooked = False


def _keep(monitor: Monitor) -> None:
    """Have it stopped at the end of the program, and left alone by forked children."""
    global _hooked  # noqa: PLW0603 - hooks cannot be taken back, so they are set once
    _running.add(monitor)
    if not _hooked:
        _hooked = True
        os.register_at_fork(after_in_child=_leave_all)
        atexit.register(_stop_all)


def _leave_all() -> None:
    for monitor in list(_running):
        monitor.leave()


def _stop_all() -> None:
    for monitor in list(_running):
        monitor.stop()
