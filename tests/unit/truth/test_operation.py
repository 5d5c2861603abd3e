"""Peaks of a part of a run, by table of cases."""

from __future__ import annotations

import pytest

from otel_memwatch.model import Certainty, Peak
from otel_memwatch.truth.operation import (
    growth,
    no_more_than,
    operation_peak,
    part_of_tree,
    refuted_by_sample,
    together,
    tree_of_operation,
    with_children,
)
from tests.support.run_directory import MIB


@pytest.mark.parametrize(
    ("peak", "sampled", "expected"),
    [
        (Peak.exact(22, 1), 62, (62, None)),
        (Peak.exact(22, 1), 23, (21, 23)),
        (Peak.interval(20, 30), 62, (20, 30)),
        (Peak.interval(20, None), 62, (20, None)),
    ],
)
def test_a_sample_refutes_an_exact_peak(peak: Peak, sampled: int, expected: tuple[int, int | None]) -> None:
    found = refuted_by_sample(peak, sampled)
    assert found is not None
    assert (found.low, found.high) == expected
    assert refuted_by_sample(None, sampled) is None


@pytest.mark.parametrize(
    ("part", "whole", "expected"),
    [
        (Peak.interval(5, 9), Peak.interval(4, 7), Peak.interval(5, 7)),
        (Peak.interval(5, None), Peak.interval(4, 7), Peak.interval(5, 7)),
        (Peak.interval(5, 6), Peak.interval(4, 7), Peak.interval(5, 6)),
        (Peak.interval(5, 9), Peak.interval(4, None), Peak.interval(5, 9)),
        (Peak.exact(10, 2), Peak.exact(9, 1), Peak(9, Certainty.EXACT, 8, 10)),
        (
            Peak(106, Certainty.EXACT, 104, 107),
            Peak(105, Certainty.EXACT, 105, 107),
            Peak(105, Certainty.EXACT, 104, 107),
        ),
        (
            Peak(106, Certainty.EXACT, 106, 107),
            Peak(105, Certainty.EXACT, 104, 107),
            Peak(106, Certainty.EXACT, 106, 107),
        ),
        (Peak.sampled(9), Peak.exact(7), Peak.sampled(9)),
        (None, Peak.exact(7), None),
        (Peak.exact(7), None, Peak.exact(7)),
    ],
)
def test_a_part_has_no_upper_bound_above_that_of_the_whole(
    part: Peak | None, whole: Peak | None, expected: Peak | None
) -> None:
    assert no_more_than(part, whole) == expected


@pytest.mark.parametrize(
    ("part", "whole", "expected"),
    [
        (Peak.exact(48, 2), Peak.exact(50, 1), Peak.exact(48, 2)),  # it only touches the window of the peak
        (Peak.interval(40, 60), Peak.exact(50, 1), Peak.interval(40, 51)),
        (Peak.interval(49, 60), Peak.exact(50, 1), Peak(50, Certainty.EXACT, 49, 51)),
        (Peak.interval(49, 50), Peak.exact(51, 2), Peak(50, Certainty.EXACT, 49, 50)),
        (Peak.interval(50, None), Peak.interval(45, None), Peak.interval(45, None)),
        (Peak.interval(60, 80), Peak.interval(45, 70), Peak.interval(45, 70)),
        (Peak.interval(40, 60), Peak.interval(45, 70), Peak.interval(40, 60)),
        (
            Peak.interval(40, 60, estimate=55),
            Peak.interval(45, 70, estimate=50),
            Peak.interval(40, 60, estimate=50),
        ),
        (Peak.exact(40, 1), Peak.exact(50, 1), Peak.exact(40, 1)),  # it was not in this part
        (
            Peak.interval(40, 60, excludes=("kernel",)),
            Peak.interval(45, 70, excludes=("kernel", "files in memory"), excluded_bytes=90),
            Peak.interval(40, 60, excludes=("kernel", "files in memory"), excluded_bytes=90),
        ),
        (Peak.sampled(9), Peak.exact(10), Peak.sampled(9)),
        (Peak.censored(9), Peak.exact(10), Peak.censored(9)),
        (None, Peak.exact(7), None),
        (Peak.exact(7), None, Peak.exact(7)),
    ],
)
def test_a_part_of_the_tree_has_the_whole_figure_only_if_it_certainly_had_its_lower_bound(
    part: Peak | None, whole: Peak | None, expected: Peak | None
) -> None:
    assert part_of_tree(part, whole) == expected


