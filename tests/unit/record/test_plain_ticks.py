"""Ticks read from their text: what is read is what `json` reads, to the bit, and what is no tick is left to it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_memwatch.record.jsonl import Damage
from otel_memwatch.record.plain_ticks import plain_ticks
from otel_memwatch.record.samples import tick_tables

numbers = st.one_of(
    st.none(),
    st.integers(-(10**16), 10**19),
    st.integers(0, 10**15),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(0, 10**9, places=6).map(float),
)
rows = st.lists(st.builds(lambda time, rest: [time, *rest], st.floats(0, 1e9), st.lists(numbers, max_size=4)), min_size=1, max_size=5)  # fmt: skip
WIDTH = 4


def told_by_json(lines: list[bytes]) -> np.ndarray | None:
    """The same, value by value; `None` where a line is no tick."""
    table = []
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            return None
        if not isinstance(row, list) or not 1 <= len(row) <= WIDTH + 1 or row[0] is None:
            return None
        if not all(value is None or (type(value) in (int, float) and math.isfinite(value)) for value in row):
            return None
        table.append([math.nan if v is None else float(v) for v in row] + [math.nan] * (WIDTH + 1 - len(row)))
    return np.array(table)


@given(rows)
def test_numbers_are_those_of_json_to_the_bit(ticks: list[list[float | None]]) -> None:
    lines = [json.dumps(row, separators=(",", ":")).encode() for row in ticks]
    found, truth = plain_ticks(lines, WIDTH), told_by_json(lines)
    assert truth is not None
    if found is None:
        # Whole numbers of more than 15 digits are left to `json`: nothing that is measured has as many.
        assert any(isinstance(v, int) and abs(v) >= 10**15 for row in ticks for v in row)
        return
    assert found.tobytes() == truth.tobytes()


TOKENS = [
    "null", "0", "17", "0.5", "-3", "1e-05", "2.1E+3", "0.1234567890123456", "99999999999999999",
    "0.99999999999999999", "1e999", "-0", "NaN", "Infinity", "00", "01", "-01", "1.", "0.", ".5", "-", "e", "1e", "--1",
    "1..2", "1.2.3", "", "nul", "nulll", "nullnull", "1null", "null1", "0.null", "-null", "1e-null", "[", "]", "[1]",
    '"a"', "true", "{}", "+1", "1-2", "1e5.5",
]  # fmt: skip


@given(st.lists(st.lists(st.sampled_from(TOKENS), min_size=1, max_size=5), min_size=1, max_size=3))
def test_what_is_no_tick_is_never_taken_for_one(texts: list[list[str]]) -> None:
    lines = [f"[1000.5,{','.join(text)}]".encode() for text in texts]
    found, truth = plain_ticks(lines, WIDTH), told_by_json(lines)
    if found is not None:
        assert truth is not None
        assert np.array_equal(found, truth, equal_nan=True)


@pytest.mark.parametrize("text", TOKENS)
def test_each_alone(text: str) -> None:
    line = f"[1000.5,{text}]".encode()
    found, truth = plain_ticks([line], WIDTH), told_by_json([line])
    if truth is None or text == "99999999999999999":
        assert found is None
    elif found is None:
        assert text == "0.99999999999999999"  # holds what stands for null
    else:
        assert np.array_equal(found, truth, equal_nan=True)


@pytest.mark.parametrize(
    "lines",
    [[b"[1,2]", b"{}"], [b"[1,2", b"3]"], [b"1,2"], [b"[]"], [b"[1],[2]"], [b"[null,1]"], [b"[1,1,1,1,1,1]"]],
)
def test_lines_that_are_no_ticks(lines: list[bytes]) -> None:
    assert plain_ticks(lines, WIDTH) is None


def test_ticks_that_leave_out_most_columns_are_no_table(tmp_path: Path) -> None:
    """Of a few kilobytes: it would take gigabytes."""
    columns = [{"metric": f"m{index}"} for index in range(3000)]
    header = json.dumps({"columns": columns})
    path = tmp_path / "samples.jsonl"
    for line, as_table in (("[1.0]", False), (f"[1.0{',2' * 3000}]", True)):
        path.write_text("\n".join([header, *[line] * 40]) + "\n")
        kinds = {
            isinstance(found, np.ndarray) for _, found in tick_tables(path, Damage(path.name)) if len(found)
        }
        assert kinds == {as_table}
