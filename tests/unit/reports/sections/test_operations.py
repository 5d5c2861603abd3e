"""Remarks beside the figures of an operation."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from otel_memwatch.model import Peak, RecordedOperation
from otel_memwatch.reports.pages.terminal_page import TerminalPage
from otel_memwatch.reports.sections import headline
from otel_memwatch.reports.sections.folding import Shown
from otel_memwatch.reports.sections.operations import (
    _folded,
    _remark,
    _totals_by_name,
    largest_operations,
)
from otel_memwatch.run.results import OperationFigures
from otel_memwatch.runtime.terminal import FILE

MIB = 1 << 20


def step(peak: Peak | None, name: str = "step") -> OperationFigures:
    operation = RecordedOperation(name, 7, 1, 0.0, 1.0, "ok", "", "", None, Peak.exact(61 * MIB))
    return OperationFigures(operation, 0.0, 1.0, peak, None, {}, 0, None, sets_run_peak=False)


@pytest.mark.parametrize(
    ("peak", "expected"),
    [
        (Peak.interval(10 * MIB, 192 * MIB, estimate=54 * MIB), "best estimate 54.0 MiB"),
        (Peak.interval(0, 192 * MIB, estimate=54 * MIB), "best estimate 54.0 MiB"),
        (Peak.interval(50 * MIB, 56 * MIB, estimate=54 * MIB), ""),
        (Peak.interval(10 * MIB, None), ""),
        (Peak.exact(54 * MIB), ""),
        (None, ""),
    ],
)
def test_a_wide_range_has_its_best_estimate_beside_it(peak: Peak | None, expected: str) -> None:
    assert _remark(step(peak)) == expected


@pytest.mark.parametrize(
    ("needed", "expected"),
    [
        ([Peak.exact(40 * MIB), Peak.exact(50 * MIB)], "mean needed  largest needed  45.0 MiB 50.0 MiB"),
        ([Peak.interval(40 * MIB, None), None], "mean needed  largest needed  >= 40.0 MiB >= 40.0 MiB"),
        ([Peak.exact(50 * MIB), None], "mean needed  largest needed  50.0 MiB 50.0 MiB"),
        ([None, None], "mean resident  largest resident  61.0 MiB 61.0 MiB"),
    ],
)
def test_a_repeated_name_does_not_call_its_resident_size_needed(
    needed: list[Peak | None], expected: str
) -> None:
    page = TerminalPage(FILE)
    _totals_by_name([step(peak) for peak in needed], page)
    _, header, row = page.text().strip().splitlines()
    figures = r"(?:>= )?[\d.]+ MiB"
    shown = re.search(rf"({figures}) +({figures})", row)
    named = re.search(r"mean (?:needed|resident)  largest \w+", header)
    assert shown is not None
    assert named is not None
    assert "  ".join([named[0], " ".join(shown.groups())]) == expected


@pytest.mark.parametrize(
    ("needed", "expected"),
    [
        ([Peak.interval(0, 18 * MIB), Peak.interval(0, 76 * MIB)], ("<= 76.0 MiB", "at most")),
        ([Peak.exact(50 * MIB), Peak.interval(40 * MIB, 70 * MIB)], ("50.0-70.0 MiB", "range")),
        ([Peak.exact(50 * MIB), Peak.exact(40 * MIB)], ("50.0 MiB", "exact")),
        ([Peak.exact(50 * MIB), None], (">= 50.0 MiB", "at least")),
        ([None, None], ("-", "")),
    ],
)
def test_bounds_of_a_folded_row_hold_for_each_of_its_operations(
    needed: list[Peak | None], expected: tuple[str, str]
) -> None:
    """Thirty steps of up to 76 MiB were shown with the bound of the first, "at most 18 MiB"."""
    for order in (needed, needed[::-1]):
        row = _folded(Shown(0, tuple(map(step, order))), several=False)
        assert row[4:6] == expected


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (Peak.exact(469 * MIB), "Spike (peak)"),
        (Peak.interval(460 * MIB, 470 * MIB), "Spike 451-470 MiB (peak)"),
    ],
)
def test_the_summary_shows_no_range_beside_the_exact_peak_of_the_run(tree: Peak, expected: str) -> None:
    """The last window of the peak ended after the operation, whose figure is then a range."""
    spike = step(Peak.interval(451 * MIB, 470 * MIB), "Spike")._replace(sets_run_peak=True)
    run: Any = SimpleNamespace(
        marked=True, too_many_operations=False, operations=[spike], peaks=SimpleNamespace(tree=tree)
    )
    summary, table = TerminalPage(FILE), TerminalPage(FILE)
    headline.operations(run, summary)
    largest_operations(run, table)
    assert expected in summary.text()
    assert re.search("Spike +451-470 MiB +range", table.text())


@pytest.mark.parametrize(
    ("loaded", "summary", "table"),
    [
        (Peak.exact(50 * MIB), "Load 50.0 MiB, step", ["needed", "Load 50.0 MiB exact", "step -"]),
        (None, "step 61.0 MiB, Load 61.0 MiB", ["resident", "step 61.0 MiB exact", "Load 61.0 MiB exact"]),
    ],
)
def test_the_largest_operations_do_not_mix_needed_and_resident(
    loaded: Peak | None, summary: str, table: list[str]
) -> None:
    """The monitor was killed before the last operation began."""
    run: Any = SimpleNamespace(
        marked=True, too_many_operations=False, operations=[step(None), step(loaded, "Load")], peaks=None
    )
    page = TerminalPage(FILE)
    headline.operations(run, page)
    assert page.text().split(maxsplit=1) == ["operations", f"{summary}\n"]
    page = TerminalPage(FILE)
    largest_operations(run, page)
    head, *rows = (re.sub(" +", " ", line.strip()) for line in page.text().splitlines())
    assert head == f"operation {table[0]} duration"
    assert [row.removesuffix(" 1.00 s") for row in rows] == table[1:]
