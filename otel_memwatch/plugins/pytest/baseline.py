"""Comparison of the memory that each test added with a baseline; `compare` provides engine, text and file format."""

from __future__ import annotations

import contextlib
import time

from otel_memwatch.errors import MemwatchError
from otel_memwatch.record.format import RUN_FILE
from otel_memwatch.run import load
from otel_memwatch.run.figures import Conditions, Figure, RunFigures, conditions_of
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import count
from otel_memwatch.wings.gate import baseline as baselines
from otel_memwatch.wings.gate.comparison import ComparisonVerdict, Effect, compare
from otel_memwatch.wings.gate.comparison_formats import as_table

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from otel_memwatch.plugins.pytest.measured_test import BaselineOptions, MeasuredTest
    from otel_memwatch.wings.gate.comparison import Comparison

_PREFIX = "test:"
"""Prefix of the names of tests' figures."""
_START_SECONDS = 5.0
"""Time limit for the start of a monitor."""
_SMALLEST_DIFFERENCE = 1 << 20
"""Smallest difference that counts, in bytes."""
_WORKERS = "workers"
"""Basis of figures that xdist workers measured."""
_SESSIONS_FOR_WORKERS = 3
"""Sessions that a baseline needs before results of workers are judged."""


def session_figures(tests: Iterable[MeasuredTest], directories: Iterable[Path]) -> RunFigures:
    """Return the memory that each passed test added, including its children."""
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
            # After a very short session, the monitor may not have begun to record.
            while not (directory / RUN_FILE).exists() and time.monotonic() < until:
                time.sleep(0.02)
            with contextlib.suppress(MemwatchError):
                conditions = conditions_of(load(directory))
        if conditions != Conditions():
            break
    return RunFigures(figures, conditions, time.time(), "this session")


def keep(options: BaselineOptions, session: RunFigures) -> None:
    """Save the session as a baseline, or add it to one. Raises `UsageError` if that fails."""
    if options.save is not None:
        baselines.save(options.save, [session])
    if options.add is not None:
        earlier = baselines.load(options.add) if options.add.exists() else []
        baselines.save(options.add, [*earlier, session])


def compared(options: BaselineOptions, session: RunFigures) -> Comparison:
    """Compare the session with its baseline.

    With xdist, a test's result depends on which worker ran it and on the memory that earlier tests left there. Only a
    baseline of several sessions shows which results are stable.

    Raises `UsageError` for a baseline that cannot be read, `Unavailable` without scipy.
    """
    base = baselines.load(options.base or "")
    by_workers = any(one.basis == _WORKERS for run in (*base, session) for one in run.figures.values())
    judgeable = len(base) >= _SESSIONS_FOR_WORKERS or not by_workers

    def judged(run: RunFigures) -> RunFigures:
        figures = {name: f._replace(alone=f.alone and judgeable, basis="") for name, f in run.figures.items()}
        return run._replace(figures=figures)

    effect = Effect(Effect().share if options.fail is None else options.fail, _SMALLEST_DIFFERENCE)
    # The session may have selected only some tests, so tests that did not run are not reported as missing.
    found = compare(
        [judged(run) for run in base], [judged(session)], lambda _: effect, session.figures.__contains__
    )
    if judgeable:
        return found
    why = f"results depend on the worker: record {_SESSIONS_FOR_WORKERS} baseline sessions (--memwatch-add)"
    figures = [
        one._replace(why=why, more_runs=None) if one.verdict is ComparisonVerdict.NOT_ENOUGH else one
        for one in found.figures
    ]
    return found._replace(figures=figures)


def lines_of(comparison: Comparison, top: int) -> list[str]:
    """Return a table of all regressions and improvements, and of up to `top` inconclusive tests."""
    clear = comparison.having(ComparisonVerdict.REGRESSED, ComparisonVerdict.IMPROVED)
    same = len(comparison.having(ComparisonVerdict.SAME))
    open_ = comparison.having(ComparisonVerdict.NOT_ENOUGH, ComparisonVerdict.NOT_COMPARABLE)
    open_ = sorted(open_, key=lambda one: -abs(one.change or 0.0))
    shown = [*clear, *open_[:top]]
    lines = as_table(comparison._replace(figures=shown)).splitlines() if shown else []
    if len(open_) > top:
        lines.append(f"{count(len(open_) - top, 'more test')} inconclusive")
    return [*lines, *([f"{count(same, 'test')} unchanged"] if same else [])]
