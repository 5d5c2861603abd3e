"""The ending of the target, in words."""

from __future__ import annotations

import os
import time

from otel_memwatch.model import Ending
from otel_memwatch.record.format import RUNNING, SAMPLES_FILE
from otel_memwatch.record.namespace import pid_namespace
from otel_memwatch.runtime import system_calls
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_memwatch.record.run_info_schema import RunInfo

_SILENCE = 60.0
"""Seconds without a sample after which a monitor on another machine counts as dead (or 20 intervals, if more)."""

_START_TOLERANCE = 1.0
"""Seconds by which the clock may lag between the start of the monitor's process and the recorded start."""


def describe_end(
    exit_code: int | None,
    signal: int | None,
    oom_kills: int | None,
    usage: int | None,
    limit: int | None,
    *,
    monitor: int | None = None,
) -> Ending:
    """Describe the ending of the target, with the reason in one phrase.

    Args:
        exit_code: of the target; `None`: a signal ended it, or its exit code is unknown.
        signal: signal that ended it.
        oom_kills: processes of its cgroup that the kernel's OOM killer killed during the run.
        usage: bytes of the cgroup's high-water mark.
        limit: of the cgroup, in bytes; `None`: no limit.
        monitor: bytes of the monitor below this limit; `None`: the limit does not apply to it.
    """
    if signal is not None:
        reason = f"killed by {system_calls.signal_name(signal)}"
    elif exit_code is not None:
        reason = f"exit code {exit_code}"
    else:
        reason = "ended"
    if oom_kills:
        at = "" if limit is None else f", limit {_mebibytes(limit)}"
        if usage is not None:
            at = f", at {_mebibytes(usage)}" + ("" if limit is None else f" of {_mebibytes(limit)}")
        if monitor is not None:
            at += f"; the monitor used {_mebibytes(monitor)} of this limit"
        if signal == system_calls.signal.SIGKILL:
            reason += f": the kernel's OOM killer{at}"
            if oom_kills > 1:
                reason += f" ({oom_kills} processes killed)"
        else:
            who = "a process" if oom_kills == 1 else f"{oom_kills} processes"
            reason += f"; the kernel's OOM killer killed {who} of it{at}"
    return Ending(exit_code, signal, oom_kills, reason)


def _mebibytes(size: int) -> str:
    return f"{size / 1024**2:.1f} MiB"


def ending_of(fields: RunInfo, state: str, last_tick: float | None, open_names: Sequence[str]) -> Ending:
    """Return the ending of a recorded run: the recorded one, or a description of a run that its monitor did not survive."""
    code, signal, kills, reason = written = fields.exit
    if any(value is not None for value in written):
        return Ending(code, signal, kills, reason or describe_end(code, signal, kills, None, None).reason)
    if state == "running":
        return Ending(None, None, None, "still running")
    reason = "unknown: the monitor died or could not write"
    reason += f", last sample at {last_tick:.1f} s" if last_tick is not None else ", before its first sample"
    if open_names:
        reason += "; open then: " + ", ".join(open_names)
    return Ending(None, None, None, reason)


def verdict_of(fields: RunInfo, state: str, ending: Ending) -> str | None:
    """Return the verdict on an ended run; `None` while it runs, and if its monitor died. The first matching row decides.

    | the run | verdict |
    | --- | --- |
    | the guard ended it | its kind: "limit", "stalled", "machine" or "timeout" |
    | the kernel killed it at the limit of `--limit` | "limit" |
    | a signal ended it | "killed" |
    | else, with any exit code | "finished" |
    """
    if state != "finished":
        return None
    if fields.verdict.kind is not None:
        return fields.verdict.kind
    if fields.limit.breached:
        return "limit"
    return "finished" if ending.signal is None else "killed"


def state_of(fields: RunInfo, path: str | os.PathLike[str]) -> str:
    """Return the state of a run: "finished", "running", or "incomplete" if the monitor died and left "running" behind."""
    if fields.state != RUNNING:
        return "finished"
    if is_monitor_visible(fields):
        return "running" if monitor_lives(fields) else "incomplete"
    from pathlib import Path

    from otel_memwatch.record.sample_files import last_written

    try:
        silence = time.time() - last_written(Path(path, SAMPLES_FILE))
    except OSError:
        return "incomplete"
    return "running" if silence <= max(_SILENCE, 20 * (fields.interval or 0.0)) else "incomplete"


def is_monitor_visible(fields: RunInfo) -> bool:
    """Return whether the monitor ran on this machine and its pid can be looked up; else only silence shows that it died."""
    if fields.host.name not in (None, os.uname().nodename):
        return False
    # In another PID namespace the number means nothing: PID 1 of a removed container always exists.
    recorded, ours = fields.monitor.pid_namespace, pid_namespace()
    return recorded is None or ours is None or recorded == ours


def monitor_lives(fields: RunInfo) -> bool:
    """Return whether the recording process lives. A zombie and another process with its PID do not count."""
    pid = fields.monitor.pid
    if pid is None or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        born = float(process.create_time())
    except (psutil.Error, OSError, ValueError):
        return True
    # The monitor lived when it wrote the start of the run: a process that started later reuses its PID.
    latest = fields.started.wall
    return latest is None or born <= latest + _START_TOLERANCE
