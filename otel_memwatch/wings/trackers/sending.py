"""The process that sends a run to trackers at the end of `wrap`: arguments are the run directory and the trackers.

It writes one JSON object a line: `{"told": [TRACKER, WHERE]}`, `{"failed": [TRACKER, SENTENCE]}`. Whoever started it may have gone
meanwhile: then it goes on, for a minute at most. What the clients print goes nowhere.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys

LONGEST_SECONDS = 60


def main(arguments: list[str]) -> None:
    """Sends the run to each of them."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the monitor blocks all, for itself
    signal.alarm(LONGEST_SECONDS)
    lines = os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    from otel_memwatch.errors import describe
    from otel_memwatch.run import load
    from otel_memwatch.wings.trackers import send

    directory, *names = arguments
    for name in names:
        try:
            line = {"told": [name, send(name, load(directory))]}
        except Exception as error:  # noqa: BLE001 - a client may raise anything
            line = {"failed": [name, describe(error)]}
        with contextlib.suppress(OSError):
            os.write(lines, (json.dumps(line) + "\n").encode())
    sys.stdout.flush()
