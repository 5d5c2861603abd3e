"""`wrap`: start a command, record it, and end as it ended.

The steps between the end of the command and the prompt, with their cost, are listed in `monitor.run.completion`.
"""

from __future__ import annotations

import os

from otel_memwatch.config import OPTIONS, ignored, misspelt
from otel_memwatch.errors import CommandNotStarted, Unavailable, UsageError, describe
from otel_memwatch.monitor.recording.trace_context import VARIABLE as TRACEPARENT
from otel_memwatch.monitor.recording.trace_context import run_context
from otel_memwatch.monitor.run.supervise.target import end_like, wait_unsupervised
from otel_memwatch.monitor.run_cgroup.oom_kills import OomKills
from otel_memwatch.record.format import RUN_DIRECTORY_VARIABLE
from otel_memwatch.runtime.lazy import load_module
from otel_memwatch.runtime.light import ExitStack, suppress
from otel_memwatch.runtime.procfs.system import read_allocated
from otel_memwatch.runtime.system_calls import signal
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from typing_extensions import Self

    from otel_memwatch.model import ChildExit, Ending
    from otel_memwatch.monitor.guard.events import EventWriter
    from otel_memwatch.monitor.guard.guard import Guard
    from otel_memwatch.monitor.run.container_recorder import ContainerRecorder
    from otel_memwatch.monitor.run.monitor import Monitor
    from otel_memwatch.monitor.run.supervise import Target
    from otel_memwatch.monitor.run_cgroup.own_cgroup import OwnCgroup
    from otel_memwatch.monitor.run_cgroup.service_manager import Scope
    from otel_memwatch.monitor.sampling.stacks.worker import StackWorker
    from otel_memwatch.monitor.telemetry.otlp_receiver.socket import ListeningPort
    from otel_memwatch.monitor.workers.uploading import Uploader

_FIRST_NEEDED = (
    "otel_memwatch.model",
    "otel_memwatch.monitor.run.monitor",
    "otel_memwatch.monitor.recording.run_info",
    "otel_memwatch.monitor.recording.recording",
    "otel_memwatch.record.writer",
    "otel_memwatch.monitor.sampling.sampler",
    "otel_memwatch.monitor.sampling.sources.process_tree.membership",
    "otel_memwatch.monitor.sampling.sources.process_tree",
    "otel_memwatch.monitor.sampling.sources.host",
    "otel_memwatch.monitor.sampling.sources.cgroup",
)
"""Modules that the first sample needs, a few milliseconds each: the end of the command is noticed between two of them."""

_GUARDED = "limit", "warn", "stalled", "leave", "timeout", "events"
"""Settings that need a guard."""
_ENDING = "limit", "stalled", "leave", "timeout"
"""Settings that end a run. They are refused if no run directory can be made."""

STRICT_EXIT_CODE = 125
"""Exit code under --strict if the record is incomplete."""


