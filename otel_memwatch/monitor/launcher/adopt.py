"""Adoption of a command that `recipe.c` has started, as a run like any other.

`recipe.c` becomes the Python recorder by exec, so the command is a child of this process, and the witness too. All
signals are blocked; those that arrived meanwhile are pending, and `Target.wait` takes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from otel_memwatch.monitor.recording.trace_context import TraceContext
from otel_memwatch.monitor.run.supervise import signals
from otel_memwatch.monitor.run.supervise.signals import Witness
from otel_memwatch.monitor.run.supervise.target import Target
from otel_memwatch.monitor.run.wrap import RunResources, record_run
from otel_memwatch.monitor.run_cgroup.oom_kills import OomKills
from otel_memwatch.monitor.run_cgroup.own_cgroup import OwnCgroup
from otel_memwatch.runtime.typed import Any, NamedTuple, NoReturn


class StartedRecipe(NamedTuple):
    """State of a started command, in the order of the words that `hand_over` of `recipe.c` passes."""

    pid: int
    started: float
    """Monotonic seconds of its start."""
    floor: int
    """Bytes of resident memory that it had before exec."""
    faults_before: int
    """Page faults before it entered its cgroup."""
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

    @classmethod
    def of(cls, words: Sequence[str]) -> StartedRecipe:
        """Parse these words."""
        pid, started, before, witness, ask, answers, *texts = words
        floor, _, faults = before.partition("/")
        numbers = int(pid), float(started), int(floor), int(faults), int(witness), int(ask), int(answers)
        return cls(*numbers, *texts)


def adopt(
    argv: Sequence[str], settings: Mapping[str, Any], say: Callable[[str], None], command: StartedRecipe
) -> NoReturn:
    """Record `argv` from now on and end as it ends, like `wrap`."""
    signals.hold()
    cgroup = OwnCgroup(command.cgroup, 1) if command.cgroup else None
    run = RunResources(argv, settings, say, own_cgroup=(cgroup, None, None))
    _, trace_id, span_id, flags = command.traceparent.split("-")
    run.trace = TraceContext(trace_id, span_id, None, flags)
    run.directory = command.directory
    run.oom_kills, run.allocated_before = OomKills(), None
    witness = Witness.adopt(command.witness, command.ask, command.answers)
    run.target = Target(
        command.pid,
        command.started,
        command.floor,
        None,
        faults_before=command.faults_before,
        witness=witness,
        strangers=frozenset(),
    )
    run.release_target()
    record_run(run)
