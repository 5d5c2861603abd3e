"""What bounds the clocks of several hosts, against true distances."""

from __future__ import annotations

import math
import random

import pytest

from otel_memwatch.wings.ranks.clock_bounds import (
    DRIFT,
    Alignment,
    ClockRecord,
    Distance,
    aligned,
    common_reference,
    of_stamp,
)

HOUR = 3600.0


def test_one_machine_has_one_clock_and_no_error():
    record = ClockRecord([(10.0, 1e9, None)], [])
    reference = common_reference({"a": record}, {"a": (10.0, 20.0)})
    assert reference.error == 0.0
    assert reference.alignments["a"].distance(15.0) == 1e9 - 10


def test_a_wall_clock_that_nobody_corrects_bounds_nothing():
    records = {name: ClockRecord([(10.0, 1e9, None)], []) for name in "ab"}
    reference = common_reference(records, dict.fromkeys("ab", (10.0, 20.0)))
    assert reference.name == ""
    assert [one.error for one in reference.alignments.values()] == [0.0, math.inf]


def test_clocks_set_by_ntp_are_known_to_their_error_and_the_drift_between_two_looks():
    looks = [(float(t), 1e9 + t, 0.004) for t in range(0, 601, 60)]
    reference = common_reference(
        {name: ClockRecord(looks, []) for name in "ab"}, dict.fromkeys("ab", (0.0, 600.0))
    )
    assert reference.name == "clocks set by NTP"
    assert reference.error == pytest.approx(0.004 + DRIFT * 30, abs=1e-6)


def test_a_server_that_stamps_files_of_both_is_a_reference():
    def record(ahead):
        return ClockRecord(
            [(0.0, 1e9, None)],
            [("nfs4 box:/x", of_stamp(m - 0.001, 1e9 + m + ahead, 0.01, m + 0.001)) for m in (0.0, 60.0)],
        )

    reference = common_reference({"a": record(0), "b": record(3)}, dict.fromkeys("ab", (0.0, 60.0)))
    assert reference.name == "time stamps of nfs4 box:/x"
    assert 0.011 < reference.error < 0.05
    assert reference.alignments["b"].distance(30) - reference.alignments["a"].distance(30) == pytest.approx(
        3, abs=1e-6
    )


def test_a_stamp_of_another_server_is_none():
    records = {
        name: ClockRecord([(0.0, 1e9, None)], [(f"nfs4 {name}", of_stamp(0, 1e9, 0.01, 0.1))])
        for name in "ab"
    }
    assert common_reference(records, dict.fromkeys("ab", (0.0, 60.0))).alignments["b"].error == math.inf


def test_a_barrier_bounds_clocks_by_how_long_the_last_one_stayed():
    # b is 1000 s ahead. a enters at 10, b at 12 (its 1012); both leave by 12.01.
    records = {"a": ClockRecord([(0.0, 1e9, None)], []), "b": ClockRecord([(0.0, 2e9, None)], [])}
    reference = common_reference(
        records, {"a": (9.0, 13.0), "b": (1009.0, 1013.0)}, {"a": [(10.0, 12.01)], "b": [(1012.0, 1012.01)]}
    )
    assert reference.name == "barriers"
    truth = 1e9 - 1000
    assert abs(reference.alignments["b"].distance(1012.0) - truth) <= reference.alignments["b"].error


def test_a_persons_word_counts():
    records = {name: ClockRecord([(0.0, 1e9, None)], []) for name in "ab"}
    reference = common_reference(records, dict.fromkeys("ab", (0.0, 10.0)), wall_error=0.2)
    assert reference.error == pytest.approx(0.1 + DRIFT * 10, abs=1e-6)


def test_a_clock_that_drifts_and_is_stepped_stays_within_its_error():
    lot = random.Random(1)
    for _ in range(300):
        drift, moments = (
            lot.uniform(-DRIFT, DRIFT),
            sorted(lot.uniform(0, HOUR) for _ in range(lot.randint(1, 6))),
        )
        true = lambda m, drift=drift: 1e9 + drift * m  # noqa: E731 - how far the reference is ahead
        distances = []
        for moment in moments:
            error = lot.uniform(0, 0.5)
            middle = true(moment) + lot.uniform(-error, error)
            distances.append(Distance(moment, middle - error, middle + error))
        begin, end = sorted((lot.uniform(0, HOUR), lot.uniform(0, HOUR)))
        alignment = aligned(distances, begin, end)
        for step in range(50):
            moment = begin + (end - begin) * step / 49
            assert abs(alignment.distance(moment) - true(moment)) <= alignment.error + 1e-6


def test_nothing_known_is_an_infinite_error():
    assert aligned([], 0, 1) == Alignment((0.0,), (0.0,), math.inf)
