"""Prediction bounds keep the odds that they promise."""

from __future__ import annotations

import math
import random

import pytest
from scipy import stats

from otel_memwatch.wings.advice.prediction import (
    Interval,
    looks_normal,
    narrowed,
    prediction_bound,
    scaled_bound,
    student_exceeds,
    student_quantile,
)

MIB = 1 << 20


def exact(*values: float) -> list[Interval]:
    return [Interval(value * MIB, value * MIB) for value in values]


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 16, 101, 200])
def test_student_is_what_scipy_says(freedom: int) -> None:
    for odds in (0.2, 0.01, 1e-3, 1e-5):
        assert student_quantile(odds, freedom) == pytest.approx(stats.t.isf(odds, freedom), rel=1e-6)
        assert student_exceeds(2.5, freedom) == pytest.approx(stats.t.sf(2.5, freedom), rel=1e-9)


def test_one_run_has_a_margin_and_no_odds() -> None:
    bound = prediction_bound(exact(100), 1e-3)
    assert bound is not None
    assert (round(bound.value / MIB), bound.runs, bound.odds) == (110, 1, None)
    assert prediction_bound([], 1e-3) is None
    assert prediction_bound([Interval(5.0, None)], 1e-3) is None


@pytest.mark.parametrize("count", [2, 3, 5, 15, 60])
@pytest.mark.parametrize("scatter", [0.01, 0.02, 0.1])
def test_the_next_run_is_above_the_bound_with_the_odds_asked(count: int, scatter: float) -> None:
    """Where jobs scatter as the prior says, at any number of runs; where they scatter otherwise, from some runs on."""
    lots = random.Random(count)
    odds, tries = 0.02, 2000
    above = 0
    for _ in range(tries):
        runs = [math.exp(lots.gauss(5, scatter)) for _ in range(count + 1)]
        bound = prediction_bound(exact(*runs[:-1]), odds)
        assert bound is not None
        above += runs[-1] * MIB > bound.value
    if scatter <= 0.02 or count >= 15:
        # So many are above with odds of one in a thousand where the share is right.
        assert above <= stats.binom.isf(1e-3, tries, odds * 1.25)


def test_a_bound_is_never_below_what_was_seen() -> None:
    highs = [100.0] * 30 + [400.0]
    bound = prediction_bound(exact(*highs), 0.4)
    assert bound is not None
    assert bound.value >= 400 * MIB
    killed = prediction_bound([*exact(100, 101, 100), Interval(300 * MIB, None)], 0.4)
    assert killed is not None
    assert killed.value >= 300 * MIB


def test_wide_bounds_count_as_far_above_their_low_ends_as_better_known_runs_show() -> None:
    wide = Interval(100 * MIB, 900 * MIB)
    bound = prediction_bound([*exact(100, 101, 102), wide], 1e-3)
    assert bound is not None
    assert bound.lowered == 1
    assert bound.value < 130 * MIB
    alone = prediction_bound([wide, *exact(100)], 1e-3)
    assert alone is not None
    assert alone.value > 900 * MIB
    two = prediction_bound([wide, wide, *exact(100)], 1e-3)
    assert two is not None
    assert two.value > 900 * MIB


def test_a_low_end_that_shows_nothing_is_no_scatter() -> None:
    """No sample met the only peak of a container. Its two runs gave 16 910 MiB for at most 41 MiB."""
    bound = prediction_bound([Interval(0.8 * MIB, 41 * MIB), Interval(24 * MIB, 41 * MIB)], 1e-3)
    assert bound is not None
    assert 41 * MIB <= bound.value < 60 * MIB


def test_the_width_of_one_record_is_no_scatter_of_few_runs() -> None:
    """150 MiB, and 150 to 300 MiB, gave a bound of 1031 MiB with odds of 1 in 1000."""
    wide = Interval(150 * MIB, 300 * MIB)
    for known in ([wide, *exact(150)], [*exact(150, 151), wide]):
        bound = prediction_bound(known, 1e-3)
        assert bound is not None
        assert (bound.value, bound.odds, bound.wide) == (pytest.approx(330 * MIB), None, 1)
    four = prediction_bound([wide, wide, *exact(150, 151)], 1e-3)
    assert four is not None
    assert (four.value, four.odds, four.wide) == (pytest.approx(330 * MIB), None, 2)
    alike = prediction_bound([wide, Interval(152 * MIB, 304 * MIB)], 1e-3)
    assert alike is not None
    assert (alike.odds, alike.wide) == (1e-3, 0)


def test_a_quarter_of_the_runs_shows_how_far_above_its_low_end_a_run_can_be() -> None:
    lots = random.Random(4)
    known = [
        Interval(low := 100 * MIB * math.exp(lots.gauss(0, 0.005)), low * (1 + n / 100)) for n in range(8, 28)
    ]
    for found, given in zip(narrowed(known), known, strict=True):
        assert (found.low, found.high) == (given.low, pytest.approx(min(given.high or 0, given.low * 1.12)))
    small = [Interval(8 * MIB, 9 * MIB)] * 6 + [Interval(8 * MIB, 10.5 * MIB)]
    assert narrowed(small) == small
    assert narrowed([Interval(8 * MIB, None), *small])[0].high is None


def test_runs_of_two_kinds_are_distinguished_from_a_normal_scatter() -> None:
    two_kinds = [100.0 + i / 10 for i in range(12)] + [200.0, 201.0, 202.0]
    assert not looks_normal([math.log(value) for value in two_kinds])
    bound = prediction_bound(exact(*two_kinds), 0.1)
    assert bound is not None
    assert bound.odd
    assert bound.value > 300 * MIB
    few_low_ones = prediction_bound(exact(50, 51, *(100.0 + i / 10 for i in range(14))), 1e-3)
    assert few_low_ones is not None
    assert few_low_ones.odd
    assert few_low_ones.value < 106 * MIB
    lots = random.Random(3)
    assert sum(looks_normal([lots.gauss(0, 1) for _ in range(20)]) for _ in range(300)) > 285


def test_an_input_that_explains_the_peak_scales_the_bound() -> None:
    lots = random.Random(1)
    inputs = [lots.randrange(1, 100) for _ in range(30)]
    highs = [(50 + 3 * amount + lots.gauss(0, 2)) * MIB for amount in inputs]
    line = scaled_bound(inputs, highs, 1e-2)
    assert line is not None
    assert line.explained > 0.99
    assert all(line.at(amount) >= high for amount, high in zip(inputs, highs, strict=True))
    assert line.at(100) < (50 + 300 + 40) * MIB
    assert line.at(0) == line.at(min(inputs))
    noise = [lots.gauss(100, 10) * MIB for _ in inputs]
    assert scaled_bound(inputs, noise, 1e-2) is None
    assert scaled_bound(inputs[:5], highs[:5], 1e-2) is None
    assert scaled_bound([1.0] * 20, highs[:20], 1e-2) is None
