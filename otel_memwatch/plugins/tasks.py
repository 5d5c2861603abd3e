"""Tasks of an engine's worker: each an operation, with what is known of its memory beside the others of the same process.

A task that had its process to itself has the exact peak of its operation. Of one that ran beside others the process tells only
how much all of them had: that is the most it can have needed, and what the process had while no other ran is the least.
"""

from __future__ import annotations

from contextvars import copy_context
from pathlib import Path
from threading import Lock
from time import monotonic

from otel_memwatch.in_target.operations import operation
from otel_memwatch.in_target.operations.journal import warn_once
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextvars import Context

    from otel_memwatch.api import Run
    from otel_memwatch.in_target.operations import Operation


BESIDE, ALONE = "memwatch.tasks.beside", "memwatch.tasks.alone"
"""Attributes of a task that ran beside others: how many, and the bytes that its process had while none of them ran."""


class TaskFigures(NamedTuple):
    """One task that has ended. Bytes of resident memory of its worker's process; `None`: not known."""

    name: str
    seconds: float
    low: int | None
    """What the process had at least with this task alone."""
    high: int | None
    """What it had at most while the task ran."""
    beside: int
    """How many other tasks ran at the same time, at most."""
    failed: bool = False
    exact: bool = False
    """Whether both bounds are the same but for what the kernel's counters may be off."""


class RunningTask:
    """A task from its beginning to its end, as `TaskMeter.begin` makes it."""

    def __init__(self, name: str, measured: Operation, context: Context | None) -> None:
        self.name = name
        self.operation = measured
        self.context = context
        """That of the operation; `None`: the one that the task runs in."""
        self.began = monotonic()
        self.beside = 0
        self.low = 0
        """The most that the process was seen to have while no other task ran."""


class TaskMeter:
    """Measures the tasks of one process. May be called from any thread; nothing here raises into the engine.

    Cost: an operation, and two small files of /proc read at both ends of a task.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._running: set[RunningTask] = set()

    def begin(self, name: str, attributes: Mapping[str, object], *, here: bool = False) -> RunningTask:
        """A task begins. `here`: in the running context, so that operations which it marks itself lie below it."""
        task = RunningTask(name, operation(name, **attributes), None if here else copy_context())
        with self._lock:
            self._look_at_the_only_one()
            self._running.add(task)
            for one in self._running:
                one.beside = max(one.beside, len(self._running) - 1)
        if task.context is None:
            task.operation.__enter__()
        else:
            task.context.run(task.operation.__enter__)
        with self._lock:
            self._look_at_the_only_one()
        return task

    def end(self, task: RunningTask, error: BaseException | None = None) -> TaskFigures:
        """It has ended."""
        kind = None if error is None else type(error)
        with self._lock:
            self._look_at_the_only_one()
        if task.beside:
            task.operation.set(**{BESIDE: task.beside, ALONE: task.low})
        if task.context is None:
            task.operation.__exit__(kind, error, None)
        else:
            task.context.run(task.operation.__exit__, kind, error, None)
        with self._lock:
            self._running.discard(task)
            self._look_at_the_only_one()
        figures = task.operation.figures
        low, high = (None, None) if figures is None else (figures.low, figures.high)
        if task.beside:
            low = task.low if high is None else min(task.low, high)
        exact = not task.beside and figures is not None and figures.certainty == "exact"
        return TaskFigures(
            task.name, monotonic() - task.began, low, high, task.beside, failed=error is not None, exact=exact
        )

    def _look_at_the_only_one(self) -> None:
        """What the process has now, where one task runs and no other: it has that by itself."""
        if len(self._running) == 1:
            (task,) = self._running
            task.low = max(task.low, _resident())


METER = TaskMeter()
"""That of this process: several workers in one process share its memory."""


class NamedTasks(NamedTuple):
    """All tasks of one name. Bytes of the process of a worker; `None`: not known."""

    name: str
    tasks: int
    failed: int
    alone: int
    """Those that no other task ran beside."""
    seconds: float
    low: int | None
    """What the largest needed at least; `high`: at most."""
    high: int | None
    highest_exact: int | None = None
    """The upper bound of the largest that is exact."""

    @property
    def exact(self) -> bool:
        """Whether the largest is exact, and none of the others can have been above it."""
        return self.highest_exact is not None and self.highest_exact == self.high


def by_name(
    tasks: Iterable[TaskFigures], before: dict[str, NamedTasks] | None = None
) -> dict[str, NamedTasks]:
    """The tasks by their names; `before`: those that were counted already, to which they are added in place."""
    found = {} if before is None else before
    for task in tasks:
        known = found.get(task.name) or NamedTasks(task.name, 0, 0, 0, 0.0, None, None)
        found[task.name] = NamedTasks(
            task.name,
            known.tasks + 1,
            known.failed + task.failed,
            known.alone + (not task.beside),
            known.seconds + task.seconds,
            _larger(known.low, task.low),
            _larger(known.high, task.high),
            _larger(known.highest_exact, task.high if task.exact else None),
        )
    return found


def _larger(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)


def record_worker(name: str, tags: Mapping[str, object]) -> Run | None:
    """Sees to it that this worker's process is recorded; a run that it is part of already is joined.

    `None`: nothing can be recorded; there is one line about it on stderr, and the engine goes on.
    """
    try:
        from otel_memwatch.api import watch

        return watch(name=name, tag=tags, quiet=True, report=False)
    except Exception as error:  # noqa: BLE001 - a worker must not fail because it is watched
        warn_once("worker", f"this worker is not recorded: {error}")
        return None


def _resident() -> int:
    """Return a lower bound of this process's resident bytes; 0 without /proc."""
    from otel_memwatch.in_target.operations.process import local_counter_error
    from otel_memwatch.runtime.procfs.statm import parse_resident

    try:
        resident = parse_resident(Path("/proc/self/statm").read_bytes())
    except (OSError, ValueError):
        return 0
    return max(resident - local_counter_error(), 0)


def table(groups: Iterable[NamedTasks]) -> str:
    """The tasks by name as a table for a person, the largest first."""
    head = f"{'task':<32} {'times':>6} {'memory of its worker':>24} {'in all':>9}"
    rows = [
        f"{group.name[:32]:<32} {group.tasks:>6} {_span(group):>24} {group.seconds:>8.2f}s"
        for group in sorted(groups, key=lambda one: -(one.high or 0))
    ]
    return "\n".join([head, *rows])


def _span(group: NamedTasks) -> str:
    from otel_memwatch.text import size

    if group.high is None:
        return "not known"
    if group.exact:
        return f"{size(group.high)} exact"
    return f"{size(group.low or 0)} to {size(group.high)}"


def worker_tags(engine: str, **more: object) -> dict[str, object]:
    """The tags of a worker's run: its engine, and what is known of it."""
    return {"engine": engine} | {f"{engine}.{name}": value for name, value in more.items() if value}