class RunResources:
    """Resources of a wrapped run. `wrap` acquires them step by step; `close` releases them.

    `close` always releases in this order: the witness process of the target, the OTLP port, the scope, the cgroup. The
    scope and its peak vanish with its last process, which is the witness. Then it starts the process for report and page.
    """

    directory: str
    target: Target

    def __init__(
        self,
        argv: Sequence[str],
        settings: Mapping[str, Any],
        say: Callable[[str], None],
        own_cgroup: tuple[OwnCgroup | None, Scope | None, str | None] | None = None,
    ) -> None:
        self.argv, self.settings, self.say = argv, settings, say
        self.trace = run_context(os.environ)
        self.problems: list[str] = []
        """One sentence for each part of the guard that does not work; `--strict` accepts none."""
        self._release = ExitStack()
        self._release.callback(self._start_detached)
        self._events: EventWriter | None = None
        if settings["events"] is not None:  # before a file of ours takes the number of a closed descriptor
            from otel_memwatch.monitor.guard.events import EventWriter

            self._events = EventWriter(settings["events"], self.problem)
            self._release.callback(self._events.close)
        self._release.callback(self._remove_cgroup)
        self._cgroup, self._scope, self.cgroup_hint = own_cgroup or _own_cgroup(settings)
        if self._scope is not None:
            self._release.callback(self._scope.release)
            self._release.callback(self._scope.close)
        self.misplaced: str | None = None
        """Reason why the command is not in the cgroup that was made or requested."""
        self.listening: ListeningPort | None = None
        self.uploader: Uploader | None = None
        self.guard: Guard | None = None
        if settings["kill_after"] is not None or any(settings[name] for name in _GUARDED):
            from otel_memwatch.monitor.guard.guard import Guard

            self.guard = Guard(settings, self._events, self.problem)
        self.stacks: StackWorker | None = None
        self.container: ContainerRecorder | None = None
        self.monitor: Monitor | None = None
        self._child: int | None = None

    def close(self) -> None:
        """Release everything."""
        self._release.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def cgroup(self) -> OwnCgroup | None:
        """The cgroup of the run, if the command is in it."""
        return self._cgroup if self.misplaced is None else None

    @property
    def helpers(self) -> frozenset[int]:
        """Our helper processes, which are not part of the run."""
        workers = (self.uploader, self.stacks)
        return self.target.helpers | {worker.pid for worker in workers if worker is not None}

    def prepare(self) -> bool:
        """Open the OTLP port, make the run directory and start the uploader, as far as requested.

        Return false, after a message, if no run directory can be made and no option requires one.
        """
        from otel_memwatch.monitor.run.run_directory import make_run_directory

        settings = self.settings
        if settings["receive_otlp"]:
            from otel_memwatch.monitor.telemetry.otlp_receiver.socket import listen

            self.listening = listen(os.environ, settings["otlp"])
            self._release.callback(self.listening.socket.close)
        try:
            self.directory = make_run_directory(settings, self.argv, self.say)
        except UsageError as error:
            if any(settings[name] for name in ("out", "runs", "strict", *_ENDING)):
                raise
            self.say(f"otel-memwatch: nothing is recorded: {error}")
            return False
        if settings["upload"] is not None:
            from otel_memwatch.monitor.workers.uploading import start_uploader

            self.uploader = start_uploader(settings["upload"], self.say)
        if settings["stacks"]:
            from otel_memwatch.monitor.sampling.stacks.worker import start_stacks

            self.stacks = start_stacks(self.say)
        return True

    def launch(self) -> None:
        """Start the command. If that fails, the run leaves nothing behind."""
        from otel_memwatch.monitor.run.supervise.start import launch

        # Memory in use right before the command, for comparison with later samples.
        self.oom_kills, self.allocated_before = OomKills(), read_allocated()
        try:
            self.target = launch(
                self.argv,
                variables=self._variables(),
                entrance=None if self._cgroup is None else self._cgroup.entrance,
                before_exec=self._entering(),
                forked=self._forked,
                meanwhile=_load(),
                death_signal=0 if self.settings["kill_after"] is None else signal.SIGKILL,
            )
        except CommandNotStarted as error:
            import shutil

            if self._events is not None:
                said = {"reason": error.message, "hint": error.hint, "errno": error.errno}
                self._events.write("not_started", None, 0.0, exit_code=error.exit_code, **said)
            shutil.rmtree(self.directory, ignore_errors=True)
            raise
        except OSError as error:
            if self._child is None:
                raise
            self._end_unsupervised(self._child, error)
        self.release_target()
        self.misplaced = self.target.misplaced
        if self.guard is not None and self.guard.thawer is not None:
            self.target.helpers |= {self.guard.thawer.pid}
        if self._scope is not None:
            if self._scope.holder is not None:
                self.target.helpers |= {self._scope.holder}
            self._find_scope(self._scope)

    def wait(self) -> ChildExit:
        """Wait for the command and complete the record; return the end of the command."""
        try:
            end = self.target.wait(
                self.monitor.note_exit if self.monitor else lambda _: None,
                self.guard.take_signal if self.guard else lambda _: False,
            )
        except OSError as error:
            self._end_unsupervised(self.target.pid, error)
        self.finish(end)
        return end

    def _end_unsupervised(self, pid: int, error: OSError) -> NoReturn:
        """Wait for the command without figures and end as it ends: the system refuses a call, for example by a seccomp filter."""
        self.problem(f"recording stopped, since the system refuses a call: {describe(error)}")
        end = wait_unsupervised(pid)
        self.summarize_unrecorded(end)
        with suppress(OSError):
            os.rmdir(self.directory)  # fails if it has a record
        self.close()
        if self.settings["strict"]:
            raise SystemExit(STRICT_EXIT_CODE)
        end_like(end)

    def release_target(self) -> None:
        """End the witness of the target when everything is released."""
        self._release.callback(self.target.end_witness)

    def start_guard(self) -> None:
        """Begin to guard the run, if an option asks for that."""
        if self.guard is not None:
            target = self.target
            self.guard.start(self.cgroup, target.helpers, target.started, path=self.directory, pid=target.pid)

    def problem(self, sentence: str) -> None:
        """Print why the guard, or a part of it, does not work, and keep it."""
        self.problems.append(sentence)
        self.say(f"otel-memwatch: {sentence}.")

    def start_monitor(self) -> None:
        """Start to record. If that fails, print why and leave `monitor` as `None`; raises nothing."""
        if self.stacks is not None:
            from pathlib import Path

            self.stacks.begin(Path(self.directory), self.target.pid, os.getpid(), self.helpers)
        monitor: Monitor | None = None
        try:
            from otel_memwatch.monitor.messages import Messages
            from otel_memwatch.monitor.recording.run_info import TargetInfo
            from otel_memwatch.monitor.run.monitor import Monitor

            misplaced = self.misplaced
            info = TargetInfo(
                mode="wrap",
                argv=tuple(self.argv),
                pid=self.target.pid,
                started=self.target.started,
                environment=dict(os.environ),
                floor=self.target.floor,
                faults_before=self.target.faults_before,
                own_cgroup=self.cgroup,
                cgroup_hint=self.cgroup_hint if misplaced is None else f"a cgroup of its own ({misplaced})",
                helpers=self.helpers,
                allocated_before=self.allocated_before,
                guard=self.guard,
            )
            monitor = Monitor(
                self.directory,
                self.settings,
                info,
                self.trace,
                Messages(self.say),
                listening=self.listening,
            )
            if misplaced is not None and self.settings["cgroup"] == "require":
                monitor.messages.problem(f"the command is not in its cgroup: {misplaced}")
            monitor.start()
            if self.uploader is not None:
                from pathlib import Path

                self.uploader.begin(Path(self.directory))
        except Exception as error:  # noqa: BLE001 - for example, no memory left
            self.say(f"otel-memwatch: nothing is recorded: {describe(error)}")
            if monitor is None and self.listening is not None:
                self.listening.socket.close()  # the target would wait for answers that never come
        self.monitor = monitor

    def start_container(self) -> None:
        """Start to record the container that the command starts, if it starts one. Call it while there is one thread."""
        if "run" not in self.argv[1:]:
            return
        from otel_memwatch.run.container_client import client_of

        client = client_of(self.argv)
        if client is None:
            return
        from otel_memwatch.monitor.run.container_recorder import ContainerRecorder

        try:
            self.container = ContainerRecorder(client, self.target.pid, self.directory, self.settings)
        except OSError as error:
            self.say(f"otel-memwatch: only the client is recorded: {describe(error)}")
        else:
            self.target.helpers |= {self.container.pid}

    def finish(self, end: ChildExit) -> None:
        """Complete the record. A signal that asks us to end skips optional work."""
        if self.guard is not None:
            self.guard.finish()
        problems = [] if self.stacks is None else self.stacks.finish()
        if self.monitor is not None:
            self.monitor.finish(lambda: self._ending(end), _interrupted, problems, ended=end.time)
            if self.uploader is not None and (problem := self.uploader.finish(_interrupted)) is not None:
                self.monitor.messages.problem(problem)
        if self.container is not None:
            self.container.finish()
        if self.guard is not None:
            self.guard.write_end(end, None if self.monitor is None else self.monitor.tree_peak)
        if self.monitor is None or not self.monitor.summarized:
            self.summarize_unrecorded(end)

    def summarize_unrecorded(self, end: ChildExit) -> None:
        """Print the line of JSON without figures, if it is requested: its reader waits for one in any case."""
        if self.settings["summary"] != "json" or self.settings["quiet"]:
            return
        from otel_memwatch.reports.verdict import unrecorded
        from otel_memwatch.run.ending import describe_end

        ended_by = None if self.guard is None or self.guard.verdict is None else self.guard.verdict["kind"]
        verdict = ended_by or ("finished" if end.signal is None else "killed")
        self.say(unrecorded(describe_end(end.exit_code, end.signal, None, None, None), verdict))

    def _ending(self, end: ChildExit) -> Ending:
        assert self.monitor is not None
        killed = None
        if self.cgroup is not None:
            with suppress(OSError):  # another program may have removed it
                killed = self.cgroup.oom_kills()
        ending = self.monitor.ending(
            end.exit_code, end.signal, self.oom_kills.since() if killed is None else killed
        )
        why = None if self.guard is None else self.guard.reason()
        return ending if why is None else ending._replace(reason=f"{ending.reason} ({why})")

    def _forked(self, pids: Sequence[int]) -> None:
        """Prepare for the command before it starts. `pids`: the child that will execute it, and its witness."""
        self._child = pids[0]
        if self.guard is not None:
            version_2 = self._cgroup is not None and self._cgroup.version == 2
            self.guard.prepare(freezes=version_2 or self._scope is not None)
            if self.guard.thawer is not None:  # it may be in a cgroup that we remove
                self._release.callback(self.guard.thawer.end)
        if self._scope is not None:
            self._scope.ask(pids)

    def _find_scope(self, scope: Scope) -> None:
        """Find the cgroup of the scope that the service manager has made for the command."""
        try:
            scope.close()
            if self.misplaced is not None:
                return
            self._cgroup = scope.group()
        except Exception as error:  # noqa: BLE001 - the command runs already
            self.misplaced = describe(error)
            return
        # The witness keeps the scope and its peak in existence until both were read.
        self.target.keeps_witness = True

    def _start_detached(self) -> None:
        if self.monitor is not None:
            self.monitor.start_detached()

    def _remove_cgroup(self) -> None:
        if self._cgroup is not None:
            self._cgroup.remove()

    def _variables(self) -> dict[str, str]:
        """Return the variables that the command gets in addition to our environment."""
        variables = {RUN_DIRECTORY_VARIABLE: self.directory, TRACEPARENT: self.trace.traceparent}
        if self.settings["exact_gpu"]:
            variables[OPTIONS["exact_gpu"].variable] = "1"
        if self.settings["torch_snapshot"]:
            from otel_memwatch.runtime.own_python import PACKAGE_PARENT

            site = os.path.join(PACKAGE_PARENT, "otel_memwatch", "in_target", "torch_snapshot", "site")
            variables["PYTHONPATH"] = os.pathsep.join(filter(None, (site, os.environ.get("PYTHONPATH"))))
        return {**variables, **(self.listening.variables if self.listening else {})}

    def _entering(self) -> Callable[[], int | None] | None:
        """Return what the child calls before it executes the command; `None`: it enters the cgroup, if there is one."""
        enter: Callable[[], int | None] | None = None
        if self._scope is not None:
            enter = self._scope.entered
        elif self._cgroup is not None and (self.settings["limit"] is not None or self.settings["stacks"]):
            enter = self._cgroup.add_self
        if self.settings["limit"] is not None:
            from otel_memwatch.monitor.guard.limit import guarded, limit_data

            enter = guarded(enter or limit_data(self.settings["limit"]))
        return _traceable(enter) if self.settings["stacks"] else enter


