"""What `perf stat` prints, read rightly."""

from __future__ import annotations

import pytest

from otel_memwatch.compat.ipython import perf
from otel_memwatch.compat.ipython.perf import (
    Count,
    describe,
    parse_csv,
    parse_line,
    process_line,
    process_lines,
)

HUMAN = """
# started on Sat Nov 21 03:00:00 2026

#           time             counts unit events
     0.100201057             12,345      cache-misses              #  1.2 M/sec
     0.200511327                  0      cache-misses
     0.300755449      <not counted>      cache-misses
     0.400755449    <not supported>      instructions
     0.500755449          1,001.52 msec task-clock                #    0.998 CPUs utilized
     0.600755449              2,000      cache-misses                                          (66.67%)
"""


def test_lines_for_people() -> None:
    assert process_lines(HUMAN) == [12345.0, 0.0, 2000.0]
    assert process_lines(HUMAN, "task-clock") == [1001.52]
    assert process_lines(HUMAN, "instructions") == []
    assert process_lines("") == []


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("12345 cache-misses", 12345.0),
        ("     12 345      cache-misses", 12345.0),
        ("     12\u202f345      cache-misses", 12345.0),
        ("     12\u00a0345\u00a0678      cache-misses", 12345678.0),
        ("     12'345      cache-misses", 12345.0),
        ("     1.234.567      cache-misses", 1234567.0),
        ("     0,100201057   1.234   cache-misses", 1234.0),
        ("     0.100201057   7   cache-misses:u", 7.0),
        ("     0      cache-misses", 0.0),
        ("     <not counted>      cache-misses", None),
        ("     <not supported>      cache-misses", None),
        ("     1.5 msec task-clock", None),
        ("     99      cache-misses-all", 99.0),
        ("  3.50  471,219,787 stalled-cycles-frontend", 471219787.0),
        ("       0.001017841 seconds time elapsed", None),
        (" Performance counter stats for 'true':", None),
        ("", None),
    ],
)
def test_counts_in_any_locale(line: str, value: float | None) -> None:
    assert process_line(line) == value
    assert process_line(line, "cycles") is None


def test_what_is_not_counted_is_distinguished_from_what_is_absent() -> None:
    assert parse_line("<not counted> cache-misses") == Count("cache-misses", None, "<not counted>")
    assert parse_line("<not supported> cache-misses") == Count("cache-misses", None, "<not supported>")
    assert parse_line("nothing here") is None


def test_output_for_programs() -> None:
    text = "Events enabled\n<not supported>;;cache-misses;0;100.00;;\n50;;page-faults;514884;100.00;97.1;K/sec\n0,51;msec;task-clock;1;100,00;0;CPUs\n"
    assert parse_csv(text) == [
        Count("cache-misses", None, "<not supported>"),
        Count("page-faults", 50.0),
        Count("task-clock", 0.51, "", "msec"),
    ]


@pytest.mark.parametrize("value", ["1e999", "inf", "nan", "-inf"])
def test_a_count_is_a_finite_number(value: str) -> None:
    assert perf.parse_csv(f"{value};;cache-misses;100;50.00;;") == []


def test_the_sentence_about_counts() -> None:
    assert (
        describe([Count("cache-misses", 12345.0)], 0.5)
        == "perf value for cache-misses averages to 24,690/second"
    )
    assert describe([Count("cache-misses", 0.0)], 0.5) == "perf value for cache-misses averages to 0/second"
    assert (
        describe([Count("cache-misses", None, "<not supported>")], 1.0)
        == "perf - cache-misses is not supported on this machine"
    )
    nothing = "perf - no results to report, possibly the collection time was too short?"
    assert describe([], 1.0) == nothing
    assert describe([Count("cache-misses", None, "<not counted>")], 1.0) == nothing
