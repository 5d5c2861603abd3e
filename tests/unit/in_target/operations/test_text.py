from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_memwatch.in_target.operations.text import LONGEST_NAME, attributes_text, clean_name, quote


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