def wrap(
    argv: Sequence[str],
    settings: Mapping[str, Any],
    say: Callable[[str], None],
    on_start: Callable[[], None] = lambda: None,
) -> NoReturn:
    """Run `argv` and end the calling process as the command ended. Calls `on_start` right before the command starts.

    Another exit code, in this order: `STRICT_EXIT_CODE`; the guard's, if it ended the run; that of an exceeded budget, if the
    command's is 0.

    Raises:
        UsageError: before anything was started.
        CommandNotStarted: if the command cannot be executed, with a shell's exit code (127 or 126).
        Unavailable: if `cgroup` is "require" and none is available.
    """
    for sentence in (*misspelt(os.environ), *ignored(settings)):
        say(f"otel-memwatch: {sentence}")
    with RunResources(argv, settings, say) as run:
        if not run.prepare():
            from otel_memwatch.monitor.run.supervise.start import launch

            run.close()
            on_start()
            end = launch(argv, variables={}).wait(lambda _: None)
            run.summarize_unrecorded(end)
            end_like(end)
        on_start()
        run.launch()
        record_run(run)


def record_run(run: RunResources) -> NoReturn:
    """Record the command that runs, release everything, and end as the command ended."""
    settings = run.settings
    # Whatever fails from here on, wait for the command and end as it ends.
    with run:
        run.start_container()
        run.start_guard()
        run.start_monitor()
        end = run.wait()
    messages = None if run.monitor is None else run.monitor.messages
    if settings["strict"] and (messages is None or messages.problems or run.problems):
        raise SystemExit(STRICT_EXIT_CODE)
    if run.guard is not None and (code := run.guard.exit_code(end)) is not None:
        raise SystemExit(code)
    if end.exit_code == 0 and messages is not None and messages.over_budget:
        raise SystemExit(settings["budget_exit_code"])
    end_like(end)


