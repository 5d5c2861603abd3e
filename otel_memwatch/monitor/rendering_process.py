"""The process in which a record is rendered where that takes libraries that may end it.

It reads what to make as JSON from stdin, and writes one JSON object a line to stdout: `{"begin": NAME}` before each thing
that it makes, `{"say": TEXT}`, `{"trouble": SENTENCE}`. Any other line is somebody else's, as a library's last words.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from otel_memwatch.monitor.rendering import Teller, ended_run, make
from otel_memwatch.record.format import PLOT_FILE, REPORT_FILE
from otel_memwatch.reports import clear_away
from otel_memwatch.runtime.own_python import command_line
from otel_memwatch.runtime.typed import Any, NoReturn

_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Nothing is computed here that would gain by more; each thread takes address space and a place under `ulimit -u`."""

_POLL_SECONDS = 0.1

_TEXT_SECONDS = 5.0
"""Time that is left for the report and the summary once somebody wants us gone. They take 0.2 s."""

_LEAVE_SECONDS = 2.0


def render_apart(
    directory: Path,
    info: Mapping[str, Any],
    wanted: Mapping[str, Any],
    teller: Teller,
    hurried: Callable[[], bool],
) -> bool:
    """Makes what is `wanted` of the run in a process of its own; false, with nothing made, where there can be none.

    Should that process die, this is told in one line. Once `hurried`, a picture that is being drawn is left out at once,
    and whatever else takes too long.
    """
    try:
        # In a session of its own: what a terminal sends its group is for the target, and for us to judge.
        process = subprocess.Popen(
            command_line(__name__),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **_ONE_THREAD},
        )
    except (OSError, MemoryError):
        return False
    begun = time.monotonic()
    left_out = False
    with process:
        heard = _Heard(teller)
        _send(process, {"directory": str(directory), "info": info, "wanted": wanted})
        for line in _lines(process):
            heard.line(line)
            if hurried() and (heard.drawing or time.monotonic() - begun > _TEXT_SECONDS):
                left_out = True
                _end(process)
                break
    if process.returncode == 0:
        return True
    for name in (REPORT_FILE, PLOT_FILE):
        clear_away(directory / name)
    if not left_out:
        why = heard.last_words or _ending(process.returncode)
        teller.trouble(
            f"{heard.making} could not be made: {why}; the record is whole: otel-memwatch report {directory}"
        )
    return True


class _Heard:
    """What the process has told so far."""

    def __init__(self, teller: Teller) -> None:
        self.making = "the report"
        """What it is at."""
        self.last_words = ""
        """The last line that is not its own."""
        self._teller = teller

    @property
    def drawing(self) -> bool:
        """Whether it is at a picture."""
        return self.making == PLOT_FILE

    def line(self, line: bytes) -> None:
        """Takes in a line; an empty one says nothing."""
        try:
            ((kind, text),) = json.loads(line).items()
        except (ValueError, AttributeError):
            self.last_words = line.decode(errors="replace").strip() or self.last_words
            return
        if kind == "begin":
            self.making, self.last_words = text, ""
        elif kind == "trouble":
            self._teller.trouble(text)
        else:
            self._teller.say(text)


def _send(process: subprocess.Popen[bytes], job: Mapping[str, Any]) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(job).encode())
        process.stdin.close()
    except BrokenPipeError:  # it has died already, which its end will tell
        return


def _lines(process: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """What it writes, line by line; an empty one about ten times a second while it writes nothing."""
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    rest = b""
    while True:
        if not poll.poll(_POLL_SECONDS * 1000):
            yield b""
            continue
        data = os.read(descriptor, 65536)
        *lines, rest = (rest + data).split(b"\n")
        yield from lines
        if not data:
            yield rest
            return


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_LEAVE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def _ending(code: int) -> str:
    return f"its process was ended by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


# -- the process itself


class _Telling:
    """Tells the process that started this one."""

    def begin(self, name: str) -> None:
        self._tell("begin", name)

    def say(self, text: str) -> None:
        self._tell("say", text)

    def trouble(self, sentence: str) -> None:
        self._tell("trouble", sentence)

    def _tell(self, kind: str, text: str) -> None:
        sys.stdout.write(json.dumps({kind: text}) + "\n")
        sys.stdout.flush()


def main(_arguments: list[str]) -> None:
    """Makes what stdin asks for. SIGTERM ends it with nothing left behind."""
    signal.signal(signal.SIGTERM, _leave)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the monitor blocks all, for itself
    job = json.load(sys.stdin)
    telling = _Telling()
    run = ended_run(Path(job["directory"]), job["info"])
    make(run, job["wanted"], telling, telling.begin)


def _leave(*_: object) -> NoReturn:
    sys.exit(1)
