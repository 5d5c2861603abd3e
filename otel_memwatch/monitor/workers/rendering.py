"""What is made of a record when the run has ended (report, page, summary, picture, logs), and in which process.

`render` decides what is made. `make` makes it, in the process that it is called in: the monitor's, or, where numpy or
matplotlib have a part in it, one of its own that `make_apart` starts. That process reads from stdin, as JSON, what to make,
and writes one JSON object a line to stdout: `{"begin": NAME}` before each thing that it makes, `{"info": TEXT}` and
`{"problem": SENTENCE}` for the person. Any other line comes from a library, as its last words perhaps.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from otel_memwatch.errors import describe
from otel_memwatch.monitor.messages import Messages
from otel_memwatch.record.format import PAGE_FILE, PLOT_FILE, REPORT_FILE, SAMPLES_FILE
from otel_memwatch.runtime.terminal import Display, display_of
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple, NoReturn

if TYPE_CHECKING:
    from subprocess import Popen

    from otel_memwatch.run import RecordedRun
    from otel_memwatch.run.curves import DrawnCurves
    from otel_memwatch.run.recorded_run import KnownOperations

_DRAWING_BYTES = 96 << 20
"""Memory that drawing takes beside the samples: 73 MiB were measured, most of them the libraries'."""

_STDERR = 2

_ASKED_FOR = (
    "budget",
    "baseline",
    "report",
    "quiet",
    "summary",
    "summary_file",
    "step_summary",
    "termination_log",
    "log_dir",
)
"""Settings that say what is to be made, beside `plot`."""

_MATPLOTLIB_CACHE = "MPLCONFIGDIR"
"""Variable that names the directory of matplotlib's cache; it sets it itself where it makes a temporary one."""

_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Nothing is computed here that would gain by more; each thread takes address space and counts against `ulimit -u`."""

_POLL_SECONDS = 0.1

_TEXT_SECONDS = 5.0
"""Time that is left for the report and the summary once somebody wants us gone. They take 0.2 s."""

_LEAVE_SECONDS = 2.0
"""Time that the process has to leave nothing behind, once it was asked to end."""


class CompletedRecord(NamedTuple):
    """What reports are made of."""

    directory: Path
    """Where ticks and processes are read from. A path that does not exist where the run directory has been moved away: what
    may lie in its place is not ours."""
    info: Mapping[str, Any]
    """`run.json`, or what it would hold if it could have been written."""
    curves: DrawnCurves | None
    """Its figures over time; `None` where nobody wants them."""
    operations: KnownOperations | None
    """What the monitor knows of its operations; `None`: they have to be read from the record."""


def needed_to_render(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The modules that making report, page and summary loads, in their order: importing them takes longer than they do."""
    base = (
        "run.recorded_run",
        "run.processes",
        "run.gpu",
        "record.open",
        "record.reader",
        "record.samples",
        "text",
        "reports.phrases",
        "reports.ci_summary",
    )
    pages = (
        "reports.text",
        "reports.text.sections",
        "reports.text.operations",
        "reports.html.data",
        "reports.html",
    )
    history = (
        "wings.advice.history",
        "wings.advice.advice",
        "wings.advice.targets",
        "wings.advice.prediction",
        "wings.index.progress",
    )
    told = not settings["quiet"]
    wanted = (
        *(base if settings["report"] or told else ()),
        *(pages if settings["report"] else ()),
        *(
            (f"reports.{'summary' if settings['summary'] == 'text' else 'markdown'}", *history)
            if told
            else ()
        ),
    )
    return tuple(f"otel_memwatch.{name}" for name in wanted)


