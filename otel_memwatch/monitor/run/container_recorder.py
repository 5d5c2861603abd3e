"""Recording of the container that a wrapped client starts (`wrap -- podman run ...`), as a run beside that of the client.

A process of ours searches for the container and records its cgroup. Its stdin gets a byte when the client has ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

from otel_memwatch.errors import MemwatchError, describe
from otel_memwatch.runtime.own_python import python_command
from otel_memwatch.runtime.terminal import say
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.runtime.wait_readable import readable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_memwatch.monitor.run_cgroup.container_client import Client
    from otel_memwatch.monitor.run_cgroup.target_groups import TargetGroup

_POLL_SECONDS = 0.02
_LATER_POLL_SECONDS = 0.2
_SOON = 100
"""Polls until the pause between them is longer: an image may be fetched for minutes."""
_RUNTIMES = b"crun", b"runc"
"""Starts of the short names that a container's main process has until the command runs."""
_STARTING_POLL_SECONDS, _STARTING_POLLS = 0.005, 400
"""Pause between two readings of that name, and most readings: a command may have such a name."""
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
"""Modules of a recording's first sample. Loading them takes 0.1 s, in which a short container would end."""

_HINTS = {
    "docker": " (pass --cidfile FILE to docker run)",
    "nerdctl": " (pass --cidfile FILE to nerdctl run)",
    "kubectl": " on this machine",
}
"""Ends of the sentence if no container was found."""


class ContainerRecorder:
    """Monitor's side of the process. Raises `OSError` if it cannot be started."""

    def __init__(self, argv: Sequence[str], pid: int, directory: str, settings: Mapping[str, Any]) -> None:
        from subprocess import PIPE, Popen

        chosen = [f"--{name}={settings[name]}" for name in _OF_BOTH if settings[name] is not None]
        self._process = Popen(
            python_command(__name__, str(pid), f"{directory}-container", *chosen, "--", *argv),
            stdin=PIPE,
            start_new_session=True,
        )
        self.pid = self._process.pid
        """The process is not part of the run."""

    def finish(self) -> None:
        """Wait for the container's report. A container that goes on after its client is not recorded further."""
        from subprocess import TimeoutExpired

        with contextlib.suppress(TimeoutExpired):
            self._process.wait(_ENDS_ALONE)
            return
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(b"1")
            self._process.stdin.close()
        with contextlib.suppress(TimeoutExpired):
            self._process.wait(_PATIENCE)
            return
        self._process.kill()
        self._process.wait()


def main(arguments: Sequence[str]) -> None:
    """Find and record the container. Arguments: the client's PID, the run directory, settings, "--", the client's argv."""
    from otel_memwatch.monitor.run_cgroup.container_client import client_of

    # The starter has blocked signals for its threads.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    end = arguments.index("--")
    pid, directory, options, argv = int(arguments[0]), arguments[1], arguments[2:end], arguments[end + 1 :]
    client = client_of(argv)
    assert client is not None
    try:
        group = _wait_for(client, pid)
        if group is None:
            say(
                f"otel-memwatch: only the client was recorded: no {client.kind} was found{_HINTS.get(client.engine, '')}."
            )
        else:
            _record(group, directory, dict(option[2:].split("=", 1) for option in options))
    except MemwatchError as error:
        say(f"otel-memwatch: only the client was recorded: {error}")
    except Exception as error:  # noqa: BLE001 - the client's run is complete
        say(f"otel-memwatch: the container is not recorded: {describe(error)}")
        sys.exit(1)


def _wait_for(client: Client, pid: int) -> TargetGroup | None:
    """Return the container's group as soon as it has a process; `None`: the client ended before that."""
    from otel_memwatch.monitor.run_cgroup.new_containers import find_new
    from otel_memwatch.runtime.lazy import load_module

    for name in _MODULES:
        load_module(name)
    polls = 0
    while (group := find_new(client, pid)) is None:
        polls += 1
        if readable([0], _POLL_SECONDS if polls < _SOON else _LATER_POLL_SECONDS):
            return find_new(client, pid)
    return _started(group)


def _started(group: TargetGroup) -> TargetGroup:
    """Wait until the runtime has started the command; return its group, which the runtime may have made below."""
    from otel_memwatch.monitor.run_cgroup.target_groups import innermost
    from otel_memwatch.runtime.kernel import read_once
    from otel_memwatch.runtime.procfs.control_group import oldest_member

    with contextlib.suppress(OSError):
        for _ in range(_STARTING_POLLS):
            pid = oldest_member(group.path)
            if pid is None or not read_once(f"/proc/{pid}/comm").startswith(_RUNTIMES):
                break
            time.sleep(_STARTING_POLL_SECONDS)
    return group._replace(path=innermost(group.path))


def _record(group: TargetGroup, directory: str, given: Mapping[str, str]) -> None:
    from otel_memwatch.config import settings
    from otel_memwatch.monitor.run.attach import NoProcessError, attach
    from otel_memwatch.record.format import RUN_FILE, SAMPLES_FILE
    from otel_memwatch.runtime.procfs.control_group import oldest_member

    flags = {name: given[name] == "True" for name in ("quiet", "report")}
    chosen = settings("attach", {**given, **flags, "out": directory})
    chosen.update(dict.fromkeys(_OF_CLIENT), name=chosen["name"] or group.name)
    # The first processes of runc end in the container's group before the command starts there.
    at_once = f"otel-memwatch: only the client was recorded: {group.kind} {group.name} ended at once."
    for tries_left in reversed(range(_TRIES)):
        pid = oldest_member(group.path)
        if pid is None:
            say(at_once)
            return
        try:
            ended = attach(pid, chosen, say, stop_fd=os.dup(0), group=group)
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
