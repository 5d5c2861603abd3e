"""Text of a notebook cell's figures."""

from __future__ import annotations

import pytest

from otel_memwatch.compat.ipython.cells import MIB, Cell


@pytest.mark.parametrize(
    ("certainty", "word"), [("exact", "exact"), ("interval", "range"), ("sampled", "sampled")]
)
def test_the_certainty_has_the_word_of_all_reports(certainty: str, word: str) -> None:
    cell = Cell(1, "x = 1", MIB, 0.5, 10.0, 20.0, 2 * MIB, 70 * MIB, certainty)
    assert cell.told == f"peak 72.0 MiB ({word}), 1.0 MiB more than before, 0.50 s"
    assert cell.certainty == certainty
