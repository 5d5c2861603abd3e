"""`attach`: record a process that we did not start, until it ends or we are stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from otel_memwatch.config import ignored, misspelt
from otel_memwatch.errors import UsageError
from otel_memwatch.monitor.messages import Messages
from otel_memwatch.monitor.recording.run_info import TargetInfo
from otel_memwatch.monitor.recording.trace_context import run_context
from otel_memwatch.monitor.run.monitor import Monitor
from otel_memwatch.monitor.run.run_directory import make_run_directory
from otel_memwatch.monitor.run_cgroup.target_groups import find_group
from otel_memwatch.runtime.kernel import monotonic_start, read_once
from otel_memwatch.runtime.procfs.control_group import oldest_member
from otel_memwatch.runtime.procfs.mounted import shows_others
from otel_memwatch.runtime.procfs.process import parse_stat, without_padding
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.runtime.wait_readable import readable

if TYPE_CHECKING:
    from otel_memwatch.model import Ending
    from otel_memwatch.monitor.run_cgroup.last_reading import LastReading
    from otel_memwatch.monitor.run_cgroup.target_groups import TargetGroup
    from otel_memwatch.monitor.sampling.stacks.worker import StackWorker
    from otel_memwatch.monitor.workers.uploading import Uploader

_POLL_SECONDS = 0.2
"""Seconds between two checks for a process if the kernel cannot report its end (no pidfd)."""


_RESTART_POLL_SECONDS = 0.25
"""Seconds between two searches for a group that has ended."""

_EXIT_SECONDS = 0.2
"""Longest wait for the rest of an exit after the process has left its cgroup, and for the last reading of that cgroup."""
_NAMED_POLL_SECONDS = 1.0
"""Seconds between two searches for a process by name, which read all of /proc."""

_CLOCK_SECONDS = 0.02
"""Seconds by which the start of a process may appear too early: the kernel counts it in hundredths since the boot."""

_WAITING = "otel-memwatch: {} ended. Waiting {:g} s for it to start again (Ctrl-C: stop)."

_ENDED = "ended"
"""Reason of a recording's end: the target has ended."""
_BY_PROGRAM, _WITH_CLIENT = "recording stopped by the program", "recording stopped with the client"
"""Reasons, if a byte arrived on `stop_fd`: from the program that is recorded, or from the monitor of a container's client."""


class NoProcessError(UsageError):
    """A pid without a process, or of a zombie."""


def attach(
    pid: int,
    settings: Mapping[str, Any],
    say: Callable[[str], None],
    *,
    ready_fd: int | None = None,
    stop_fd: int | None = None,
    prepared: bool = False,
    group: TargetGroup | None = None,
    wake: int | None = None,
) -> float | None:
    """Record process `pid` and its descendants until it ends, a signal arrives, or a byte arrives on `stop_fd`.

    Returns the monotonic time at which the target ended by itself; `None`: the recording was stopped.

    Args:
        pid: the process.
        settings: the options in force.
        say: prints one line.
        ready_fd: receives one byte once the first sample is recorded.
        stop_fd: a byte ends the recording. End of file does not: an exec closes the descriptor too.
        prepared: our parent has made the run directory, and may have marked operations in it.
        group: the cgroup that is the target instead of the tree; `pid` is its main process.
        wake: descriptor that becomes readable on a signal; `None`: handle signals from now on.

    Raises `UsageError` if the process does not exist or is unreadable.
    """
    for sentence in (*misspelt(os.environ), *ignored(settings)):
        say(f"otel-memwatch: {sentence}")
    try:
        argv = _command_of(pid)
    except NoProcessError:
        if prepared:
            return time.monotonic()  # it ended before we started; the records that it wrote remain
        raise
    environment, pidfd = _environment_of(pid), _open_pidfd(pid)
    wake = _wake_on_signals() if wake is None else wake
    directory = Path(settings["out"] if prepared else make_run_directory(settings, argv, say))
    trace = run_context(environment)
    mode, started = "attach" if stop_fd is None else "watch", time.monotonic()
    last, uploader, stacks = _read_last(group), _start_uploader(settings, say), _start_stacks(settings, say)
    helpers = frozenset(one.pid for one in (uploader, stacks) if one is not None)
    helpers |= frozenset(() if last is None else last.pids)
    target = TargetInfo(mode, argv, pid, started, environment=environment, group=group, helpers=helpers)
    monitor = Monitor(directory, settings, target, trace, Messages(say))
    monitor.start()
    if uploader is not None:
        uploader.begin(directory)
    if stacks is not None:
        stacks.begin(directory, pid, None, helpers)
    if ready_fd is not None:
        _report_first_sample(monitor, ready_fd)
    if group is None:
        why = _wait_for_end(pid, pidfd, stop_fd, wake)
    else:
        why = _wait_for_group(monitor, group.path, (pid, pidfd), (stop_fd, wake), last)
        why = _WITH_CLIENT if why == _BY_PROGRAM else why
    problems = [] if stacks is None else stacks.finish()
    ended = time.monotonic()
    monitor.finish(lambda: _ending(monitor, why), lambda: _signalled(wake), problems, ended=ended)
    if uploader is not None and (problem := _upload_rest(uploader, wake)) is not None:
        monitor.messages.problem(problem)
    return ended if why == _ENDED and not _signalled(wake) else None


