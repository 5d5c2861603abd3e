"""What page faults tell from tick to tick."""

from __future__ import annotations

import itertools
import random
from array import array
from pathlib import Path

import pytest

from otel_memwatch.record.schema import Sample, whole_of
from otel_memwatch.run.cgroup_bounds import CgroupWindow
from otel_memwatch.run.conditions import RunConditions
from otel_memwatch.run.ledger_bounds import LedgerBounds, LedgerWindows
from otel_memwatch.run.operations import OperationContext, figures_between
from otel_memwatch.run.results import Peaks
from otel_memwatch.run.sample_history import SampleHistory
from otel_memwatch.run.sample_series import CgroupHistory, SampleSeries
from otel_memwatch.run.tree_bounds import sum_over_time
from tests.support.run_directory import MIB, STARTED, RunDirectory

PAGE = 4096


def test_faults_reported_at_a_tick_and_at_the_next_belong_to_the_window_before_both() -> None:
    bounds = LedgerBounds(PAGE)
    bounds.add_sample(1.0, 10 * MIB, 0)
    bounds.add_sample(2.0, 50 * MIB, 256)
    bounds.add_sample(3.0, 20 * MIB, 512)
    assert bounds.most(None, over=True) == 53 * MIB


def test_faults_reported_at_the_next_tick_belong_to_it_if_the_record_says_so() -> None:
    """Its bound is not below that of the tick before, where they may have been before that; unknown, they may be anywhere."""
    bounds = LedgerBounds(PAGE, carried=True)
    bounds.add_sample(1.0, 10 * MIB, 0)
    bounds.add_sample(2.0, 50 * MIB, 256)
    bounds.add_sample(3.0, 20 * MIB, 512)
    assert bounds.most(None, over=True) == 51 * MIB
    bounds.add_sample(4.0, 20 * MIB, None)
    assert bounds.most(None, over=True) is None
    assert bounds.most(sum_over_time([(2.5, 9.0, 70 * MIB)]), over=True) == 70 * MIB


def test_a_window_of_which_nothing_is_known_is_bounded_by_the_processes_in_it() -> None:
    bounds = LedgerBounds(PAGE)
    for time, high in ((1.0, 10 * MIB), (2.0, None), (3.0, 20 * MIB), (4.0, 0)):
        bounds.add_sample(time, high, 0)
    assert bounds.most(None, over=True) is None
    assert bounds.most(sum_over_time([(1.5, 2.5, 70 * MIB), (3.5, 9.0, 900 * MIB)]), over=True) == 70 * MIB


def test_nothing_is_certain_after_the_last_tick_of_a_tree_that_lives() -> None:
    bounds = LedgerBounds(PAGE)
    bounds.add_sample(1.0, 10 * MIB, 0)
    assert bounds.most(None, over=False) is None
    assert bounds.most(sum_over_time([(0.0, 2.0, 30 * MIB)]), over=False) == 30 * MIB
    assert LedgerBounds(PAGE).most(None, over=True) is None


def test_the_windows_in_which_the_first_process_began_or_ended() -> None:
    bounds = LedgerBounds(PAGE, carried=True)
    assert bounds.at_edges(over=True) is None
    for time, high, resident in ((1.0, 10, True), (2.0, 90, True), (3.0, 50, False), (4.0, 0, False)):
        bounds.add_sample(time, high * MIB, 256, resident=resident)
    assert bounds.at_edges(over=True) == 51 * MIB
    assert bounds.at_edges(over=False) is None
    bounds.add_sample(5.0, None, 0, resident=False)
    bounds.add_sample(6.0, 0, 0, resident=False)
    assert bounds.at_edges(over=True) is None


