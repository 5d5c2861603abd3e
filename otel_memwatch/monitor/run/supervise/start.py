"""Start of the command: fork, undo Python's changes in the child, exec."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from otel_memwatch.errors import CommandNotStarted
from otel_memwatch.monitor.run.supervise import ending, signals
from otel_memwatch.monitor.run.supervise.executable import Command
from otel_memwatch.monitor.run.supervise.target import Target, follow_stop
from otel_memwatch.monitor.run.supervise.witness import Witness
from otel_memwatch.runtime import system_calls
from otel_memwatch.runtime.typed import NoReturn

_FLOOR_MARGIN = 1024 * 1024
"""Bytes by which the RSS of the child may grow between its reading and exec. A search along PATH takes half of this."""
_STOP_MILLISECONDS = 50
"""Interval of the checks whether the child has stopped, until it executes the command."""


def launch(
    argv: Sequence[str | bytes],
    *,
    variables: Mapping[str, str],
    before_exec: Callable[[], None] | None = None,
    forked: Callable[[Sequence[int]], None] | None = None,
    meanwhile: Iterable[object] = (),
) -> Target:
    """Start a command as our child, in our process group. Call it once, in the main thread, as the only thread.

    - The command inherits our environment, open files, signal mask, dispositions and timers, unchanged since our start.
      We do not read stdin.
    - From now on we hold none of its files except stderr: a pipe or lock that the command closes is closed.
    - Signals are blocked in the calling thread and in all threads that it starts later. `Target.wait` takes them.
    - On Linux this process becomes the subreaper of its descendants.

    Args:
        argv: program and arguments, verbatim. The program is searched in PATH, like execvp(3).
        variables: environment variables to add for the command.
        before_exec: called in the child before exec, to move it into a cgroup. If it raises, the command starts all
            the same, and `Target.misplaced` has the reason.
        forked: called in this process with the pids of the child and the witness, while the child is in `before_exec`.
            Its exceptions are ignored: `before_exec` has to notice the failure.
        meanwhile: iterated in this process, step by step, until the child is ready. The kernel may take some ms to
            move the child. The steps must have no effect if the command turns out not to exist.

    Raises:
        CommandNotStarted: with exit code 127 (not found) or 126 (not executable). Signals are then as before;
            stdin and stdout are not.
    """
    command = Command(argv, variables)
    strangers = frozenset(_children())
    system_calls.prctl(system_calls.PR_SET_CHILD_SUBREAPER, 1)
    inherited = signals.hold()
    try:
        pid, report, go = _fork(command, inherited, before_exec)
        # Both before the command runs: it may release a lock, close a pipe, or signal its group at once.
        _close_files_of_target()
        witness = Witness()
        if forked is not None:
            with contextlib.suppress(Exception):
                forked([pid] if witness.pid is None else [pid, witness.pid])
        with contextlib.suppress(BrokenPipeError):  # another program has killed the child already
            os.write(go, b".")
        os.close(go)
        started, floor, misplaced, failure = _parsed(_report(report, meanwhile, pid))
        if failure is not None:
            os.waitpid(pid, 0)
            witness.end()
            raise command.failure(*failure)
    except CommandNotStarted:
        signals.let_go(inherited)
        raise
    return Target(pid, started, floor + _FLOOR_MARGIN, misplaced, witness=witness, strangers=strangers)


def _fork(
    command: Command, inherited: signals.InheritedState, before_exec: Callable[[], None] | None
) -> tuple[int, int, int]:
    """Fork the child. Return its pid, the pipe that reports its start, and the pipe in which a byte starts the command."""
    parent_death = system_calls.parent_death_signal()
    try:
        report, writer = os.pipe()
        ready, go = os.pipe()
        pid = os.fork()
    except OSError as error:
        raise CommandNotStarted(f"Cannot start a process for the command: {error.strerror}", 126) from error
    if pid == 0:
        os.close(go)
        if parent_death:  # set for the command; a fork clears it
            system_calls.prctl(system_calls.PR_SET_PDEATHSIG, parent_death)
        _become(command, inherited, writer, ready, before_exec)
    os.close(writer)
    os.close(ready)
    return pid, report, go


def _become(
    command: Command,
    inherited: signals.InheritedState,
    report: int,
    ready: int,
    before_exec: Callable[[], None] | None,
) -> NoReturn:
    """Execute the command in the child once a byte arrives in `ready`. `_parsed` reads the lines written to `report`."""
    try:
        if before_exec is not None:
            try:
                before_exec()
            except Exception as error:  # noqa: BLE001 - trouble of the monitor must not stop the command
                os.write(report, b"misplaced %s\0" % os.fsencode(str(error)))
        signals.let_go(inherited)
        os.read(ready, 1)
        for _ in range(2):  # the first round loads the pages that the second one counts
            os.write(report, b"started %r %d\0" % (time.monotonic(), ending.own_max_rss()))
        number, path = command.execute()
        os.write(report, b"failed %d %s\0" % (number, path))
    finally:
        os._exit(127)


def _parsed(report: bytes) -> tuple[float, int, str | None, tuple[int, bytes] | None]:
    """Return the child's start in monotonic seconds, RSS before exec in bytes, error of `before_exec`, error of exec."""
    started, floor = time.monotonic(), ending.own_max_rss()
    misplaced: str | None = None
    failure: tuple[int, bytes] | None = None
    for line in report.split(b"\0"):
        word, _, rest = line.partition(b" ")
        if word == b"started":
            moment, _, size = rest.partition(b" ")
            started, floor = float(moment), int(size)
        elif word == b"misplaced":
            misplaced = os.fsdecode(rest)
        elif word == b"failed":
            number, _, path = rest.partition(b" ")
            failure = int(number), path
    return started, floor, misplaced, failure


def _report(reader: int, meanwhile: Iterable[object], pid: int) -> bytes:
    """Return the child's lines, complete once exec succeeds or fails. Iterate `meanwhile` until the first line.

    A Ctrl-Z before exec stops the child `pid`. The shell waits for us, so we stop too.
    """
    waiting = select.poll()
    waiting.register(reader, select.POLLIN)
    for _ in meanwhile:
        if waiting.poll(0):
            break
    lines, part = b"", b"."
    while part:
        while not waiting.poll(_STOP_MILLISECONDS):
            follow_stop(pid)
        part = os.read(reader, 65536)
        lines += part
    os.close(reader)
    return lines


def _children() -> list[int]:
    """Return children from before our own exec. They belong to other programs and are never part of the tree."""
    try:
        with open("/proc/self/task/%d/children" % os.getpid(), "rb") as file:  # noqa: UP031 - plain
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def _close_files_of_target() -> None:
    """Close stdin, stdout and every inherited file except stderr.

    If we kept them open, a pipe would have no end of file and a lock no release until we end. Files that Python opened
    itself are not inheritable.
    """
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1):
            if not _is_ours(fd):
                os.dup2(null, fd)
        if null > 2:
            os.close(null)
    for fd in system_calls.open_files():
        if fd > 2 and not _is_ours(fd):
            with contextlib.suppress(OSError):
                os.close(fd)


def _is_ours(fd: int) -> bool:
    """Return whether this program opened the file: descriptors 0 to 2 too, if they were closed at our start."""
    try:
        return not os.get_inheritable(fd)
    except OSError:
        return False