def attach_group(
    group: TargetGroup, settings: Mapping[str, Any], say: Callable[[str], None], patience: float
) -> bool:
    """Record a cgroup until it has no process. Return whether it has one again within `patience` seconds.

    The run is named after the group. Raises `UsageError` if the group has no process.
    """
    pid = oldest_member(group.path)
    if pid is None:
        raise UsageError(f"No process runs in {group.path}.", "start one, then attach")
    named = {
        **settings,
        "name": settings["name"] or (os.path.basename(group.path) if group.kind == "cgroup" else group.name),
    }
    wake = _wake_on_signals()
    if attach(pid, named, say, group=group, wake=wake) is None or not patience:
        return False

    def runs() -> bool:
        return oldest_member(find_group(group.kind, group.name).path) is not None

    say(_WAITING.format(f"{group.kind} {group.name}", patience))
    return _starts_again(runs, _RESTART_POLL_SECONDS, patience, wake)


def attach_named(
    name: str,
    find: Callable[[], int],
    settings: Mapping[str, Any],
    say: Callable[[str], None],
    patience: float,
) -> bool:
    """Record the process that `find` returns. Return whether it returns a younger one within `patience` seconds of its end.

    The run has the name of the process. `find` raises `UsageError` if there is none, or several.
    """
    wake = _wake_on_signals()
    ended = attach(find(), {**settings, "name": settings["name"] or name}, say, wake=wake)
    if ended is None:
        return False

    def runs() -> bool:
        # Workers of the old one may outlive it for a moment.
        try:
            stat = parse_stat(read_once(f"/proc/{find()}/stat"))
        except (OSError, ValueError):
            return False
        return monotonic_start(stat.start) >= ended - _CLOCK_SECONDS

    say(_WAITING.format(f'"{name}"', patience))
    return _starts_again(runs, _NAMED_POLL_SECONDS, patience, wake)


