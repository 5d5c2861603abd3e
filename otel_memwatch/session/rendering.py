"""What is made of a record when the run has ended: report, summary, picture, logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from otel_memwatch.errors import MemwatchError

PICTURE_MIN_TICKS = 3
"""Ticks below which there is no curve to draw, and no picture is made by itself."""


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
    from otel_memwatch.reports.summary import summary

    run = load(directory)

    def attempt(name: str, make: Callable[[], object]) -> None:
        try:
            make()
        except Exception as error:  # noqa: BLE001 - see above
            words = str(error) if isinstance(error, MemwatchError) else f"{type(error).__name__}: {error}"
            teller.trouble(f"{name} could not be made: {words}")

    if settings["report"] and teller.recording:
        attempt("report.txt", lambda: write("text", run, directory / "report.txt"))
    if not settings["quiet"]:
        attempt("the summary", lambda: teller.say(summary(run)))
    if settings["plot"] and teller.recording and run.quality["ticks"] >= PICTURE_MIN_TICKS and not hurried():
        attempt("memory.png", lambda: write("plot", run, directory / "memory.png"))
    if settings["log_dir"]:
        logs = settings["log_dir"]
        attempt(f"the logs in {logs}", lambda: write_files("monitor-log", run, logs))
