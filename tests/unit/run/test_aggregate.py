"""What is said of a run's peaks is true, and says how surely it is known."""

from __future__ import annotations

import math
import sys
import threading
import tracemalloc
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_memwatch.model import (
    Certainty,
    Column,
    Evidence,
    Peak,
    ProcessEvent,
    ProcessNote,
    ProcessRecord,
    Value,
)
from otel_memwatch.record.operation_line import line_of
from otel_memwatch.record.operation_lines import OperationLines
from otel_memwatch.record.schema import sample_maker
from otel_memwatch.run import RunAggregator
from tests.support.run_directory import MIB, PID, STARTED, column, description

EPS = 256 * 1024
FLOOR = 10 * MIB


class Tally(RunAggregator):
    """An aggregator that knows its columns."""

    def __init__(self, columns: Sequence[Column], info: Mapping[str, Any]) -> None:
        super().__init__(columns, info)
        self.columns = columns


def tally_of(*columns: Column, **fields: object) -> Tally:
    return Tally(columns, description(**fields))


def tick(tally: Tally, seconds: float, *values: Value, missed: int = 0) -> None:
    tally.add(sample_maker(tally.columns)((STARTED + seconds, *values)), missed)


def seen(tally: Tally, pid: int, start: float, **fields: object) -> None:
    tally.process(ProcessRecord(ProcessEvent.SEEN, STARTED + start, pid, STARTED + start, **fields))  # type: ignore[arg-type]


def figures(tally: Tally, pid: int, start: float, at: float, **fields: object) -> None:
    tally.process(ProcessRecord(ProcessEvent.FIGURES, STARTED + at, pid, STARTED + start, **fields))  # type: ignore[arg-type]


def ended(tally: Tally, pid: int, start: float, at: float, **fields: object) -> None:
    tally.process(ProcessRecord(ProcessEvent.EXIT, STARTED + at, pid, STARTED + start, **fields))  # type: ignore[arg-type]


def low_of_tree(tally: Tally) -> int | None:
    tree = tally.peaks().tree
    return None if tree is None else tree.low


def contains(peak: Peak | None, truth: int) -> bool:
    if peak is None:
        return False
    return (peak.low is None or peak.low <= truth) and (peak.high is None or truth <= peak.high)


class TestOneProcess:
    def test_its_watermark_reached_what_wait4_reported(self) -> None:
        tally = tally_of()
        seen(tally, PID, 0, rss=5 * MIB, peak=5 * MIB)
        figures(tally, PID, 0, 0.7, rss=20 * MIB, peak=300 * MIB)
        ended(tally, PID, 0, 0.9, peak=300 * MIB, peak_bound=300 * MIB, exit_code=0)
        peaks = tally.peaks()
        for peak in (peaks.main, peaks.process):
            assert peak is not None
            assert (peak.bytes, peak.certainty, peak.at, peak.pid) == (300 * MIB, Certainty.EXACT, 0.7, PID)
        tree = peaks.tree
        assert tree is not None
        assert peaks.main is not None
        # Nothing reports its kernel memory, nor of files in memory that it had between two ticks.
        assert (tree.certainty, tree.estimate, tree.at, tree.pid) == (Certainty.INTERVAL, 300 * MIB, 0.7, PID)
        assert (tree.low, tree.high) == (peaks.main.low, peaks.main.high)

    def test_it_grew_after_its_watermark_was_last_read(self) -> None:
        tally = tally_of()
        seen(tally, PID, 0, rss=5 * MIB, peak=5 * MIB)
        ended(tally, PID, 0, 0.9, peak=5 * MIB, peak_bound=300 * MIB, exit_code=0)
        main = tally.peaks().main
        assert main is not None
        assert (main.bytes, main.certainty, main.how) == (300 * MIB, Certainty.EXACT, "wait4")
        tree = tally.peaks().tree
        assert tree is not None
        assert (tree.low, tree.high, tree.certainty) == (main.low, main.high, Certainty.INTERVAL)

    def test_what_wait4_reported_may_be_a_descendants(self) -> None:
        tally = tally_of(column("memwatch.tree.unobserved"))
        seen(tally, PID, 0, rss=5 * MIB, peak=5 * MIB)
        tick(tally, 0.1, 0)
        tick(tally, 0.2, 1)
        ended(tally, PID, 0, 0.9, peak=5 * MIB, peak_bound=300 * MIB, exit_code=0)
        main, process, tree, *_ = tally.peaks()
        assert main is not None
        assert process is not None
        assert tree is not None
        assert (main.certainty, main.low, main.high) == (Certainty.INTERVAL, 5 * MIB, 300 * MIB)
        assert (process.certainty, process.bytes, process.pid) == (Certainty.EXACT, 300 * MIB, None)
        # The target could have had 300 MiB at its side: both together is the bound.
        assert (tree.low, tree.high) == (300 * MIB - EPS, 600 * MIB + 2 * EPS)

    def test_a_childless_process_had_what_wait4_reported(self) -> None:
        tally = tally_of(column("memwatch.tree.unobserved"))
        seen(tally, PID, 0, rss=5 * MIB, peak=5 * MIB)
        tick(tally, 0.1, 3)
        ended(
            tally,
            PID,
            0,
            0.9,
            peak=5 * MIB,
            peak_bound=300 * MIB,
            max_rss=300 * MIB,
            childless=True,
            exit_code=0,
        )
        main = tally.peaks().main
        assert main is not None
        assert (main.certainty, main.bytes, main.at) == (Certainty.EXACT, 300 * MIB, 0.9)

    def test_not_above_the_launchers_own_maximum(self) -> None:
        tally = tally_of()
        ended(tally, PID, 0, 0.01, peak_bound=8 * MIB, max_rss=8 * MIB, childless=True, exit_code=0)
        first = tally.peaks()[:3]
        assert len(first) == 3
        for peak in first:
            assert isinstance(peak, Peak)
            assert (peak.certainty, peak.high, peak.low) == (Certainty.CENSORED, FLOOR, None)

    def test_a_watermark_below_the_floor_is_true_all_the_same(self) -> None:
        tally = tally_of()
        seen(tally, PID, 0, rss=2 * MIB, peak=3 * MIB)
        ended(tally, PID, 0, 0.5, peak=8 * MIB, peak_bound=8 * MIB, exit_code=0)
        assert tally.peaks().main == Peak.exact(
            8 * MIB, EPS, at=0.5, pid=PID, evidence=(Evidence.PROCESS_PEAK,)
        )

    def test_still_running(self) -> None:
        tally = tally_of(column("process.memory.usage"), column("memwatch.process.memory.peak"))
        seen(tally, PID, 0, rss=5 * MIB, peak=5 * MIB)
        tick(tally, 0.1, 6 * MIB, 60 * MIB)
        tick(tally, 0.2, 6 * MIB, 60 * MIB)
        main = tally.peaks().main
        assert main is not None
        assert (main.certainty, main.low, main.high, main.at) == (Certainty.INTERVAL, 60 * MIB, None, 0.1)
        assert low_of_tree(tally) == 60 * MIB

    def test_alive_when_the_recording_ends(self) -> None:
        tally = tally_of()
        seen(tally, PID, 0, rss=5 * MIB, peak=5 * MIB)
        figures(tally, PID, 0, 0.9, rss=5 * MIB, peak=70 * MIB, note="alive at the end")
        main, process, tree, *_ = tally.peaks()
        for peak in (main, process):
            assert isinstance(peak, Peak)
            assert (peak.certainty, peak.bytes) == (Certainty.EXACT, 70 * MIB)
        assert isinstance(tree, Peak)
        assert (tree.certainty, tree.estimate) == (Certainty.INTERVAL, 70 * MIB)

    def test_nothing_known(self) -> None:
        tally = tally_of()
        assert tally.peaks() == tally.peaks()._replace(main=None, process=None, tree=None, cgroup=None)
        assert tally.totals() == dict.fromkeys(tally.totals())
        assert tally.quality()["achieved_hz"] is None


