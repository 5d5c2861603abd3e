"""The monitor beside a running program: how it is started, how it is stopped.

It is no child of the program (it would be found by the program's own `wait()`, and counted as part of it) and no
member of its session. Two pipes connect them. Through the first one the monitor reports: a byte says that the first sample
is recorded, the end of file that the monitor is gone. The end of file of the second one, which also comes when the program
is killed, tells the monitor to finish.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import subprocess
import sys
import time
from pathlib import Path

from otel_memwatch.config import OPTIONS, several
from otel_memwatch.in_target import allocators
from otel_memwatch.in_target.operations import RUN_DIRECTORY_VARIABLE, deactivate
from otel_memwatch.runtime.own_python import FIND_PACKAGE, PACKAGE_PARENT
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
"""What the new Python runs. It forks at once and lets its first process end, so that the monitor is no child of the program,
then runs the command line, and `main` of the module that was named for afterwards with the same arguments. The pipe's end
that stays open until the monitor is gone is not for its own children."""


class MonitorProcess:
    """A process that records process `pid`, as its own or another's program. Raises `OSError` when it cannot be started.

    Args:
        pid: the process.
        directory: the run directory.
        settings: of the recording.
        wait: for the first sample. Else `launched` has to be called, and the directory has to be there already, so that
            operations can be recorded from now on.
        afterwards: module whose `main` the monitor calls when the record is complete, with the arguments of `attach`.

    Attributes:
        ready: whether the first sample was recorded within three seconds.
        dead: whether it ended before that.

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
            self._wait_until_ready()
        # What the program starts from now on, and its own operations, belong to this run.
        if self._watches_us and not self.dead:
            self._environment = os.environ.get(RUN_DIRECTORY_VARIABLE)
            os.environ[RUN_DIRECTORY_VARIABLE] = str(directory)
            self._exact_gpu = OPTIONS["exact_gpu"].parse(str(settings.get("exact_gpu", False)))
            if self._exact_gpu:
                allocators.be_exact(wanted=True)

    @property
    def launcher_pid(self) -> int:
        """The child that starts the monitor and ends at once. A tick may find it waiting to be taken note of."""
        return self._launcher.pid

    def launched(self) -> None:
        """Waits until the monitor is no child of ours any more: some 20 ms after its start."""
        self._launcher.wait()

    def _start(
        self, pid: int, directory: Path, settings: Mapping[str, Any], more: Iterable[str], afterwards: str
    ) -> tuple[int, int, subprocess.Popen[bytes]]:
        """Starts it; gives our ends of the two pipes, and the process that starts the monitor and ends."""
        status, ready = os.pipe()
        stop_seen, stop = os.pipe()
        # The monitor closes `ready` after its byte. The end of file in `status` is to come when it is gone, so that it
        # holds a second descriptor of that end.
        alive = os.dup(ready)
        argv = [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            _MONITOR_PROGRAM,
            str(alive),
            PACKAGE_PARENT,
            afterwards,
        ]
        argv += ["attach", str(pid), f"--out={directory}", *options(settings), *more]
        argv += [f"--ready-fd={ready}", f"--stop-fd={stop_seen}"]
        environment = {name: value for name, value in os.environ.items() if name != RUN_DIRECTORY_VARIABLE}
        try:
            launcher = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(ready, alive, stop_seen),
                start_new_session=True,
                env=environment,
            )
        except OSError:
            os.close(status)
            os.close(stop)
            raise
        finally:
            for descriptor in (ready, alive, stop_seen):
                os.close(descriptor)
        return status, stop, launcher

    def _wait_until_ready(self) -> None:
        if _readable(self._status, _READY_SECONDS):
            self.ready = os.read(self._status, 1) != b""
            self.dead = not self.ready
        if self.dead:
            self._close()

    def stop(self, timeout: float = _STOP_SECONDS) -> bool:
        """Ends the recording and waits until the record and its report are complete; false when that takes too long.

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
        with contextlib.suppress(OSError):  # it has ended by itself
            os.write(self._stop, b"1")
        os.close(self._stop)
        self._stop = -1
        deadline = time.monotonic() + timeout
        gone = False
        while not gone and _readable(self._status, deadline - time.monotonic()):
            gone = os.read(self._status, 64) == b""
        self._close()
        return gone

    def _close(self) -> None:
        """Gives the descriptors back, which lets the monitor go."""
        for descriptor in (self._stop, self._status):
            if descriptor >= 0:
                os.close(descriptor)
        self._stop = self._status = -1
        _running.discard(self)

    def leave(self) -> None:
        """In a forked child: lets go of the pipes. The recording is the parent's; it must end with it, not with the child."""
        self._close()


def options(settings: Mapping[str, Any]) -> list[str]:
    """Settings as options of the command line."""
    words: list[str] = []
    for name, value in settings.items():
        option = OPTIONS[name]
        if value is None or "attach" not in option.commands:
            continue  # not given, or of this process and not of the monitor
        if option.repeated:
            words += [f"{option.flag}={part}" for part in several(value)]
        elif option.metavar is not None:
            words.append(f"{option.flag}={value}")
        else:
            words.append(option.flag if option.parse(str(value)) else f"--no-{option.flag[2:]}")
    return words


def _readable(descriptor: int, seconds: float) -> bool:
    """Whether there is something to read, or the end of the file, within so many seconds."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0.0, seconds) * 1000))


_running: set[MonitorProcess] = set()
_hooks_are_set = False


def _keep(monitor: MonitorProcess) -> None:
    """Sees to it that it is stopped at the end of the program, and that forked children leave it alone."""
    global _hooks_are_set  # noqa: PLW0603 - hooks cannot be taken back, so they are set once
    _running.add(monitor)
    if not _hooks_are_set:
        _hooks_are_set = True
        os.register_at_fork(after_in_child=_leave_all)
        atexit.register(_stop_all)


def _leave_all() -> None:
    for monitor in list(_running):
        monitor.leave()


def _stop_all() -> None:
    for monitor in list(_running):
        monitor.stop()
