"""The summary where a scheduler shows it: the page of a GitHub job, the termination message of a container."""

from __future__ import annotations

import os
from collections.abc import Mapping

from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_memwatch.analysis import RecordedRun

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
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    try:
        if os.fstat(descriptor).st_size + len(text) <= STEP_SUMMARY_MAX:
            os.write(descriptor, text)
    finally:
        os.close(descriptor)


def termination_log(run: RecordedRun, path: str) -> None:
    """Writes the summary to the file from which the kubelet takes a container's termination message.

    The file is mounted: it is written to in place, it cannot be replaced. Raises `OSError`.
    """
    from otel_memwatch.reports.summary import summary

    text = (summary(run, public=True) + "\n").encode("utf-8", "backslashreplace")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        os.write(descriptor, text[:TERMINATION_MAX])
    finally:
        os.close(descriptor)