class TestJoinedLater:
    def test_an_old_watermark_is_no_more_than_a_bound(self) -> None:
        tally = tally_of(monitor={"mode": "attach"})
        seen(tally, PID, -100, rss=50 * MIB, peak=900 * MIB)
        figures(tally, PID, -100, 0.9, rss=60 * MIB, peak=900 * MIB, note="alive at the end")
        first = tally.peaks()[:3]
        assert len(first) == 3
        for peak in first:
            assert isinstance(peak, Peak)
            assert (peak.certainty, peak.low, peak.high) == (Certainty.INTERVAL, 60 * MIB, 900 * MIB)

    def test_one_that_rises_is_exact(self) -> None:
        tally = tally_of(monitor={"mode": "attach"})
        seen(tally, PID, -100, rss=50 * MIB, peak=900 * MIB)
        figures(tally, PID, -100, 0.9, rss=60 * MIB, peak=950 * MIB, note="alive at the end")
        main = tally.peaks().main
        assert main is not None
        assert (main.certainty, main.bytes) == (Certainty.EXACT, 950 * MIB)

    def test_a_process_that_ended_unseen_has_no_bound(self) -> None:
        tally = tally_of(monitor={"mode": "attach"})
        seen(tally, PID, -100, rss=50 * MIB, peak=50 * MIB)
        seen(tally, 5000, 0.2, rss=80 * MIB, peak=80 * MIB)
        ended(tally, 5000, 0.2, 0.4, peak=80 * MIB)
        figures(tally, PID, -100, 0.9, rss=50 * MIB, peak=50 * MIB, note="alive at the end")
        peaks = tally.peaks()
        assert peaks.process is not None
        assert peaks.tree is not None
        assert (peaks.process.certainty, peaks.process.low, peaks.process.high) == (
            Certainty.INTERVAL,
            80 * MIB,
            None,
        )
        assert (peaks.tree.low, peaks.tree.high) == (80 * MIB, None)

    @pytest.mark.parametrize("mode", ["attach", "watch"])
    def test_totals_are_those_of_the_recorded_time(self, mode: str) -> None:
        counters = (
            column("memwatch.tree.cpu.time", cpu__mode="user"),
            column("memwatch.tree.cpu.time", cpu__mode="system"),
            column("memwatch.tree.disk.io", disk__io__direction="write"),
            column("memwatch.tree.paging.faults", system__paging__fault__type="major"),
        )
        tally = tally_of(*counters, monitor={"mode": mode})
        tick(tally, 0.1, 3600.5, 40.0, None, 900)
        tick(tally, 0.2, 3600.5, 40.0, 500, None)
        before = tally.totals()
        assert (before["cpu_seconds"], before["write_bytes"], before["major_faults"]) == (0, 0, 0)
        tick(tally, 0.3, 3601.0, 40.25, 700, 907)
        totals = tally.totals()
        assert (totals["cpu_seconds"], totals["write_bytes"], totals["major_faults"]) == (0.75, 200, 7)
        assert totals["read_bytes"] is None


class TestAlone:
    """When the tree was one process."""

    def test_between_the_workers_and_short_lived_processes(self) -> None:
        tally = tally_of(column("memwatch.tree.process.count"), column("memwatch.tree.unobserved"))
        evidence = tally._evidence
        seen(tally, PID, 0, rss=MIB)
        assert evidence.alone(-math.inf, math.inf)
        seen(tally, 5000, 0.2, rss=MIB)
        ended(tally, 5000, 0.2, 0.4)
        for time, unseen in ((0.1, 0), (0.5, 0), (0.55, 0), (0.6, 1), (0.7, 1), (30.0, 1)):
            tick(tally, time, 1, unseen)
        alone = [(0.0, 0.1), (0.45, 0.49), (0.65, 0.7), (15.0, 20.0)]
        together = [(-math.inf, math.inf), (0.1, 0.3), (0.3, 0.45), (0.5, 0.6)]
        for begin, end in (*alone, *together):
            assert evidence.alone(STARTED + begin, STARTED + end) == ((begin, end) in alone)

    def test_not_known_where_spans_are_merged_or_the_tree_was_not_read(self) -> None:
        tally = tally_of(column("memwatch.tree.process.count"))
        seen(tally, PID, 0, rss=MIB)
        tally.processes.ended_spans.merged_until = STARTED + 5
        assert not tally._evidence.alone(STARTED + 4, STARTED + 6)
        assert tally._evidence.alone(STARTED + 6, STARTED + 7)
        tick(tally, 7.0, None)
        assert not tally._evidence.alone(STARTED + 6, STARTED + 7)


class TestTree:
    def test_processes_one_after_the_other_are_not_added(self) -> None:
        tally = tally_of()
        seen(tally, PID, 0, rss=20 * MIB, peak=20 * MIB)
        for place in range(5):
            start = 0.1 + place * 0.1
            seen(tally, 5000 + place, start, rss=MIB, peak=100 * MIB)
            ended(tally, 5000 + place, start, start + 0.05, peak=100 * MIB)
        ended(tally, PID, 0, 0.9, peak=20 * MIB, peak_bound=100 * MIB, exit_code=0)
        tree = tally.peaks().tree
        assert tree is not None
        assert (tree.certainty, tree.low) == (Certainty.INTERVAL, 100 * MIB - EPS)
        # The target itself could have had the 100 MiB that wait4 reported.
        assert tree.high == 200 * MIB + 2 * EPS

    def test_the_sum_of_resident_sizes_is_no_lower_bound(self) -> None:
        tally = tally_of(column("memwatch.tree.memory.usage"), column("memwatch.tree.memory.pss", 5.0))
        for pid in (PID, 5000, 5001):
            seen(tally, pid, 0, rss=512 * MIB, peak=512 * MIB)
        tick(tally, 0.1, 3 * 512 * MIB, None)
        assert low_of_tree(tally) == 512 * MIB
        tick(tally, 0.2, 3 * 512 * MIB, 540 * MIB)
        assert low_of_tree(tally) == 540 * MIB
        for pid in (5001, 5000, PID):
            ended(tally, pid, 0, 0.9, peak=512 * MIB, peak_bound=512 * MIB, exit_code=0)
        tree = tally.peaks().tree
        assert tree is not None
        assert (tree.low, tree.high, tree.at) == (540 * MIB, 3 * (512 * MIB + EPS), 0.2)

    def test_a_process_no_process_waits_for_takes_the_bound_away(self) -> None:
        tally = tally_of()
        seen(tally, PID, 0, rss=20 * MIB, peak=20 * MIB)
        seen(tally, 5000, 0.1, rss=MIB, peak=MIB)
        ended(tally, 5000, 0.1, 0.2, peak=MIB, note="nobody waits for it")
        ended(tally, PID, 0, 0.9, peak=20 * MIB, peak_bound=20 * MIB, exit_code=0)
        peaks = tally.peaks()
        assert peaks.process is not None
        assert peaks.tree is not None
        assert peaks.tree.high is None
        assert (peaks.process.certainty, peaks.process.high) == (Certainty.INTERVAL, None)

    def test_what_an_orphan_had_is_no_bound_of_a_target_that_others_waited_for(self) -> None:
        tally = tally_of()
        seen(tally, PID, 0, rss=20 * MIB, peak=20 * MIB)
        seen(tally, 5000, 0.1, rss=MIB, peak=MIB)
        ended(tally, 5000, 0.1, 0.2, peak=MIB, peak_bound=MIB, max_rss=MIB, exit_code=0)
        ended(tally, PID, 0, 0.9, peak=20 * MIB)
        first = tally.peaks()[:3]
        assert len(first) == 3
        for peak in first:
            assert isinstance(peak, Peak)
            assert (peak.low, peak.high) == (20 * MIB, None)

    @pytest.mark.parametrize(("born", "bounded"), [(0.1, True), (0.3, False)])
    def test_a_daemon_keeps_what_it_was_reported_of_its_children(self, born: float, bounded: bool) -> None:
        """Of those that are younger than the daemon, and may be its children, only what was seen is known."""
        tally = tally_of()
        seen(tally, PID, 0, rss=20 * MIB, peak=20 * MIB)
        seen(tally, 5000, 0.2, rss=MIB, peak=MIB)
        seen(tally, 5001, born, rss=2 * MIB, peak=2 * MIB)
        ended(tally, 5001, born, 0.5, peak=2 * MIB)
        ended(tally, PID, 0, 0.9, peak=20 * MIB, peak_bound=20 * MIB, exit_code=0)
        figures(tally, 5000, 0.2, 0.9, rss=MIB, peak=MIB, note="alive at the end")
        peaks = tally.peaks()
        assert peaks.process is not None
        assert peaks.tree is not None
        assert (peaks.process.high is not None) is bounded
        assert (peaks.tree.high is not None) is bounded

    def test_windowed_bounds_are_tighter_than_lifetimes(self) -> None:
        bound, unobserved = column("memwatch.tree.memory.bound"), column("memwatch.tree.unobserved")
        tally = tally_of(bound, unobserved, settings={"exact": True})
        seen(tally, PID, 0, rss=20 * MIB, peak=20 * MIB)
        seen(tally, 5000, 0.0, rss=20 * MIB, peak=20 * MIB)
        for place, value in enumerate((120, 110, 90), 1):
            tick(tally, place / 10, value * MIB, 0)
        ended(tally, 5000, 0, 0.3, peak=100 * MIB, peak_bound=100 * MIB, exit_code=0)
        ended(tally, PID, 0, 0.3, peak=100 * MIB, peak_bound=100 * MIB, exit_code=0)
        tree = tally.peaks().tree
        assert tree is not None
        assert (tree.low, tree.high) == (100 * MIB - EPS, 120 * MIB)

    @pytest.mark.parametrize("where", ["before", "after"])
    def test_outside_the_windows_lifetimes_are_the_bound(self, where: str) -> None:
        bound, living = column("memwatch.tree.memory.bound"), column("memwatch.tree.process.count")
        tally = tally_of(bound, living, settings={"exact": True})
        seen(tally, PID, 0, rss=20 * MIB, peak=20 * MIB)
        tick(tally, 0.05, None if where == "before" else 120 * MIB, 1)
        # This one lives only where no window covers it.
        seen(tally, 5000, 0.02 if where == "before" else 0.45, rss=20 * MIB, peak=20 * MIB)
        if where == "before":
            ended(tally, 5000, 0.02, 0.1, peak=60 * MIB, peak_bound=60 * MIB, exit_code=0)
        tick(tally, 0.2, 120 * MIB, 1)
        for pid in (5001, 5002):
            seen(tally, pid, 0.25, rss=100 * MIB, peak=100 * MIB)
        tick(tally, 0.3, 120 * MIB, 3)
        for pid in (5001, 5002):
            ended(tally, pid, 0.25, 0.35, peak=100 * MIB, peak_bound=100 * MIB, exit_code=0)
        tick(tally, 0.4, 120 * MIB, 1)
        if where == "after":
            ended(tally, 5000, 0.45, 0.5, peak=60 * MIB, peak_bound=60 * MIB, exit_code=0)
        ended(tally, PID, 0, 0.6, peak=100 * MIB, peak_bound=100 * MIB, exit_code=0)
        tree = tally.peaks().tree
        assert tree is not None
        assert tree.high == 160 * MIB + 2 * EPS

    def test_a_tick_without_windowed_bound_leaves_a_hole(self) -> None:
        bound, living = column("memwatch.tree.memory.bound"), column("memwatch.tree.process.count")
        tally = tally_of(bound, living, settings={"exact": True})
        for pid in (PID, 5000):
            seen(tally, pid, 0, rss=20 * MIB, peak=100 * MIB)
        tick(tally, 0.1, 120 * MIB, 2)
        tick(tally, 0.2, None, 2)
        for pid in (5000, PID):
            ended(tally, pid, 0, 0.3, peak=100 * MIB, peak_bound=100 * MIB, exit_code=0)
        tree = tally.peaks().tree
        assert tree is not None
        assert tree.high == 200 * MIB + 2 * EPS

    def test_a_system_without_watermarks_is_sampled(self) -> None:
        tally = tally_of(column("memwatch.tree.memory.usage"), portable=True)
        seen(tally, PID, 0, rss=20 * MIB)
        tick(tally, 0.1, 50 * MIB)
        tick(tally, 0.2, 30 * MIB)
        peaks = tally.peaks()
        assert peaks.tree == Peak.sampled(50 * MIB, at=0.1, evidence=(Evidence.RSS_SUM,))
        assert peaks.main is not None
        assert peaks.main.certainty is Certainty.SAMPLED


