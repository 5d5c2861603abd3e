"""Worker process that sends a run to trackers at the end of `wrap`.

The job contains `directory`, the run, and `trackers`, their names. Each tracker gets one answer: `failed` is `None`, or a
sentence. If `wrap` ends meanwhile, sending continues for up to a minute.
"""

from __future__ import annotations

import signal

from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.runtime.worker import serve

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LONGEST_SECONDS = 60


def main(_arguments: list[str]) -> None:
    """Send the run to each of the trackers."""
    signal.alarm(LONGEST_SECONDS)
    serve(_send)


def _send(job: Mapping[str, Any], say: Callable[..., None]) -> None:
    from otel_memwatch.errors import describe
    from otel_memwatch.run import load
    from otel_memwatch.wings.trackers import send

    for name in job["trackers"]:
        try:
            send(name, load(job["directory"]))
        except Exception as error:  # noqa: BLE001 - a client may raise anything
            say(tracker=name, failed=describe(error))
        else:
            say(tracker=name, failed=None)
