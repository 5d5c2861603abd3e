"""The sum over processes that live at the same time is never too small, and is exact until spans are merged."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from otel_memwatch.run.tree_bounds import UNCAPPED, EndedSpans, Span, sum_over_time

MOMENTS = st.integers(0, 40).map(float)
WEIGHTS = st.integers(0, 1000)


@st.composite
def spans(draw: st.DrawFn) -> Span:
    start = draw(MOMENTS)
    cap = draw(st.one_of(st.just(UNCAPPED), WEIGHTS, st.integers(0, 4).map(lambda n: n * (16 << 20))))
    return Span(start, start + draw(st.integers(0, 15)), draw(WEIGHTS), draw(st.integers(0, 3)), cap)


def brute_force(all_spans: list[Span], unit: int, start: float = -math.inf, end: float = math.inf) -> int:
    """Looks at every moment and between every two: the sum changes at whole numbers only."""
    moments = {max(start, -1.0), min(end, 99.0)}
    moments |= {moment / 2 for moment in range(-2, 200)}
    return max(
        (
            sum(s.weight(unit) for s in all_spans if s.start <= m <= s.end)
            for m in moments
            if start <= m <= end
        ),
        default=0,
    )


@given(st.lists(spans(), max_size=12), st.integers(0, 500))
def test_largest_sum_is_that_of_looking_everywhere(all_spans: list[Span], unit: int) -> None:
    ended_spans = EndedSpans()
    for span in all_spans:
        ended_spans.add(span)
    assert ended_spans.sum_over_time(unit).largest() == brute_force(all_spans, unit)


@given(st.lists(spans(), max_size=10), MOMENTS, st.integers(0, 20))
def test_largest_sum_of_a_stretch(all_spans: list[Span], start: float, length: int) -> None:
    found = sum_over_time((s.start, s.end, s.weight(0)) for s in all_spans)
    for shift in (0.0, 0.5):
        low, high = start + shift, start + length + shift
        assert found.largest(low, high) == brute_force(all_spans, 0, low, high)


@given(st.lists(spans(), max_size=15), st.lists(spans(), max_size=5), MOMENTS, st.integers(0, 500))
def test_merging_never_makes_it_smaller(
    ended: list[Span], later: list[Span], horizon: float, unit: int
) -> None:
    ended_spans = EndedSpans()
    for span in ended:
        ended_spans.add(span)
    ended_spans.merge([span.start for span in later], horizon)
    assert ended_spans.sum_over_time(unit, later).largest() >= brute_force(ended + later, unit)


@given(st.lists(spans(), max_size=15), st.lists(MOMENTS, max_size=5), st.integers(0, 500))
def test_merging_is_exact_for_what_lives_on_from_its_borders(
    ended: list[Span], starts: list[float], unit: int
) -> None:
    ended = [span._replace(unseen_count=0) for span in ended]
    living = [Span(start, math.inf, 100 * (place + 1)) for place, start in enumerate(starts)]
    ended_spans = EndedSpans()
    for span in ended:
        ended_spans.add(span)
    ended_spans.merge(starts, horizon=100.0)
    ended_spans.merge(starts, horizon=100.0)
    assert ended_spans.sum_over_time(unit, living).largest() == brute_force(ended + living, unit)
    assert len(ended_spans) <= len(set(starts)) + 1


def test_moments_that_touch_overlap() -> None:
    assert sum_over_time([(0.0, 1.0, 5), (1.0, 2.0, 7)]).largest() == 12
    assert sum_over_time([(0.0, 1.0, 5), (1.5, 2.0, 7)]).largest(1.2, 1.4) == 0
    assert sum_over_time([]).largest() == 0
