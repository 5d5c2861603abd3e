"""Report and page, made by a separate process after the prompt is back.

The run directory has both files before the prompt, with a note that they are being made. The process writes into these
files and creates none: a script may remove the directory at once. A browser reloads the page until it is complete. If the
process is killed, the note remains, and it names the command that makes the report.
"""

from __future__ import annotations

import os

from otel_memwatch.errors import describe
from otel_memwatch.record.format import FILE_MODE, PAGE_FILE, REPORT_FILE, RUN_DIRECTORY_VARIABLE
from otel_memwatch.runtime import module_finder, system_calls
from otel_memwatch.runtime.light import load_array, suppress
from otel_memwatch.runtime.system_calls import signal
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_memwatch.run import RecordedRun
    from otel_memwatch.runtime.typed import Any

SECONDS = 1.0
"""Lifetime of the process. It needs 10 ms of CPU time for a run with one process."""

_LAST_STEP = ("CI", "KUBERNETES_SERVICE_HOST", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "AWS_BATCH_JOB_ID")
"""Variables of surroundings that may end, or collect the files, as soon as the command has ended."""

_FILES = ((REPORT_FILE, "text"), (PAGE_FILE, "html"))
"""File and report."""


def may_detach(settings: Mapping[str, Any], environment: Mapping[str, str]) -> bool:
    """Return whether report and page can be made after the prompt.

    They are made before it if

    - an option needs them or their problems: --strict, --upload, --tracker;
    - the machine may vanish with us: PID 1 of a container is we or our parent, or a batch system or CI runs us;
    - we run inside another run: the process would count for it, and keep its cgroup.
    """
    return not (
        settings["strict"]
        or settings["upload"] is not None
        or settings.get("tracker")
        or 1 in (os.getpid(), os.getppid())
        or environment.get(RUN_DIRECTORY_VARIABLE)
        or any(environment.get(name) for name in _LAST_STEP)
    )


class DetachedReport:
    """Both files with their note. Raises `OSError` if one cannot be created, as on a full disk; then none remains."""

    def __init__(self, directory: str) -> None:
        self._descriptors: dict[str, int] = {}
        from otel_memwatch.text import shell_word

        command = f"otel-memwatch report {shell_word(directory)}"
        try:
            for name, report in _FILES:
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
                self._descriptors[name] = descriptor = os.open(f"{directory}/{name}", flags, FILE_MODE)
                _write(descriptor, _note(report, f"This report is being made. Print it now: {command}"))
        except OSError:
            for name in self._descriptors:
                os.unlink(f"{directory}/{name}")
            self.close()
            raise

    def start(self, run: RecordedRun) -> None:
        """Start the process. It has none of our files, and outlives us.

        If no process can be started, make the files here.
        """
        try:
            pid = os.fork()
        except OSError:
            self._make(run)
            self.close()
            return
        if pid == 0:
            try:
                # Leave session, terminal and files of our parent: its pipes end with it. Die after `SECONDS`.
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.setitimer(signal.ITIMER_REAL, SECONDS)
                signal.pthread_sigmask(signal.SIG_SETMASK, ())
                os.setsid()
                null = os.open(os.devnull, os.O_RDWR)
                for fd in range(3):
                    os.dup2(null, fd)
                kept = {0, 1, 2, *self._descriptors.values()}
                for fd in system_calls.open_files():
                    if fd not in kept:
                        with suppress(OSError):
                            os.close(fd)
                load_array()
                self._make(run)
                module_finder.store_modules()
            finally:
                os._exit(0)
        self.close()

    def close(self) -> None:
        """Close our descriptors of the files."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors = {}

    def _make(self, run: RecordedRun) -> None:
        for name, report in _FILES:
            with suppress(OSError):  # no space is left: as much as fits
                _write(self._descriptors[name], _rendered(run, name, report))


def _rendered(run: RecordedRun, name: str, report: str) -> bytes:
    import io

    from otel_memwatch.reports import render

    out = io.BytesIO()
    try:
        render(report, run, out)
    except Exception as error:  # noqa: BLE001 - the reader of the file gets the reason
        return _note(report, f"{name} could not be made: {describe(error)}", last=True)
    return out.getvalue()


def _note(report: str, sentence: str, *, last: bool = False) -> bytes:
    """Return the note for a file; as a page that reloads itself each half second, unless it is the last one."""
    if report == "text":
        return f"{sentence}\n".encode(errors="surrogateescape")
    from otel_memwatch.reports.pages.markup import escaped

    again = "" if last else '<meta http-equiv="refresh" content="0.5">'
    page = f'<!doctype html>\n<meta charset="utf-8">{again}<title>otel-memwatch</title>\n<p>{escaped(sentence)}</p>\n'
    return page.encode(errors="surrogateescape")


def _write(descriptor: int, data: bytes) -> None:
    """Replace the content of a file. One call writes a report, so no reader sees a part of it on most file systems."""
    end = 0
    while end < len(data):
        end += os.pwrite(descriptor, data[end:], end)
    os.ftruncate(descriptor, len(data))