def render(
    completed: CompletedRecord,
    settings: Mapping[str, Any],
    messages: Messages,
    hurried: Callable[[], bool],
    *,
    writable: bool,
) -> None:
    """Makes what the settings ask for; a picture last, since it takes its time.

    What cannot be made becomes one line each: the record is whole, and it can be made later.

    Args:
        completed: the record. Its `info` is there also if it could not be written: a full disk keeps nobody from learning
            how the run ended.
        settings: the options in force.
        messages: to the person.
        hurried: whether somebody wants us gone; then no picture is drawn.
        writable: whether the run directory could be written to the end; else nothing is written there.

    Whatever needs numpy or matplotlib is made in a process of its own: their libraries may end the process that they
    are loaded in (OpenBLAS does, where it gets no memory), and with ours the target's exit code would go.
    """
    directory, info, curves, operations = completed
    run = ended_run(directory, info, operations)
    if curves is not None:
        run.curves = curves
    wanted = {name: settings.get(name) for name in _ASKED_FOR}
    wanted["writable"] = writable
    wanted["report"] = wanted["report"] and writable
    wanted["display"] = display_of(_STDERR)
    wanted["plot"] = settings["plot"] and writable and not hurried()
    if wanted["plot"] or wanted["log_dir"]:
        _leave_out_what_has_no_room(directory, wanted, messages)
    recorded = any(isinstance(device, dict) and device.get("recorded") for device in info.get("gpus") or ())
    judged_apart = wanted["budget"] and run.too_many_operations
    needs_libraries = (
        wanted["plot"] or wanted["log_dir"] or run.operations_need_numpy or recorded or judged_apart
    )
    if not (needs_libraries and make_apart(directory, info, wanted, messages, hurried)):
        make(run, wanted, messages)


def _leave_out_what_has_no_room(directory: Path, wanted: dict[str, Any], messages: Messages) -> None:
    """Takes off `wanted`, with a line for each, what is drawn, where a memory limit leaves less than drawing takes.

    The kernel would have to kill somebody: ours at best, and then there is no picture either.
    """
    from otel_memwatch.runtime.memory_headroom import room

    found = room()
    if found is None:
        return
    samples = directory / SAMPLES_FILE
    with contextlib.suppress(OSError):
        # Numbers take about as many bytes in memory as in the file.
        needed = _DRAWING_BYTES + samples.stat().st_size
        if found.left >= needed:
            return
        why = (
            f"drawing takes up to {needed >> 20} MiB, and {found.left >> 20} MiB are left below the control group's "
            f"limit of {found.limit >> 20} MiB; draw it elsewhere"
        )
        if wanted["plot"]:
            wanted["plot"] = False
            messages.problem(f"{PLOT_FILE} is left out: {why}: otel-memwatch plot {directory}")
        if wanted["log_dir"]:
            logs, wanted["log_dir"] = wanted["log_dir"], None
            messages.problem(
                f"the logs in {logs} are left out: {why}: otel-memwatch export {directory} --to monitor-log -o {logs}"
            )


def ended_run(
    directory: Path, info: Mapping[str, Any], operations: KnownOperations | None = None
) -> RecordedRun:
    """The run of a directory whose `run.json` is known, and perhaps its operations."""
    from otel_memwatch.record.open import open_record
    from otel_memwatch.run import RecordedRun

    return RecordedRun(open_record(directory, info), operations)


# -- in this process


def make(
    run: RecordedRun,
    wanted: Mapping[str, Any],
    messages: Messages,
    begin: Callable[[str], None] = lambda _: None,
) -> None:
    """Makes what is `wanted`, in this process; `begin` is called with the name of each thing before it is made."""
    from otel_memwatch.reports import need_numpy, write, write_files

    def attempt(name: str, work: Callable[[], object]) -> None:
        begin(name)
        try:
            if run.operations_need_numpy:
                need_numpy()
            work()
        except Exception as error:  # noqa: BLE001 - see `render`
            messages.problem(f"{name} could not be made: {describe(error)}")

    if wanted["budget"]:
        attempt("the verdict on the budgets", lambda: _judge(run, wanted, messages))
    if wanted["report"]:
        attempt(REPORT_FILE, lambda: write("text", run, Path(run.path) / REPORT_FILE))
        attempt(PAGE_FILE, lambda: write("html", run, Path(run.path) / PAGE_FILE))
    if not wanted["quiet"]:
        attempt("the summary", lambda: messages.info(_summary(run, wanted)))
    _summaries_elsewhere(run, wanted, attempt)
    if wanted["plot"]:
        attempt(PLOT_FILE, lambda: _draw(run, wanted, messages))
    if wanted["log_dir"]:
        logs = wanted["log_dir"]
        with _drawing():
            attempt(f"the logs in {logs}", lambda: write_files("monitor-log", run, logs))


