from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_memwatch.in_target.operations.operation_values import Moment, ProcessTotals
from otel_memwatch.in_target.operations.process_state import moved_between, used_between
from otel_memwatch.record.operation_writer import (
    CLOSING,
    LONGEST_NAME,
    OPENING,
    attributes_text,
    clean_name,
    closing_line,
    closing_more,
    opening_line,
    opening_more,
    quote,
)

Used = tuple[float, float, int, int]

SECONDS = st.floats(0, 1e9)
COUNTS = st.integers(0, 1 << 40)
USED = st.tuples(SECONDS, SECONDS, COUNTS, COUNTS)
BYTES = st.tuples(*[st.integers(0, 1 << 50)] * 4)


def added(used: Used, more: Used) -> Used:
    return used[0] + more[0], used[1] + more[1], used[2] + more[2], used[3] + more[3]


@given(USED, USED, USED, st.none() | USED, BYTES, BYTES)
def test_what_was_used_is_the_difference_and_that_of_reaped_children(
    first: Used, used: Used, old: Used, reaped: Used | None, before: tuple[int, ...], moved: tuple[int, ...]
) -> None:
    opening, closing = Moment(20, 10, first), Moment(30, 15, added(first, used))
    start = ProcessTotals(old, before)  # type: ignore[arg-type]
    end = ProcessTotals(
        old if reaped is None else added(old, reaped),
        tuple(map(sum, zip(before, moved, strict=True))),  # type: ignore[arg-type]
    )
    text = closing_line(
        number=7,
        time=2.25,
        error=None,
        rss=closing.rss,
        segment=closing.segment,
        peak=(30, 29, 31, "exact"),
        used=used_between(opening, closing, start, end),
        moved=moved_between(start, end),
    )
    line = json.loads(text)
    assert tuple(line) == CLOSING
    for index, name in enumerate(("cpu_user", "cpu_system", "minor_faults", "major_faults")):
        expected = used[index] + (reaped[index] if reaped else 0)
        assert abs(line[name] - expected) <= 1e-6 + 1e-9 * (first[index] + expected + old[index])
    assert [line[name] for name in ("read_bytes", "write_bytes", "read_chars", "write_chars")] == list(moved)
    assert (line["rss"], line["segment"], line["peak"], line["low"], line["high"]) == (15, 30, 30, 29, 31)


GPU = {
    "allocator": "jax", "certainty": "interval", "peak": 3, "low": 3, "high": None, "reserved_peak": None, "start": 1,
    "end": 2, "ooms": None, "retries": None, "fragmentation": 0,
}  # fmt: skip


def test_what_is_unknown_is_null() -> None:
    line = json.loads(
        closing_line(
            number=7,
            time=2.5,
            error="ValueError",
            rss=None,
            segment=None,
            peak=(None, None, None, "sampled"),
            used=used_between(Moment(), Moment(), ProcessTotals(None, None), ProcessTotals(None, None)),
            moved=moved_between(ProcessTotals(None, None), ProcessTotals(None, None)),
            more=closing_more({'GPU-"1': GPU}, {"a": "ü"}),
        )
    )
    assert line == {
        "close": 7, "time": 2.5, "status": "error", "error": "ValueError", "rss": None, "segment": None, "peak": None,
        "low": None, "high": None, "certainty": "sampled", "cpu_user": None, "cpu_system": None, "minor_faults": None,
        "major_faults": None, "read_bytes": None, "write_bytes": None, "read_chars": None, "write_chars": None,
        "gpu": {'GPU-"1': GPU}, "attributes": {"a": "ü"},
    }  # fmt: skip
    opening = json.loads(
        opening_line(
            number=7,
            time=1.5,
            name="näme",
            trace="0" * 32,
            span="1" * 16,
            parent=None,
            thread=5,
            rss=None,
            segment=None,
            more=opening_more({"b": 1}, exported=True),
        )
    )
    assert tuple(opening)[: len(OPENING)] == OPENING
    assert opening == {
        "open": 7, "time": 1.5, "name": "näme", "trace": "0" * 32, "span": "1" * 16, "parent": None, "thread": 5,
        "rss": None, "segment": None, "attributes": {"b": 1}, "exported": True,
    }  # fmt: skip


@given(st.text())
def test_any_text_is_one_line_of_ascii_json(text: str) -> None:
    quoted = quote(text)
    assert quoted.isascii()
    assert "\n" not in quoted
    assert json.loads(quoted) == text


def test_what_is_no_unicode_is_replaced() -> None:
    assert json.loads(quote("a\udc80b")) == "a?b"


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no")


class Number:
    def __str__(self) -> str:
        return "a number"


@pytest.mark.parametrize(
    ("value", "recorded"),
    [
        (True, True),
        (3, 3),
        (2.5, 2.5),
        ("text", "text"),
        (None, None),
        ([1, "a", None], [1, "a", None]),
        ((True, 2.0), [True, 2.0]),
        (math.inf, "inf"),
        (math.nan, "nan"),
        (10**5000, None),
        (Number(), "a number"),
        (Hostile(), "(Hostile)"),
        ({"a": 1}, "{'a': 1}"),
        (b"bytes", "b'bytes'"),
        ([[1]], ["[1]"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_attributes_of_any_type(value: object, recorded: Any) -> None:
    read = json.loads(attributes_text({"key": value}))["key"]
    if isinstance(value, int) and recorded is None:
        assert isinstance(read, str)
    else:
        assert read == recorded


def test_attributes_are_bounded() -> None:
    text = attributes_text({f"key{n}": "x" * 100_000 for n in range(1000)})
    assert len(text) < 1_000_000
    assert len(attributes_text({"list": list(range(100_000))})) < 10_000


@pytest.mark.parametrize(
    ("name", "expected", "good"),
    [
        ("fine", "fine", True),
        ("", "(no name)", False),
        (None, "None", False),
        (17, "17", False),
        (Hostile(), "(Hostile)", False),
        ("x" * 100_000, "x" * (LONGEST_NAME - 3) + "...", False),
    ],
    ids=["text", "empty", "none", "number", "hostile", "huge"],
)
def test_names(name: object, expected: str, good: bool) -> None:
    assert clean_name(name) == (expected, good)
