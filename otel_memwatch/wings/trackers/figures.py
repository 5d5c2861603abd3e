"""Figures for a tracker: at most forty numbers, and a few words."""

from __future__ import annotations

import io
import os
import re

from otel_memwatch.model import Certainty
from otel_memwatch.reports import render
from otel_memwatch.run.figures import GPU, MEMORY, NAMES, OPERATION, TIMES, Figure, figures_of
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_memwatch.run import RecordedRun

MOST = 40
"""Largest number of scalars of one run."""

_PREFIX = "memwatch/"
_LONGEST = 200
"""Characters of a name: MLflow takes 250."""


class TrackedFigures(NamedTuple):
    """Content for the tracker."""

    scalars: dict[str, float]
    """Bytes and seconds by their names, such as "memwatch/memory_bytes"."""
    words: dict[str, str]
    """Certainty of the memory, end of the run, its directory."""
    summary: str
    """The summary that `wrap` prints."""
    name: str
    """Name of the run."""
    started: float
    """Unix seconds; `ended` too."""
    ended: float
    exit_code: int | None
    """Exit code as a shell reports it."""


def tracked_figures(run: RecordedRun) -> TrackedFigures:
    """Return all figures of a run, and those of the largest operations, up to `MOST`."""
    figures = figures_of(run, compared=False).figures
    scalars: dict[str, float] = {}
    for name in NAMES:
        if name in figures:
            scalars.update(_scalars(name, figures[name]))
    if run.ending.oom_kills is not None:
        scalars[f"{_PREFIX}oom_kills"] = float(run.ending.oom_kills)
    operations = [(name, figure) for name, figure in figures.items() if name.startswith(OPERATION)]
    for name, figure in sorted(operations, key=lambda one: -one[1].value):
        found = dict(_scalars(f"operation/{name.removeprefix(OPERATION)}", figure))
        if len(scalars) + len(found) <= MOST and not scalars.keys() & found.keys():
            scalars |= found
    memory = figures.get(MEMORY)
    words = {
        f"{_PREFIX}certainty": "unknown" if memory is None else memory.certainty.value,
        f"{_PREFIX}ended": run.ending.reason,
        f"{_PREFIX}run": os.path.abspath(run.path),
    }
    summary = io.BytesIO()
    render("summary", run, summary)
    return TrackedFigures(
        scalars,
        words,
        summary.getvalue().decode("utf-8", "replace"),
        run.name or run.path.name,
        run.started_wall,
        run.started_wall + run.seconds,
        run.ending.shell_code,
    )


def _scalars(name: str, figure: Figure) -> Iterator[tuple[str, float]]:
    """Yield the figure, and its bounds if it is not exact."""
    plain = _PREFIX + re.sub(r"[^A-Za-z0-9_./ -]", "_", name)[:_LONGEST]
    unit = "seconds" if name in TIMES else "bytes"
    full = plain if plain.endswith(unit) else f"{plain}_{unit}"
    yield full, float(figure.value)
    if figure.certainty is not Certainty.EXACT and name != GPU:
        for word, bound in (("low", figure.low), ("high", figure.high)):
            if bound is not None:
                yield f"{full}_{word}", float(bound)
