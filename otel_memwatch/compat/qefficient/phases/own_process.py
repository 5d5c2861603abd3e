"""Worker process that makes the profiler's report and picture.

Fields of the job:

* `parts`: list of objects, each with a run directory and the fields of `timeline.Selection`, in order of time.
* `picture`: file for the drawing of the timeline. Without it, the answer has the report as `text`.
"""

from __future__ import annotations

from pathlib import Path

from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.runtime.worker import serve

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def main(_arguments: list[str]) -> None:
    """Make the report or the picture of the job."""
    serve(_make)


def _make(job: Mapping[str, Any], say: Callable[..., None]) -> None:
    from otel_memwatch.compat.qefficient.phases.timeline import Selection, joined, timeline
    from otel_memwatch.run import load

    drawn = joined([timeline(load(part.pop("run")), Selection(**part)) for part in job["parts"]])
    if job.get("picture") is None:
        from otel_memwatch.compat.qefficient.phases.text import report

        say(text=report(drawn))
    else:
        from otel_memwatch.compat.qefficient.phases.figure import save

        save(drawn, Path(job["picture"]))
