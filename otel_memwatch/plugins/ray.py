"""Ray: each task and each call of an actor as an operation of the worker that runs it.

`ray.init(runtime_env={"worker_process_setup_hook": "otel_memwatch.plugins.ray.setup"})`, or the same in `ray job submit
--runtime-env-json` and in the runtime environment of one task or actor. A worker that runs one task at a time has exact
figures; concurrent calls of an actor have bounds.

Ray's metrics contain the largest peak of each name (`ray_memwatch_operation_memory_peak_max_bytes`); the run contains all.
"""

from __future__ import annotations

import functools
import inspect
from threading import Lock

from otel_memwatch import catalog
from otel_memwatch.in_target.operations.journal import warn_once
from otel_memwatch.plugins.tasks import METER, RunningTask, TaskFigures, record_worker, worker_tags
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_OWN = "__ray_"
"""Prefix of the methods that Ray adds to every actor."""


def setup() -> None:
    """Set up a worker before its first task; Ray calls this function. Raises nothing: watching must not break a worker."""
    try:
        import ray
        from ray._private.worker import global_worker

        context = ray.get_runtime_context()
        tags = worker_tags(
            "ray", job=context.get_job_id(), node=context.get_node_id(), worker=context.get_worker_id()
        )
        record_worker("ray-worker", tags)
        manager = global_worker.function_actor_manager
        manager.get_execution_info = _measuring(manager.get_execution_info)
    except Exception as error:  # noqa: BLE001 - whatever Ray raises must not reach the worker
        warn_once("ray", f"tasks of this Ray worker are not recorded: {type(error).__name__}: {error}")


def _measuring(find: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement of Ray's function lookup, which wraps each function in an operation."""
    found: dict[Any, Any] = {}

    @functools.wraps(find)
    def find_measured(job: Any, descriptor: Any) -> Any:
        info = find(job, descriptor)
        try:
            name = descriptor.function_name
            if name.startswith(_OWN):
                return info
            if descriptor.class_name:
                name = f"{descriptor.class_name}.{name}"
            key = descriptor.function_id, info.function
            if key not in found:
                found[key] = info._replace(function=measured(info.function, name))
            return found[key]
        except Exception as error:  # noqa: BLE001 - Ray promises none of these names, and its tasks have to run
            warn_once("ray functions", f"a task of Ray is not measured: {type(error).__name__}: {error}")
            return info

    return find_measured


def measured(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return the function with a task around each call, of the same kind: Ray checks the kind of a function."""
    # Ray turns an actor's method into a plain function, and keeps the method as its attribute.
    kind = getattr(function, "method", function)
    if inspect.iscoroutinefunction(kind):

        @functools.wraps(function)
        async def run_coroutine(*args: Any, **kwargs: Any) -> Any:
            with _Task(name):
                return await function(*args, **kwargs)

        return run_coroutine
    if inspect.isasyncgenfunction(kind):

        @functools.wraps(function)
        async def run_async_generator(*args: Any, **kwargs: Any) -> Any:
            with _Task(name):
                async for value in function(*args, **kwargs):
                    yield value

        return run_async_generator
    if inspect.isgeneratorfunction(kind):

        @functools.wraps(function)
        def run_generator(*args: Any, **kwargs: Any) -> Any:
            with _Task(name):
                return (yield from function(*args, **kwargs))

        return run_generator

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with _Task(name):
            return function(*args, **kwargs)

    return run


class _Task:
    """One call, from its beginning to its end."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._running: RunningTask | None = None

    def __enter__(self) -> None:
        try:
            import ray

            context = ray.get_runtime_context()
            ids = {"ray.task_id": context.get_task_id(), "ray.actor_id": context.get_actor_id()}
        except Exception:  # noqa: BLE001 - outside of a worker there is none
            ids = {}
        known = {name: value for name, value in ids.items() if value}
        self._running = METER.begin(self._name, known, here=True)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        assert self._running is not None
        _PEAKS.add(METER.end(self._running, error))


class _PeaksInRay:
    """Largest peak of each name as a Ray metric, for its dashboard and Prometheus."""

    def __init__(self) -> None:
        self._lock = Lock()
        """Calls of one actor may end in several threads at once."""
        self._highest: dict[str, int] = {}
        """Bytes by name of the calls."""
        self._gauge: Any = None
        self._broken = False

    def add(self, figures: TaskFigures) -> None:
        """Add a call that has ended. Raises nothing."""
        if self._broken or figures.high is None:
            return
        try:
            with self._lock:
                high = max(figures.high, self._highest.get(figures.name, 0))
                self._highest[figures.name] = high
                if self._gauge is None:
                    from ray.util.metrics import Gauge

                    metric = catalog.METRICS[catalog.MEMWATCH_OPERATION_MEMORY_PEAK_MAX]
                    name, *_ = catalog.prometheus_names(metric)
                    self._gauge = Gauge(name, metric.description, tag_keys=("name",))
                self._gauge.set(float(high), tags={"name": figures.name})
        except Exception as error:  # noqa: BLE001 - as above
            self._broken = True
            warn_once("ray metrics", f"Ray's metrics do not have the peaks of tasks: {error}")


_PEAKS = _PeaksInRay()
