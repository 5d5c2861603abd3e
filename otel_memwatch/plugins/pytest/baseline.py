"""What each test added, held against an earlier session: the engine, the words and the file are those of `compare`."""

from __future__ import annotations

import contextlib
import time

from otel_memwatch.errors import MemwatchError
from otel_memwatch.record.format import RUN_FILE
from otel_memwatch.run import load
from otel_memwatch.run.figures import Conditions, Figure, RunFigures
from otel_memwatch.run.run_figures import conditions_of
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import count
from otel_memwatch.wings.gate import baseline as baselines
from otel_memwatch.wings.gate.comparison import ComparisonVerdict, Effect, compare
from otel_memwatch.wings.gate.comparison_formats import as_table

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from otel_memwatch.plugins.pytest.figures import BaselineOptions, MeasuredTest
    from otel_memwatch.wings.gate.comparison import Comparison

_PREFIX = "test:"
"""What the names of the figures of tests begin with."""
_START_SECONDS = 5.0
"""Time that a monitor gets to begin."""
_LEAST = 1 << 20
"""Bytes below which no difference counts."""
_WORKERS = "workers"
"""The basis of the figures of a session that workers ran."""
_ENOUGH_OF_WORKERS = 3
"""Sessions of a baseline from which on workers are judged."""


def session_figures(tests: Iterable[MeasuredTest], directories: Iterable[Path]) -> RunFigures:
    """What each test that has passed added, with its children."""
    figures = {
        _PREFIX + test.nodeid: Figure.of_peak(
            test.added, alone=test.alone, basis=_WORKERS if test.worker else ""
        )
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


def keep(options: BaselineOptions, session: RunFigures) -> None:
    """Makes a baseline of the session, or adds it to one. Raises `UsageError` where that cannot be done."""
    if options.save is not None:
        baselines.save(options.save, [session])
    if options.add is not None:
        earlier = baselines.load(options.add) if options.add.exists() else []
        baselines.save(options.add, [*earlier, session])


def compared(options: BaselineOptions, session: RunFigures) -> Comparison:
    """The session against its baseline. Raises `UsageError` for a baseline that cannot be read, `Unavailable` without scipy.

    Which worker runs which test, and so what a test finds in memory already, is chance: what comes out the same each time has
    to be seen in several sessions of the baseline.
    """
    base = baselines.load(options.base or "")
    by_workers = any(one.basis == _WORKERS for run in (*base, session) for one in run.figures.values())
    known = len(base) >= _ENOUGH_OF_WORKERS or not by_workers

    def judged(run: RunFigures) -> RunFigures:
        figures = {name: f._replace(alone=f.alone and known, basis="") for name, f in run.figures.items()}
        return run._replace(figures=figures)

    effect = Effect(Effect().share if options.fail is None else options.fail, _LEAST)
    # A part of the tests may have been asked for: those that did not run have not vanished.
    found = compare(
        [judged(run) for run in base], [judged(session)], lambda _: effect, session.figures.__contains__
    )
    if known:
        return found
    why = f"workers ran it: a baseline of {_ENOUGH_OF_WORKERS} sessions (--memwatch-add) tells what comes out the same"
    figures = [
        one._replace(why=why, more_runs=None) if one.verdict is ComparisonVerdict.NOT_ENOUGH else one
        for one in found.figures
    ]
    return found._replace(figures=figures)


def lines_of(comparison: Comparison, top: int) -> list[str]:
    """The comparison as a table: all that regressed or improved, and `top` of those of which nobody can tell."""
    clear = comparison.having(ComparisonVerdict.REGRESSED, ComparisonVerdict.IMPROVED)
    same = len(comparison.having(ComparisonVerdict.SAME))
    open_ = comparison.having(ComparisonVerdict.NOT_ENOUGH, ComparisonVerdict.NOT_COMPARABLE)
    open_ = sorted(open_, key=lambda one: -abs(one.change or 0.0))
    shown = [*clear, *open_[:top]]
    lines = as_table(comparison._replace(figures=shown)).splitlines() if shown else []
    if len(open_) > top:
        lines.append(f"{count(len(open_) - top, 'more test')} of which nobody can tell")
    return [*lines, *([f"{same} tests need the same"] if same else [])]
