"""Recording of the container that a wrapped client starts (`wrap -- podman run ...`), as a run beside that of the client.

A fork of ours searches for the container and records its cgroup. A new interpreter would take 0.2 s more, in which a short
container would end. Two pipes to the process get a byte: one when the client has ended, one when the recording has to end.
"""

from __future__ import annotations

import contextlib
import os
import time
from functools import partial

from otel_memwatch.errors import MemwatchError, describe
from otel_memwatch.runtime.system_calls import open_files, signal
from otel_memwatch.runtime.terminal import say
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NoReturn
from otel_memwatch.runtime.wait_readable import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from otel_memwatch.monitor.run_cgroup.target_groups import TargetGroup
    from otel_memwatch.run.container_client import Client

_POLL_SECONDS = 0.02
_LATER_POLL_SECONDS = 0.2
_SOON = 100
"""Polls until the pause between them is longer: an image may be fetched for minutes."""
_RUNTIMES = b"crun", b"runc"
"""Starts of the short names that a container's main process has until the command runs."""
_STARTING_POLL_SECONDS, _STARTING_POLLS = 0.005, 400
"""Pause between two readings of that name, and most readings: a command may have such a name."""
_END_POLL_SECONDS = 0.01
_ENDS_ALONE = 1.0
"""Seconds after the client's end in which its container ends too."""
_TRIES = 5
"""Processes of the container's group that may end before the recording begins."""
_PATIENCE = 10.0
"""Longest wait of the client's run for the report of the container, in seconds."""
_OF_BOTH = ("quiet", "summary", "report", "interval")
"""Settings of the client's run that apply to the container's."""
_OF_CLIENT = ("prometheus", "upload", "textfile", "tracker", "stacks")
"""Settings that only the client's run has: two runs cannot share a port or a file."""

_MODULES = (
    "psutil",
    "otel_memwatch.monitor.run.attach",
    "otel_memwatch.monitor.recording.recording",
    "otel_memwatch.monitor.sampling.sampler",
    *(
        f"otel_memwatch.monitor.sampling.sources.{name}"
        for name in ("process_tree", "host", "cgroup", "pressure", "run_queue", "memory_detail")
    ),
    "otel_memwatch.record.writer",
)
"""Modules of a recording's first sample. They are loaded during the search."""

_HINTS = {
    "docker": " (pass --cidfile FILE to docker run)",
    "nerdctl": " (pass --cidfile FILE to nerdctl run)",
    "kubectl": " on this machine",
}
"""Ends of the sentence if no container was found."""


class ContainerRecorder:
    """Monitor's side of the process. Create it while there is one thread. Raises `OSError` if it cannot be started.

    Attributes:
        pid: PID of the process, which is not part of the run.

    """

    def __init__(self, client: Client, pid: int, directory: str, settings: Mapping[str, Any]) -> None:
        ended, self._ended = os.pipe()
        stop, self._stop = os.pipe()
        try:
            self.pid = os.fork()
            if not self.pid:
                action = partial(record, client, pid, directory, settings, ended=ended, stop=stop)
                _serve(action, {ended, stop})
        finally:
            os.close(ended)
            os.close(stop)

    def finish(self) -> None:
        """Wait for the container's report. A container that goes on after its client is not recorded further."""
        for pipe, seconds in ((self._ended, _ENDS_ALONE), (self._stop, _PATIENCE)):
            with contextlib.suppress(OSError):  # it has ended
                os.write(pipe, b"1")
            if self._ends_within(seconds):
                return
        os.kill(self.pid, signal.SIGKILL)
        say(
            f"otel-memwatch: the record of the container is incomplete: its report took more than {_PATIENCE:g} s."
        )

    def _ends_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                if os.waitpid(self.pid, os.WNOHANG)[0]:
                    return True
            except ChildProcessError:  # it was reaped with the processes of the run
                return True
            time.sleep(_END_POLL_SECONDS)
        return False


