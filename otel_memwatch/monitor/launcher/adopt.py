"""Adoption of a command that `recipe.c` or `launch.c` has started, as a run like any other.

They become Python by exec, so the command is a child of this process, and the witness too. All signals are blocked; those
that arrived meanwhile are pending, and `Target.wait` takes them.
"""

from __future__ import annotations

import os

from otel_memwatch.errors import CommandNotStarted
from otel_memwatch.monitor.recording.trace_context import TraceContext
from otel_memwatch.monitor.run.supervise import signals
from otel_memwatch.monitor.run.supervise.child_report import FLOOR_MARGIN, parsed, read_report
from otel_memwatch.monitor.run.supervise.signals import Witness
from otel_memwatch.monitor.run.supervise.target import Target
from otel_memwatch.monitor.run.wrap import RunResources, record_run
from otel_memwatch.monitor.run_cgroup.oom_kills import OomKills
from otel_memwatch.monitor.run_cgroup.own_cgroup import OwnCgroup, sweep
from otel_memwatch.runtime.procfs.system import allocated_in
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from otel_memwatch.runtime.procfs.system import AllocationCounters


class StartedCommand(NamedTuple):
    """State of a started command, in the order of the words that `hand_over` of `recipe.c` or `launch.c` passes."""

    pid: int
    started: float
    """Monotonic seconds of its start."""
    floor: int
    """Bytes of resident memory that it had before exec."""
    faults_before: int | None
    """Page faults before it entered its cgroup; `None`: not counted."""
    witness: int
    """PID of the witness; -1: none."""
    ask: int
    answers: int
    """Descriptors of the pipes to the witness."""
    traceparent: str
    directory: str
    """Run directory, which is empty."""
    cgroup: str
    """Directory of its cgroup (version 1); empty: none."""
    misplaced: str | None = None
    """Error of entering it; `None`: none."""
    allocated: AllocationCounters | None = None
    """The machine's counters before the start; `None`: unknown."""

    @classmethod
    def of(cls, words: Sequence[str]) -> StartedCommand:
        """Parse the words of `recipe.c`."""
        pid, started, before, witness, ask, answers, trace, directory, cgroup = words
        floor, _, faults = before.partition("/")
        numbers = int(pid), float(started), int(floor), int(faults), int(witness), int(ask), int(answers)
        return cls(*numbers, trace, directory, cgroup)


def record_started(
    argv: Sequence[str], settings: Mapping[str, Any], say: Callable[[str], None], state: str
) -> NoReturn:
    """Record the command that `launch.c` has started; `state`: the lines that it passes.

    Raises `CommandNotStarted` if it could not be executed. After any other failure, the script waits for the command.
    """
    command, failure = _described(state)
    if failure is None:
        adopt(argv, settings, say, command)
    raise _not_started(argv, command, failure)


def _described(state: str) -> tuple[StartedCommand, tuple[int, bytes] | None]:
    """Return the command, and the error of its exec. Waits for its exec."""
    *numbers, trace, directory, cgroup = state.split("\n", 8)
    pid, witness, ask, answers, report, counters = map(int, numbers)
    start = parsed(read_report(report, (), pid))
    command = StartedCommand(
        *(pid, start.moment, start.floor + FLOOR_MARGIN, start.faults_before, witness, ask, answers),
        *(trace, directory, cgroup, start.misplaced),
    )
    if counters >= 0:
        command = command._replace(allocated=allocated_in(os.read(counters, 1 << 16)))
        os.close(counters)
    return command, start.failure


def _not_started(
    argv: Sequence[str], command: StartedCommand, failure: tuple[int, bytes]
) -> CommandNotStarted:
    """Leave nothing of a command that cannot be executed; return the error."""
    import shutil

    from otel_memwatch.monitor.run.supervise.start import Command

    os.waitpid(command.pid, 0)
    Witness.adopt(command.witness, command.ask, command.answers).end()
    if command.cgroup:
        OwnCgroup(command.cgroup, 1).remove()
    shutil.rmtree(command.directory, ignore_errors=True)
    error = Command(argv, {}).failure(*failure)
    error.errno = failure[0]
    return error


def adopt(
    argv: Sequence[str],
    settings: Mapping[str, Any],
    say: Callable[[str], None],
    command: StartedCommand,
) -> NoReturn:
    """Record `argv` from now on and end as it ends, like `wrap`."""
    signals.hold()
    cgroup = OwnCgroup(command.cgroup, 1) if command.cgroup else None
    run = RunResources(argv, settings, say, own_cgroup=(cgroup, None, None))
    _, trace_id, span_id, flags = command.traceparent.split("-")
    run.trace = TraceContext(trace_id, span_id, None, flags)
    run.directory = command.directory
    run.oom_kills, run.allocated_before = OomKills(), command.allocated
    witness = Witness.adopt(command.witness, command.ask, command.answers)
    run.target = Target(
        command.pid,
        command.started,
        command.floor,
        command.misplaced,
        faults_before=command.faults_before,
        witness=witness,
        strangers=frozenset(),
        seen_late=True,
    )
    run.misplaced = command.misplaced
    run.release_target()
    if command.cgroup:
        sweep(os.path.dirname(command.cgroup))
    record_run(run)
