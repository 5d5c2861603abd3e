"""Dask: each task of a worker as an operation, and the memory of all tasks by their names on the scheduler.

Without an edit: `DASK_DISTRIBUTED__WORKER__PRELOAD=otel_memwatch.plugins.dask`, the same with `SCHEDULER`, or `--preload
otel_memwatch.plugins.dask` of `dask worker` and `dask scheduler`. From a program: `install(client)`, then `tasks(client)`.

A task begins when the worker starts it and ends when the worker has its result, both in the worker's event loop. A worker
with one thread has exact figures. With more threads, concurrent tasks have bounds.
"""

from __future__ import annotations

from dask.utils import key_split
from distributed.diagnostics.plugin import SchedulerPlugin, WorkerPlugin

from otel_memwatch.plugins.tasks import (
    METER,
    NamedTasks,
    RunningTask,
    TaskFigures,
    by_name,
    record_worker,
    worker_tags,
)
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Client, Scheduler, Worker

    from otel_memwatch.api import Run

TOPIC = "memwatch"
"""Topic of the events by which workers report tasks: `client.get_events("memwatch")` returns the last ones."""

_BEGUN = {"executing", "long-running", "cancelled", "resumed"}
"""States of a task while a thread runs it; the last two: its result is no longer wanted, or wanted again."""


class DaskTaskPlugin(WorkerPlugin):
    """Worker plugin that measures tasks and has the worker's process recorded."""

    name = "memwatch"
    idempotent = True

    def __init__(self) -> None:
        self._worker: Worker | None = None
        self._running: dict[Any, RunningTask] = {}
        self._run: Run | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state before the start, which is sent to the workers."""
        return {"_worker": None, "_running": {}, "_run": None}

    def setup(self, worker: Worker) -> None:
        """Start to record the worker."""
        self._worker = worker
        tags = worker_tags("dask", worker=worker.name, scheduler=worker.scheduler.address)
        self._run = record_worker(f"dask-worker-{worker.name}", tags)

    def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:  # noqa: ARG002 - Dask's signature
        """Begin or end the measurement of a task at a change of its state."""
        if finish == "executing" and key not in self._running:
            self._running[key] = METER.begin(key_split(key), {"dask.key": str(key)})
        elif finish not in _BEGUN and key in self._running:
            assert self._worker is not None
            error: BaseException | None = None
            if finish == "error":
                # The worker keeps only the text of an exception. METER needs only the name of its type.
                task = self._worker.state.tasks.get(key)
                text = (task.exception_text if task is not None else "") or "Exception"
                name = text.partition("(")[0]
                error = type(name if name.isidentifier() else "Exception", (Exception,), {})()
            figures = METER.end(self._running.pop(key), error)
            self._worker.log_event(TOPIC, figures._asdict())

    def teardown(self, worker: Worker) -> None:  # noqa: ARG002 - Dask's signature
        """End all running tasks and the recording: the worker stops."""
        while self._running:
            METER.end(self._running.popitem()[1])
        if self._run is not None:
            self._run.stop()


class DaskTaskTable(SchedulerPlugin):
    """Scheduler plugin that collects the workers' reports about tasks."""

    name = "memwatch"
    idempotent = True

    def __init__(self) -> None:
        self.groups: dict[str, NamedTasks] = {}

    def log_event(self, topic: str, msg: Any) -> None:
        """Add a worker's report about a task."""
        if topic == TOPIC and isinstance(msg, dict):
            fields = {name: msg[name] for name in TaskFigures._fields if name in msg}
            if len(fields) == len(TaskFigures._fields):
                by_name([TaskFigures(**fields)], self.groups)


def install(client: Client) -> None:
    """Measure all tasks of a cluster from now on, including those of workers that join later."""
    client.register_plugin(DaskTaskTable())
    client.register_plugin(DaskTaskPlugin())


def tasks(client: Client) -> dict[str, NamedTasks]:
    """Return the memory of all ended tasks by name; empty without a call of `install`."""
    rows: list[list[Any]] = client.run_on_scheduler(_rows)  # type: ignore[no-untyped-call]
    return {row[0]: NamedTasks(*row) for row in rows}


def _rows(dask_scheduler: Scheduler) -> list[list[Any]]:
    plugin = dask_scheduler.plugins.get(DaskTaskTable.name)
    return [list(group) for group in plugin.groups.values()] if isinstance(plugin, DaskTaskTable) else []


async def dask_setup(service: Worker | Scheduler) -> None:
    """Install the plugin in a worker or scheduler; `--preload` calls this function."""
    from distributed import Worker as AnyWorker

    if isinstance(service, AnyWorker):
        await service.plugin_add(DaskTaskPlugin(), name=DaskTaskPlugin.name)
    elif hasattr(service, "add_plugin"):
        service.add_plugin(DaskTaskTable(), name=DaskTaskTable.name)
