"""Recording from Python: `watch()` this program, `attach()` to another one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from otel_memwatch.api.run import Run, load_run
from otel_memwatch.errors import RunError, UsageError
from otel_memwatch.in_target import operations
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from otel_memwatch.api.keywords import AttachSettings, WatchSettings


def watch(path: str | os.PathLike[str] | None = None, **settings: Unpack[WatchSettings]) -> Run:
    """Records this program and its descendants from now on, until the block, `run.stop()` or the process ends.

    As in `with watch("runs/a") as run:`, or with `run = watch()` at the top of a script or notebook.

    A monitor is started beside the program; nothing is sampled in it. The call returns when the first sample has been
    recorded. The recording ends with the block, with `stop()` or with the process, however that dies. In a program
    that is recorded already (under `wrap`, or by an earlier `watch`) that run is joined and goes on afterwards.

    Args:
        path: run directory to create. Default: `memwatch-runs/<time>-<name>-<pid>`. Where it holds a run already, this one
            is recorded in "path-2", "path-3" ...: `run.path` says where.
        settings: as on the command line of `attach`, whose help describes them: `interval`, `exact`, `quiet`, `summary`,
            `summary_file`, `report`, `plot`, `prometheus`, `prometheus_cert`, `prometheus_key`, `prometheus_client_ca`, `linger`,
            `textfile`, `otlp`, `otlp_protocol`, `otlp_metrics`, `metrics`, `operation_metrics`, `metric_interval`, `log_dir`,
            `upload`, `out`, `runs`, `name`, `tag`, `group`, `rank`; and `exact_gpu`, which has the watermarks of this
            program's GPU allocators reset at the boundaries of operations.

    Returns:
        The run, which can be read while it grows. When recording turns out to be impossible there is one line about it
        on stderr, and the program goes on.

    Raises:
        UsageError: for a setting that does not exist or cannot be used, or a path where something else than a run is.

    """
    from otel_memwatch.api.monitor_process import MonitorProcess

    given = _checked("watch", path, settings)
    running = _present_run()
    if running is not None:
        if path is not None:
            _say(f"watch() joins the run that records this program already, in {running}.")
        return Run(running)
    directory = _directory(given)
    del given["out"]
    try:
        monitor = MonitorProcess(os.getpid(), directory, given)
    except OSError as error:
        _say(f"nothing is recorded: the monitor cannot be started: {error.strerror}.")
        return Run(directory)
    if monitor.dead:
        _say("nothing is recorded: the monitor has not come up.")
        return Run(directory)
    if not monitor.ready:
        _say("the monitor is slow to come up: the beginning may be missing from the record.")
    operations.activate(str(directory))
    return Run(directory, monitor)


def attach(pid: int, path: str | os.PathLike[str] | None = None, **settings: Unpack[AttachSettings]) -> Run:
    """Records another process and its descendants until it ends, until `stop()`, or until this program ends.

    `path` and the settings are those of `watch`, but for `exact_gpu`. Raises `UsageError` as `watch` does, `RunError` when
    the process is not there or may not be read (the monitor says which on stderr).
    """
    from otel_memwatch.api.monitor_process import MonitorProcess

    given = _checked("attach", path, settings)
    directory = _directory(given)
    del given["out"]
    try:
        monitor = MonitorProcess(pid, directory, given)
    except OSError as error:
        raise RunError(f"The monitor cannot be started: {error.strerror}.") from None
    if monitor.dead:
        raise RunError(f"Process {pid} is not recorded.", "the monitor has said why on stderr")
    return Run(directory, monitor)


def _checked(
    command: str, path: str | os.PathLike[str] | None, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings that were given, checked, as the command line wants them; `out` is there in any case."""
    from otel_memwatch import config

    given = dict(settings)
    if path is not None:
        if "out" in given:
            raise UsageError("Give the run directory once: as the path or as out.")
        given["out"] = os.fspath(path)
    used = config.settings(command, given)
    present = {name: value for name, value in given.items() if value is not None}
    return present | {name: used[name] for name in ("out", "runs", "name")}


def _directory(settings: Mapping[str, Any]) -> Path:
    """The run directory to be made by the monitor. Raises `UsageError` when something else than a run is there."""
    from otel_memwatch.monitor.run.run_directory import absolute, run_name
    from otel_memwatch.record.format import RUN_FILE

    out = settings["out"]
    if out is not None:
        path = absolute(out)
        if not os.path.lexists(path):
            return path
        if not os.path.isfile(path / RUN_FILE):
            raise UsageError(f"{path} exists already.", "a run is never overwritten: name another directory")
        # A notebook is run again from its beginning: its second run stands beside the first.
        beside = _numbered(path)
        _say(f"{out} holds a run already: this one is recorded in {beside.name}, beside it.")
        return beside
    program = getattr(sys.modules.get("__main__"), "__file__", None)
    runs = absolute(settings["runs"]) if settings["runs"] else _runs_directory()
    # A second recording within a second has its name already.
    return _numbered(runs / run_name(["python", program] if program else ["python"], settings["name"]))


def _numbered(path: Path) -> Path:
    """The path, or the first of "path-2", "path-3" ... that is not there."""
    beside, number = path, 1
    while os.path.lexists(beside):
        number += 1
        beside = path.with_name(f"{path.name}-{number}")
    return beside


def _runs_directory() -> Path:
    """Where runs are kept: in the working directory, else in the temporary one."""
    from otel_memwatch.monitor.run.run_directory import absolute, temporary_runs
    from otel_memwatch.record.format import RUNS_DIRECTORY

    try:
        runs = absolute(RUNS_DIRECTORY)
        writable = os.access(runs if runs.is_dir() else runs.parent, os.W_OK)
    except UsageError:
        writable = False
    return runs if writable else temporary_runs()


def _present_run() -> Path | None:
    """The run that records this program already, if it goes on."""
    named = os.environ.get(operations.RUN_DIRECTORY_VARIABLE)
    if not named:
        return None
    try:
        run = load_run(named)
        return run.path if run.state == "running" else None
    except RunError:
        return None


def _say(text: str) -> None:
    from otel_memwatch.in_target.operations.journal import warn_once

    warn_once(text, text)