def _own_cgroup(settings: Mapping[str, Any]) -> tuple[OwnCgroup | None, Scope | None, str | None]:
    """Return a cgroup for the run, a scope to request from the service manager, or a hint how to get one."""
    mode, limit = settings["cgroup"], settings["limit"]
    if mode == "off":
        if limit is not None and settings["limit_fallback"] == "none":
            raise UsageError(
                "--limit requires a cgroup, which --cgroup off excludes.", "or pass --limit-fallback rlimit"
            )
        return None, None, None
    from otel_memwatch.monitor.run_cgroup.own_cgroup import OwnCgroup, UnusableDelegation, systemd_runs

    try:
        return OwnCgroup.create(limit=limit), None, None
    except Unavailable as why:
        reason = why
    if systemd_runs():
        from otel_memwatch.monitor.run_cgroup import service_manager

        try:
            asked = service_manager.find()
        except Unavailable as why:
            asked = None
            if not isinstance(reason, UnusableDelegation):
                reason = why
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


def _load() -> Iterator[None]:
    """Import the modules for the first sample, one per step. The command does not wait for this."""
    for name in _FIRST_NEEDED:
        with suppress(Exception):  # the module that needs it meets the error again and reports it
            load_module(name)
        yield


def _traceable(enter: Callable[[], int | None] | None) -> Callable[[], int | None]:
    """Return a function that the child calls before exec, which lets our tools read its stacks.

    If kernel.yama.ptrace_scope is 1, only ancestors of a process and one declared process with its descendants may read it.
    The declaration stays across exec, and children of the command do not have it (yama_ptracer_add in the kernel).
    """
    from otel_memwatch.runtime import system_calls

    def declare_and_enter() -> int | None:
        system_calls.prctl(system_calls.PR_SET_PTRACER, os.getppid())
        return None if enter is None else enter()

    return declare_and_enter


def _interrupted() -> bool:
    """Return whether a signal asks us to end."""
    # All signals are blocked in this thread: a signal that was sent to us is pending.
    return bool(signal.sigpending() & {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
