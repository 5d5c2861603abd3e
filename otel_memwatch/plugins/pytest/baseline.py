"""What each test added, held against an earlier session: the engine, the words and the file are those of `compare`."""

from __future__ import annotations

import contextlib
import time

from otel_memwatch.analysis import load
from otel_memwatch.errors import MemwatchError
from otel_memwatch.record.format import RUN_FILE
from otel_memwatch.runs import baseline as baselines
from otel_memwatch.runs.comparison import ComparisonVerdict, Effect, compare
from otel_memwatch.runs.comparison_formats import as_table
from otel_memwatch.runs.figures import Conditions, Figure, RunFigures
from otel_memwatch.runs.run_figures import conditions_of
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from otel_memwatch.plugins.pytest.figures import BaselineOptions, MeasuredTest
    from otel_memwatch.runs.comparison import Comparison

_PREFIX = "test:"
"""What the names of the figures of tests begin with."""
_START_SECONDS = 5.0
"""Time that a monitor gets to begin."""
_LEAST = 1 << 20
"""Bytes below which no difference counts."""


def session_figures(tests: Iterable[MeasuredTest], directories: Iterable[Path]) -> RunFigures:
    """What each test that has passed added, with its children.

    Which worker runs which test, and so which memory a test finds already there, is chance: of workers nothing is said to come
    out the same each time.
    """
    figures = {
        _PREFIX + test.nodeid: Figure.of_peak(test.added, alone=test.alone and not test.worker)
        for test in tests
        if test.passed and test.added is not None
    }
    conditions = Conditions()
    until = time.monotonic() + _START_SECONDS
    for directory in directories:
        try:
            conditions = conditions_of(load(directory))
        except MemwatchError:
            # The monitor of a session of no length may not have begun to record.
            while not (directory / RUN_FILE).exists() and time.monotonic() < until:
                time.sleep(0.02)
            with contextlib.suppress(MemwatchError):
                conditions = conditions_of(load(directory))
        if conditions != Conditions():
            break
    return RunFigures(figures, conditions, time.time(), "this session")


def compared(options: BaselineOptions, session: RunFigures) -> Comparison:
    """The session against its baseline. Raises `UsageError` for a baseline that cannot be read, `Unavailable` without scipy."""
    base = baselines.load(options.base or "")
    effect = Effect(Effect().share if options.fail is None else options.fail, _LEAST)
    # A part of the tests may have been asked for: those that did not run have not vanished.
    return compare(base, [session], lambda _: effect, session.figures.__contains__)


def lines_of(comparison: Comparison) -> list[str]:
    """The comparison as a table, without the tests that need the same."""
    shown = comparison.having(
        *(verdict for verdict in ComparisonVerdict if verdict is not ComparisonVerdict.SAME)
    )
    same = len(comparison.figures) - len(shown)
    lines = as_table(comparison._replace(figures=shown)).splitlines() if shown else []
    return [*lines, *([f"{same} tests need the same"] if same else [])]
