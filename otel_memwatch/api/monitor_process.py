"""The monitor beside a running program: how it is started, how it is stopped.

It is no child of the program (it would be found by the program's own `wait()`, and counted as part of it) and no
member of its session. Two pipes connect them. Through the first one the monitor reports: a byte says that the first sample
is recorded, the end of file that the monitor is gone. The end of file of the second one, which also comes when the program
is killed, tells the monitor to finish.

The program may close our ends of the pipes and open files of its own under their numbers. They are touched only while they
still are our pipes. Without them the recording ends with the program.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

from otel_memwatch.config import OPTIONS, several
from otel_memwatch.in_target import allocators
from otel_memwatch.in_target.operations import RUN_DIRECTORY_VARIABLE, deactivate
from otel_memwatch.runtime.own_python import FIND_PACKAGE, PACKAGE_PARENT
from otel_memwatch.runtime.owned_descriptor import OwnedDescriptor, move_high
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.runtime.wait_readable import readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_STATUS, _STOP = 832, 896
"""Numbers from which on our ends of the pipes are placed, behind those of the operations."""
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
    ) -> tuple[OwnedDescriptor, OwnedDescriptor, subprocess.Popen[bytes]]:
        """Starts it; gives our ends of the two pipes, and the process that starts the monitor and ends."""
        with contextlib.ExitStack() as opened:
            status, ready = _open_pipe(opened)
            stop_seen, stop = _open_pipe(opened)
            # The monitor closes `ready` after its byte. The end of file in `status` comes only when the monitor is gone,
            # because it holds a second descriptor of that end.
            alive = OwnedDescriptor(os.dup(ready.number))
            opened.callback(alive.close)
            words = ["attach", str(pid), f"--out={directory}", *options(settings), *more]
            words += [f"--ready-fd={ready.number}", f"--stop-fd={stop_seen.number}"]
            launcher = _launch(words, afterwards, alive.number, (ready.number, stop_seen.number))
            ours = (
                OwnedDescriptor(move_high(status.number, _STATUS)),
                OwnedDescriptor(move_high(stop.number, _STOP)),
            )
            status.number = stop.number = -1
        return *ours, launcher

    def _wait_until_ready(self) -> None:
        said = self._read_status(_READY_SECONDS)
        self.ready, self.dead = bool(said), said == b""
        if self.dead:
            self._close()

    def _read_status(self, seconds: float) -> bytes | None:
        """Bytes from the monitor; empty: it is gone; `None`: it says nothing in time, or the pipe is lost."""
        try:
            if self._status.is_ours() and readable([self._status.number], max(0.0, seconds)):
                return os.read(self._status.number, 64)
        except OSError:  # the program has closed it in another thread just now
            pass
        return None

    def stop(self, timeout: float = _STOP_SECONDS) -> bool:
        """Ends the recording and waits until the record and its report are complete; false when that takes too long.

        False at once if the program has closed a pipe to the monitor: then the recording ends with the program. In a process
        forked from the one that started it nothing happens. Never raises `OSError`.
        """
        if os.getpid() != self._owner or self not in _running:
            return True
        if self._watches_us:
            deactivate()
            if self._environment is None:
                os.environ.pop(RUN_DIRECTORY_VARIABLE, None)
            else:
                os.environ[RUN_DIRECTORY_VARIABLE] = self._environment
            if self._exact_gpu:
                allocators.be_exact(wanted=False)
        if self._stop.is_ours():
            with contextlib.suppress(OSError):  # it has ended by itself
                os.write(self._stop.number, b"1")
        self._stop.close()
        deadline = time.monotonic() + timeout
        said: bytes | None = b"1"
        while said:
            said = self._read_status(deadline - time.monotonic())
        self._close()
        return said == b""

    def _close(self) -> None:
        """Gives the descriptors back, which lets the monitor go."""
        self._stop.close()
        self._status.close()
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


def _launch(
    words: Iterable[str], afterwards: str, alive: int, inherited: tuple[int, ...]
) -> subprocess.Popen[bytes]:
    """Start a Python that forks the monitor and ends; `words`: the monitor's command line."""
    program = [sys.executable, "-W", "ignore", "-c", _MONITOR_PROGRAM]
    environment = {name: value for name, value in os.environ.items() if name != RUN_DIRECTORY_VARIABLE}
    return subprocess.Popen(
        [*program, str(alive), PACKAGE_PARENT, afterwards, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=(alive, *inherited),
        start_new_session=True,
        env=environment,
    )


def _open_pipe(opened: contextlib.ExitStack) -> tuple[OwnedDescriptor, OwnedDescriptor]:
    """Open a pipe whose two ends are closed with `opened`."""
    reading, writing = map(OwnedDescriptor, os.pipe())
    opened.callback(reading.close)
    opened.callback(writing.close)
    return reading, writing


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
