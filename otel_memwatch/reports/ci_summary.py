"""The summary where a scheduler shows it: the page of a GitHub job, the termination message of a container."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.runtime.user_files import write_file

if TYPE_CHECKING:
    from otel_memwatch.run import RecordedRun

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
"""Variable that names the file in which GitHub Actions collects what a step wants to show."""

STEP_SUMMARY_MAX = 1 << 20
"""Bytes of a step's summary; GitHub drops a longer one whole."""

TERMINATION_MAX = 4096
"""Bytes of a container's termination message; the kubelet cuts off what comes after."""


def step_summary(run: RecordedRun, environ: Mapping[str, str]) -> None:
    """Adds the summary to that of the GitHub step, where this is one and there is room.

    Raises `OSError` when the file cannot be written.
    """
    if environ.get(STEP_SUMMARY):
        from otel_memwatch.reports.markdown import markdown

        add_to_step(markdown(run), environ)


def add_to_step(markdown: str, environ: Mapping[str, str]) -> None:
    """Adds Markdown to the summary of the GitHub step, where this is one and there is room. Raises `OSError`."""
    path = environ.get(STEP_SUMMARY)
    if not path:
        return
    text = markdown.encode("utf-8", "backslashreplace")
    size = 0
    with contextlib.suppress(FileNotFoundError):
        size = os.stat(path).st_size
    if size + len(text) <= STEP_SUMMARY_MAX:
        write_file(path, text, append=True)


def termination_log(run: RecordedRun, path: str) -> None:
    """Writes the summary to the file from which the kubelet takes a container's termination message.

    The file is mounted: it is written to in place, it cannot be replaced. Raises `OSError`.
    """
    from otel_memwatch.reports.summary import summary

    text = (summary(run, public=True) + "\n").encode("utf-8", "backslashreplace")
    write_file(path, text[:TERMINATION_MAX])
