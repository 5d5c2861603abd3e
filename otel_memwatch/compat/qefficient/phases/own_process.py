"""The profiler's report and picture, made in a process of its own.

Arguments: `picture IMAGE` draws the timeline of the selection on stdin, `report` prints it. The selection is JSON: a list of
objects, each with a run directory and the fields of `timeline.Selection`; the recordings follow each other.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from otel_memwatch.errors import MemwatchError
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_memwatch.compat.qefficient.phases import Timeline


def main(arguments: list[str]) -> None:
    """Makes what the arguments name; a failure ends the process with one line on stderr."""
    what, *rest = arguments
    try:
        if what == "picture":
            from otel_memwatch.compat.qefficient.phases.figure import save

            save(_timeline(), Path(rest[0]))
        else:
            from otel_memwatch.compat.qefficient.phases.text import report

            sys.stdout.buffer.write(report(_timeline()).encode())
    except (MemwatchError, OSError) as error:
        sys.exit(str(error))


def _timeline() -> Timeline:
    from otel_memwatch.compat.qefficient.phases.timeline import Selection, joined, timeline
    from otel_memwatch.run import load

    parts = json.load(sys.stdin)
    return joined([timeline(load(part.pop("run")), Selection(**part)) for part in parts])