def _judge(run: RecordedRun, wanted: Mapping[str, Any], messages: Messages) -> None:
    """Holds the run against its budgets, before anything is told of it."""
    from otel_memwatch.wings.gate.budget_check import annotation, judge_run, over, record

    earlier = None
    if wanted["baseline"]:
        from otel_memwatch.wings.gate.baseline import load

        earlier = [one.figures for one in load(wanted["baseline"])]
    verdicts = judge_run(run, wanted["budget"], earlier)
    record(run, verdicts, write=wanted["writable"])
    for sentence in over(verdicts):
        messages.over(sentence)
        if os.environ.get("GITHUB_ACTIONS") == "true":
            messages.info(annotation("error", sentence))
        elif wanted["quiet"]:
            messages.info(f"otel-memwatch: {sentence}")


def _summaries_elsewhere(
    run: RecordedRun, wanted: Mapping[str, Any], attempt: Callable[[str, Callable[[], object]], None]
) -> None:
    """The summary in files: one that was named, the page of a step in CI, a container's termination message."""
    from otel_memwatch.reports.ci_summary import step_summary, termination_log

    if wanted["summary_file"]:
        attempt("the summary file", lambda: _summary_file(run, wanted))
    if wanted["step_summary"]:
        attempt("the step's summary", lambda: step_summary(run, os.environ))
    if wanted["termination_log"]:
        attempt("the termination message", lambda: termination_log(run, wanted["termination_log"]))


def _summary(run: RecordedRun, wanted: Mapping[str, Any]) -> str:
    if wanted["summary"] == "markdown":
        from otel_memwatch.reports.markdown import markdown

        return markdown(run).rstrip("\n")
    from otel_memwatch.reports.summary import SummaryLine, summary

    more: list[SummaryLine] = []
    with contextlib.suppress(Exception):  # a summary without the runs before this one is one too
        from otel_memwatch.wings.advice.history import history_lines

        more = [SummaryLine(label, text) for label, text in history_lines(run.path)]
    return summary(run, Display(*wanted["display"]), more=more)


def _summary_file(run: RecordedRun, wanted: Mapping[str, Any]) -> None:
    """Writes the summary into a file; one that ends in .md holds Markdown."""
    import io

    from otel_memwatch.reports import render, write
    from otel_memwatch.runtime.user_files import write_file

    file = wanted["summary_file"]
    form = "markdown" if wanted["summary"] == "markdown" or str(file).endswith(".md") else "summary"
    if os.path.isfile(file) or not os.path.exists(file):
        write(form, run, file)
        return
    # A pipe or a device: the end of the run must not wait for its reader.
    text = io.BytesIO()
    render(form, run, text)
    write_file(file, text.getvalue())


def _draw(run: RecordedRun, wanted: Mapping[str, Any], messages: Messages) -> None:
    from otel_memwatch.reports import write
    from otel_memwatch.text import from_here

    with _drawing():
        picture = write("plot", run, Path(run.path) / PLOT_FILE)
    if not wanted["quiet"] and wanted["summary"] == "text":
        messages.info(f"  picture      {from_here(picture)}")


@contextlib.contextmanager
def _drawing() -> Iterator[None]:
    """Keeps matplotlib from leaving anything behind where there is no home directory for its cache.

    It makes a temporary directory then, says so on stderr, and removes it at an exit that a monitor does not have.
    """
    import atexit
    import logging
    import shutil

    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    before = os.environ.get(_MATPLOTLIB_CACHE)
    try:
        yield
    finally:
        made = os.environ.get(_MATPLOTLIB_CACHE)
        if made is not None and made != before:
            atexit.unregister(shutil.rmtree)
            shutil.rmtree(made, ignore_errors=True)


