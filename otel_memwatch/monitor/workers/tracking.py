"""Figures of a run for the tracker that the environment names (`--tracker`).

A worker process sends them, because the import of a tracker's client takes seconds and a server may not answer. The end
of the run waits `PATIENCE` seconds for the worker, which then continues alone.
"""

from __future__ import annotations

import os
from pathlib import Path

from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_memwatch.monitor.messages import Messages

PATIENCE = 2.0
"""Longest wait of a run's end for the trackers, in seconds."""


def track(directory: Path, chosen: str, messages: Messages, hurried: Callable[[], bool]) -> None:
    """Send the run to the trackers. A failure becomes one line; raises nothing.

    Args:
        directory: the run directory.
        chosen: the name of a tracker, or "auto" for each one with a run named in the environment.
        messages: to the user.
        hurried: returns whether a signal asks us to end.

    """
    from otel_memwatch.runtime.worker import Worker
    from otel_memwatch.wings.trackers import named

    names = named(os.environ) if chosen == "auto" else [chosen]
    if not names:
        return
    try:
        worker = Worker("otel_memwatch.wings.trackers", discard_output=True)
    except (OSError, MemoryError) as error:
        messages.problem(f"nothing was sent to {' and '.join(names)}: {error}")
        return
    worker.give({"directory": str(directory), "trackers": names})
    left = list(names)
    for answer in worker.answers(PATIENCE, lambda: not left or hurried()):
        left.remove(answer["tracker"])
        if answer["failed"] is not None:
            messages.problem(f"nothing was sent to {answer['tracker']}: {answer['failed']}")
    worker.leave()
    if left and worker.finished:
        messages.problem(f"nothing was sent to {' and '.join(left)}: its process has died")
        return
    for name in left:
        messages.info(
            f"otel-memwatch: {name} has not answered yet: sending goes on for a minute; to repeat it: "
            f"otel-memwatch export {directory} --to {name}"
        )
