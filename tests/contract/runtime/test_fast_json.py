"""Our encoders and decoders of JSON, and those of `json`: the same values, texts and errors."""

from __future__ import annotations

import enum
import json
import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_memwatch.runtime import fast_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text(), inner),
)


class Word(str, enum.Enum):
    ONE = "one"


@given(VALUES)
def test_values_are_encoded_and_decoded_alike(value: object) -> None:
    for separators, ascii_only in (((", ", ": "), True), ((",", ":"), False)):
        text = fast_json.encoder(*separators, ascii_only=ascii_only)(value)
        assert text == json.dumps(value, separators=separators, ensure_ascii=ascii_only)
        assert fast_json.loads(f" {text}\n") == json.loads(text)


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, Word.ONE, {1: 2, None: 3, False: 4}, "\ud800"]
)
def test_unusual_values_are_encoded_alike(value: object) -> None:
    assert fast_json.dumps(value) == json.dumps(value)


@pytest.mark.parametrize("value", [math.nan, [1.5, -math.inf], {"a": math.inf}])
def test_numbers_that_are_not_json_are_refused_on_request(value: object) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        fast_json.encoder(finite=True)(value)
    assert fast_json.encoder(finite=True)([1e308, 2]) == "[1e+308, 2]"


@pytest.mark.parametrize("value", [object(), {(1, 2): 3}, {"bytes": b""}])
def test_other_values_are_refused_alike(value: object) -> None:
    with pytest.raises(TypeError) as theirs:
        json.dumps(value)
    with pytest.raises(TypeError) as ours:
        fast_json.dumps(value)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize(
    "text",
    ["", " ", "{", "[1,]", "1 2", '{"a" 1}', '"\n"', "\ufeff1", "nul", "01", '"\\x"', " [1", "[1]x", "\x0b1"],
)
def test_damaged_text_is_refused_alike(text: str) -> None:
    with pytest.raises(json.JSONDecodeError) as theirs:
        json.loads(text)
    with pytest.raises(json.JSONDecodeError) as ours:
        fast_json.loads(text)
    assert str(ours.value) == str(theirs.value)


def test_constants_are_passed_on() -> None:
    text = "[NaN, Infinity, -Infinity, 1e999]"
    assert repr(fast_json.loads(text)) == repr(json.loads(text))
    assert fast_json.decoder(str.lower)(text) == json.loads(text, parse_constant=str.lower)


def test_an_interpreter_without_the_compiled_half_does_the_same() -> None:
    program = (
        "import sys; sys.modules['_json'] = None; from otel_memwatch.runtime import fast_json as one; "
        "print(one.dumps({'a': [1, 'é']}), one.encoder(',', ':', ascii_only=False)({'a': 'é'}), one.loads(' [1] '))"
    )
    done = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", program],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    assert done.stdout.strip() == '{"a": [1, "\\u00e9"]} {"a":"é"} [1]'


@pytest.mark.parametrize("text", ["[1", '{"a" 1}', '"x', '"\\x"', "1 2"])
def test_damaged_text_is_refused_before_json_is_loaded(text: str) -> None:
    program = (
        "import sys; from otel_memwatch.runtime.fast_json import loads; "
        "[sys.modules.pop(name) for name in list(sys.modules) if name.startswith('json')]\n"
        "try: loads(sys.argv[1])\n"
        "except ValueError as error: print(type(error).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", program, text], capture_output=True, text=True)
    assert done.stdout.strip() == "JSONDecodeError", done.stderr
