"""Start the command: fork, give back in the child what Python changed, exec."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from otel_memwatch.errors import CommandNotStarted
from otel_memwatch.monitor.run.supervise import ending, signals
from otel_memwatch.monitor.run.supervise.command import Command
from otel_memwatch.monitor.run.supervise.target import Target
from otel_memwatch.monitor.run.supervise.witness import Witness
from otel_memwatch.runtime import system_calls
from otel_memwatch.runtime.typed import NoReturn

_FLOOR_MARGIN = 1024 * 1024
"""Bytes by which RSS may grow in the child after it was read: a search along PATH takes half of this."""


def launch(
    argv: Sequence[str | bytes],
    *,
    variables: Mapping[str, str],
    before_exec: Callable[[], None] | None = None,
    forked: Callable[[Sequence[int]], None] | None = None,
    meanwhile: Iterable[object] = (),
) -> Target:
    """Start a command as our child, in our process group, with everything that we were given.

    It gets our environment with `variables` added, our open files (stdin is not read by us), our signal mask
    and dispositions and our timers, all as they were when this process was started. From now on we hold none
    of its files but stderr: a pipe or lock that it closes is closed. Signals are blocked in the calling
    thread, and so in the threads that it starts later: `Target.wait` takes them. This process becomes the
    subreaper of its descendants where the system knows that (Linux).

    Call it in the main thread, as the only thread, once.

    Args:
        argv: program and arguments, verbatim; the program is looked up in PATH as execvp(3) does.
        variables: environment variables of ours for the command.
        before_exec: called in the child before the program replaces it, to put it into a control group. When
            it raises, the command is started all the same and `Target.misplaced` says why.
        forked: called here with the pids of the child and of the witness, while the child is in `before_exec`. What
            it raises keeps the command from nothing: `before_exec` has to find out.
        meanwhile: iterated here, step by step, until the child is ready: moving it there may take the kernel some ms.
            What it does must not matter where the command turns out not to exist.

    Raises:
        CommandNotStarted: with exit code 127 (not found) or 126 (cannot be executed). Signals are then as
            they were before; stdin and stdout are not.
    """
    command = Command(argv, variables)
    children = _children()
    system_calls.prctl(system_calls.PR_SET_CHILD_SUBREAPER, 1)
    parent_death = system_calls.parent_death_signal()
    inherited = signals.hold()
    try:
        reader, writer = os.pipe()
        ready, go = os.pipe()
        pid = os.fork()
    except OSError as error:
        signals.let_go(inherited)
        raise CommandNotStarted(f"No process can be started for it: {error.strerror}", 126) from error
    if pid == 0:
        os.close(go)
        if parent_death:  # a fork clears it; it was set for the command
            system_calls.prctl(system_calls.PR_SET_PDEATHSIG, parent_death)
        _become(command, inherited, writer, ready, before_exec)
    os.close(writer)
    os.close(ready)
    # Both before the command runs: it may release a lock or close a pipe at once, or signal its group.
    _close_what_is_the_targets()
    witness = Witness()
    if forked is not None:
        with contextlib.suppress(Exception):
            forked([pid] if witness.pid is None else [pid, witness.pid])
    with contextlib.suppress(BrokenPipeError):  # somebody has killed it already
        os.write(go, b".")
    os.close(go)
    started, floor, misplaced, failure = _understand(_report(reader, meanwhile))
    if failure is not None:
        os.waitpid(pid, 0)
        witness.end()
        signals.let_go(inherited)
        raise command.failure(*failure)
    return Target(
        pid, started, floor + _FLOOR_MARGIN, misplaced, witness=witness, strangers=frozenset(children)
    )


def _become(
    command: Command,
    inherited: signals.Inherited,
    report: int,
    ready: int,
    before_exec: Callable[[], None] | None,
) -> NoReturn:
    """The child's side; what it writes is read by `_understand`. Executes the command once a byte comes in `ready`."""
    try:
        if before_exec is not None:
            try:
                before_exec()
            except Exception as error:  # noqa: BLE001 - trouble of the monitor's own must not stop the command
                os.write(report, b"misplaced %s\0" % os.fsencode(str(error)))
        signals.let_go(inherited)
        os.read(ready, 1)
        for _ in range(2):  # the first time brings in the pages that the second one counts
            os.write(report, b"started %r %d\0" % (time.monotonic(), ending.own_max_rss()))
        number, path = command.execute()
        os.write(report, b"failed %d %s\0" % (number, path))
    finally:
        os._exit(127)


def _understand(report: bytes) -> tuple[float, int, str | None, tuple[int, bytes] | None]:
    """Start in monotonic seconds, RSS of the child before exec in bytes, trouble of `before_exec`, exec's error."""
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


def _report(reader: int, meanwhile: Iterable[object]) -> bytes:
    """What the child writes until it has become the command or has failed to; until it begins, `meanwhile` goes on."""
    waiting = select.poll()
    waiting.register(reader, select.POLLIN)
    for _ in meanwhile:
        if waiting.poll(0):
            break
    parts = []
    while part := os.read(reader, 65536):
        parts.append(part)
    os.close(reader)
    return b"".join(parts)


def _children() -> list[int]:
    """Children that this process had before it became us: somebody else's, never part of the tree."""
    try:
        with open("/proc/self/task/%d/children" % os.getpid(), "rb") as file:  # noqa: UP031 - plain
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def _close_what_is_the_targets() -> None:
    """Let go of stdin, stdout and every inherited file beyond stderr.

    Held open here, a pipe would have no end and a lock no release until we end. What Python opened itself is
    not inheritable, which is how to tell the two apart.
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
    """Whether this program opened it: possible for 0 to 2 too, where we were started with those closed."""
    try:
        return not os.get_inheritable(fd)
    except OSError:
        return False
