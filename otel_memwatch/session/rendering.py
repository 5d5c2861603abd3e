"""What is made of a record when the run has ended: report, summary, picture, logs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from otel_memwatch.errors import MemwatchError
from otel_memwatch.record.format import PLOT_FILE, REPORT_FILE
from otel_memwatch.typed import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from otel_memwatch.analysis import Run

PICTURE_MIN_TICKS = 3
"""Ticks below which there is no curve to draw, and no picture is made by itself."""


_MATPLOTLIB_CACHE = "MPLCONFIGDIR"
"""Variable that names the directory of matplotlib's cache; it sets it itself where it makes a temporary one."""


class Teller(Protocol):
    """Who tells the person."""

    @property
    def recording(self) -> bool:
        """Whether the run directory could be written to the end."""

    def say(self, text: str) -> None:
        """Tells something."""

    def trouble(self, sentence: str) -> None:
        """Tells what went wrong."""


def render(directory: Path, settings: Mapping[str, Any], teller: Teller, hurried: Callable[[], bool]) -> None:
    """Makes what the settings ask for; the summary first, since the picture takes its time.

    What cannot be made is told in one line each: the record is whole, and it can be made later. Where the run
    directory could not be written to the end nothing is written there; when `hurried`, no picture is drawn.
    """
    from otel_memwatch.analysis import load
    from otel_memwatch.reports import write, write_files
    from otel_memwatch.session.surfaces import step_summary, termination_log

    run = load(directory)

    def attempt(name: str, make: Callable[[], object]) -> None:
        try:
            make()
        except Exception as error:  # noqa: BLE001 - see above
            words = str(error) if isinstance(error, MemwatchError) else f"{type(error).__name__}: {error}"
            teller.trouble(f"{name} could not be made: {words}")

    if settings["report"] and teller.recording:
        attempt(REPORT_FILE, lambda: write("text", run, directory / REPORT_FILE))
    if not settings["quiet"]:
        attempt("the summary", lambda: teller.say(_summary(run, settings)))
    if settings.get("step_summary"):
        attempt("the step's summary", lambda: step_summary(run, os.environ))
    if settings.get("termination_log"):
        attempt("the termination message", lambda: termination_log(run, settings["termination_log"]))
    if settings["plot"] and teller.recording and run.quality["ticks"] >= PICTURE_MIN_TICKS and not hurried():
        attempt(PLOT_FILE, lambda: _draw(run, directory, settings, teller))
    if settings["log_dir"]:
        logs = settings["log_dir"]
        with _drawing():
            attempt(f"the logs in {logs}", lambda: write_files("monitor-log", run, logs))


def _summary(run: Run, settings: Mapping[str, Any]) -> str:
    if settings["summary"] == "markdown":
        from otel_memwatch.reports.markdown import markdown

        return markdown(run).rstrip("\n")
    from otel_memwatch.reports.summary import summary

    return summary(run)


def _draw(run: Run, directory: Path, settings: Mapping[str, Any], teller: Teller) -> None:
    from otel_memwatch.reports import write

    with _drawing():
        picture = write("plot", run, directory / PLOT_FILE)
    if not settings["quiet"]:
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
