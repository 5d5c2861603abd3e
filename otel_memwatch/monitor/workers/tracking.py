"""`--tracker`: the figures of a run go to the tracker that the environment names, and nobody waits for that longer than 2 s.

The clients of trackers take seconds to be imported, and a server may not answer. So a process of its own sends, which goes on without us
when the time is over.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import time
from pathlib import Path

from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_memwatch.monitor.messages import Messages

PATIENCE = 2.0
"""Seconds that the end of a run waits for the trackers."""


def track(directory: Path, chosen: str, messages: Messages, hurried: Callable[[], bool]) -> None:
    """Sends the run to the trackers; `chosen`: the name of one, or "auto" for those of which the environment names a run.

    What goes wrong is one line. Raises nothing.
    """
    from otel_memwatch.wings.trackers import named

    names = named(os.environ) if chosen == "auto" else [chosen]
    if not names:
        return
    try:
        left = _send(directory, names, messages, hurried)
    except (OSError, MemoryError) as error:
        messages.problem(f"nothing was sent to {' and '.join(names)}: {error}")
        return
    for name in left:
        messages.info(
            f"otel-memwatch: {name} has not answered yet: sending goes on for a minute; to repeat it: "
            f"otel-memwatch export {directory} --to {name}"
        )


def _send(directory: Path, names: list[str], messages: Messages, hurried: Callable[[], bool]) -> list[str]:
    """Sends, and gives the trackers that have not answered in time."""
    import subprocess

    from otel_memwatch.runtime.own_python import python_command

    descriptor, theirs = os.pipe()
    try:
        subprocess.Popen(
            python_command("otel_memwatch.wings.trackers.sending", str(directory), *names),
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except BaseException:
        os.close(descriptor)
        raise
    finally:
        os.close(theirs)
    deadline, rest, left = time.monotonic() + PATIENCE, b"", list(names)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while left and not hurried() and (wait := deadline - time.monotonic()) > 0:
        if not poll.poll(min(wait, 0.1) * 1000):
            continue
        data = os.read(descriptor, 65536)
        if not data:
            messages.problem(f"nothing was sent to {' and '.join(left)}: its process has died")
            left = []
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError, AttributeError):
                ((kind, (name, text)),) = json.loads(line).items()
                left.remove(name)
                if kind == "failed":
                    messages.problem(f"nothing was sent to {name}: {text}")
    os.close(descriptor)
    return left
