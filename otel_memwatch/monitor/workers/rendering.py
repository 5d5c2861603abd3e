"""Outputs of a run that has ended: verdict, report, page, summary, picture, logs, figures for a tracker.

- `render` selects the outputs.
- `make` makes them in the calling process: the monitor, or a worker process.
- `make_apart` starts the worker, if an output needs numpy or matplotlib.

The worker answers `{"begin": NAME}` before each output, and `{"info": TEXT}`, `{"over": SENTENCE}` and
`{"problem": SENTENCE}` for the user.
"""

from __future__ import annotations

import os
import time

from otel_memwatch.errors import describe
from otel_memwatch.monitor.messages import Messages
from otel_memwatch.record.format import PAGE_FILE, PLOT_FILE, REPORT_FILE, SAMPLES_FILE
from otel_memwatch.runtime.light import ExitStack, suppress
from otel_memwatch.runtime.terminal import Display, display_of
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from otel_memwatch.monitor.workers.detached_report import DetachedReport
    from otel_memwatch.run import RecordedRun
    from otel_memwatch.run.curves import DrawnCurves
    from otel_memwatch.run.recorded_run import KnownOperations


_DRAWING_BYTES = 96 << 20
"""Bytes of memory that drawing takes in addition to the samples. Measured: 73 MiB, mostly of the libraries."""

_STDERR = 2

