"""Sums of ranks, against courses of memory whose truth is known at every instant."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from otel_memwatch.model import Column
from otel_memwatch.record.samples import Samples
from otel_memwatch.record.schema import FIELDS
from otel_memwatch.run.cgroup_bounds import CgroupBounds
from otel_memwatch.run.conditions import RunConditions
from otel_memwatch.truth.faults import gained
from otel_memwatch.truth.ranks import Bins, Bound, Windows, held_through, in_bins
from otel_memwatch.wings.ranks.groups import find_group
from otel_memwatch.wings.ranks.host_sums import _of_group, _of_ledger
from tests.support.rank_runs import Clock, Course, largest_sum, rank_run
from tests.support.run_directory import MIB, STARTED, description


def _course(lot, begin, *, hold=(1.0, 4.0)):
    """A program: small, then a peak that it holds, now and then a blip, then less."""
    moments, sizes = [begin], [lot.randint(5, 40) * MIB]
    for _ in range(lot.randint(1, 3)):
        moments.append(moments[-1] + lot.uniform(0.2, 1.5))
        sizes.append(lot.randint(100, 900) * MIB)
        moments.append(moments[-1] + lot.uniform(*hold))
        sizes.append(lot.randint(5, 60) * MIB)
    moments.append(moments[-1] + lot.uniform(0.1, 1.0))
    return Course(moments, [*sizes, 0])


def _windows(course, lot, interval=0.1):
    """Windows as samples of a course give them."""
    times = np.arange(course.moments[0] + lot.uniform(0.001, interval), course.moments[-1], interval)
    times = np.append(times, course.moments[-1])
    begins = np.concatenate(([course.moments[0]], times[:-1]))
    held = np.array([float(course.at(time)) for time in times])
    faults = np.array([course.gained(time) / 4096 for time in times])
    high = np.array([float(course.most(*pair)) for pair in zip(begins, times, strict=True)])
    low = np.minimum(held_through(held, faults, 4096), high)
    return Windows(begins, times, low, high, held)


def _bounds(runs, bins):
    total = Bound(np.zeros(bins.number), np.zeros(bins.number))
    for windows in runs:
        total = total.plus(in_bins(windows, bins))
    return float(total.low.max()), float(total.high.max())


@pytest.mark.parametrize("trials", [100, pytest.param(1000, marks=pytest.mark.thorough)])
def test_the_range_holds_the_truth_in_all_trials(trials):
    lot, wide = random.Random(18), 0
    for number in range(trials):
        courses = [_course(lot, lot.uniform(0, 3)) for _ in range(8)]
        low, high = _bounds([_windows(course, lot) for course in courses], Bins(-6.0, 0.025, 1400))
        truth = largest_sum(courses)
        assert low <= truth <= high, (number, low, truth, high)
        wide += high - low > 0.5 * truth
    assert wide < 0.6 * trials  # a trivial range would hold the truth as well


def test_the_range_is_narrow_if_peaks_are_held_together():
    lot, widths = random.Random(7), []
    for _ in range(100):
        # Peaks of different sizes, staggered, that all are held at one time.
        courses = [
            Course(
                [0.1 * rank, 1.0 + 0.3 * rank, 6.0 + 0.2 * rank, 8.0],
                [10 * MIB, lot.randint(200, 900) * MIB, 20 * MIB, 0],
            )
            for rank in range(8)
        ]
        low, high = _bounds([_windows(course, lot) for course in courses], Bins(-1.0, 0.025, 400))
        truth = largest_sum(courses)
        assert low <= truth <= high
        widths.append((high - low) / truth)
    assert max(widths) <= 0.02


def test_what_a_run_holds_and_did_not_gain_it_held_all_the_time():
    held, faults = (
        np.array([10.0, 100.0, 100.0, 100.0, 90.0]) * MIB,
        np.array([0, 23040, 23040, 23040, 23040.0]),
    )
    # The faults up to the tick after the window count, and those since the one before it.
    assert held_through(held, faults, 4096).tolist() == [0, 10 * MIB, 10 * MIB, 100 * MIB, 90 * MIB]


def test_nothing_is_certain_where_something_is_not_known():
    nan = float("nan")
    assert held_through(np.array([5.0, nan, 5.0]), np.array([0.0, 0.0, nan]), 1).tolist() == [5.0, 0.0, 0.0]
    assert held_through(np.array([]), np.array([]), 1).tolist() == []


def test_bins_hold_the_extremes_of_all_windows_that_touch_them():
    windows = Windows(
        *(
            np.array(values)
            for values in ([0.0, 1.0, 2.5], [1.0, 2.5, 9.0], [4, 5, 6.0], [8, 9, 7.0], [0, 0, 0.0])
        )
    )
    bound = in_bins(windows, Bins(-1.0, 1.0, 12))
    assert bound.high.tolist() == [0, 8, 9, 9, 7, 7, 7, 7, 7, 7, 7, 0]
    assert bound.low.tolist() == [0, 0, 4, 5, 6, 6, 6, 6, 6, 6, 0, 0]


@pytest.mark.parametrize("alive", [0, 2, None])
@pytest.mark.parametrize("seed", range(3))
def test_windows_of_a_control_group_are_those_of_the_rule_of_certainty(seed, alive):
    lot = random.Random(seed)
    conditions = RunConditions.of({**description(), "fault_bytes": 4096})
    number = 50
    metrics = {
        "usage": [lot.randint(0, 900) * MIB for _ in range(number)],
        "window": [lot.choice((None, lot.randint(0, 900) * MIB)) for _ in range(number)],
        "gap": [lot.choice((0, 0, 0.01, None)) for _ in range(number)],
        "watermark": sorted(lot.randint(0, 900) * MIB for _ in range(number)),
        "file": [lot.choice((None, *[lot.randint(0, 300) * MIB] * 9)) for _ in range(number)],
        "locked": [lot.choice((0, 3 * MIB)) for _ in range(number)],
        "anon": [lot.randint(0, 500) * MIB for _ in range(number)],
        "cgroup_faults": sorted(lot.randint(0, 9999) for _ in range(number)),
        "moved": sorted(lot.randint(0, 500) * MIB for _ in range(number)),
        "faults": sorted(lot.randint(0, 9999) for _ in range(number)),
        "processes": [lot.choice((0, 1, 3, None)) for _ in range(number - 1)] + [alive],
    }
    metrics["moved"][number // 2] = None
    samples = _samples(metrics)
    _, high, _ = _of_group(samples, conditions)
    bounds = CgroupBounds(conditions)
    wanted = [found.high for one in samples.each(STARTED) if (found := bounds.add(one)) is not None]
    wanted += [found.high for found in bounds.rest(all_ended=alive == 0)]
    assert high.tolist() == pytest.approx([math.nan if v is None else v for v in wanted], nan_ok=True)


def _samples(fields):
    """Samples of a column for each field."""
    values = {
        Column(FIELDS[name][0]): np.array([np.nan if v is None else v for v in given], float)
        for name, given in fields.items()
    }
    return Samples(np.arange(1.0, 1.0 + len(next(iter(values.values())))), list(values), values)


@pytest.mark.parametrize("seed", range(3))
def test_windows_of_page_faults_are_those_of_the_rule_of_certainty(seed):
    lot, number = random.Random(seed), 50
    conditions = RunConditions.of({**description(), "page_bytes": 4096})
    unseen: list[int | None] = sorted(lot.randint(0, 9999) for _ in range(number))
    high = [lot.choice((None, *[lot.randint(0, 900) * MIB] * 5)) for _ in range(number)]
    for index in lot.sample(range(number), 5):
        unseen[index] = None
    empty = dict.fromkeys(("needed_low", "faults", "needed", "rss"), [0] * number)
    _, windows, _ = _of_ledger(_samples({"needed_high": high, "unseen_faults": unseen, **empty}), conditions)
    for index in range(number):
        before = unseen[index - 1] if index else 0
        after = unseen[min(index + 1, number - 1)]
        if None in (high[index], before, after):
            assert np.isnan(windows[index])
        else:
            assert windows[index] == high[index] + gained(after - before, page=4096)


@pytest.mark.parametrize("hosts", [1, 4])
def test_records_of_eight_ranks_hold_the_truth_in_all_trials(tmp_path, hosts):
    """The truth is the largest sum on one host, and the sum of the hosts' largest sums on several."""
    lot = random.Random(3)
    for trial in range(25):
        # Wall clocks may be wrong by any amount: nothing depends on them.
        clocks = [
            Clock(f"boot-{host}", lot.uniform(-5, 5), monotonic=lot.uniform(0, 1e6)) for host in range(hosts)
        ]
        courses = [_course(lot, lot.uniform(0, 3)) for _ in range(8)]
        home = tmp_path / str(trial)
        for rank, course in enumerate(courses):
            rank_run(home / f"r{rank}", course, rank=rank, size=8, clock=clocks[rank % hosts], lot=lot)
        group = find_group(str(home))
        peak = group.together.peak
        truth = sum(largest_sum(courses[host::hosts]) for host in range(hosts))
        assert peak.low <= truth <= peak.high, (trial, peak, truth)
        assert group.missing == ()
