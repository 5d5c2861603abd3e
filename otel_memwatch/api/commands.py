"""Functions that run a command under `wrap`, for programs that start programs."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from pathlib import Path

from otel_memwatch.api.loaded_run import Run
from otel_memwatch.errors import CommandNotStarted, RunError, UsageError
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from typing_extensions import Unpack

    from otel_memwatch.api.keywords import CommandSettings

    Event = Mapping[str, Any]

_OURS = ("events", "repeat", "warmup")
"""Settings of `wrap` that these functions use themselves, or that make several runs."""


def run_command(
    command: Sequence[str | os.PathLike[str]],
    *,
    on_warning: Callable[[Event], object] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    stdin: Any = None,
    stdout: Any = None,
    stderr: Any = None,
    **settings: Unpack[CommandSettings],
) -> Run:
    """Run a command, record it, and return the run when it has ended.

    The command ends with its whole process tree at `limit`, `timeout`, `stalled` or `leave`. `run.verdict` names the cause, and
    `run.ending` has exit code and signal. An exit code other than 0 is no error.

    Args:
        command: program and arguments.
        on_warning: called in this thread with each event of `warn` and `stalled`, while the command runs. If it raises, all
            processes get SIGTERM, and after `kill_after` (10 s) SIGKILL. The exception is raised here once they have ended.
        cwd: working directory of the command. A relative `out` or `runs` is below it.
        env: environment of the command.
        stdin: as for `subprocess.run`; likewise `stdout` and `stderr`.
        stdout: as for `subprocess.run`, without `PIPE`.
        stderr: as for `subprocess.run`, without `PIPE`.
        settings: options of the command line of `wrap`, such as `limit="2GiB"`, `warn="85%"`, `timeout=600`. By default no
            summary and no report is written.

    Returns:
        The run, as from `load_run`.

    Raises:
        UsageError: unknown or invalid setting. Nothing was started.
        CommandNotStarted: the command does not exist or cannot be executed. The message is the reason, `errno` the error of
            the system call, and `exit_code` 127 or 126.
        RunError: the command was not recorded.

    """
    wrapped = _WrappedCommand(command, settings, (stdout, stderr))
    with os.fdopen(wrapped.reader, "rb") as lines:
        with wrapped.closing_writer() as kept:
            process = subprocess.Popen(
                wrapped.words, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=kept
            )
        try:
            for line in lines:
                warning = wrapped.warning_of(line)
                if warning is not None and on_warning is not None:
                    on_warning(warning)
        except BaseException:
            process.terminate()  # see take_signal() of the guard
            raise
        finally:
            process.wait()
    return wrapped.run()


async def run_command_async(
    command: Sequence[str | os.PathLike[str]],
    *,
    on_warning: Callable[[Event], object] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    stdin: Any = None,
    stdout: Any = None,
    stderr: Any = None,
    **settings: Unpack[CommandSettings],
) -> Run:
    """Run a command like `run_command`, in an event loop of asyncio.

    `on_warning` may be a coroutine function. If the task is cancelled, all processes get SIGTERM, and after `kill_after`
    (10 s) SIGKILL. The task ends after them.
    """
    import asyncio
    import inspect

    wrapped = _WrappedCommand(command, settings, (stdout, stderr))
    lines = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), os.fdopen(wrapped.reader, "rb", buffering=0)
    )
    with contextlib.closing(transport):
        with wrapped.closing_writer() as kept:
            process = await asyncio.create_subprocess_exec(
                *wrapped.words, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=kept
            )
        try:
            while line := await lines.readline():
                warning = wrapped.warning_of(line)
                if warning is not None and on_warning is not None:
                    result = on_warning(warning)
                    if inspect.isawaitable(result):
                        await result
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            raise
        finally:
            await asyncio.shield(process.wait())
    return wrapped.run()


class _WrappedCommand:
    """A command under `wrap`, which writes its events to a pipe. Both functions share everything but the waiting.

    Raises `UsageError` for a mistake in the arguments.
    """

    def __init__(
        self,
        command: Sequence[str | os.PathLike[str]],
        settings: Mapping[str, Any],
        streams: tuple[Any, Any],
    ) -> None:
        from otel_memwatch.runtime.own_python import command_line

        words = _words(command, settings, streams)
        self.reader, self._writer = os.pipe()
        self.words = command_line("wrap", f"--events={self._writer}", *words)
        self._started: Event | None = None
        self._failure: Event | None = None

    @contextlib.contextmanager
    def closing_writer(self) -> Iterator[tuple[int]]:
        """Give the descriptors that `wrap` inherits; close them here afterwards."""
        try:
            yield (self._writer,)
        finally:
            os.close(self._writer)

    def warning_of(self, line: bytes) -> Event | None:
        """Return the event of a line if it is a warning."""
        event: Event = json.loads(line)
        if event["event"] == "start":
            self._started = event
        if event["event"] == "not_started":
            self._failure = event
        return event if event["event"] == "warning" else None

    def run(self) -> Run:
        """Return the run of the ended `wrap`."""
        if (failure := self._failure) is not None:
            error = CommandNotStarted(failure["reason"], failure["exit_code"], failure["hint"])
            error.errno = failure["errno"]
            raise error
        if self._started is None:
            raise RunError("The command was not recorded.", "the reason is on stderr")
        run = Run(Path(self._started["path"]))
        run.latest  # noqa: B018 - report an unreadable record now
        return run


def _words(
    command: Sequence[str | os.PathLike[str]], settings: Mapping[str, Any], streams: tuple[Any, Any]
) -> list[str]:
    """Return options and command of `wrap`. Raises `UsageError` for a mistake."""
    from otel_memwatch import config

    if isinstance(command, (str, bytes)) or not command:
        raise UsageError(
            "The command is not a list of words.", "use ['sh', '-c', text] for a line of a shell"
        )
    if subprocess.PIPE in streams:
        raise UsageError("run_command reads no pipe.", "pass an open file as stdout or stderr")
    unknown = sorted(set(settings) & set(_OURS))
    if unknown:
        raise UsageError(f"run_command has no setting {unknown[0]!r}.")
    given = {
        "quiet": True,
        "report": False,
        "kill_after": config.KILL_AFTER,
        **{name: value for name, value in settings.items() if value is not None},
    }
    config.settings("wrap", given)
    return [*config.as_arguments(given, "wrap"), "--", *[os.fspath(word) for word in command]]
