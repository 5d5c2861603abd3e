"""The definition of exact."""

from __future__ import annotations

import pytest

from otel_memwatch.runtime import exactness as exact
from otel_memwatch.truth.exact import is_one_figure

MIB = 1 << 20


@pytest.mark.parametrize(
    ("error", "value", "small"),
    [
        (0, 0, True),
        (MIB, 0, True),
        (MIB + 1, 69 * MIB, False),
        (MIB + 1, 200 * MIB, False),
        (MIB + 1, 201 * MIB, True),
        (2 * MIB, 400 * MIB, True),
        (2 * MIB + 1, 400 * MIB, False),
        (95 * MIB, 69 * MIB, False),
    ],
)
def test_an_error_of_a_megabyte_or_half_a_percent_is_small(error: int, value: int, small: bool) -> None:
    assert exact.is_small(error, value) is small
    assert exact.is_exact(value, value - error, value + error) is small


def test_both_bounds_have_to_be_near() -> None:
    assert not exact.is_exact(10 * MIB, 8 * MIB, 10 * MIB)
    assert not exact.is_exact(10 * MIB, 10 * MIB, 12 * MIB)
    assert is_one_figure(9 * MIB, 11 * MIB)
    assert not is_one_figure(9 * MIB, 12 * MIB)
