"""`wrap`: start a command, record it, end as it ended."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module

from otel_memwatch.config import OPTIONS, ignored, misspelt
from otel_memwatch.errors import CommandNotStarted, Unavailable, UsageError, describe
from otel_memwatch.monitor.recording.trace_context import VARIABLE as TRACEPARENT
from otel_memwatch.monitor.recording.trace_context import run_context
from otel_memwatch.monitor.run.run_directory import make_run_directory
from otel_memwatch.monitor.run.supervise import end_like, launch
from otel_memwatch.monitor.sampling.sources.oom_kills import OomKills
from otel_memwatch.record.format import RUN_DIRECTORY_VARIABLE
from otel_memwatch.runtime.procfs.system import Allocated, read_allocated
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from pathlib import Path

    from otel_memwatch.model import ChildExit, Ending
    from otel_memwatch.monitor.guard.limit import HardLimit
    from otel_memwatch.monitor.recording.trace_context import TraceContext
    from otel_memwatch.monitor.run.monitor import Monitor
    from otel_memwatch.monitor.run.supervise import Target
    from otel_memwatch.monitor.run_cgroup.own_cgroup import OwnCgroup
    from otel_memwatch.monitor.run_cgroup.service_manager import Scope
    from otel_memwatch.monitor.telemetry.otlp_receiver.socket import Listening
    from otel_memwatch.monitor.workers.uploading import Uploader

_FIRST_NEEDED = (
    "monitor.run.monitor",
    "record.writer",
    "monitor.sampling.sampler",
    "monitor.sampling.sources.process_tree",
    "monitor.sampling.sources.host",
    "monitor.sampling.sources.cgroup",
)
"""Modules of this package that the first tick needs."""

STRICT_EXIT_CODE = 125
"""Exit code of a run that was not recorded whole, under --strict."""


def wrap(
    argv: Sequence[str],
    settings: Mapping[str, Any],
    say: Callable[[str], None],
    on_start: Callable[[], None] = lambda: None,
) -> NoReturn:
    """Runs `argv` and ends the calling process as the command ended. Calls `on_start` right before the command is started.

    Raises `UsageError` before anything has been started, `CommandNotStarted` when the command cannot be executed
    (its exit code is a shell's: 127 or 126), `Unavailable` when `cgroup` is "require" and there can be none.
    """
    for sentence in (*misspelt(os.environ), *ignored(settings)):
        say(f"otel-memwatch: {sentence}")
    own_cgroup, scope, hint = _own_cgroup(settings)
    target: Target | None = None
    limit: HardLimit | None = None
    try:
        listening = _listen(settings)
        directory = _run_directory(argv, settings, say)
        if directory is None:
            on_start()
            _run_unrecorded(argv)
        uploader = _uploader(settings, say)
        trace = run_context(os.environ)
        oom_kills = OomKills()
        allocated_before = read_allocated()
        variables = _variables(directory, trace, settings, listening)
        enter = _entrance(settings, own_cgroup, scope)
        on_start()
        target = _launch(argv, variables, enter, scope, directory)
        own_cgroup, misplaced = _placed(target, own_cgroup, scope)
        # From here on the command runs: whatever befalls us, it is waited for, and its end is ours.
        group = own_cgroup if misplaced is None else None
        limit = _watch_limit(settings, group, target, say)
        monitor = _start_monitor(
            argv,
            settings,
            say,
            target,
            directory=directory,
            trace=trace,
            group=group,
            misplaced=misplaced,
            hint=hint,
            listening=listening,
            allocated_before=allocated_before,
            limit=limit,
            uploader=uploader,
        )
        end = target.wait(monitor.note_exit if monitor else lambda _: None)
        if limit is not None:
            limit.stop()
        if monitor is not None:
            _finish(monitor, end, group, oom_kills, uploader)
    finally:
        if target is not None:
            target.end_witness()
        if scope is not None:
            scope.close()
        if own_cgroup is not None:
            own_cgroup.remove()
    if settings["strict"] and (monitor is None or monitor.messages.problems):
        raise SystemExit(STRICT_EXIT_CODE)
    if end.exit_code == 0 and monitor is not None and monitor.messages.over_budget:
        raise SystemExit(settings["budget_exit_code"])
    end_like(end)


def _own_cgroup(settings: Mapping[str, Any]) -> tuple[OwnCgroup | None, Scope | None, str | None]:
    """A group of the run's own; else the scope that the service manager is to be asked for; else what would help."""
    mode, limit = settings["cgroup"], settings["limit"]
    if mode == "off":
        if limit is not None and settings["limit_fallback"] == "none":
            raise UsageError(
                "--limit needs a control group, which --cgroup off excludes.", "--limit-fallback rlimit"
            )
        return None, None, None
    from otel_memwatch.monitor.run_cgroup.own_cgroup import OwnCgroup, systemd_runs

    try:
        return OwnCgroup.create(limit=limit), None, None
    except Unavailable as why:
        reason = why
    if systemd_runs():
        from otel_memwatch.monitor.run_cgroup import service_manager

        try:
            asked = service_manager.find()
        except Unavailable as why:
            asked, reason = None, why
        if asked is not None:
            insists = mode == "require" or limit is not None
            patience = service_manager.INSISTENCE if insists else service_manager.PATIENCE
            return None, service_manager.Scope(asked, patience, limit), None
    if limit is not None and settings["limit_fallback"] == "none":
        from otel_memwatch.monitor.guard.limit import needs_group

        raise needs_group(reason)
    if mode == "require":
        raise reason
    return None, None, reason.hint


def _placed(
    target: Target, own_cgroup: OwnCgroup | None, scope: Scope | None
) -> tuple[OwnCgroup | None, str | None]:
    """The group that the target was started in, and why it is not in the one that it was meant for."""
    if scope is None:
        return own_cgroup, target.misplaced
    try:
        scope.close()
        if target.misplaced is not None:
            return None, target.misplaced
        group = scope.group()
    except Exception as error:  # noqa: BLE001 - the command runs already
        return None, describe(error)
    # The scope and its watermark are gone with its last process: the witness stays in it until both were read.
    target.keeps_witness = True
    return group, None


def _listen(settings: Mapping[str, Any]) -> Listening | None:
    """The port for the target's own spans, where it is asked for. It is opened now, since the target is told its number."""
    if not settings["receive_otlp"]:
        return None
    from otel_memwatch.monitor.telemetry.otlp_receiver.socket import listen

    return listen(os.environ, settings["otlp"])


def _run_directory(
    argv: Sequence[str], settings: Mapping[str, Any], say: Callable[[str], None]
) -> Path | None:
    """The run directory; `None`, after a line about it, where there is no place for one and nobody has insisted."""
    try:
        return make_run_directory(settings, argv, say)
    except UsageError as error:
        if settings["out"] or settings["runs"] or settings["strict"] or settings["limit"]:
            raise
        say(f"otel-memwatch: nothing is recorded: {error}")
        return None


def _run_unrecorded(argv: Sequence[str]) -> NoReturn:
    """Runs the command without a record, and ends as it ends."""
    end_like(launch(argv, variables={}).wait(lambda _: None))


def _uploader(settings: Mapping[str, Any], say: Callable[[str], None]) -> Uploader | None:
    """The process that uploads the record, where it is asked for. The command runs without it too, after a line about it."""
    if settings["upload"] is None:
        return None
    try:
        from otel_memwatch.monitor.workers.uploading import Uploader

        return Uploader(settings["upload"])
    except (OSError, ImportError) as error:
        say(f"otel-memwatch: the record is not uploaded: {describe(error)}")
        return None


def _variables(
    directory: Path, trace: TraceContext, settings: Mapping[str, Any], listening: Listening | None
) -> dict[str, str]:
    """What the target finds in its environment beside what we were given ourselves."""
    variables = {RUN_DIRECTORY_VARIABLE: str(directory), TRACEPARENT: trace.traceparent}
    if settings["exact_gpu"]:
        variables[OPTIONS["exact_gpu"].variable] = "1"
    return {**variables, **(listening.variables if listening else {})}


def _entrance(
    settings: Mapping[str, Any], own_cgroup: OwnCgroup | None, scope: Scope | None
) -> Callable[[], None] | None:
    """What the command's process does before it becomes the command; `None`: nothing."""
    enter = scope.entered if scope is not None else own_cgroup.add_self if own_cgroup else None
    if settings["limit"] is None:
        return enter
    from otel_memwatch.monitor.guard.limit import guarded, limit_data

    return guarded(enter or limit_data(settings["limit"]))


def _launch(
    argv: Sequence[str],
    variables: Mapping[str, str],
    enter: Callable[[], None] | None,
    scope: Scope | None,
    directory: Path,
) -> Target:
    """Starts the command; where that cannot be done nothing is left of the run."""
    try:
        forked = None if scope is None else scope.ask
        return launch(argv, variables=variables, before_exec=enter, forked=forked, meanwhile=_load())
    except CommandNotStarted:
        import shutil

        shutil.rmtree(directory, ignore_errors=True)
        raise


def _watch_limit(
    settings: Mapping[str, Any], group: OwnCgroup | None, target: Target, say: Callable[[str], None]
) -> HardLimit | None:
    """What ends the whole run where it wants more than its limit; `None`: it has none."""
    if settings["limit"] is None:
        return None
    from otel_memwatch.monitor.guard.limit import HardLimit

    limit = HardLimit(settings["limit"], group, target.helpers)
    try:
        limit.watch()
    except (OSError, Unavailable) as error:
        say(
            f"otel-memwatch: at the limit the kernel ends one process, and nobody the others: {describe(error)}"
        )
    return limit


def _load() -> Iterator[None]:
    """Imports what the first tick needs, module by module. The command does not wait for that."""
    for name in _FIRST_NEEDED:
        with contextlib.suppress(Exception):  # whoever needs it meets the error again, and reports it
            import_module(f"otel_memwatch.{name}")
        yield


def _start_monitor(
    argv: Sequence[str],
    settings: Mapping[str, Any],
    say: Callable[[str], None],
    target: Target,
    *,
    directory: Path,
    trace: TraceContext,
    group: OwnCgroup | None,
    misplaced: str | None,
    hint: str | None,
    listening: Listening | None,
    allocated_before: Allocated | None,
    limit: HardLimit | None,
    uploader: Uploader | None,
) -> Monitor | None:
    """Starts to record the target; `None`, after a line about it, where there can be no monitor. Raises nothing."""
    monitor: Monitor | None = None
    try:
        from otel_memwatch.monitor.messages import Messages
        from otel_memwatch.monitor.recording.run_info import TargetInfo
        from otel_memwatch.monitor.run.monitor import Monitor

        info = TargetInfo(
            mode="wrap",
            argv=tuple(argv),
            pid=target.pid,
            started=target.started,
            environment=dict(os.environ),
            floor=target.floor,
            own_cgroup=group,
            cgroup_hint=hint if misplaced is None else f"a control group of its own ({misplaced})",
            helpers=target.helpers if uploader is None else target.helpers | {uploader.pid},
            allocated_before=allocated_before,
            limit=limit,
        )
        monitor = Monitor(directory, settings, info, trace, Messages(say), listening=listening)
        if misplaced is not None and settings["cgroup"] == "require":
            monitor.messages.problem(f"the command is not in its control group: {misplaced}")
        monitor.start()
        if uploader is not None:
            uploader.begin(directory)
    except Exception as error:  # noqa: BLE001 - as when there is no memory left
        say(f"otel-memwatch: nothing is recorded: {describe(error)}")
        if monitor is None and listening is not None:
            listening.socket.close()  # the target would wait for answers of a port that nobody serves
    return monitor


def _finish(
    monitor: Monitor, end: ChildExit, group: OwnCgroup | None, oom_kills: OomKills, uploader: Uploader | None
) -> None:
    """Completes the record; a signal that asks us to go, now that the target has ended, cuts short what can wait."""

    def ending() -> Ending:
        killed = None
        if group is not None:
            with contextlib.suppress(OSError):  # somebody may have removed it
                killed = group.oom_kills()
        return monitor.ending(end.exit_code, end.signal, oom_kills.since() if killed is None else killed)

    monitor.finish(ending, _interrupted)
    if uploader is not None and (problem := uploader.finish(_interrupted)) is not None:
        monitor.messages.problem(problem)


def _interrupted() -> bool:
    """Whether a signal asks us to go."""
    import signal

    # All signals are blocked in this thread, so that what was sent to us is pending.
    return bool(signal.sigpending() & {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
