"""A process of ours that does one job: one line of JSON on its stdin, lines of JSON on its stdout.

Clients of stores and trackers, numpy and matplotlib take memory, may hang, and may end the process that loads them.
`Worker` is the process as its starter sees it. `serve` is the other side.

* The job is one JSON object. The end of stdin asks a job that repeats itself to finish.
* Each answer is one JSON object. Every other line comes from a library; the last one is kept.
* The process has a separate session, because keys of the terminal are for the command.
* It is the first process that the kernel kills if memory runs out (`own_python`).
* SIGTERM ends it in an orderly way: temporary files are removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time

from otel_memwatch.errors import MemwatchError
from otel_memwatch.runtime.own_python import python_command
from otel_memwatch.runtime.system_calls import signal_name
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NoReturn
from otel_memwatch.runtime.wait_readable import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from typing_extensions import Self

_POLL_SECONDS = 0.1
"""Seconds between two checks whether to give up."""


class Worker:
    """A process that does a job. Raises `OSError` or `MemoryError` if it cannot be started.

    As a context manager it kills a process that still runs at the end of the block.

    Args:
        module: its `main` calls `serve`.
        environment: variables of the process beside ours.
        discard_output: drop output of libraries. Required if the process is not read all the time, because a full pipe
            would stop it, and if it may outlive this process.

    Attributes:
        finished: whether the process has closed its output, and so has ended or is about to.
        last_words: the last line of output that is not an answer.

    """

    def __init__(
        self, module: str, environment: Mapping[str, str] | None = None, *, discard_output: bool = False
    ) -> None:
        from subprocess import DEVNULL, PIPE, STDOUT, Popen

        self.finished = False
        self.last_words = ""
        self._process = Popen(
            python_command(module),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL if discard_output else STDOUT,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def give(self, job: Mapping[str, Any]) -> None:
        """Hand over the job. A process that has died already shows this by its exit code."""
        with contextlib.suppress(OSError):
            self._stdin.write(json.dumps(job).encode() + b"\n")
            self._stdin.flush()

    def answers(
        self, seconds: float = float("inf"), give_up: Callable[[], bool] = lambda: False
    ) -> Iterator[Mapping[str, Any]]:
        """Close stdin, and yield the answers until the process closes its output.

        Ends early, with `finished` still false, after `seconds` or when `give_up` returns true. `give_up` is called
        about ten times a second.
        """
        with contextlib.suppress(OSError):
            self._stdin.close()
        deadline, rest, output = time.monotonic() + seconds, b"", self._stdout.fileno()
        while not self.finished and not give_up() and (left := deadline - time.monotonic()) > 0:
            if not readable([output], min(left, _POLL_SECONDS)):
                continue
            data = os.read(output, 65536)
            self.finished = not data
            *lines, rest = (rest + data).split(b"\n")
            for line in lines if data else [rest]:
                try:
                    answer = json.loads(line)
                except ValueError:
                    answer = None
                if isinstance(answer, dict):
                    yield answer
                else:  # the output of a library
                    self.last_words = line.decode(errors="replace").strip() or self.last_words

    def end(self, patience: float = 0.0) -> int:
        """Return the exit code. A process that has not finished gets SIGTERM and, after `patience` seconds, SIGKILL."""
        from subprocess import TimeoutExpired

        if not self.finished and patience:
            self._process.terminate()
            with contextlib.suppress(TimeoutExpired):
                self._process.wait(patience)
        if not self.finished:
            self._process.kill()
        self.leave()
        return self._process.wait()

    def leave(self) -> None:
        """Let go of the process, which goes on without us."""
        for pipe in (self._stdin, self._stdout):
            with contextlib.suppress(OSError):
                pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self.end()


def ended_by(code: int) -> str:
    """Return how a process ended, by its exit code."""
    return f"its process was ended by {signal_name(-code)}" if code < 0 else f"exit code {code}"


# -- in the process


def serve(work: Callable[[Mapping[str, Any], Callable[..., None]], None]) -> None:
    """Do the job: call `work(job, say)`; `say(kind=value)` sends an answer.

    A `MemwatchError` or an `OSError` ends the process with one line, which its starter reads as `last_words`.
    Does nothing if the starter ended without a job.
    """
    signal.signal(signal.SIGTERM, _leave)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the monitor blocks all signals for itself
    # Redirect the libraries' stdout to stderr, which may be discarded.
    output = os.dup(1)
    os.dup2(2, 1)

    def say(**answer: Any) -> None:
        with contextlib.suppress(BrokenPipeError):  # the starter may have left
            os.write(output, json.dumps(answer).encode() + b"\n")

    # Without a buffer, so `stop_requested` sees the end of stdin.
    line = b""
    while not line.endswith(b"\n") and (more := os.read(0, 65536)):
        line += more
    if not line:
        return
    try:
        work(json.loads(line), say)
    except (MemwatchError, OSError) as error:
        sys.exit(str(error))


def stop_requested(seconds: float) -> bool:
    """Wait up to `seconds` for the starter to close stdin; return whether it has."""
    return bool(readable([0], seconds))


def _leave(*_: object) -> NoReturn:
    sys.exit(1)
