"""Airflow: each attempt of a task is a run, for any operator, and its log ends with the task's memory.

Active if `OTEL_MEMWATCH_RUNS` in the environment of the workers names the directory of the runs. No other setup is
necessary: Airflow finds the plugin by its entry point if otel-memwatch is installed in the same environment. A task that
is already recorded, for example in a worker under `wrap`, stays in that run.
"""

from __future__ import annotations

import logging
import os
import sys

from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin

from otel_memwatch.config import OPTIONS
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otel_memwatch.api import Run
    from otel_memwatch.in_target.operations import Operation

_log = logging.getLogger("airflow.task")


class _TaskRun:
    """Run of this process's task, and the task as its operation; `None`: nothing is recorded."""

    current: Run | None = None
    task: Operation | None = None


def _end(error: BaseException | None = None) -> None:
    """End the task's run and write its memory into the task's log. Raises nothing."""
    run, task = _TaskRun.current, _TaskRun.task
    _TaskRun.current = _TaskRun.task = None
    if run is None or task is None:
        return
    try:
        task.__exit__(None if error is None else type(error), error, None)
        run.stop()
        from otel_memwatch.run import load
        from otel_memwatch.text import peak_sentence

        figures = load(run.path).operations[0]
        needed = peak_sentence(figures.tree_peak, source=False)
        _log.info("otel-memwatch: memory %s; otel-memwatch report %s", needed, run.path)
    except Exception as failure:  # noqa: BLE001 - as above
        _log.warning("otel-memwatch: the record of this task cannot be read: %s", failure)


@hookimpl
def on_task_instance_running(task_instance: Any) -> None:
    """Begin to record a task in this process. Raises nothing."""
    if not os.environ.get(OPTIONS["runs"].variable) or _TaskRun.current is not None:
        return
    try:
        from otel_memwatch.api import watch
        from otel_memwatch.in_target.operations import RUN_DIRECTORY_VARIABLE, operation

        if os.environ.get(RUN_DIRECTORY_VARIABLE):
            return
        names = task_instance.dag_id, task_instance.task_id
        tags = {
            "rule": task_instance.task_id,
            "attempt": getattr(task_instance, "try_number", 1),
            "airflow.dag": task_instance.dag_id,
            "airflow.run": task_instance.run_id,
        }
        if getattr(task_instance, "map_index", -1) >= 0:
            tags["airflow.map_index"] = task_instance.map_index
        _TaskRun.current = watch(name=".".join(names), tag=tags, quiet=True)
        # The process outlives the recording, so its memory at the end of an operation is certain.
        _TaskRun.task = operation(task_instance.task_id)
        _TaskRun.task.__enter__()
    except Exception as error:  # noqa: BLE001 - a task must not fail because it is watched
        _log.warning("otel-memwatch: this task is not recorded: %s", error)


@hookimpl
def on_task_instance_success(task_instance: Any) -> None:  # noqa: ARG001 - Airflow's signature
    """Airflow's hook."""
    _end()


@hookimpl
def on_task_instance_failed(task_instance: Any, error: Any) -> None:  # noqa: ARG001 - Airflow's signature
    """Airflow's hook."""
    _end(error if isinstance(error, BaseException) else None)


class MemwatchAirflowPlugin(AirflowPlugin):
    """Plugin that Airflow loads."""

    name = "memwatch"
    listeners = [sys.modules[__name__]]  # noqa: RUF012 - as Airflow has it