_OUTPUT_SETTINGS = (
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
"""Settings that select outputs, except `plot`."""

_MATPLOTLIB_CACHE = "MPLCONFIGDIR"
"""Variable with the directory of matplotlib's cache. matplotlib sets it if it makes a temporary one."""

_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""One thread: drawing gains nothing from more, and each takes address space and counts against `ulimit -u`."""

_TEXT_SECONDS = 5.0
"""Seconds for report and summary after a signal asks us to end. They take 0.2 s."""

_LEAVE_SECONDS = 2.0
"""Seconds between SIGTERM and SIGKILL: the worker removes its temporary files."""


_HISTORY = (
    "wings.advice.history",
    "wings.advice.advice",
    "wings.advice.targets",
    "wings.advice.prediction",
    "wings.index.progress",
)
_SUMMARIES = {
    "text": ("reports.summary", *_HISTORY),
    "markdown": ("reports.markdown_summary", *_HISTORY),
    "json": ("run.recorded_run", "record.open", "record.reader", "record.sample_lines", "reports.verdict"),
}
"""Modules for each format of the summary."""


class CompletedRecord(NamedTuple):
    """Input of the outputs."""

    directory: str
    """Directory of samples and process records.

    If the run directory was moved away, this path does not exist: a directory in its place is not ours.
    """
    info: Mapping[str, Any]
    """Content of `run.json`, also if it could not be written."""
    curves: DrawnCurves | None
    """Curves of the page; `None`: not needed."""
    operations: KnownOperations | None
    """Operations that the monitor knows; `None`: read them from the record."""
    limitless: bool
    """True if the samples are known to have no limit of the cgroup. Searching them costs 2.5 ms."""


def needed_to_render(settings: Mapping[str, Any], *, detachable: bool) -> tuple[str, ...]:
    """Return the modules for report, page and summary, those of every run first. Their import takes longer than the outputs.

    A detached report imports them itself. The summary of a run with one process does without the last two.
    """
    pages_here = settings["report"] and not detachable
    base = "run.recorded_run", "record.open", "record.reader", "text", "reports.phrases"
    longer = "run.processes", "run.gpu"
    pages = (
        "reports.text_report",
        "reports.sections.basics",
        "reports.sections.operations",
        "reports.html.data",
        "reports.html",
    )
    summary = not settings["quiet"]
    prose = pages_here or (summary and settings["summary"] != "json")
    wanted = (
        *(base if prose else ()),
        *(pages if pages_here else ()),
        *(() if not summary else _SUMMARIES[settings["summary"]]),
        *(longer if prose else ()),
    )
    return tuple(f"otel_memwatch.{name}" for name in wanted)


def render(
    completed: CompletedRecord,
    settings: Mapping[str, Any],
    messages: Messages,
    hurried: Callable[[], bool],
    *,
    writable: bool,
    detachable: bool = False,
) -> Callable[[], None] | None:
    """Make the outputs that the settings request; the picture last, since it takes longest.

    Return the function that starts the process for report and page, if one makes them later. A fork makes each page of this
    process dear that it changes afterwards, so call it last.

    A failure becomes one line. The record is complete, so the output can be made later.

    If an output needs numpy or matplotlib, a worker process makes all. These libraries may end their process, as
    OpenBLAS does without memory. If that were the monitor, the target's exit code would be lost.

    Args:
        completed: the record. Its `info` exists also if it could not be written, so a full disk does not prevent the
            summary.
        settings: the options in force.
        messages: to the user.
        hurried: returns whether a signal asks us to end; then no picture is drawn.
        writable: whether the run directory was writable to the end; otherwise nothing is written there.
        detachable: whether report and page may be made after this process has ended.

    """
    directory, info, curves, operations, limitless = completed
    run = ended_run(directory, info, operations)
    if curves is not None:
        run.curves = curves
    if limitless:
        run.recorded_limit = None
    wanted = {name: settings.get(name) for name in _OUTPUT_SETTINGS}
    wanted["writable"] = writable
    wanted["report"] = wanted["report"] and writable
    wanted["display"] = display_of(_STDERR)
    wanted["plot"] = settings["plot"] and writable and not hurried()
    if wanted["plot"] or wanted["log_dir"]:
        _omit_drawing_without_headroom(directory, wanted, messages)
    recorded = any(isinstance(device, dict) and device.get("recorded") for device in info.get("gpus") or ())
    judged_apart = wanted["budget"] and run.too_many_operations
    needs_libraries = (
        wanted["plot"] or wanted["log_dir"] or run.operations_need_numpy or recorded or judged_apart
    )
    if needs_libraries and make_apart(directory, info, wanted, messages, hurried):
        return None
    later = None
    if detachable and wanted["report"] and not needs_libraries and not hurried():
        later = _detached(directory)
        wanted["report"] = later is None
    make(run, wanted, messages)
    return None if later is None else lambda: later.start(run)


def _detached(directory: str) -> DetachedReport | None:
    """Return the files of report and page, which are made after the prompt; `None`: not possible."""
    from otel_memwatch.monitor.workers.detached_report import DetachedReport
    from otel_memwatch.runtime.threads import other_threads

    if other_threads():  # telemetry: the lock of another thread would stay locked in the child
        return None
    try:
        return DetachedReport(directory)
    except OSError:
        return None


def _omit_drawing_without_headroom(directory: str, wanted: dict[str, Any], messages: Messages) -> None:
    """Remove picture and logs from `wanted`, with a message for each, if a memory limit leaves less than drawing takes.

    Otherwise the kernel would kill a process: at best the worker, and then there is no picture either.
    """
    from pathlib import Path

    from otel_memwatch.record.sample_files import samples_size
    from otel_memwatch.runtime.memory_headroom import memory_headroom

    found = memory_headroom()
    if found is None:
        return
    # Numbers take about as many bytes in memory as in the file.
    needed = _DRAWING_BYTES + samples_size(Path(directory, SAMPLES_FILE))
    if found.left >= needed:
        return
    why = (
        f"drawing takes up to {needed >> 20} MiB, and {found.left >> 20} MiB are left below the cgroup's limit "
        f"of {found.limit >> 20} MiB; draw it elsewhere"
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
    directory: str, info: Mapping[str, Any], operations: KnownOperations | None = None
) -> RecordedRun:
    """Return the run of a directory with known `run.json` and, if given, known operations."""
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
    """Make the `wanted` outputs in this process. Call `begin` with the name of each one before it is made."""
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
        attempt(REPORT_FILE, lambda: write("text", run, f"{run.directory}/{REPORT_FILE}"))
        attempt(PAGE_FILE, lambda: write("html", run, f"{run.directory}/{PAGE_FILE}"))
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
    """Check the run against its budgets, before any report."""
    from otel_memwatch.wings.gate.budgets import annotation, judge_run, over, record

    earlier = None
    if wanted["baseline"]:
        from otel_memwatch.wings.gate.baseline import load

        earlier = [one.figures for one in load(wanted["baseline"])]
    verdicts = judge_run(run, wanted["budget"], earlier)
    record(run, verdicts, write=wanted["writable"])
    for sentence in over(verdicts):
        messages.over(sentence)
        if os.environ.get("GITHUB_ACTIONS") == "true":
            messages.info(annotation(sentence))
        elif wanted["quiet"]:
            messages.info(f"otel-memwatch: {sentence}")


def _summaries_elsewhere(
    run: RecordedRun, wanted: Mapping[str, Any], attempt: Callable[[str, Callable[[], object]], None]
) -> None:
    """Write the summary to files: a named one, the page of a CI step, a container's termination message."""
    if wanted["summary_file"]:
        attempt("the summary file", lambda: _summary_file(run, wanted))
    step = wanted["step_summary"] and os.environ.get("GITHUB_STEP_SUMMARY")
    if not (step or wanted["termination_log"]):
        return
    from otel_memwatch.reports.ci_summary import step_summary, termination_log

    if step:
        attempt("the step's summary", lambda: step_summary(run, os.environ))
    if wanted["termination_log"]:
        attempt("the termination message", lambda: termination_log(run, wanted["termination_log"]))


def _summary(run: RecordedRun, wanted: Mapping[str, Any]) -> str:
    if wanted["summary"] == "markdown":
        from otel_memwatch.reports.markdown_summary import markdown

        return markdown(run).rstrip("\n")
    if wanted["summary"] == "json":
        from otel_memwatch.reports.verdict import verdict_line

        return verdict_line(run)
    from otel_memwatch.reports.summary import summary

    more: list[tuple[str, str]] = []
    with suppress(Exception):  # without the runs before this one, the summary is shorter
        from otel_memwatch.wings.advice.history import history_lines

        more = history_lines(run)
    return summary(run, Display(*wanted["display"]), more=more)


def _summary_file(run: RecordedRun, wanted: Mapping[str, Any]) -> None:
    """Write the summary into a file; as Markdown if its name ends in .md."""
    import io

    from otel_memwatch.reports import render, write
    from otel_memwatch.runtime.user_files import write_file

    file = wanted["summary_file"]
    forms = {"markdown": "markdown", "json": "verdict"}
    form = {".md": "markdown", ".json": "verdict"}.get(
        os.path.splitext(file)[1], forms.get(wanted["summary"], "summary")
    )
    if os.path.isfile(file) or not os.path.exists(file):
        write(form, run, file)
        return
    # For a pipe or a device: the end of the run must not wait for its reader.
    text = io.BytesIO()
    render(form, run, text)
    write_file(file, text.getvalue())


def _draw(run: RecordedRun, wanted: Mapping[str, Any], messages: Messages) -> None:
    from otel_memwatch.reports import write
    from otel_memwatch.text import from_here

    with _drawing():
        picture = write("plot", run, f"{run.directory}/{PLOT_FILE}")
    if not wanted["quiet"] and wanted["summary"] == "text":
        messages.info(f"  picture      {from_here(picture)}")


def _drawing() -> ExitStack:
    """Silence a message of matplotlib, and return a context that removes its temporary cache, which the message is about."""
    import logging

    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    context = ExitStack()
    context.callback(_remove_cache, os.environ.get(_MATPLOTLIB_CACHE))
    return context


def _remove_cache(before: str | None) -> None:
    """Remove the cache that matplotlib makes if no home directory is available, unless it existed `before`.

    matplotlib removes it at exit, by a function that does not run in a monitor.
    """
    import atexit
    import shutil

    made = os.environ.get(_MATPLOTLIB_CACHE)
    if made is not None and made != before:
        atexit.unregister(shutil.rmtree)
        shutil.rmtree(made, ignore_errors=True)


# -- in a worker process


def make_apart(
    directory: str,
    info: Mapping[str, Any],
    wanted: Mapping[str, Any],
    messages: Messages,
    hurried: Callable[[], bool],
) -> bool:
    """Make the `wanted` outputs in a worker process; return false, with nothing made, if it cannot be started.

    If the worker dies, a message names the output. Once `hurried` returns true, an unfinished picture is omitted at once,
    all other outputs after `_TEXT_SECONDS`.
    """
    from otel_memwatch.reports import clear_away
    from otel_memwatch.runtime.worker import Worker, ended_by

    try:
        worker = Worker(__name__, _ONE_THREAD)
    except (OSError, MemoryError):
        return False
    making, begun = "the report", time.monotonic()
    pass_on = {"problem": messages.problem, "over": messages.over, "info": messages.info}

    def give_up() -> bool:
        return hurried() and (making == PLOT_FILE or time.monotonic() - begun > _TEXT_SECONDS)

    with worker:
        worker.give({"directory": str(directory), "info": info, "wanted": wanted})
        for answer in worker.answers(give_up=give_up):
            for kind, text in answer.items():
                if kind == "begin":
                    making, worker.last_words = text, ""
                elif kind in pass_on:
                    pass_on[kind](text)
        code = worker.end(_LEAVE_SECONDS)
    if code == 0:
        return True
    for name in (REPORT_FILE, PAGE_FILE, PLOT_FILE):
        clear_away(f"{directory}/{name}")
    if worker.finished:
        messages.problem(
            f"{making} could not be made: {worker.last_words or ended_by(code)}; "
            f"the record is whole: otel-memwatch report {directory}"
        )
    return True


class SentMessages(Messages):
    """Messages that the worker sends to the monitor, which prints them."""

    def __init__(self, say: Callable[..., None]) -> None:
        super().__init__(lambda text: say(info=text))
        self._say = say

    def over(self, sentence: str) -> None:
        """Send a figure that exceeds its budget."""
        self._say(over=sentence)

    def problem(self, sentence: str) -> None:
        """Send why an output could not be made."""
        self._say(problem=sentence)


def main(_arguments: list[str]) -> None:
    """Make the outputs of the job, in the worker process."""
    from otel_memwatch.runtime.worker import serve

    serve(_make_job)


def _make_job(job: Mapping[str, Any], say: Callable[..., None]) -> None:
    run = ended_run(job["directory"], job["info"])
    make(run, job["wanted"], SentMessages(say), lambda name: say(begin=name))


PATIENCE = 2.0
"""Longest wait of a run's end for the trackers, in seconds: the import of a client takes seconds, and a server may not answer."""


def track(directory: Path, chosen: str, messages: Messages, hurried: Callable[[], bool]) -> None:
    """Send the run to the trackers in a worker, which goes on alone after `PATIENCE`. A failure becomes one line; raises nothing.

    Args:
        directory: the run directory.
        chosen: the name of a tracker, or "auto" for each one with a run named in the environment.
        messages: to the user.
        hurried: returns whether a signal asks us to end.

    """
    from otel_memwatch.runtime.worker import Worker
    from otel_memwatch.wings.trackers import named

    names = named(os.environ) if chosen == "auto" else [chosen]
    if not names:
        return
    try:
        worker = Worker("otel_memwatch.wings.trackers", discard_output=True)
    except (OSError, MemoryError) as error:
        messages.problem(f"nothing was sent to {' and '.join(names)}: {error}")
        return
    worker.give({"directory": str(directory), "trackers": names})
    left = list(names)
    for answer in worker.answers(PATIENCE, lambda: not left or hurried()):
        left.remove(answer["tracker"])
        if answer["failed"] is not None:
            messages.problem(f"nothing was sent to {answer['tracker']}: {answer['failed']}")
    worker.leave()
    if left and worker.finished:
        messages.problem(f"nothing was sent to {' and '.join(left)}: its process has died")
        return
    for name in left:
        messages.info(
            f"otel-memwatch: {name} has not answered yet: sending goes on for a minute; to repeat it: "
            f"otel-memwatch export {directory} --to {name}"
        )
