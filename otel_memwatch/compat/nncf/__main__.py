"""Command `python -m otel_memwatch.compat.nncf [--log-dir DIR] COMMAND...`: runs a command and logs its memory.

A command in quotation marks, passed as one argument, runs in a shell, as with the older tool.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from otel_memwatch.monitor.run.supervise import end_like, launch
from otel_memwatch.runtime import own_python

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command, always write its logs, print the summary, and exit like the command."""
    parser = argparse.ArgumentParser(
        prog="python -m otel_memwatch.compat.nncf",
        description="Memory Monitor Tool. Monitors memory for an executable and saves logs at specified location.",
    )
    parser.add_argument(
        "--log-dir", default="memory_logs", help="A directory to save logs at. './memory_logs' by default."
    )
    parser.add_argument(
        "executable", nargs=argparse.REMAINDER, help="Target executable to monitor memory for."
    )
    given = parser.parse_args(arguments)
    command = given.executable[1:] if given.executable[:1] == ["--"] else given.executable
    # A command line for the shell, such as "python x.py --flag v" or "a && b".
    if (
        len(command) == 1
        and shutil.which(command[0]) is None
        and not set(command[0]).isdisjoint(" \t\n;&|<>()$`'\"*?[#~=%")
    ):
        command = ["/bin/sh", "-c", *command]
    if not command:
        parser.error("the following arguments are required: executable")
    logs = Path(given.log_dir)
    run = logs / f"run-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}"
    options = [f"--out={run}", f"--log-dir={logs}", "--quiet", "--no-report", "--no-plot"]
    # launch() closes inherited descriptors including stdout, but the summary goes to stdout.
    with suppress(OSError):
        stdout = os.dup(1)
    ended = launch(own_python.command_line("wrap", *options, "--", *command), variables={}).wait(
        lambda _: None
    )
    with suppress(OSError, NameError):  # stdout may be closed
        os.write(stdout, _summary(logs).encode() + b"\n")
    end_like(ended)


def _summary(logs: Path) -> str:
    from otel_memwatch.compat.nncf.monitor_log import FROM_ZERO, KINDS, log_name, parse, summary
    from otel_memwatch.errors import RunError

    maxima: dict[tuple[str, bool], float | None] = {}
    for kind in KINDS:
        for from_zero in (True, False):
            try:
                log = parse(
                    (logs / log_name(kind, FROM_ZERO if from_zero else "")).read_text(encoding="utf-8")
                )
                maxima[kind, from_zero] = log.maximum
            except (OSError, RunError):
                maxima[kind, from_zero] = None
    return summary(maxima)


if __name__ == "__main__":
    main()