def _starts_again(runs: Callable[[], bool], pause: float, patience: float, wake: int) -> bool:
    """Return whether a target runs again within `patience` seconds; a `UsageError` of `runs` means no."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if readable([wake], pause):
            return False
        with contextlib.suppress(UsageError):
            if runs():
                return True
    return False


def _report_first_sample(monitor: Monitor, ready_fd: int) -> None:
    """Write a byte to the descriptor once the first sample is recorded, or after 30 s."""
    monitor.wait_for_first_tick(30.0)
    with contextlib.suppress(OSError):
        os.write(ready_fd, b"1")
        os.close(ready_fd)


def _start_uploader(settings: Mapping[str, Any], say: Callable[[str], None]) -> Uploader | None:
    if settings["upload"] is None:
        return None
    from otel_memwatch.monitor.workers.uploading import start_uploader

    return start_uploader(settings["upload"], say)


def _start_stacks(settings: Mapping[str, Any], say: Callable[[str], None]) -> StackWorker | None:
    if not settings["stacks"]:
        return None
    from otel_memwatch.monitor.sampling.stacks.worker import start_stacks

    return start_stacks(say)


def _upload_rest(uploader: Uploader, wake: int) -> str | None:
    """Upload the rest; return the failure, if any. A further signal aborts it."""
    if _signalled(wake):
        os.read(wake, 1)
    return uploader.finish(lambda: _signalled(wake))


def _signalled(wake: int) -> bool:
    return bool(readable([wake], 0))


def _command_of(pid: int) -> tuple[str, ...]:
    """Return the argv of the process, or its short name in brackets if argv is empty or hidden."""
    import psutil

    if shows_others():
        raise UsageError(
            "/proc is that of another pid namespace, so PIDs cannot be looked up.",
            "unshare --mount-proc, or mount -t proc proc /proc",
        )
    try:
        process = psutil.Process(pid)
        return without_padding(tuple(process.cmdline())) or (f"[{process.name()}]",)
    except (psutil.NoSuchProcess, psutil.ZombieProcess, ValueError, OverflowError):
        raise NoProcessError(f"There is no process {pid}.") from None
    except psutil.AccessDenied:
        raise UsageError(
            f"Process {pid} is not readable by this user.", "run as its owner, or as root"
        ) from None


def _environment_of(pid: int) -> dict[str, str]:
    """Return the environment of the process at its start; empty if unreadable."""
    try:
        data = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (os.fsdecode(entry).partition("=") for entry in data.split(b"\0") if entry)
    return {name: value for name, _, value in pairs}


def _open_pidfd(pid: int) -> int | None:
    """Return a descriptor that becomes readable when the process ends; `None` if unsupported."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _wake_on_signals() -> int:
    """Return a descriptor that becomes readable on SIGINT, SIGTERM or SIGHUP."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    return reading


def _wait_for_end(
    pid: int, pidfd: int | None, stop_fd: int | None, wake: int, other: int | None = None
) -> str:
    """Wait until the recording has to end, or `other` is readable, which may mean that; return why, in words."""
    reasons = {wake: "recording stopped"}
    if stop_fd is not None:
        reasons[stop_fd] = _BY_PROGRAM
    reasons.update((descriptor, _ENDED) for descriptor in (pidfd, other) if descriptor is not None)
    while True:
        ready = readable(reasons, None if pidfd is not None else _POLL_SECONDS)
        if pidfd is not None and pidfd in ready:
            return reasons[pidfd]
        if stop_fd in ready and stop_fd is not None and os.read(stop_fd, 1) == b"":
            # The other end was closed without a byte: by an exec, which the process survives, or by its end.
            del reasons[stop_fd]
            stop_fd = None
            continue
        if ready:
            return reasons[ready[0]]
        if not _exists(pid):
            return _ENDED


def _wait_for_group(
    monitor: Monitor,
    path: str,
    main: tuple[int, int | None],
    ends: tuple[int | None, int],
    last: LastReading | None,
) -> str:
    """Wait until no process of a group is left; return why the recording ends, in words.

    Args:
        monitor: gets the last reading.
        path: directory of the group.
        main: PID of its main process, and the descriptor of this process.
        ends: descriptors that end the recording, as `_wait_for_end` takes them.
        last: reads the group at its end; `None`: nothing does.
    """
    pid, pidfd = main
    left: int | None = pid
    while left is not None:
        if left != pid:
            if pidfd is not None:
                os.close(pidfd)
            pid, pidfd = left, _open_pidfd(left)
        why = _wait_for_end(pid, pidfd, *ends, None if last is None else last.fd)
        there = why == _ENDED and (last is None or last.is_there())
        left = oldest_member(path) if there else None
        if left is None and why == _ENDED:
            readable([pidfd] if pidfd is not None else [], _EXIT_SECONDS)
        if last is not None:
            last.take(_EXIT_SECONDS if left is None and why == _ENDED else 0.0)
            if left is not None:
                last.discard()
            monitor.keep_group(last.contents)
            if left is None or last.is_over:
                last.close()
                last = None
    if pidfd is not None:
        os.close(pidfd)
    return why


def _read_last(group: TargetGroup | None) -> LastReading | None:
    """Start the process for the last reading of a group; `None`: version 1, or there is no such group."""
    if group is None or group.version == 1:
        return None
    from otel_memwatch.monitor.run_cgroup.last_reading import LastReading

    try:
        return LastReading(group.path)
    except OSError:
        return None


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _ending(monitor: Monitor, why: str) -> Ending:
    """Return how the recording ended. For a process that is not our child: whether it ended, and any OOM kills."""
    ending = monitor.ending(None, None, monitor.oom_kills())
    return ending._replace(reason=why + ending.reason.removeprefix(_ENDED))