@pytest.mark.parametrize(
    ("low", "high", "likely", "expected"),
    [
        (20, 30, 25, (20, 30, 25)),
        (20, 30, 35, (20, 30, 30)),
        (0, 30, 25, (0, 30, 25)),
        (20, 18, 19, (20, 22, 20)),  # memory that no process maps
        (20, None, 25, (20, None, None)),
    ],
)
def test_a_resident_size_is_no_lower_bound_of_an_operation(
    low: int, high: int | None, likely: int, expected: tuple[int | None, ...]
) -> None:
    found = tree_of_operation(low, high, None, likely, 2)
    assert found is not None
    assert (found.low, found.high, found.estimate) == expected
    assert tree_of_operation(0, None, None, 9, 2) is None


@pytest.mark.parametrize(
    ("peaks", "expected"),
    [
        ([], None),
        ([Peak.exact(5, 1), None], None),
        ([Peak.exact(5, 1), Peak.exact(9, 1), Peak.exact(3, 1)], (9, Certainty.EXACT, 8, 10)),
        ([Peak.exact(5, 1), Peak.interval(4, 20)], (5, Certainty.INTERVAL, 4, 20)),
        ([Peak.exact(50, 1), Peak.interval(4, 20)], (50, Certainty.EXACT, 49, 51)),
        ([Peak.exact(50, 1), Peak.interval(4, None)], (50, Certainty.INTERVAL, 49, None)),
        (
            [Peak.interval(0, 18, estimate=9), Peak.interval(0, 76, estimate=70)],
            (0, Certainty.INTERVAL, 0, 76),
        ),
        (
            [Peak.interval(5, 18, estimate=17), Peak.interval(7, 9, estimate=8)],
            (7, Certainty.INTERVAL, 7, 18),
        ),
    ],
)
def test_the_peak_of_several_stretches(
    peaks: list[Peak | None], expected: tuple[int, Certainty, int, int | None] | None
) -> None:
    for order in (peaks, peaks[::-1]):
        found = together(order)
        assert (found and found[:4]) == expected


@pytest.mark.parametrize(
    ("children", "expected"),
    [
        (None, (90, None)),  # they live: it is unknown what they have
        ((50, 0), (90, 150)),
        ((50, 80), (90, 150)),  # may be what the process itself had when it started one
        ((250, 200), (200, 350)),
    ],
)
def test_a_process_with_its_children(
    children: tuple[int, int] | None, expected: tuple[int | None, int | None]
) -> None:
    assert with_children(90, 100, children) == expected


def test_growth_is_off_by_the_errors_of_both_sizes() -> None:
    grown = growth(Peak.exact(30 * MIB, MIB // 2), 10 * MIB, MIB // 2)
    assert (grown.bytes, grown.low, grown.high) == (20 * MIB, 19 * MIB, 21 * MIB)


@pytest.mark.parametrize(
    ("low", "high", "certainty"),
    [
        (99 * MIB, 101 * MIB, Certainty.EXACT),
        (None, None, Certainty.EXACT),
        (0, 164 * MIB, Certainty.INTERVAL),  # of an older version, on a machine with many processors
    ],
)
def test_an_operation_is_exact_only_if_it_still_is(
    low: int | None, high: int | None, certainty: Certainty
) -> None:
    peak = operation_peak(100 * MIB, Certainty.EXACT, low, high)
    assert peak.certainty is certainty
    assert peak.estimate == (None if certainty is Certainty.EXACT else 100 * MIB)
