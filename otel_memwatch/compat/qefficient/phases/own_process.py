"""The profiler's report and picture, made in a worker process.

The job: `parts`, the selection, a list of objects, each with a run directory and the fields of `timeline.Selection`; the
recordings follow each other. With `picture`, the name of a file, the timeline is drawn into it. Otherwise the answer has
the report as `text`.
"""

from __future__ import annotations

from pathlib import Path

from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.runtime.worker import serve

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def main(_arguments: list[str]) -> None:
    """Make what the job asks for."""
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