@pytest.mark.parametrize(
    ("change", "most"),
    [
        ({}, 110),
        ({"beside": None}, 219),
        ({"peak_bound": None}, 219),  # it resets the watermark
        ({"max_rss": 9 * MIB, "peak": 9 * MIB, "peak_bound": 9 * MIB}, 219),  # it may be the launcher's
        ({"note": ProcessNote.WATERMARK_RESET}, 219),
        ({"company": True}, 219),
        ({"segment": True}, 219),
        # a reset that no sample can have noticed
        ({"first": 150 * MIB}, 150),
        # an exec that no sample can have noticed
        ({"last": 140 * MIB}, 140),
    ],
)
def test_memory_that_one_process_frees_and_takes_again_counts_once(change: dict[str, Any], most: int) -> None:
    names = ("usage", "needed.low", "needed.high", "needed")
    columns = [column(f"memwatch.tree.memory.{name}") for name in names]
    tally = tally_of(
        column("memwatch.tree.process.count"), *columns, column("memwatch.tree.unobserved.faults")
    )
    seen(tally, PID, 0, rss=2 * MIB, peak=2 * MIB)
    if change.pop("company", False):
        seen(tally, PID + 1, 0, rss=2 * MIB, peak=2 * MIB)
    if change.pop("segment", False):
        lines = OperationLines(PID)
        lines.start, lines.largest = STARTED, (5 * MIB, STARTED + 0.1)
        tally.boundaries([lines])
    tick(tally, 0.05, 1, MIB, 0, change.pop("first", 3 * MIB), 0, 0)
    tick(tally, 0.1, 1, 103 * MIB, 103 * MIB, 219 * MIB, 103 * MIB, 0)
    last = change.pop("last", 3 * MIB)
    figures = {"peak": 108 * MIB, "peak_bound": 108 * MIB, "max_rss": 108 * MIB, "exit_code": 0}
    figures |= {"childless": True, "beside": MIB, "max_rss_error": MIB}
    ended(tally, PID, 0, 0.2, **{**figures, **change})
    tick(tally, 0.2, 0, 0, 0, last, 0, 0)
    tree = tally.peaks().tree
    assert tree is not None
    assert tree.high == most * MIB
    assert tree.excluded_bytes == (219 - most) * MIB  # files in memory may have come and gone


class TestTicksWithoutTheTree:
    """Those at which reading it would have cost too much."""

    def test_a_memory_file_that_was_there_at_a_tick_is_in_the_bound(self) -> None:
        """No process has it: what these had in their lives bounds no window of it."""
        names = ("needed.low", "needed.high", "needed")
        columns = [
            column("memwatch.tree.process.count"),
            *(column(f"memwatch.tree.memory.{name}") for name in names),
        ]
        tally = tally_of(*columns, column("memwatch.tree.unobserved.faults"))
        seen(tally, PID, 0, rss=2 * MIB, peak=2 * MIB)
        for second, high in enumerate((3, 103, 103, 3)):
            tick(tally, second, 1, 0, high * MIB, MIB, 0)
            tick(tally, second + 0.5, None, None, None, None, None)
        ended(tally, PID, 0, 4, peak=2 * MIB, peak_bound=2 * MIB, exit_code=0)
        tick(tally, 4, 0, 0, 3 * MIB, 0, 0)
        tree = tally.peaks().tree
        assert tree is not None
        assert tree.high == 103 * MIB

    def test_a_process_without_a_sample_may_have_lived_since_the_last_tick_that_looked(self) -> None:
        """Beside one of 100 MiB that ended before the tick without a living process."""
        names = "process.count", "unobserved", "unobserved.faults"
        tally = tally_of(*(column(f"memwatch.tree.{name}") for name in names), fault_bytes=MIB)
        seen(tally, PID, 0, rss=2 * MIB, peak=2 * MIB)
        seen(tally, PID + 1, 0, rss=2 * MIB, peak=2 * MIB)
        tick(tally, 0.1, 2, 0, 0)
        ended(tally, PID + 1, 0, 1, peak=100 * MIB, peak_bound=100 * MIB, exit_code=0)
        tick(tally, 2, None, None, None)
        tick(tally, 3, 1, 1, 50)
        ended(tally, PID, 0, 4, peak=2 * MIB, peak_bound=2 * MIB, exit_code=0)
        tick(tally, 4, 0, 1, 50)
        tree = tally.peaks().tree
        assert tree is not None
        assert tree.high is not None
        assert 152 * MIB <= tree.high < 160 * MIB

    def test_if_the_tree_was_not_read_at_the_end_it_has_no_upper_bound(self) -> None:
        """The source failed from the second sample on: children may have come, and may live on."""
        tally = tally_of(*(column(f"memwatch.tree.{name}") for name in ("process.count", "unobserved")))
        seen(tally, PID, 0, rss=2 * MIB, peak=2 * MIB)
        tick(tally, 0.1, 1, 0)
        tick(tally, 0.2, None, None)
        ended(
            tally,
            PID,
            0,
            1,
            peak=20 * MIB,
            peak_bound=20 * MIB,
            max_rss=20 * MIB,
            childless=True,
            exit_code=0,
        )
        tick(tally, 1, None, None)
        peaks = tally.peaks()
        assert peaks.tree is not None
        assert peaks.process is not None
        assert peaks.main is not None
        assert (peaks.tree.high, peaks.process.high) == (None, None)
        assert peaks.main.high == 20 * MIB + 256 * 1024


