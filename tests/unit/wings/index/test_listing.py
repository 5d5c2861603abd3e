"""Tables of runs for a person."""

from __future__ import annotations

import re

import pytest

from otel_memwatch.run.figures import FIGURES
from otel_memwatch.wings.index.indexed_run import IndexedRun
from otel_memwatch.wings.index.listing import group_lines, groups, lines, totals, unused
from otel_memwatch.wings.index.run_fields import COLUMNS, column

GOOD = IndexedRun(
    "runs/a", "a", "finished", reason="exit code 0", memory=1 << 20, certainty="exact", command_json='["x"]'
)


@pytest.mark.parametrize("width", [None, 80, 200])
@pytest.mark.parametrize(
    "odd", [{"reason": "could not be started: " + "x" * 300}, {"state": "broken", "error": "e" * 300}]
)
def test_a_long_reason_or_error_widens_no_other_row(width, odd):
    header, good, other = lines([GOOD, GOOD._replace(**odd)], width)
    assert len(good) < 120
    assert len(header) < 130
    assert "broken" in other or "could not be" in other


def test_a_command_has_the_room_that_the_other_columns_leave():
    row = GOOD._replace(command_json='["' + "x" * 80 + '"]')
    assert "x" * 80 in lines([row], 160)[1]
    assert "x" * 80 not in lines([row], 130)[1]


def test_a_large_spread_is_a_whole_percentage():
    rows = [GOOD._replace(memory=memory) for memory in (1 << 20, 1 << 20, 100 << 20)]
    assert " 168 %" in "\n".join(group_lines(groups(rows, [COLUMNS["state"]]), "state"))


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (4096, 603 << 20, ("<= 603.0 MiB", "at most")),
        (300 << 20, 603 << 20, ("300-603 MiB", "range")),
        (300 << 20, None, (">= 300.0 MiB", "at least")),
    ],
)
def test_a_lower_bound_of_nothing_is_not_shown(low, high, words):
    row = GOOD._replace(certainty="interval", memory=low, low=low, high=high)
    assert all(word in lines([row], None)[1] for word in words)


def test_a_run_with_a_prediction_shows_the_ratio():
    assert "exact, 0.5 times predicted" in lines([GOOD._replace(predicted=2 << 20)], None)[1]
    assert "predicted" not in lines([GOOD], None)[1]


MIB = 1 << 20
RANGE = GOOD._replace(certainty="interval", memory=27 * MIB, low=27 * MIB, high=165 * MIB)
AT_MOST = RANGE._replace(memory=0, low=0, high=5 * MIB)
AT_LEAST = RANGE._replace(high=None)


@pytest.mark.parametrize(
    ("rows", "largest", "median"),
    [
        ([RANGE], "27.0-165 MiB", "27.0-165 MiB"),
        ([AT_MOST], "<= 5.0 MiB", "<= 5.0 MiB"),
        ([AT_LEAST], ">= 27.0 MiB", ">= 27.0 MiB"),
        ([GOOD, AT_MOST, RANGE], "27.0-165 MiB", "1.0-5.0 MiB"),
        ([GOOD, GOOD, AT_LEAST], ">= 27.0 MiB", "1.0 MiB"),
        ([GOOD, GOOD._replace(memory=3 * MIB)], "3.0 MiB", "2.0 MiB"),
        ([GOOD._replace(certainty="censored", memory=9 * MIB)], "<= 9.0 MiB", "<= 9.0 MiB"),
    ],
)
def test_a_group_of_ranges_has_ranges(rows, largest, median):
    """The lower bound stood there as if it were the figure, and for `dd` as a user it was 0 B."""
    line = group_lines(groups(rows, [COLUMNS["state"]]), "state")[1]
    assert re.split(" {2,}", line)[2:4] == [largest, median]
    assert f"the largest {largest}," in totals(rows)


@pytest.mark.parametrize("row", [row for row in FIGURES if row.field], ids=lambda row: row.name)
def test_every_figure_of_the_index_is_a_column(row):
    found = column(row.name)
    assert found is not None
    assert found.name in COLUMNS
    assert found.of(GOOD._replace(**{row.field: 7})) == 7


def test_unused_resources_are_a_lower_bound() -> None:
    """Only memory above the upper bound was certainly not used."""
    row = GOOD._replace(
        certainty="interval", low=1 << 30, memory=2 << 30, high=3 << 30, asked=5 << 30, asked_cores=4.0, cpu=3600.0, seconds=3600.0,
        predicted=4 << 30,
    )  # fmt: skip
    assert (row.unused_gib_hours, row.unused_core_hours, row.ratio) == (2.0, 3.0, 0.5)
    assert row._replace(high=None).unused_gib_hours is None
    assert row._replace(asked=1 << 30).unused_gib_hours == 0
    assert unused([row, row, GOOD]) == "3 runs left 4 GiB-hours and 6 core-hours unused"
    assert unused([row._replace(seconds=0.04, cpu=0.0)]) == "1 run left 0 GiB-hours and 0 core-hours unused"
