"""Durations of options."""

from __future__ import annotations

import click
import pytest

from otel_memwatch.wings.live.seconds import Seconds


@pytest.mark.parametrize(
    ("text", "seconds"), [("2", 2.0), ("0.5", 0.5), ("500ms", 0.5), ("6s", 6.0), ("1 min", 60.0)]
)
def test_a_duration_may_have_a_unit(text: str, seconds: float) -> None:
    assert Seconds(0.1, 60).convert(text, None, None) == seconds


@pytest.mark.parametrize(
    ("text", "words"),
    [("soon", "'soon' is not a duration (write 50ms, 10min or 2h)."), ("2min", "120.0 is not in the range")],
)
def test_anything_else_is_refused(text: str, words: str) -> None:
    with pytest.raises(click.BadParameter) as caught:
        Seconds(0.1, 60).convert(text, None, None)
    assert words in caught.value.message