CGROUP = tuple(
    column(f"memwatch.cgroup.memory.{name}") for name in ("usage", "file", "shmem", "kernel", "peak")
)


BATCH = MIB
"""Error of a group's counters on the made-up machine of these tests."""


class TestControlGroup:
    def test_own_group_without_much_cache(self) -> None:
        tally = tally_of(*CGROUP, own_cgroup="/sys/fs/cgroup/x")
        tick(tally, 0.1, 100 * MIB, 0, 0, MIB, 100 * MIB)
        tick(tally, 0.2, 500 * MIB, 2 * MIB, 0, MIB, 502 * MIB)
        tick(tally, 0.3, 5 * MIB, 2 * MIB, 0, MIB, 502 * MIB)
        tree, group = tally.peaks().tree, tally.peaks().cgroup
        assert tree is not None
        assert group is not None
        assert (tree.certainty, tree.low, tree.high, tree.at) == (
            Certainty.EXACT,
            498 * MIB,
            502 * MIB + BATCH,
            0.2,
        )
        assert tree.bytes == 500 * MIB + BATCH // 2
        assert (group.certainty, group.bytes) == (Certainty.EXACT, 502 * MIB)

    @pytest.mark.parametrize(
        ("gap", "certainty", "high"),
        [(0, Certainty.EXACT, 501), (0.001, Certainty.EXACT, 501), (0.1, Certainty.INTERVAL, 2007)],
    )
    def test_a_watermark_that_was_reset_late_may_have_missed_something(
        self, gap: float, certainty: Certainty, high: int
    ) -> None:
        columns = [*CGROUP, *(column(f"memwatch.cgroup.memory.{name}") for name in ("window", "window.gap"))]
        tally = tally_of(*columns, own_cgroup="/sys/fs/cgroup/x")
        tick(tally, 0.1, 100 * MIB, 0, 0, MIB, 100 * MIB, 100 * MIB, gap)
        tick(tally, 0.2, 500 * MIB, 0, 0, MIB, 500 * MIB, 500 * MIB, 0)
        group = tally.peaks().cgroup
        assert group is not None
        assert (group.certainty, group.low is not None and group.low <= 500 * MIB) == (certainty, True)
        assert group.high == pytest.approx(high * MIB, abs=MIB)

    def test_a_watermark_that_is_kept_for_the_group_s_life_has_missed_nothing(self) -> None:
        """That of version 2, however late another descriptor's was reset for the windows."""
        columns = [*CGROUP, *(column(f"memwatch.cgroup.memory.{name}") for name in ("window", "window.gap"))]
        tally = tally_of(*columns, own_cgroup="/sys/fs/cgroup/x", cgroup_version=2)
        tick(tally, 0.1, 100 * MIB, 0, 0, MIB, 100 * MIB, 100 * MIB, 0.1)
        tick(tally, 0.2, 500 * MIB, 0, 0, MIB, 500 * MIB, 500 * MIB, 0)
        tree, group = tally.peaks().tree, tally.peaks().cgroup
        assert tree is not None
        assert group is not None
        assert (group.certainty, group.bytes) == (Certainty.EXACT, 500 * MIB)
        assert (tree.certainty, tree.high) == (Certainty.EXACT, 500 * MIB + BATCH)

    @pytest.mark.parametrize(
        ("change", "low"),
        [
            ({}, 38.5),
            ({"placements": None}, 24),  # an old record
            ({"placements": 20}, 34),
            ({"lives": True}, 24),
            ({"note": ProcessNote.UNREAPED}, 24),
            ({"note": ProcessNote.IGNORES_CHILDREN}, 24),
            (
                {"moved": 2 * MIB},
                34.5,
            ),  # of which all may have been page cache, and not in the figure of it yet
            ({"left": 2 * MIB}, 37),
            ({"faults": (78, 100)}, 38.5),  # 22 before the command entered the cgroup
            ({"faults": (79, 100)}, 24),  # a child that no process waited for, as with SA_NOCLDWAIT
        ],
    )
    def test_a_program_that_few_processors_ran_was_charged_for_little_ahead(
        self, change: dict[str, Any], low: float
    ) -> None:
        """On 64 processors. No sample met its peak of 40 MiB."""
        names = "process.count", "disk.io", "paging.faults"
        columns = [
            *(column(f"memwatch.tree.{name}") for name in names),
            column("memwatch.cgroup.paging.faults"),
        ]
        target = {"pid": PID, "floor": 0, "faults_before": 22}
        group: Any = {
            "own_cgroup": "/sys/fs/cgroup/x",
            "cgroup_version": 2,
            "processors": 64,
            "target": target,
        }
        tally = tally_of(*CGROUP, *columns, **group)
        moved, left, faults = (
            change.pop("moved", 0),
            change.pop("left", MIB // 2),
            change.pop("faults", (78, 100)),
        )
        seen(tally, PID, 0, rss=MIB, peak=MIB)
        tick(tally, 0.1, 2 * MIB, 0, 0, 0, 2 * MIB, 1, 0, 30, 8)
        if not change.pop("lives", False):
            ended(tally, PID, 0, 0.5, **{"peak": MIB, "exit_code": 0, "placements": 2, **change})
        tick(tally, 0.5, left, 0, 0, 0, 40 * MIB, 0, moved, *reversed(faults))
        tree = tally.peaks().tree
        assert tree is not None
        assert (tree.low, tree.high) == (low * MIB, 41 * MIB)

    @pytest.mark.parametrize(
        ("anonymous", "likely"), [(1 * MIB, 2), (100 * MIB, 10.25 * 78)], ids=["single pages", "huge pages"]
    )
    def test_many_other_processes_do_not_widen_what_page_faults_brought(
        self, anonymous: int, likely: float
    ) -> None:
        """A scan beside programs that started 77 processes was advised 284 MiB; it needs 1."""
        columns = [*CGROUP, *map(column, ("memwatch.cgroup.memory.anon", "memwatch.tree.paging.faults"))]
        tally = tally_of(*columns, column("memwatch.tree.unobserved"), own_cgroup="/sys/fs/cgroup/x")
        seen(tally, PID, 0, rss=MIB, peak=MIB)
        tick(tally, 0.1, 200 * MIB, 199 * MIB, 0, 0, 200 * MIB, anonymous, 500, 0)
        tick(tally, 0.2, 257 * MIB, 256 * MIB, 0, 0, 257 * MIB, anonymous, 512, 77)
        ended(tally, PID, 0, 0.3, peak=MIB, peak_bound=10 * MIB, exit_code=0)
        found = tally.processes_high()
        assert found is not None
        assert found / MIB == pytest.approx(likely, rel=0.001)

    def test_page_cache_is_not_need(self) -> None:
        tally = tally_of(*CGROUP, own_cgroup="/sys/fs/cgroup/x")
        seen(tally, PID, 0, rss=20 * MIB, peak=20 * MIB)
        tick(tally, 0.1, 5000 * MIB, 4900 * MIB, 10 * MIB, 5 * MIB, 5000 * MIB)
        tree = tally.peaks().tree
        assert tree is not None
        assert (tree.certainty, tree.low, tree.high) == (Certainty.INTERVAL, 100 * MIB, 5000 * MIB + BATCH)
        # What the processes had, and what ticks saw beside them, bounds no memory file that came and went between two.
        ended(tally, PID, 0, 0.2, peak=110 * MIB, peak_bound=110 * MIB, exit_code=0)
        assert tally.peaks().tree == tree

    @pytest.mark.parametrize(("faults", "estimate"), [(5000, 14.5), (2000, 9)], ids=["memory", "mapped file"])
    def test_a_process_says_how_much_of_a_peak_was_not_cache(self, faults: int, estimate: float) -> None:
        """A database of 14.5 MiB writes 8 MiB at its end. The cache was small at the peak, though large at the next sample."""
        faulted = column("memwatch.tree.paging.faults")
        tally = tally_of(*CGROUP, faulted, own_cgroup="/sys/fs/cgroup/x", page_bytes=4096)
        seen(tally, PID, 0, rss=4 * MIB, peak=4 * MIB)
        tick(tally, 0.1, 4 * MIB, 1 * MIB, 0, 0, 4 * MIB, 100)
        figures(tally, PID, 0, 0.15, rss=9 * MIB, peak=9 * MIB, file=2 * MIB, needed=7 * MIB)
        tick(tally, 0.2, 16 * MIB, 8 * MIB, 0, 0, 17 * MIB, faults)
        ended(tally, PID, 0, 0.3, max_rss=16.5 * MIB, exit_code=0)
        tree = tally.peaks().tree
        assert tree is not None
        assert (tree.certainty, tree.estimate) == (Certainty.INTERVAL, estimate * MIB)

    def test_files_of_a_process_are_not_need_where_the_group_does_not_tell_its_cache(self) -> None:
        """As long as there are groups below the run's own; of a small program on many processors nothing else is certain."""
        tally = tally_of(*CGROUP, own_cgroup="/sys/fs/cgroup/x")
        seen(tally, PID, 0, rss=2 * MIB, peak=2 * MIB)
        tick(tally, 0.1, 60 * MIB, None, None, None, 60 * MIB)
        figures(tally, PID, 0, 0.15, rss=40 * MIB, peak=40 * MIB, file=30 * MIB, needed=10 * MIB)
        tick(tally, 0.2, 60 * MIB, None, None, None, 60 * MIB)
        tree = tally.peaks().tree
        assert tree is not None
        assert (tree.low, tree.high) == (10 * MIB - EPS, 60 * MIB + BATCH)

    @pytest.mark.parametrize(("last", "certainty"), [(900, Certainty.EXACT), (800, Certainty.CENSORED)])
    def test_the_group_around_it(self, last: int, certainty: Certainty) -> None:
        tally = tally_of(*CGROUP)
        tick(tally, 0.1, 100 * MIB, 0, 0, MIB, 800 * MIB)
        tick(tally, 0.2, 100 * MIB, 0, 0, MIB, last * MIB)
        group = tally.peaks().cgroup
        assert group is not None
        assert (group.certainty, group.bytes) == (certainty, last * MIB)
        assert tally.peaks().tree is None


class TestStoppedInTheMiddle:
    """There were no more samples when the run went on: what could have grown since has no upper bound."""

    def in_a_group(self, **fields: object) -> Tally:
        tally = tally_of(*CGROUP, own_cgroup="/sys/fs/cgroup/x", **fields)
        seen(tally, PID, 0, rss=5 * MIB, peak=5 * MIB)
        tick(tally, 0.1, 100 * MIB, 0, 0, MIB, 100 * MIB)
        tick(tally, 0.2, 500 * MIB, 2 * MIB, 0, MIB, 502 * MIB)
        return tally

    def test_the_tree_and_its_group(self) -> None:
        tally = self.in_a_group()
        assert tally.peaks().tree is not None
        assert tally.peaks().tree.certainty is Certainty.EXACT
        peaks = tally.peaks(whole=False)
        assert peaks.tree is not None
        assert (peaks.tree.certainty, peaks.tree.low, peaks.tree.high) == (
            Certainty.INTERVAL,
            498 * MIB,
            None,
        )
        assert peaks.tree.bytes == 498 * MIB
        assert peaks.cgroup is not None
        assert (peaks.cgroup.certainty, peaks.cgroup.low, peaks.cgroup.high) == (
            Certainty.INTERVAL,
            502 * MIB - BATCH,
            None,
        )

    def test_the_tree_even_if_its_end_was_seen(self) -> None:
        tally = self.in_a_group()
        ended(tally, PID, 0, 0.25, peak=5 * MIB, peak_bound=5 * MIB, exit_code=0)
        tick(tally, 0.3, 5 * MIB, 2 * MIB, 0, MIB, 502 * MIB)
        peaks = tally.peaks(whole=False)
        for peak in (peaks.tree, peaks.cgroup):
            assert peak is not None
            assert peak.high is None

    @pytest.mark.parametrize(("last", "low"), [(900, 900 - 1), (800, 70)])
    def test_the_group_around_it(self, last: int, low: int) -> None:
        """Its watermark is of the run if it rose; else only what ticks found in the group is certain."""
        tally = tally_of(*CGROUP)
        tick(tally, 0.1, 100 * MIB, 30 * MIB, 0, MIB, 800 * MIB)
        tick(tally, 0.2, 90 * MIB, 30 * MIB, 0, MIB, last * MIB)
        group = tally.peaks(whole=False).cgroup
        assert group is not None
        assert (group.certainty, group.low, group.high) == (Certainty.INTERVAL, low * MIB, None)

    def test_a_process_that_lives(self) -> None:
        tally = tally_of()
        seen(tally, PID, 0, rss=5 * MIB, peak=5 * MIB)
        figures(tally, PID, 0, 0.7, rss=20 * MIB, peak=300 * MIB)
        first = tally.peaks(whole=False)[:3]
        assert len(first) == 3
        for peak in first:
            assert peak is not None
            assert (peak.certainty, peak.low, peak.high) == (Certainty.INTERVAL, 300 * MIB, None)

    def test_a_process_whose_last_figures_were_taken(self) -> None:
        """They would have been the end of the recording, had it come to an end."""
        tally = tally_of()
        seen(tally, PID, 0, rss=5 * MIB, peak=5 * MIB)
        figures(tally, PID, 0, 0.7, rss=20 * MIB, peak=300 * MIB, note="alive at the end")
        assert tally.peaks().main == Peak.exact(
            300 * MIB, EPS, at=0.7, pid=PID, evidence=(Evidence.PROCESS_PEAK,)
        )
        for process in tally.processes.living:
            process.reopen()
        for peak in tally.peaks(whole=False)[:3]:
            assert peak is not None
            assert (peak.certainty, peak.low, peak.high) == (Certainty.INTERVAL, 300 * MIB, None)

    def test_the_target_that_has_ended(self) -> None:
        """The operation's peak is over. The largest process's is when a tick after that found no living process."""
        tally = tally_of(column("memwatch.tree.memory.usage"))
        seen(tally, PID, 0, rss=5 * MIB, peak=5 * MIB)
        tick(tally, 0.1, 5 * MIB)
        ended(tally, PID, 0, 0.9, peak=300 * MIB, peak_bound=300 * MIB, exit_code=0)
        peaks = tally.peaks(whole=False)
        assert peaks.main is not None
        assert peaks.main.certainty is Certainty.EXACT
        assert peaks.process is not None
        assert peaks.process.high is None
        tick(tally, 0.9, 0)
        peaks = tally.peaks(whole=False)
        assert peaks.process == peaks.main
        assert peaks.tree is not None
        assert (peaks.tree.certainty, peaks.tree.low, peaks.tree.high) == (
            Certainty.INTERVAL,
            300 * MIB - EPS,
            None,
        )

    def test_a_child_that_has_ended_while_the_target_lives(self) -> None:
        """The next one may be larger."""
        tally = tally_of(column("memwatch.tree.memory.usage"))
        seen(tally, PID, 0, rss=5 * MIB, peak=5 * MIB)
        seen(tally, 7, 0.1, rss=5 * MIB, peak=5 * MIB)
        ended(tally, 7, 0.1, 0.5, peak=300 * MIB, peak_bound=300 * MIB, exit_code=0)
        tick(tally, 0.6, 5 * MIB)
        process = tally.peaks(whole=False).process
        assert process is not None
        assert (process.certainty, process.low, process.high) == (Certainty.INTERVAL, 300 * MIB, None)

    def test_what_a_process_reported_after_the_last_tick(self) -> None:
        """Its operations go on without a monitor. Their resident sizes may be pages of files: a mapped file of 191 MiB made
        a tree that needed 6 MiB "at least 202 MiB"."""
        tally = self.in_a_group()
        lines = OperationLines(PID)
        lines.add([line_of({"schema": 1, "pid": PID, "start": STARTED, "exact": True})])
        lines.add(
            [line_of({"open": 1, "time": STARTED + 7.0, "name": "a", "rss": MIB, "segment": 900 * MIB})]
        )
        tally.boundaries([lines])
        _, process, tree, *_ = tally.peaks(whole=False)
        assert process is not None
        assert tree is not None
        assert (process.low, process.high) == (900 * MIB, None)
        assert tree.low is not None
        assert tree.low < 512 * MIB
        assert tree.high is None

    def test_nothing_known(self) -> None:
        peaks = tally_of(*CGROUP, own_cgroup="/sys/fs/cgroup/x").peaks(whole=False)
        assert peaks[:4] == (None, None, None, None)

    def test_a_group_that_cannot_be_read_any_more(self) -> None:
        """The run was recorded to its end, its group was not."""
        tally = self.in_a_group()
        tick(tally, 0.3, None, None, None, None, None)
        ended(tally, PID, 0, 0.9, peak=700 * MIB, peak_bound=700 * MIB, exit_code=0)
        peaks = tally.peaks()
        assert peaks.cgroup is not None
        assert peaks.cgroup.high is None
        assert peaks.tree is not None
        assert peaks.tree.estimate == 700 * MIB
        tick(tally, 1.0, 500 * MIB, 2 * MIB, 0, MIB, 800 * MIB)
        peaks = tally.peaks()
        assert peaks.cgroup is not None
        assert (peaks.cgroup.certainty, peaks.cgroup.bytes) == (Certainty.EXACT, 800 * MIB)


def test_segments_of_a_process_that_resets_the_watermark() -> None:
    lines = OperationLines(PID)
    lines.add([line_of({"schema": 1, "pid": PID, "start": STARTED, "exact": True})])
    lines.add([line_of({"open": 1, "time": STARTED + 0.2, "name": "a", "rss": MIB, "segment": 20 * MIB})])
    closing = {
        "close": 1,
        "time": STARTED + 0.3,
        "segment": 700 * MIB,
        "peak": 700 * MIB,
        "certainty": "exact",
    }
    lines.add([line_of(closing)])
    for when in ("before", "meanwhile", "after"):
        tally = tally_of()
        if when == "before":
            tally.boundaries([lines])
        seen(tally, PID, 0, rss=5 * MIB, peak=5 * MIB)
        if when == "meanwhile":
            tally.boundaries([lines])
        ended(tally, PID, 0, 0.9, peak=30 * MIB, max_rss=30 * MIB, exit_code=0)
        if when == "after":
            assert tally.peaks().tree == Peak.interval(
                30 * MIB, None, at=0.9, pid=PID, evidence=(Evidence.PROCESS_PEAK, Evidence.READ_BEFORE_END)
            )
            tally.boundaries([lines])
        tree = tally.peaks().tree
        assert tree is not None
        assert (tree.certainty, tree.estimate, tree.at) == (Certainty.INTERVAL, 700 * MIB, 0.3)


def test_segments_of_a_process_that_ended_long_ago() -> None:
    lines = OperationLines(5000)
    lines.add([line_of({"schema": 1, "pid": 5000, "start": STARTED + 0.1, "exact": True})])
    lines.add([line_of({"open": 1, "time": STARTED + 0.2, "name": "a", "rss": MIB, "segment": 700 * MIB})])
    tally = tally_of()
    seen(tally, PID, 0, rss=5 * MIB, peak=5 * MIB)
    seen(tally, 5000, 0.1, rss=5 * MIB, peak=5 * MIB)
    ended(tally, 5000, 0.1, 0.9, peak=30 * MIB)
    tick(tally, 60.0)
    ended(tally, PID, 0, 60.0, peak=5 * MIB, peak_bound=30 * MIB, exit_code=0)
    tally.boundaries([lines])
    process, tree = tally.peaks().process, tally.peaks().tree
    assert process is not None
    assert tree is not None
    assert (process.certainty, process.bytes, process.pid) == (Certainty.EXACT, 700 * MIB, 5000)
    assert (tree.low, tree.high) == (700 * MIB - EPS, 730 * MIB + 2 * EPS)


def test_gpu_is_sampled_by_device() -> None:
    tally = tally_of(
        column("hw.gpu.memory.usage", hw__id="GPU-1"), column("hw.gpu.memory.usage", hw__id="GPU-2")
    )
    tick(tally, 0.1, 5 * MIB, None)
    tick(tally, 0.2, 3 * MIB, None)
    gpu = tally.peaks().gpu
    assert set(gpu) == {"GPU-1"}
    assert (gpu["GPU-1"].bytes, gpu["GPU-1"].certainty, gpu["GPU-1"].at) == (5 * MIB, Certainty.SAMPLED, 0.1)


def test_gpu_memory_of_the_tree_is_kept_apart_from_the_devices() -> None:
    tally = tally_of(
        column("hw.gpu.memory.usage", hw__id="GPU-1"),
        column("memwatch.tree.gpu.memory.usage", hw__id="GPU-1"),
    )
    tick(tally, 0.1, 5 * MIB, 2 * MIB)
    tick(tally, 0.2, 3 * MIB, None)
    peaks = tally.peaks()
    assert (peaks.gpu["GPU-1"].bytes, peaks.gpu_tree["GPU-1"].bytes) == (5 * MIB, 2 * MIB)
    assert peaks.gpu_of_run == peaks.gpu_tree


def test_a_device_that_joins_later_has_a_peak() -> None:
    tally = tally_of(column("hw.gpu.memory.usage", hw__id="GPU-1"))
    tick(tally, 0.1, 5 * MIB)
    tally.join([column("hw.gpu.memory.usage", hw__id="GPU-1"), column("hw.gpu.memory.usage", hw__id="GPU-2")])
    tick(tally, 0.2, 3 * MIB, 9 * MIB)
    assert {device: peak.bytes for device, peak in tally.peaks().gpu.items()} == {
        "GPU-1": 5 * MIB,
        "GPU-2": 9 * MIB,
    }


def test_totals_are_the_last_known_values() -> None:
    tally = tally_of(
        column("memwatch.tree.cpu.time", cpu__mode="user"),
        column("memwatch.tree.cpu.time", cpu__mode="system"),
        column("memwatch.tree.disk.io", disk__io__direction="write"),
        column("memwatch.tree.paging.faults", system__paging__fault__type="major"),
        column("memwatch.tree.paging.faults", system__paging__fault__type="minor"),
    )
    seen(tally, PID, 0)
    tick(tally, 0.1, 1.5, 0.25, 100, 3, 7)
    tick(tally, 0.2, 2.5, 0.5, None, 4, 9)
    totals = tally.totals()
    assert totals["cpu_seconds"] == pytest.approx(3.0)
    assert (totals["write_bytes"], totals["read_bytes"], totals["major_faults"]) == (100, None, 4)
    assert totals["processes"] == 1


def test_quality() -> None:
    tally = tally_of()
    for seconds, missed in ((0.0, 0), (0.1, 0), (0.4, 2), (0.5, 0)):
        tick(tally, seconds, missed=missed)
    assert tally.quality() == {
        "interval": 0.1, "achieved_hz": 6.0, "ticks": 4, "missed_ticks": 2, "longest_gap": 0.3,
    }  # fmt: skip


def test_a_late_first_sample_is_a_gap() -> None:
    tally = tally_of()
    tick(tally, 0.7)
    assert tally.quality()["longest_gap"] is None, "one sample has no rate and no gap"
    tick(tally, 0.8)
    assert (tally.quality()["longest_gap"], tally.window) == (0.7, pytest.approx(0.7))


class Simulated(NamedTuple):
    """A process with private memory; time is in tenths of a tick."""

    start: int
    sizes: list[int]
    """MiB held in each tenth of its life."""
    ours: bool
    """Whether we wait for it ourselves."""

    def held(self, now: int) -> int:
        return self.sizes[now - self.start] if 0 <= now - self.start < len(self.sizes) else 0

    def watermark(self, now: int) -> int:
        return max(self.sizes[: now - self.start + 1])


SIZES = st.integers(1, 400)
LENGTH = 60


@st.composite
def populations(draw: st.DrawFn) -> list[Simulated]:
    main = Simulated(0, draw(st.lists(SIZES, min_size=LENGTH, max_size=LENGTH)), ours=True)
    other = st.builds(Simulated, st.integers(1, 40), st.lists(SIZES, min_size=1, max_size=19), st.booleans())
    return [main, *draw(st.lists(other, max_size=6))]


def record_of(simulated: Simulated, pid: int, now: int, largest: int) -> ProcessRecord | None:
    """What a recorder that looks at whole ticks says of a process at one of them."""
    start, age = STARTED + simulated.start / 10, now - simulated.start
    before = now - 10 - simulated.start
    seen_before = 0 <= before < len(simulated.sizes)
    if 0 <= age < len(simulated.sizes):
        event = ProcessEvent.FIGURES if seen_before else ProcessEvent.SEEN
        rss, peak = simulated.held(now) * MIB, simulated.watermark(now) * MIB
        return ProcessRecord(event, STARTED + now / 10, pid, start, rss=rss, peak=peak)
    if not seen_before:
        return None
    told: dict[str, int] = {}
    if simulated.ours:
        told = {"exit_code": 0, "peak_bound": (largest if pid == PID else max(simulated.sizes)) * MIB}
    peak = max(simulated.sizes[: before + 1]) * MIB
    return ProcessRecord(ProcessEvent.EXIT, STARTED + now / 10, pid, start, peak=peak, **told)  # type: ignore[arg-type]


@settings(deadline=None)
@given(populations(), st.booleans(), st.sets(st.integers(0, 6)))
def test_simulated_trees_are_within_what_is_said(
    population: list[Simulated], group: bool, pss_ticks: set[int]
) -> None:
    sums = [sum(p.held(now) for p in population) for now in range(LENGTH + 1)]
    largest = max(max(p.sizes) for p in population)
    columns = [column("memwatch.tree.unobserved"), column("memwatch.tree.memory.pss")]
    own = {"own_cgroup": "/x"} if group else {}
    tally = Tally([*columns, *(CGROUP if group else ())], description(rss_error_bytes=0, **own))
    for now in range(0, LENGTH + 1, 10):
        for place, simulated in enumerate(population):
            record = record_of(simulated, PID + place, now, largest)
            if record is not None:
                tally.process(record)
        over = [p for p in population if p.start + len(p.sizes) - 1 < now]
        unobserved = sum(
            p.start // 10 == (p.start + len(p.sizes) - 1) // 10 and p.start % 10 != 0 for p in over
        )
        values: list[Value] = [unobserved, sums[now] * MIB if now // 10 in pss_ticks else None]
        if group:
            watermark = (max(sums[: now + 1]) + 3) * MIB
            values += [(sums[now] + 2) * MIB, 2 * MIB, 0, MIB, watermark]
        tick(tally, now / 10, *values)
    peaks = tally.peaks()
    assert contains(peaks.main, max(population[0].sizes) * MIB)
    assert contains(peaks.process, largest * MIB)
    assert contains(peaks.tree, max(sums) * MIB)
    assert peaks.tree is not None
    assert peaks.tree.high is not None


def test_tens_of_thousands_of_short_processes_take_little_memory() -> None:
    tally = tally_of(column("memwatch.tree.unobserved"))
    seen(tally, PID, 0, rss=20 * MIB, peak=20 * MIB)
    tracemalloc.start()
    for place in range(30_000):
        start = place * 0.01
        seen(tally, 5000 + place % 10_000, start, rss=MIB, peak=2 * MIB)
        ended(tally, 5000 + place % 10_000, start, start + 0.1, peak=2 * MIB)
        if place % 10 == 0:
            tick(tally, start, 0)
    size, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 5 * MIB
    assert most < 12 * MIB
    ended(tally, PID, 0, 301.0, peak=20 * MIB, peak_bound=20 * MIB, exit_code=0)
    tree = tally.peaks().tree
    assert tree is not None
    assert tally.totals()["processes"] == 30_001
    assert tree.low == 20 * MIB - EPS
    # Eleven or twelve of them live at any moment, each bounded by the largest maximum that was reported.
    assert tree.high is not None
    assert 12 * 20 * MIB <= tree.high <= 14 * (20 * MIB + EPS)


def test_figures_may_be_asked_for_while_another_thread_folds() -> None:
    tally = tally_of(column("memwatch.tree.unobserved"))
    seen(tally, PID, 0, rss=20 * MIB, peak=20 * MIB)
    over = threading.Event()
    troubles: list[Exception] = []

    def ask() -> None:
        # Without a pause, asking would hardly ever give the lock away: a lock is not fair.
        while not over.wait(0.001):
            try:
                tally.peaks()
                tally.totals()
                tally.quality()
            except Exception as error:
                troubles.append(error)
                return

    asking = threading.Thread(target=ask)
    switched = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    asking.start()
    try:
        for place in range(20_000):
            start = place * 0.01
            seen(tally, 5000 + place, start, rss=MIB, peak=2 * MIB)
            ended(tally, 5000 + place, start, start + 0.1, peak=2 * MIB)
    finally:
        over.set()
        asking.join()
        sys.setswitchinterval(switched)
    assert troubles == []


@pytest.mark.parametrize(("peak", "estimate", "at"), [(130, 126, None), (101, 100, 0.2)])
def test_a_likeliest_figure_that_no_tick_saw_has_no_moment(
    peak: int, estimate: int, at: float | None
) -> None:
    """A process has 100 MiB at each tick; wait4 reports what it had at most, 4 MiB of it files."""
    needed = "memwatch.tree.memory.needed"
    tally = tally_of(
        column(f"{needed}.low"), column(f"{needed}.high"), column(needed), column("memwatch.tree.unobserved.faults")
    )  # fmt: skip
    seen(tally, PID, 0, rss=104 * MIB, peak=104 * MIB, file=4 * MIB)
    for seconds in (0.2, 0.4):
        tick(tally, seconds, 90 * MIB, 400 * MIB, 100 * MIB, 0)
    ended(tally, PID, 0, 0.5, peak=104 * MIB, max_rss=peak * MIB, exit_code=0, file=4 * MIB)
    tick(tally, 0.6, 0, 400 * MIB, 0, 0)
    tree = tally.peaks().tree
    assert tree is not None
    assert (tree.estimate, tree.at) == (estimate * MIB, at)


NEEDED = "memwatch.tree.memory.needed"
LEDGER = (
    column(f"{NEEDED}.low"),
    column(f"{NEEDED}.high"),
    column(NEEDED),
    column("memwatch.tree.unobserved.faults"),
)
IO = tuple(
    Column(metric, (("disk.io.direction", "write"),), 0.0)
    for metric in ("memwatch.tree.syscall.io", "memwatch.tree.disk.io")
)

FAULTS = tuple(
    Column("memwatch.tree.paging.faults", (("system.paging.fault.type", kind),), 0.0)
    for kind in ("minor", "major")
)


def test_a_mapped_file_is_in_no_lower_bound() -> None:
    """ripgrep maps 250 MiB between two samples: the estimate is small, and only what a sample read is certain."""
    tally = tally_of(*LEDGER)
    seen(tally, PID, 0, rss=3 * MIB, peak=3 * MIB, file=2 * MIB)
    tick(tally, 0.1, MIB, 260 * MIB, MIB, 0)
    ended(tally, PID, 0, 0.2, peak=3 * MIB, max_rss=252 * MIB, exit_code=0, file=2 * MIB, minor_faults=4200)
    tick(tally, 0.2, 0, 260 * MIB, 0, 0)
    tree = tally.peaks().tree
    assert tree is not None
    assert (tree.low, tree.high) == (MIB, 260 * MIB)
    assert tree.estimate is not None
    assert tree.estimate < 3 * MIB


@pytest.mark.parametrize(("needed", "least", "most"), [(1, 1, 2), (8, 12, 14)])
def test_page_faults_of_the_largest_process_say_that_it_mapped_a_file(
    needed: int, least: int, most: int
) -> None:
    """Two searches of a file of 87 MiB: all faults of the tree could bring the 13 MiB that no sample saw as file pages.

    A process with more memory than its page faults brought has it from its parent: all faults of the tree count.
    """
    tally = tally_of(*LEDGER, *FAULTS)
    seen(tally, PID, 0, rss=2 * MIB, peak=2 * MIB, file=MIB, needed=MIB)
    seen(tally, 60, 0.1, rss=75 * MIB, peak=75 * MIB, file=74 * MIB, needed=MIB, minor_faults=1500)
    ended(tally, 60, 0.1, 0.4, rss=75 * MIB, peak=75 * MIB, file=74 * MIB, needed=MIB, minor_faults=1500)
    found = {"peak": 87 * MIB, "file": 46 * MIB, "needed": needed * MIB, "minor_faults": 1700}
    seen(tally, 61, 0.5, rss=47 * MIB, **found)
    tick(tally, 0.6, MIB, 40 * MIB, MIB, 0, 3500, 0)
    ended(tally, 61, 0.5, 0.8, rss=30 * MIB, **found)
    ended(tally, PID, 0, 0.9, peak=2 * MIB, max_rss=87 * MIB, exit_code=0, minor_faults=270)
    tick(tally, 0.9, 0, 40 * MIB, 0, 0, 3500, 0)
    tree = tally.peaks().tree
    assert tree is not None
    assert tree.estimate is not None
    assert least * MIB <= tree.estimate <= most * MIB


def test_huge_pages_are_not_taken_for_a_mapped_file() -> None:
    """Java has more memory at a sample than all page faults brought as single pages, and grows until its end."""
    tally = tally_of(*LEDGER, *FAULTS)
    java = {"peak": 102 * MIB, "file": 20 * MIB, "needed": 81 * MIB, "minor_faults": 10_000}
    seen(tally, PID, 0, rss=102 * MIB, **java)
    tick(tally, 0.3, 81 * MIB, 150 * MIB, 81 * MIB, 0, 10_000, 0)
    ended(tally, PID, 0, 0.4, max_rss=164 * MIB, exit_code=0, **java)
    tick(tally, 0.4, 0, 150 * MIB, 0, 0, 10_000, 0)
    tree = tally.peaks().tree
    assert tree is not None
    assert tree.estimate == 144 * MIB


def test_no_process_has_the_page_faults_of_all_that_samples_saw() -> None:
    """A script searches a mapped file of 46 MiB with ripgrep, which needs 1.6. With the faults of its shells, it could need 4."""
    tally = tally_of(*LEDGER, *FAULTS)
    for pid in (PID, 60, 61, 62):
        shell = {"peak": 2 * MIB, "file": MIB, "needed": MIB // 8, "minor_faults": 200}
        seen(tally, pid, 0, rss=2 * MIB, **shell)
    tick(tally, 0.1, MIB, 48 * MIB, MIB, 0, 800, 0)
    tick(tally, 0.2, MIB, 48 * MIB, MIB, 1200, 2000, 0)
    ended(tally, PID, 0, 0.2, max_rss=49 * MIB, exit_code=0, **shell)
    tree = tally.peaks().tree
    assert tree is not None
    assert tree.estimate is not None
    assert MIB <= tree.estimate < 3 * MIB


@pytest.mark.parametrize(("reports", "least", "most"), [((1100, 2200), 1, 4), ((0, 2200), 7, 8)])
def test_no_process_has_the_page_faults_of_two_reports(
    reports: tuple[int, int], least: int, most: int
) -> None:
    """ripgrep maps a file of 46 MiB, twice, and needs 1.6. With the page faults of both, it could need 7.8."""
    tally = tally_of(*LEDGER)
    seen(tally, PID, 0, rss=2 * MIB, peak=2 * MIB, file=MIB, needed=MIB)
    tick(tally, 0.1, MIB, 40 * MIB, MIB, 0)
    for time, faults in zip((0.2, 0.3), reports, strict=True):
        tick(tally, time, MIB, 40 * MIB, MIB, faults)
    ended(tally, PID, 0, 0.4, peak=2 * MIB, max_rss=49 * MIB, exit_code=0, minor_faults=400)
    tick(tally, 0.4, 0, 40 * MIB, 0, 2200)
    tree = tally.peaks().tree
    assert tree is not None
    assert tree.estimate is not None
    assert least * MIB <= tree.estimate <= most * MIB


@pytest.mark.parametrize(
    ("chars", "disk", "excludes"),
    [(200 * MIB, 0, ("files in memory",)), (200 * MIB, 200 * MIB, ()), (4096, 0, ()), (None, None, ())],
)
def test_a_bound_says_that_files_in_memory_may_be_missing(
    chars: int | None, disk: int | None, excludes: tuple[str, ...]
) -> None:
    tally = tally_of(*LEDGER, *IO)
    seen(tally, PID, 0, rss=3 * MIB, peak=3 * MIB, file=2 * MIB)
    tick(tally, 0.1, MIB, 60 * MIB, MIB, 0, 0, 0)
    tick(tally, 0.2, MIB, 60 * MIB, MIB, 0, chars, disk)
    ended(tally, PID, 0, 0.3, peak=3 * MIB, exit_code=0)
    tick(tally, 0.3, 0, 0, 0, 0, chars, disk)
    tree = tally.peaks().tree
    assert tree is not None
    assert tree.excludes == ("kernel", *excludes)
    assert tree.excluded_bytes == (chars if excludes else 0)


def test_a_bound_says_that_files_without_write_calls_may_be_missing() -> None:
    tally = tally_of(*LEDGER, *IO)
    seen(tally, PID, 0, rss=3 * MIB, peak=3 * MIB, file=2 * MIB)
    tick(tally, 0.1, MIB, 60 * MIB, MIB, 0, 0, 0)
    figures(tally, PID, 0, 0.2, rss=3 * MIB, peak=3 * MIB, note=ProcessNote.UNWRITTEN_FILES)
    ended(tally, PID, 0, 0.3, peak=3 * MIB, exit_code=0)
    tick(tally, 0.3, 0, 0, 0, 0, 0, 0)
    tree = tally.peaks().tree
    assert tree is not None
    assert tree.excludes == ("kernel", "files in memory")


@pytest.mark.parametrize(("limit", "excluded"), [(1000, 200), (70, 70 - 60), (50, 0)])
def test_files_in_memory_may_be_missing_below_the_limit_of_a_container(limit: int, excluded: int) -> None:
    """The limit bounds files too, but the range ended at 84.6 MiB, by page faults, for a file of 100 MiB."""
    group = (
        column("memwatch.tree.memory.shmem"),
        column("memwatch.cgroup.outside"),
        column("memwatch.cgroup.memory.swap"),
        column("memwatch.cgroup.memory.limit", memwatch__cgroup__limit__type="max"),
    )
    tally = tally_of(*LEDGER, *IO, *group)
    seen(tally, PID, 0, rss=3 * MIB, peak=3 * MIB, file=2 * MIB)
    for time, chars in ((0.1, 0), (0.2, 200 * MIB)):
        tick(tally, time, MIB, 60 * MIB, MIB, 0, chars, 0, 0, 0, 0, limit * MIB)
    ended(tally, PID, 0, 0.3, peak=3 * MIB, exit_code=0)
    tick(tally, 0.3, 0, 0, 0, 0, 200 * MIB, 0, 0, 0, 0, limit * MIB)
    tree = tally.peaks().tree
    assert tree is not None
    assert tree.high is not None
    assert tree.high + tree.excluded_bytes == pytest.approx(min(limit, 60 + excluded) * MIB, abs=MIB)
    assert ("files in memory" in tree.excludes) == (excluded > 0)


@pytest.mark.parametrize(("own", "swap"), [("/x", 100 * MIB), (None, None)])
def test_swap_is_that_of_a_run_only_in_its_cgroup(own: str | None, swap: int | None) -> None:
    tally = tally_of(column("memwatch.cgroup.memory.swap"), own_cgroup=own)
    for time, used in ((0.1, 0), (0.2, 100 * MIB), (0.3, 20 * MIB)):
        tick(tally, time, used)
    seen = tally.peaks().swap
    assert (seen and seen.bytes) == swap


@pytest.mark.parametrize("swap", [0, None])
def test_bounds_end_at_the_memory_of_the_machine(swap: int | None) -> None:
    """A neighbour's forks count as processes of ours that no sample saw."""
    host = {"cpus": 2, "memory_bytes": 1024 * MIB, "swap_bytes": swap}
    tally = tally_of(*LEDGER, host=host)
    seen(tally, PID, 0, rss=3 * MIB, peak=3 * MIB, file=2 * MIB)
    tick(tally, 0.1, MIB, 90_000 * MIB, MIB, 0)
    ended(tally, PID, 0, 0.2, peak=3 * MIB, peak_bound=90_000 * MIB, exit_code=0)
    tick(tally, 0.2, 0, 0, 0, 0)
    tree = tally.peaks().tree
    assert tree is not None
    assert tree.high is not None
    assert (tree.high == 1024 * MIB) is (swap is not None)
    assert ("the machine's memory" in tree.how) is (swap is not None)


def test_waiting_for_processors_leaves_no_time_to_read_again() -> None:
    """On a busy machine, ffmpeg took three times as long, and its full-speed advice was 153 MiB with a knee of 199."""
    columns = [column(f"memwatch.cgroup.memory.{name}") for name in ("usage", "file", "anon")]
    columns += [
        column("memwatch.tree.memory.usage"),
        column("memwatch.tree.disk.io", disk__io__direction="read"),
        column("memwatch.tree.paging.faults", system__paging__fault__type="major"),
    ]
    tally = tally_of(*columns, own_cgroup="/sys/fs/cgroup/x")
    seen(tally, PID, 0.0, file=40 * MIB)
    for at, (needed, mapped, read) in enumerate([(2, 2, 50), (3, 8, 200), (20, 40, 200), (20, 40, 200)]):
        sizes = [size * MIB for size in (needed + read, read, needed, needed + mapped, read)]
        tick(tally, at, *sizes, read)  # faults of 1 MiB
    alone = tally.files_beside_peak()
    tally.ledger.contention = 2.0
    busy = tally.files_beside_peak()
    assert alone is not None
    assert busy is not None
    assert (busy - alone) / MIB == pytest.approx(192**2 / (192 + 15) - 192**2 / (192 + 45), abs=1.5)


def _hours(tally: Tally, hours: float, memory_an_hour: float) -> None:
    for minute in range(int(60 * hours)):
        size = int((500 + memory_an_hour * minute / 60) * MIB)
        tick(tally, 60.0 * minute, size, 12.0 * minute, 4)


@pytest.mark.parametrize(
    ("hours", "growth", "job", "kinds"),
    [(3, 50, False, ["leak"]), (3, 50, True, []), (2, 50, False, ["unknown"]), (3, 0, False, [])],
)
def test_a_service_that_grows_for_hours_leaks(
    hours: float, growth: float, *, job: bool, kinds: list[str]
) -> None:
    tally = tally_of(
        column("memwatch.tree.memory.needed.low"),
        column("memwatch.tree.cpu.time"),
        column("memwatch.tree.process.count"),
    )
    _hours(tally, hours, growth)
    found = tally.findings(None, job=job)
    assert [one.kind for one in found] == kinds
    assert all(one.rate * 3600 == pytest.approx(growth * MIB, rel=0.01) for one in found)
