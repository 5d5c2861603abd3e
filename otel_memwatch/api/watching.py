"""Functions to record from Python: `watch()` this program, or `attach()` to another one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from otel_memwatch.api.loaded_run import Run, load_run
from otel_memwatch.errors import RunError, UsageError
from otel_memwatch.in_target import operations
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from otel_memwatch.api.keywords import AttachSettings, WatchSettings


def watch(path: str | os.PathLike[str] | None = None, **settings: Unpack[WatchSettings]) -> Run:
    """Record this program and its descendants from now on.

    Use it as `with watch("runs/a") as run:`, or as `run = watch()` at the top of a script or notebook.

    A separate monitor process takes the samples. The call returns when the first sample has been recorded. The recording
    ends with the block, with `run.stop()` or with the process, also if the process is killed. If `wrap` or an earlier
    `watch` already records the program, the call joins that run, which continues afterwards.

    Args:
        path: run directory to create. Default: `memwatch-runs/<time>-<name>-<pid>`. If it already contains a run, this
            run is recorded in "path-2", "path-3" ...; `run.path` has the actual path.
        settings: options of the command line of `attach`; its help describes them. Recording: `interval`, `exact`,
            `log_dir`. Name and place: `out`, `runs`, `name`, `tag`, `group`, `rank`, `upload`. Output: `quiet`, `summary`,
            `summary_file`, `report`, `plot`. Prometheus: `prometheus`, `prometheus_cert`, `prometheus_key`,
            `prometheus_client_ca`, `linger`, `textfile`. OTLP: `otlp`, `otlp_protocol`, `otlp_metrics`. Metrics: `metrics`,
            `operation_metrics`, `metric_interval`. Only for `watch`: `exact_gpu`, which resets the high-water marks of this
            program's GPU allocators at the boundaries of operations, and `torch_snapshot`.

    Returns:
        The run, which can be read while it is recorded. If recording is impossible, one line on stderr says so, and the
        program continues.

    Raises:
        UsageError: unknown or invalid setting, or the path exists and is not a run.

    """
    from otel_memwatch.api.monitor_process import MonitorProcess

    given = _checked("watch", path, settings)
    running = _present_run()
    if running is not None:
        if path is not None:
            _say(f"watch() joined the run that already records this program, in {running}.")
        return Run(running)
    directory = _directory(given)
    del given["out"]
    try:
        monitor = MonitorProcess(os.getpid(), directory, given)
    except OSError as error:
        _say(f"cannot start the monitor ({error.strerror}): nothing is recorded.")
        return Run(directory)
    if monitor.dead:
        _say("the monitor failed to start: nothing is recorded.")
        return Run(directory)
    if not monitor.ready:
        _say("the monitor started slowly: the record may miss the beginning.")
    operations.activate(str(directory))
    return Run(directory, monitor)


def attach(pid: int, path: str | os.PathLike[str] | None = None, **settings: Unpack[AttachSettings]) -> Run:
    """Record another process and its descendants until it ends, until `stop()`, or until this program ends.

    `path` and the settings are those of `watch`, except `exact_gpu` and `torch_snapshot`.

    Raises:
        UsageError: unknown or invalid setting, or the path exists and is not a run.
        RunError: the process does not exist or may not be read; the monitor prints the reason on stderr.

    """
    from otel_memwatch.api.monitor_process import MonitorProcess

    given = _checked("attach", path, settings)
    directory = _directory(given)
    del given["out"]
    try:
        monitor = MonitorProcess(pid, directory, given)
    except OSError as error:
        raise RunError(f"Cannot start the monitor: {error.strerror}.") from None
    if monitor.dead:
        raise RunError(f"Cannot record process {pid}.", "see the monitor's message on stderr")
    return Run(directory, monitor)


def _checked(
    command: str, path: str | os.PathLike[str] | None, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the given settings after checks, in the command line's form; `out` is always present."""
    from otel_memwatch import config

    given = dict(settings)
    if path is not None:
        if "out" in given:
            raise UsageError("Pass the run directory either as path or as out, not both.")
        given["out"] = os.fspath(path)
    used = config.settings(command, given)
    present = {name: value for name, value in given.items() if value is not None}
    return present | {name: used[name] for name in ("out", "runs", "name")}


def _directory(settings: Mapping[str, Any]) -> Path:
    """Return the run directory for the monitor to create. Raises `UsageError` if the path exists and is not a run."""
    from otel_memwatch.monitor.run.run_directory import absolute, run_name
    from otel_memwatch.record.format import RUN_FILE

    out = settings["out"]
    if out is not None:
        path = Path(absolute(out))
        if not os.path.lexists(path):
            return path
        if not os.path.isfile(path / RUN_FILE):
            raise UsageError(
                f"{path} already exists.", "existing files are never overwritten: pass another directory"
            )
        # Users run a notebook again from its beginning, so its second run gets a numbered directory.
        beside = _numbered(path)
        _say(f"{out} already contains a run; recording to {beside.name} instead.")
        return beside
    program = getattr(sys.modules.get("__main__"), "__file__", None)
    runs = Path(absolute(settings["runs"])) if settings["runs"] else _runs_directory()
    # A second recording within the same second would get the same name.
    return _numbered(runs / run_name(["python", program] if program else ["python"], settings["name"]))


def _numbered(path: Path) -> Path:
    """Return the path, or the first of "path-2", "path-3" ... that does not exist."""
    beside, number = path, 1
    while os.path.lexists(beside):
        number += 1
        beside = path.with_name(f"{path.name}-{number}")
    return beside


def _runs_directory() -> Path:
    """Return the directory of all runs: below the working directory, or the temporary directory if not writable."""
    from otel_memwatch.monitor.run.run_directory import absolute, temporary_runs
    from otel_memwatch.record.format import RUNS_DIRECTORY

    try:
        runs = Path(absolute(RUNS_DIRECTORY))
        writable = os.access(runs if runs.is_dir() else runs.parent, os.W_OK)
    except UsageError:
        writable = False
    return runs if writable else Path(temporary_runs())


def _present_run() -> Path | None:
    """Return the directory of the run that currently records this program, if any."""
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
