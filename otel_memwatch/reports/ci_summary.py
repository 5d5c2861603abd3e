"""Summary on the page of a GitHub job and in the termination message of a container."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.runtime.user_files import write_file

if TYPE_CHECKING:
    from otel_memwatch.run import RecordedRun

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
"""Variable that names the file for a step's summary in GitHub Actions."""

STEP_SUMMARY_MAX = 1 << 20
"""Longest summary of a step in bytes; GitHub omits a longer one."""

TERMINATION_MAX = 4096
"""Longest termination message in bytes; the kubelet truncates it."""


def step_summary(run: RecordedRun, environ: Mapping[str, str]) -> None:
    """Add the summary of the run to the one of the GitHub step, if any. Raises `OSError`."""
    if environ.get(STEP_SUMMARY):
        from otel_memwatch.reports.markdown_summary import markdown

        add_to_step(markdown(run), environ)


def add_to_step(markdown: str, environ: Mapping[str, str]) -> None:
    """Add Markdown to the summary of the GitHub step if there is one and it fits. Raises `OSError`."""
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
    """Write the summary to the container's file for its termination message.

    The file is mounted, so it is written in place. Raises `OSError`.
    """
    from otel_memwatch.reports.summary import summary

    text = (summary(run, public=True) + "\n").encode("utf-8", "backslashreplace")
    write_file(path, text[:TERMINATION_MAX])