@pytest.mark.parametrize("read_at", [0, 2])
def test_what_shares_tell_at_one_tick_corrects_the_guess_of_the_others(read_at: int) -> None:
    bounds = LedgerBounds(PAGE)
    for tick, guess in enumerate((200 * MIB, 100 * MIB, 160 * MIB)):
        bounds.add_guess(float(tick), guess, guess // 2 if tick == read_at else None)
    assert bounds.estimate.value == 100 * MIB
    assert bounds.low.value == (100 if read_at == 0 else 80) * MIB


def test_shares_that_give_no_correction_change_no_guess() -> None:
    """They lack those of a child born meanwhile."""
    bounds = LedgerBounds(PAGE)
    bounds.add_guess(1.0, 25 * MIB, 6 * MIB, has_factors=True)
    assert (bounds.estimate.value, bounds.low.value) == (25 * MIB, 6 * MIB)


def test_a_factor_corrects_the_guesses_since_the_reading_before() -> None:
    bounds = LedgerBounds(PAGE)
    for tick, (guess, factor) in enumerate(((100, 1.2), (200, None), (150, 0.5), (110, None))):
        bounds.add_guess(float(tick), guess * MIB, None if factor is None else 90 * MIB, factor)
    assert bounds.estimate.value == 125 * MIB
    bounds.add_guess(9.0, 260 * MIB, None)
    assert bounds.estimate.value == 185 * MIB


def _samples(choose: random.Random) -> list[Sample]:
    """A random record of the ledger: some readings are unknown, some take long."""
    found, time, faults = [], STARTED, 0
    for _ in range(choose.randrange(2, 9)):
        time += choose.choice((0.001, 0.1, 0.3))
        faults += choose.choice((0, 0, 100, 3000))
        found.append(
            Sample(
                time,
                needed_high=choose.choice((None, *(choose.randrange(200) * MIB for _ in range(9)))),
                unseen_faults=choose.choice((None, *[faults] * 9)),
                processes=choose.choice((None, 1, 1, 2)),
                unseen=0,
                reading=choose.choice((None, 0.05)),
            )
        )
        time += found[-1].reading or 0
    return found


@pytest.mark.parametrize("carried", [False, True])
def test_operations_that_cover_the_run_reach_its_bound(carried: bool, tmp_path: Path) -> None:
    conditions = RunConditions.of(RunDirectory(tmp_path, own_cgroup=None).info)
    for seed in range(300):
        choose = random.Random(seed)
        run, windows, faults = LedgerBounds(PAGE, carried=carried), LedgerWindows(conditions), 0
        samples = [sample for sample in _samples(choose) if sample.processes is not None]
        known = []
        for sample in samples:
            total = whole_of(sample.unseen_faults)
            run.add_sample(
                sample.time, whole_of(sample.needed_high), None if total is None else total - faults
            )
            faults = faults if total is None else total
            known.append(windows.add(sample))
        history = CgroupHistory.of(
            window for window in (*known, *windows.rest(all_ended=True)) if window is not None
        )
        whole = run.most(None, over=True)
        if whole is None:
            continue
        end = samples[-1].time
        moments = sorted([STARTED, end, *(choose.uniform(STARTED, end) for _ in range(choose.randrange(6)))])
        parts = [history.most(*part, later=1) for part in itertools.pairwise(moments)]
        assert None in parts or max(part for part in parts if part is not None) >= whole, seed


def test_an_unseen_process_may_be_reported_one_sample_late(tmp_path: Path) -> None:
    """The first sample came after the command's end. The supervisor reported it, with its children, during that sample."""
    conditions = RunConditions.of(RunDirectory(tmp_path, own_cgroup=None).info)
    history = SampleHistory(conditions)
    for time, unseen in ((0.5, 0), (0.6, 3), (0.7, 3), (0.8, 4), (0.9, 4)):
        history.add(Sample(STARTED + time, processes=0, unseen=unseen))
    spans = history.series(all_ended=True).unseen_spans()
    assert [(round(span.start - STARTED, 3), span.unseen_count) for span in spans] == [(0, 3), (0.6, 1)]
    counted = SampleSeries(
        array("d", [0.5, 0.6, 0.7, 0.8, 0.9]),
        array("d", [0, 3, 3, 4, 4]),
        array("d", [0.51, 0.61, 0.71, 0.81, 0.91]),
    )
    assert counted.rises(0.0) == [(0.0, 0.61, 3), (0.6, 0.81, 1)]


@pytest.mark.parametrize(("resident_after", "expected"), [(8, 8), (0, 30)])
def test_the_end_of_a_lone_process_may_be_reported_one_sample_late(
    resident_after: int, expected: int, tmp_path: Path
) -> None:
    """Its last page faults are then in the next window. Nothing is reported about a process that lives."""
    conditions = RunConditions.of(RunDirectory(tmp_path, own_cgroup=None).info)
    history = SampleHistory(conditions)
    for time, resident, high in ((0.1, 8, 8), (0.2, resident_after, 8), (0.3, 0, 30)):
        seen = Sample(STARTED + time, main=resident * MIB or None, processes=1, needed_low=0, needed=0)
        history.add(seen._replace(needed_high=high * MIB, unseen_faults=0))
    series = history.series(all_ended=True)
    context = OperationContext(
        conditions,
        series,
        processes={},
        sums=None,
        have_left=False,
        end=STARTED + 0.3,
        watched_until=STARTED + 0.3,
        by_faults=True,
        alone_until=series.main.last_positive(),
    )
    figures = figures_between(STARTED + 0.12, STARTED + 0.18, "Load", context, Peaks())
    assert figures.tree_peak is not None
    assert figures.tree_peak.high == expected * MIB


def _history(*highs: int | None) -> CgroupHistory:
    return CgroupHistory.of(
        CgroupWindow(number, number + 1.0, number + 1.01, None, None if high is None else high * MIB)
        for number, high in enumerate(highs)
    )


def test_a_late_report_about_an_orphan_counts_in_the_operation_before_it() -> None:
    """The next sample's bound includes an orphan of 60 MiB that no sample saw. Both samples found one process."""
    history = _history(10, 70, 12)
    assert history.most(0.2, 0.4, later=1) == 70 * MIB
    assert history.most(0.2, 0.4) == 10 * MIB
    assert history.most(1.5, 2.9, later=1) == 70 * MIB


def test_an_unknown_window_explains_no_memory() -> None:
    assert _history(10, None, 12).highest == 12 * MIB
    assert _history(None).highest == 0


def test_nothing_bounds_an_operation_after_the_last_sample() -> None:
    assert _history(10, 70).most(2.005, 9.0) == 70 * MIB
    assert _history(10, 70).most(2.02, 9.0) is None
