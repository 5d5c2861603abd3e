"""Tasks of an engine's worker: each is an operation, with bounds of its memory if others ran in the same process.

A task alone in its process has the exact peak of its operation. For concurrent tasks the process reports only their
common memory: it is the upper bound of each. The memory of the process while no other task ran is the lower bound.
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
"""Attributes of a concurrent task: number of other tasks, and bytes of its process while none of them ran."""


class TaskFigures(NamedTuple):
    """One task that has ended. Sizes are resident bytes of its worker's process; `None`: unknown."""

    name: str
    seconds: float
    low: int | None
    """Lower bound: memory of the process with this task alone."""
    high: int | None
    """Upper bound: largest memory of the process while the task ran."""
    beside: int
    """Largest number of other tasks at the same time."""
    failed: bool = False
    exact: bool = False
    """True if both bounds agree within the error of the kernel's counters."""


class RunningTask:
    """A task from its beginning to its end, as `TaskMeter.begin` makes it."""

    def __init__(self, name: str, measured: Operation, context: Context | None) -> None:
        self.name = name
        self.operation = measured
        self.context = context
        """Context of the operation; `None`: the context that the task runs in."""
        self.began = monotonic()
        self.beside = 0
        self.low = 0
        """Largest observed memory of the process while no other task ran, in bytes."""


class TaskMeter:
    """Meter of the tasks of one process. Any thread may call it; nothing here raises into the engine.

    Cost: an operation, and two small files of /proc read at both ends of a task.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._running: set[RunningTask] = set()

    def begin(self, name: str, attributes: Mapping[str, object], *, here: bool = False) -> RunningTask:
        """Begin a task. `here`: use the running context, so operations marked by the task become its children."""
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
        """End a task and return its figures."""
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
        """Sample the process if exactly one task runs: the memory then belongs to that task."""
        if len(self._running) == 1:
            (task,) = self._running
            task.low = max(task.low, _resident())


METER = TaskMeter()
"""Meter of this process: several workers in one process share its memory."""


class NamedTasks(NamedTuple):
    """All tasks of one name. Sizes are bytes of a worker's process; `None`: unknown."""

    name: str
    tasks: int
    failed: int
    alone: int
    """Number of tasks without concurrent ones."""
    seconds: float
    low: int | None
    """Lower bound of the largest task; `high`: upper bound."""
    high: int | None
    highest_exact: int | None = None
    """Upper bound of the largest exact task."""

    @property
    def exact(self) -> bool:
        """Return whether the largest task is exact and no other can exceed it."""
        return self.highest_exact is not None and self.highest_exact == self.high


def by_name(
    tasks: Iterable[TaskFigures], before: dict[str, NamedTasks] | None = None
) -> dict[str, NamedTasks]:
    """Group tasks by name; `before`: existing groups, to which the tasks are added in place."""
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
    """Record this worker's process; join the run if it already belongs to one.

    `None`: recording is impossible. One line on stderr reports it, and the engine continues.
    """
    try:
        from otel_memwatch.api import watch

        return watch(name=name, tag=tags, quiet=True, report=False)
    except Exception as error:  # noqa: BLE001 - a worker must not fail because it is watched
        warn_once("worker", f"this worker is not recorded: {error}")
        return None


def _resident() -> int:
    """Return a lower bound of this process's resident bytes; 0 without /proc."""
    from otel_memwatch.in_target.operations.process_state import local_counter_error
    from otel_memwatch.runtime.procfs.statm import parse_resident

    try:
        resident = parse_resident(Path("/proc/self/statm").read_bytes())
    except (OSError, ValueError):
        return 0
    return max(resident - local_counter_error(), 0)


def table(groups: Iterable[NamedTasks]) -> str:
    """Return the tasks by name as a readable table, the largest first."""
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
    """Return the tags of a worker's run: its engine, and the known properties of the worker."""
    return {"engine": engine} | {f"{engine}.{name}": value for name, value in more.items() if value}