def _serve(action: Callable[[], None], kept: Collection[int]) -> NoReturn:
    """Run the process: without signal mask, session and open files of the monitor: its pipes end with it."""
    from otel_memwatch.runtime.memory_headroom import be_killed_first

    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.setsid()
        for fd in open_files():
            if fd > 2 and fd not in kept:
                with contextlib.suppress(OSError):
                    os.close(fd)
        be_killed_first()
        action()
    finally:
        os._exit(0)


def record(
    client: Client, pid: int, directory: str, settings: Mapping[str, Any], *, ended: int, stop: int
) -> None:
    """Find and record the container of a client.

    Args:
        client: as the command line names it.
        pid: of the client.
        directory: of the client's run.
        settings: of the client's run.
        ended: gets a byte when the client has ended: then the search ends.
        stop: gets a byte when the recording has to end.
    """
    try:
        group = _wait_for(client, pid, ended)
        if group is None:
            say(
                f"otel-memwatch: only the client was recorded: no {client.kind} was found{_HINTS.get(client.engine, '')}."
            )
        else:
            _record(group, f"{directory}-container", settings, stop)
    except MemwatchError as error:
        say(f"otel-memwatch: only the client was recorded: {error}")
    except Exception as error:  # noqa: BLE001 - the client's run is complete
        say(f"otel-memwatch: the container is not recorded: {describe(error)}")


def _wait_for(client: Client, pid: int, ended: int) -> TargetGroup | None:
    """Return the container's group as soon as it has a process; `None`: the client ended before that."""
    from otel_memwatch.monitor.run_cgroup.new_containers import find_new
    from otel_memwatch.runtime.lazy import load_module

    modules, polls = iter(_MODULES), 0
    while (group := find_new(client, pid)) is None:
        name = next(modules, None)
        if name is not None:
            load_module(name)
            pause = 0.0
        else:
            polls += 1
            pause = _POLL_SECONDS if polls < _SOON else _LATER_POLL_SECONDS
        if readable([ended], pause):
            return find_new(client, pid)
    for name in modules:
        load_module(name)
    return _started(group, ended)


def _started(group: TargetGroup, ended: int) -> TargetGroup:
    """Wait until the runtime has started the command; return its group, which the runtime may have made below.

    The group may be empty for a moment: the first processes of runc end there before the command starts.
    """
    from otel_memwatch.monitor.run_cgroup.target_groups import innermost
    from otel_memwatch.runtime.kernel import read_once
    from otel_memwatch.runtime.procfs.control_group import oldest_member

    for _ in range(_STARTING_POLLS):
        pid = oldest_member(group.path)
        with contextlib.suppress(OSError):
            if pid is not None and not read_once(f"/proc/{pid}/comm").startswith(_RUNTIMES):
                break
        if not os.path.exists(group.path) or readable([ended], _STARTING_POLL_SECONDS):
            break
    return group._replace(path=innermost(group.path))


def _record(group: TargetGroup, directory: str, given: Mapping[str, Any], stop: int) -> None:
    from otel_memwatch.config import settings
    from otel_memwatch.monitor.run.attach import NoProcessError, attach
    from otel_memwatch.record.format import RUN_FILE, SAMPLES_FILE
    from otel_memwatch.runtime.procfs.control_group import oldest_member

    chosen = settings("attach", {name: given[name] for name in _OF_BOTH} | {"out": directory})
    chosen.update(dict.fromkeys(_OF_CLIENT), name=chosen["name"] or group.name)
    at_once = f"otel-memwatch: only the client was recorded: {group.kind} {group.name} ended at once."
    for tries_left in reversed(range(_TRIES)):
        pid = oldest_member(group.path)
        if pid is None:
            say(at_once)
            return
        try:
            ended = attach(pid, chosen, say, stop_fd=stop, group=group)
            break
        except NoProcessError:
            if not tries_left:
                raise
    if not os.path.exists(f"{directory}/{SAMPLES_FILE}"):
        say(at_once)
        with contextlib.suppress(OSError):  # a run without a sample
            os.unlink(f"{directory}/{RUN_FILE}")
            os.rmdir(directory)
    elif ended is None and oldest_member(group.path) is not None:
        say(
            f"otel-memwatch: {group.kind} {group.name} still runs. To record it further: otel-memwatch attach "
            f"--{group.kind} {group.name}"
        )
