from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from otel_memwatch.record.segments import Segments


@given(st.lists(st.integers(0, 20), max_size=60), st.data())
def test_the_largest_since_any_boundary(values: list[int], data: st.DataObject) -> None:
    segments = Segments()
    for number, value in enumerate(values, 1):
        segments.push(number, value)
        since = data.draw(st.integers(0, number))
        assert segments.since(since) == max(values[since:number], default=None)
    assert segments.since(0) == max(values, default=None)


def test_memory_is_bounded_by_what_can_still_be_asked() -> None:
    segments = Segments()
    for number in range(1, 10_000):
        segments.push(number, number % 7)
    assert len(segments._entries) <= 7


def test_cleared_it_knows_nothing() -> None:
    segments = Segments()
    segments.push(1, 5)
    segments.clear()
    assert segments.since(0) is None