# -- in a process of its own


def make_apart(
    directory: Path,
    info: Mapping[str, Any],
    wanted: Mapping[str, Any],
    messages: Messages,
    hurried: Callable[[], bool],
) -> bool:
    """Makes what is `wanted` of the run in a process of its own; false, with nothing made, where there can be none.

    Should that process die, there is one line about it. Once `hurried`, a picture that is being drawn is left out at once,
    and whatever else takes too long.
    """
    import subprocess

    from otel_memwatch.reports import clear_away
    from otel_memwatch.runtime.own_python import python_command

    try:
        # In a session of its own: what a terminal sends its group is for the target, and for us to judge.
        process = subprocess.Popen(
            python_command(__name__),
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
        progress = _Progress(messages)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has died already, which its exit code will say
            process.stdin.write(
                json.dumps({"directory": str(directory), "info": info, "wanted": wanted}).encode()
            )
            process.stdin.close()
        for line in _lines(process):
            progress.read(line)
            if hurried() and (progress.drawing or time.monotonic() - begun > _TEXT_SECONDS):
                left_out = True
                process.terminate()
                try:
                    process.wait(_LEAVE_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                break
    if process.returncode == 0:
        return True
    for name in (REPORT_FILE, PAGE_FILE, PLOT_FILE):
        clear_away(directory / name)
    if not left_out:
        why = progress.last_words or _how_it_ended(process.returncode)
        messages.problem(
            f"{progress.making} could not be made: {why}; the record is whole: otel-memwatch report {directory}"
        )
    return True


class _Progress:
    """How far the process is, by the lines that it writes; messages among them are passed on."""

    def __init__(self, messages: Messages) -> None:
        self.making = "the report"
        """What it makes at the moment."""
        self.last_words = ""
        """The last line that is not its own."""
        self._messages = messages

    @property
    def drawing(self) -> bool:
        """Whether it draws a picture."""
        return self.making == PLOT_FILE

    def read(self, line: bytes) -> None:
        """Reads one of its lines; an empty one says nothing."""
        try:
            ((kind, text),) = json.loads(line).items()
        except (ValueError, AttributeError):
            self.last_words = line.decode(errors="replace").strip() or self.last_words
            return
        if kind == "begin":
            self.making, self.last_words = text, ""
        elif kind == "problem":
            self._messages.problem(text)
        elif kind == "over":
            self._messages.over(text)
        else:
            self._messages.info(text)


def _lines(process: Popen[bytes]) -> Iterator[bytes]:
    """What it writes, line by line; an empty one about ten times a second while it writes nothing."""
    import select

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


def _how_it_ended(code: int) -> str:
    import signal

    return f"its process was ended by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


class SentMessages(Messages):
    """Messages for the process that started this one, which prints them."""

    def __init__(self) -> None:
        super().__init__(lambda text: self.send("info", text))

    def over(self, sentence: str) -> None:
        """Sends what was more than it may be."""
        self.send("over", sentence)

    def problem(self, sentence: str) -> None:
        """Sends what could not be made."""
        self.send("problem", sentence)

    @staticmethod
    def send(kind: str, text: str) -> None:
        """Writes one line of the protocol."""
        sys.stdout.write(json.dumps({kind: text}) + "\n")
        sys.stdout.flush()


def main(_arguments: list[str]) -> None:
    """The process itself: makes what stdin asks for. SIGTERM ends it with nothing left behind."""
    import signal

    def leave(*_: object) -> NoReturn:
        sys.exit(1)

    signal.signal(signal.SIGTERM, leave)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the monitor blocks all, for itself
    job = json.load(sys.stdin)
    messages = SentMessages()
    run = ended_run(Path(job["directory"]), job["info"])
    make(run, job["wanted"], messages, lambda name: messages.send("begin", name))
