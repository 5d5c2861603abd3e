"""Damaged data: what was sound, changed as disks, crashes, strangers and enemies change it."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

LONG = os.environ.get("MEMWATCH_LONG") == "1"


def profile(examples: int) -> settings:
    """So many examples in CI, fifty times as many in the long profile; no deadlines: the machine is shared."""
    return settings(
        max_examples=examples * 50 if LONG else examples,
        deadline=None,
        derandomize=not LONG,
        suppress_health_check=list(HealthCheck),
    )


_ODD_BYTES = st.sampled_from(
    [b"", b"\0", b"\xff", b"\n", b"-1", b"9" * 30, b"1e999", b"nan", b"{", b"[" * 60, b'"', b"\\", b"(", b") ", b" ",
     b"null", b"true", b"-", b"\xe2\x80\xae", b"kB", b"18446744073709551616", b"0x10", b"1_0", "٣".encode()]
)  # fmt: skip


@st.composite
def mutated(draw: Any, sound: bytes, most: int = 4) -> bytes:
    """The data with a few places cut out, overwritten, repeated or filled with something odd."""
    data = sound
    for _ in range(draw(st.integers(1, most))):
        begin = draw(st.integers(0, len(data)))
        end = min(len(data), begin + draw(st.integers(0, 40)))
        filling = draw(st.one_of(_ODD_BYTES, st.binary(max_size=12), st.just(data[begin:end] * 2)))
        data = data[:begin] + filling + data[end:]
    return data


_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([-1, 0, 2**31, 2**53, 2**63, 2**64, -(2**63), 10**400]),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["", "\0", "\x1b[31m", "\u202e", "\ud800", "a" * 5000, "1", "-1", "9" * 400, "ff" * 16]),
)
JSON_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
"""Anything that JSON can hold, and some that it cannot."""


@st.composite
def changed(draw: Any, value: Any, most: int = 3) -> Any:
    """A JSON value with some of its parts replaced, removed or wrapped in something else."""
    for _ in range(draw(st.integers(1, most))):
        value = _change(draw, value)
    return value


def _change(draw: Any, value: Any) -> Any:
    if isinstance(value, dict) and value and draw(st.integers(0, 5)):
        key = draw(st.sampled_from(sorted(value)))
        rest = {name: item for name, item in value.items() if name != key}
        return rest if not draw(st.integers(0, 4)) else {**rest, key: _change(draw, value[key])}
    if isinstance(value, list) and value and draw(st.integers(0, 5)):
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], _change(draw, value[place]), *value[place + 1 :]]
    return draw(JSON_VALUES)
