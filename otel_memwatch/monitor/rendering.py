"""What is made of a record when the run has ended: report, summary, picture, logs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from otel_memwatch.errors import describe
from otel_memwatch.record.format import PLOT_FILE, REPORT_FILE, SAMPLES_FILE
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from otel_memwatch.analysis import Run

_DRAWING_BYTES = 96 << 20
"""Memory that drawing takes beside the samples: 73 MiB were measured, most of them the libraries'."""

PICTURE_MIN_TICKS = 3
"""Ticks below which there is no curve to draw, and no picture is made by itself."""

_ASKED_FOR = ("report", "quiet", "summary", "step_summary", "termination_log", "log_dir")
"""Settings that say what is to be made, beside `plot`."""

_MATPLOTLIB_CACHE = "MPLCONFIGDIR"
"""Variable that names the directory of matplotlib's cache; it sets it itself where it makes a temporary one."""


class Teller(Protocol):
    """Who tells the person."""

    def say(self, text: str) -> None:
        """Tells something."""

    def trouble(self, sentence: str) -> None:
        """Tells what went wrong."""


class RecordingTeller(Teller, Protocol):
    """Who tells the person, and knows of the record."""

    @property
    def recording(self) -> bool:
        """Whether the run directory could be written to the end."""


def render(
    directory: Path,
    info: Mapping[str, Any],
    settings: Mapping[str, Any],
    teller: RecordingTeller,
    hurried: Callable[[], bool],
) -> None:
    """Makes what the settings ask for; the summary first, since the picture takes its time.

    `info` is what `run.json` holds, or would hold if it could have been written: a full disk keeps nobody from being
    told how the run ended.

    What cannot be made is told in one line each: the record is whole, and it can be made later. Where the run
    directory could not be written to the end nothing is written there; when `hurried`, no picture is drawn.

    Whatever needs numpy or matplotlib is made in a process of its own: their libraries may end the process that they
    are loaded in (OpenBLAS does, where it gets no memory), and with ours the target's exit code would go.
    """
    run = ended_run(directory, info)
    wanted = {name: settings.get(name) for name in _ASKED_FOR}
    wanted["report"] = wanted["report"] and teller.recording
    wanted["plot"] = (
        settings["plot"] and teller.recording and run.quality["ticks"] >= PICTURE_MIN_TICKS and not hurried()
    )
    if wanted["plot"] or wanted["log_dir"]:
        _leave_out_what_has_no_room(directory, wanted, teller)
    if wanted["plot"] or wanted["log_dir"] or run.record.marked:
        from otel_memwatch.monitor.rendering_process import render_apart

        if render_apart(directory, info, wanted, teller, hurried):
            return
    make(run, wanted, teller)


def _leave_out_what_has_no_room(directory: Path, wanted: dict[str, Any], teller: Teller) -> None:
    """Takes off `wanted`, with a line for each, what is drawn, where a memory limit leaves less than drawing takes.

    The kernel would have to kill somebody: ours at best, and then there is no picture either.
    """
    from otel_memwatch.monitor.memory_room import room

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
            teller.trouble(f"{PLOT_FILE} is left out: {why}: otel-memwatch plot {directory}")
        if wanted["log_dir"]:
            logs, wanted["log_dir"] = wanted["log_dir"], None
            teller.trouble(
                f"the logs in {logs} are left out: {why}: otel-memwatch export {directory} --to monitor-log -o {logs}"
            )


def ended_run(directory: Path, info: Mapping[str, Any]) -> Run:
    """The run of a directory whose `run.json` is known."""
    from otel_memwatch.analysis import Run
    from otel_memwatch.record.reader import read_described

    return Run(read_described(directory, info))


def make(
    run: Run, wanted: Mapping[str, Any], teller: Teller, beginning: Callable[[str], None] = lambda _: None
) -> None:
    """Makes what is `wanted`, in this process; `beginning` is told the name of each thing before it is made."""
    from otel_memwatch.monitor.ci_summary import step_summary, termination_log
    from otel_memwatch.reports import need_numpy, write, write_files

    def attempt(name: str, make: Callable[[], object]) -> None:
        beginning(name)
        try:
            if run.record.marked:
                need_numpy()
            make()
        except Exception as error:  # noqa: BLE001 - see `render`
            teller.trouble(f"{name} could not be made: {describe(error)}")

    if wanted["report"]:
        attempt(REPORT_FILE, lambda: write("text", run, Path(run.path) / REPORT_FILE))
    if not wanted["quiet"]:
        attempt("the summary", lambda: teller.say(_summary(run, wanted)))
    if wanted["step_summary"]:
        attempt("the step's summary", lambda: step_summary(run, os.environ))
    if wanted["termination_log"]:
        attempt("the termination message", lambda: termination_log(run, wanted["termination_log"]))
    if wanted["plot"]:
        attempt(PLOT_FILE, lambda: _draw(run, wanted, teller))
    if wanted["log_dir"]:
        logs = wanted["log_dir"]
        with _drawing():
            attempt(f"the logs in {logs}", lambda: write_files("monitor-log", run, logs))


def _summary(run: Run, wanted: Mapping[str, Any]) -> str:
    if wanted["summary"] == "markdown":
        from otel_memwatch.reports.markdown import markdown

        return markdown(run).rstrip("\n")
    from otel_memwatch.reports.summary import summary

    return summary(run)


def _draw(run: Run, wanted: Mapping[str, Any], teller: Teller) -> None:
    from otel_memwatch.reports import write

    with _drawing():
        picture = write("plot", run, Path(run.path) / PLOT_FILE)
    if not wanted["quiet"]:
        teller.say(f"  picture      {_from_here(picture)}")


def _from_here(path: Path) -> str:
    """The path as it is written from the working directory, where it is below it."""
    try:
        here = os.path.relpath(path)
    except OSError:  # the working directory is gone
        return str(path)
    return str(path) if here.startswith("..") else here


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
