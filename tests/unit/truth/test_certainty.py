"""Each rule of certainty by its table of cases; and that a run has one answer, while it is recorded and from its record."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_memwatch.model import Certainty, Peak, ProcessEvent, ProcessNote, ProcessRecord
from otel_memwatch.record.operation_lines import OperationLines
from otel_memwatch.record.schema import sample_maker
from otel_memwatch.run import RunAggregator, load
from otel_memwatch.run.aggregate import METRICS
from otel_memwatch.run.conditions import RunConditions
from otel_memwatch.run.peaks import tree_bound
from otel_memwatch.run.processes import RecordedProcesses
from otel_memwatch.run.ticks import TreeTicks
from otel_memwatch.runtime import kernel
from otel_memwatch.truth import certainty
from tests.support.run_directory import MIB, PID, STARTED, RunDirectory, column

EXACT, INTERVAL, CENSORED = Certainty.EXACT, Certainty.INTERVAL, Certainty.CENSORED
ERROR, FLOOR = 2, 10


def shape(peak: Peak | None) -> tuple[Any, ...] | None:
    return None if peak is None else (peak.certainty, peak.low, peak.high)


@pytest.mark.parametrize(
    ("start", "other", "same"), [(5.0, None, True), (5.0, 5.9, True), (5.0, 4.1, True), (5.0, 6.1, False)]
)
def test_is_same_process(start: float, other: float | None, same: bool) -> None:
    assert certainty.is_same_process(start, other) is same


@pytest.mark.parametrize(
    ("time", "end", "alive"),
    [(5.0, None, True), (9.0, 9.0, True), (9.1, 9.0, False), (4.5, 9.0, True), (3.9, 9.0, False)],
)
def test_was_alive(time: float, end: float | None, alive: bool) -> None:
    assert certainty.was_alive(5.0, end, time) is alive


@pytest.mark.parametrize(
    ("began_before", "first", "peak", "of_run"),
    [
        (False, None, 50, True),
        (True, None, 900, False),
        (True, 900, 900, False),
        (True, 900, 901, True),
    ],
)
def test_watermark_is_of_run(began_before: bool, first: int | None, peak: int, of_run: bool) -> None:
    assert certainty.watermark_is_of_run(began_before, first, peak) is of_run


@pytest.mark.parametrize(
    ("max_rss", "childless", "own"),
    [(11, True, True), (11, False, False), (10, True, False), (None, True, False)],
)
def test_wait4_was_its_own(max_rss: int | None, childless: bool, own: bool) -> None:
    assert certainty.wait4_was_its_own(max_rss, childless=childless, floor=FLOOR) is own


@pytest.mark.parametrize(
    ("facts", "bound"),
    [
        ({"last_read": True}, 70),
        ({"waited_for": True, "whole_life": True}, 70),
        ({"waited_for": True, "segments": True, "wait4": True}, 70),
        ({"waited_for": True, "segments": True}, None),
        ({"waited_for": True, "wait4": True}, None),
        ({"whole_life": True, "segments": True, "wait4": True}, None),
        ({}, None),
    ],
)
def test_process_bound(facts: dict[str, bool], bound: int | None) -> None:
    known = dict.fromkeys(("last_read", "waited_for", "whole_life", "segments", "wait4"), False)
    assert certainty.process_bound(70, **(known | facts)) == bound


def test_of_a_process_that_nothing_is_known_of_there_is_no_bound() -> None:
    nothing = {"waited_for": False, "whole_life": False, "segments": False, "wait4": False}
    assert certainty.process_bound(0, last_read=True, **nothing) is None


@pytest.mark.parametrize(
    ("facts", "bound"),
    [
        ({}, 300),
        ({"known": 400}, 400),
        ({"reaped": None}, None),
        ({"unreaped": True}, None),
        ({"unreported_reset": True}, None),
        ({"oldest_alive": 8.0}, 300),
        ({"oldest_alive": 6.0}, None),
        # The kernel tells starts to 10 ms.
        ({"oldest_alive": 7.005}, None),
        ({"oldest_alive": 6.0, "latest_start": None}, 300),
    ],
)
def test_unseen_max(facts: dict[str, Any], bound: int | None) -> None:
    chain = {"reaped": 300, "known": 20, "unreaped": False, "unreported_reset": False}
    assert certainty.unseen_max(**(chain | {"latest_start": 7.0, "oldest_alive": None} | facts)) == bound


@pytest.mark.parametrize(
    ("limits", "bound"),
    [(None, 447), ((120, 120), 121), ((120, 130), 447), ((500, 500), 447)],
)
def test_within_limit(limits: tuple[int, int] | None, bound: int) -> None:
    assert certainty.within_limit(447, limits, 1) == bound


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (300, None, (INTERVAL, 300, None)),
        (0, None, None),
        (300, 300, (EXACT, 298, 302)),
        (298, 300, (EXACT, 298, 302)),
        (301, 300, (EXACT, 299, 303)),
        (297, 300, (INTERVAL, 297, 300)),
        (0, 300, (INTERVAL, 0, 300)),
        (5, 9, (CENSORED, 5, FLOOR)),
        (0, 9, (CENSORED, None, FLOOR)),
        (9, 9, (EXACT, 7, 11)),
    ],
)
def test_process_peak(low: int, high: int | None, expected: tuple[Any, ...] | None) -> None:
    assert shape(certainty.process_peak(low, high, ERROR, FLOOR)) == expected


def test_without_watermarks_a_process_is_sampled() -> None:
    assert shape(certainty.process_peak(300, None, ERROR, FLOOR, sampled=True)) == (
        Certainty.SAMPLED,
        300,
        None,
    )


@pytest.mark.parametrize(
    ("high", "attained", "own"), [(300, 300, True), (300, 298, True), (300, 297, False), (9, 9, False)]
)
def test_wait4_is_its_own(high: int, attained: int, own: bool) -> None:
    assert certainty.wait4_is_its_own(high, attained, ERROR, FLOOR) is own


@pytest.mark.parametrize(
    ("low", "high", "attained", "expected", "pid"),
    [
        (80, None, 300, (INTERVAL, 80, None), 7),
        (0, None, 300, None, None),
        (300, 300, 300, (EXACT, 298, 302), 7),
        (5, 9, 9, (CENSORED, 5, FLOOR), None),
        (80, 300, 299, (EXACT, 298, 302), None),
        (80, 300, 200, (INTERVAL, 200, 300), None),
        (80, 300, 70, (INTERVAL, 80, 300), 7),
        (0, 300, 9, (INTERVAL, 0, 300), 7),
        (0, 0, 0, None, None),
    ],
)
def test_largest_process(
    low: int, high: int | None, attained: int, expected: tuple[Any, ...] | None, pid: int | None
) -> None:
    peak = certainty.largest_process(low, high, attained, ERROR, FLOOR, at=0.5, pid=7)
    assert shape(peak) == expected
    assert peak is None or (peak.pid, peak.at) == (pid, None if pid is None else 0.5)


@pytest.mark.parametrize(("low", "attained", "expected"), [(80, 300, 300), (80, 70, 80), (5, 9, 5)])
def test_largest_process_where_none_could_be_watched(low: int, attained: int, expected: int) -> None:
    peak = certainty.largest_process(low, None, attained, ERROR, FLOOR, at=0.5, pid=7, unwatched=True)
    assert shape(peak) == (INTERVAL, expected, None)


def test_without_watermarks_the_largest_process_is_sampled() -> None:
    peak = certainty.largest_process(80, None, 0, ERROR, FLOOR, at=0.5, pid=7, sampled=True)
    assert peak == Peak.sampled(80, at=0.5, pid=7, how="resident size at ticks")


def test_process_span() -> None:
    assert certainty.process_span(5.0, 6.0, 100, ERROR) == (4.99, 6.0, 102)
    assert certainty.process_span(5.0, 4.0, 100, ERROR) == (4.99, 5.0, 102)


@pytest.mark.parametrize(
    ("facts", "bounded"),
    [
        ({}, True),
        ({"unbounded": True}, False),
        ({"unbounded": True, "unseen": 300}, True),
        ({"all_bounded": False, "unseen": 300}, False),
        ({"seen": False}, False),
        ({"unwatched": True}, False),
    ],
)
def test_is_bounded(facts: dict[str, Any], bounded: bool) -> None:
    evidence = {"seen": True, "all_bounded": True, "unbounded": False, "unseen": None, "unwatched": False}
    assert certainty.is_bounded(**(evidence | facts)) is bounded


@pytest.mark.parametrize(
    ("low", "high", "single", "expected"),
    [
        (0, None, None, None),
        (80, None, None, (INTERVAL, 80, None)),
        (80, 300, None, (INTERVAL, 80, 300)),
        (0, 300, None, (INTERVAL, 0, 300)),
        (298, 302, None, (EXACT, 298, 302)),
        (298, 302, 299, (EXACT, 297, 301)),
        (297, 302, None, (INTERVAL, 297, 302)),
        (310, 302, None, (EXACT, 308, 312)),
    ],
)
def test_tree_from_bounds(
    low: int, high: int | None, single: int | None, expected: tuple[Any, ...] | None
) -> None:
    assert shape(certainty.tree_from_bounds(low, high, ERROR, single)) == expected


@pytest.mark.parametrize("blind", [False, True])
@pytest.mark.parametrize("hidden", [False, True])
def test_is_unwatched(*, blind: bool, hidden: bool) -> None:
    assert certainty.is_unwatched(blind=blind, hidden=hidden) is (blind or hidden)


def test_charge_error() -> None:
    assert certainty.charge_error(8) == 2 * MIB


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, (199, 201)),
        # What the tree moved may have been cache at the worst moment and not at the ticks.
        ({"moved": 50}, (149, 251)),
        ({"file": 150}, (149, 201)),
        # 40 of the 100 cannot be dropped: memfd_secret, or pages of files that are locked.
        ({"locked": 40}, (199, 241)),
        ({"locked": 400}, (199, 301)),
        ({"top": None}, (None, 201)),
        ({"top": None, "ceiling": None}, (None, None)),
        ({"moved": None}, (None, 301)),
        ({"file_before": None}, (None, 301)),
        ({"reset_gap": 1e-9}, (199, 211)),
    ],
)
def test_needed_between_ticks(facts: dict[str, Any], expected: tuple[int | None, int | None]) -> None:
    tick = {"top": 300, "ceiling": 300, "file_before": 100, "file": 100, "moved": 0, "reset_gap": None}
    tick["locked"] = 0
    bounds = certainty.needed_between_ticks(**(tick | {"error": 1, "cpus": 2} | facts))
    assert bounds == expected


@pytest.mark.parametrize(
    ("attained", "file", "faults", "beyond"),
    [
        (200, 6, 0, 136),
        (200, 150, 0, 50),
        (200, None, 0, 0),
        (60, 6, 0, 0),
        (FLOOR / MIB, 0, 0, 0),
        # one fault maps 64 KiB of a cached file: ripgrep with a log file of 250 MiB
        (250, 6, 500, 186),
        (250, 6, 4000, 0),
    ],
)
def test_a_size_is_a_sign_only_beyond_what_files_explain(
    attained: float, file: int | None, faults: int, beyond: int
) -> None:
    files, most = None if file is None else file * MIB, int(attained * MIB)
    assert certainty.beyond_files(most, files, FLOOR, faults) == beyond * MIB


@pytest.mark.parametrize(
    ("attained", "file", "facts", "likely"),
    [
        (200, 6, {}, 194),
        (200, 150, {}, 50),
        (200, None, {}, 0),
        (FLOOR / MIB, 0, {"faults": 9}, 0),
        # single pages
        (200, 6, {"faults": 60_000}, 194),
        (300, None, {"faults": 80_000}, 300),
        # huge pages: files cannot explain it
        (300, 6, {"faults": 800}, 294),
        # a mapped log file, of which no sample saw anything
        (250, None, {"faults": 5120}, (16 * 20 - 250) / 15),
        (250, 6, {"faults": 4000}, 4000 / 256 / 16),
        # a linker writes 140 MiB through a mapping, a page for each fault
        (280, 2, {"faults": 40_000, "written_by_mapping": 140 * MIB}, 138),
        (280, 200, {"faults": 40_000, "written_by_mapping": 140 * MIB}, 0),
    ],
)
def test_likely_of_any(attained: float, file: int | None, facts: dict[str, int], likely: float) -> None:
    files, most = None if file is None else file * MIB, int(attained * MIB)
    assert certainty.likely_of_any(most, files, FLOOR, **facts) == pytest.approx(likely * MIB, abs=1)


@pytest.mark.parametrize(
    ("peak", "expected"),
    [
        (Peak.interval(174, 2000, how="x"), Peak.interval(174, 1000, how="x, the machine's memory")),
        (Peak.interval(174, 900, how="x"), Peak.interval(174, 900, how="x")),
        (Peak.interval(174, None), Peak.interval(174, None)),
        (
            Peak.interval(174, 2000, estimate=1500),
            Peak.interval(174, 1000, estimate=1000, how="the machine's memory"),
        ),
        # the parts of a java heap that is mapped twice: what is certain from below is not taken back
        (Peak.interval(1100, 2000), Peak.interval(1100, 1100, how="the machine's memory")),
        (Peak.exact(1500, 10), Peak.exact(1500, 10)),
        (Peak.censored(1500), Peak.censored(1000, how="the machine's memory")),
        (Peak.sampled(5), Peak.sampled(5)),
        (None, None),
    ],
)
def test_no_upper_bound_is_above_the_machine(peak: Peak | None, expected: Peak | None) -> None:
    assert certainty.within_machine(peak, 1000) == expected
    assert certainty.within_machine(peak, None) == peak


@pytest.mark.parametrize(
    ("written", "high", "lacks"),
    [(200 * MIB, 61 * MIB, True), (30_000, 300_000, False), (3 * MIB, 900 * MIB, False)],
)
def test_files_in_memory_may_be_missing(written: int, high: int, lacks: bool) -> None:
    assert certainty.excludes_memory_files(written, high) is lacks


@pytest.mark.parametrize(
    ("seen", "charged", "faults", "left"),
    [
        (True, 0, 0, True),
        (False, 307, 0, True),
        (False, 3, 0, True),
        (False, 2, 0, False),
        (False, 2, 84, False),
        (False, 2, 6144, True),
        (False, 2, -6144, False),
    ],
)
def test_left_cgroup(seen: bool, charged: int, faults: int, left: bool) -> None:
    told = certainty.left_cgroup(seen=seen, charged=charged, watermark=1, faults_elsewhere=faults, error=1)
    assert told is left


@pytest.mark.parametrize(
    ("low", "held", "unmapped", "expected"),
    [
        (307, 320, 2, (INTERVAL, 307, 322)),
        (307, 307, 0, (INTERVAL, 307, 307)),
        (307, None, 2, (INTERVAL, 307, None)),
        (307, 320, None, (INTERVAL, 307, None)),
        (0, 320, 2, (INTERVAL, 0, 322)),
        (0, None, 2, None),
    ],
)
def test_tree_around_cgroup(
    low: int, held: int | None, unmapped: int | None, expected: tuple[Any, ...] | None
) -> None:
    assert shape(certainty.tree_around_cgroup(low, held, unmapped)) == expected


@pytest.mark.parametrize(
    ("needed", "process", "still_read", "low"),
    [
        (90, 100, True, 90),
        (90, 100, False, 100),
        (None, 100, True, 100),
        (None, 700, True, 500),
        (0, 700, False, 700),
    ],
)
def test_tree_low_in_cgroup(needed: int | None, process: int, still_read: bool, low: int) -> None:
    assert certainty.tree_low_in_cgroup(needed, 500, process, still_read=still_read) == low


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (100, 5000, (INTERVAL, 100, 5000)),
        (100, 102, (EXACT, 100, 102)),
        (100, 103, (INTERVAL, 100, 103)),
        (1000, 1010, (EXACT, 1000, 1010)),
        (600, 500, (EXACT, 500, 500)),
    ],
)
def test_tree_from_cgroup(low: int, high: int, expected: tuple[Any, int, int]) -> None:
    kind, least, most = expected
    peak = certainty.tree_from_cgroup(low * MIB, high * MIB)
    assert shape(peak) == (kind, least * MIB, most * MIB)
    if kind is EXACT:
        assert peak.bytes == (least + most) * MIB // 2


def test_what_is_needed_is_not_above_what_the_group_was_charged() -> None:
    peak = certainty.tree_from_cgroup(100 * MIB, 101 * MIB, charged=100 * MIB + 1)
    assert (peak.bytes, peak.low, peak.high) == (100 * MIB + 1, 100 * MIB, 101 * MIB)
    assert certainty.tree_from_cgroup(100, 101, charged=90).bytes == 100


@pytest.mark.parametrize(
    ("top", "before", "after", "likely"),
    [(195, 20, 108, 87), (195, 108, 20, 87), (100, 20, 120, 0), (None, 1, 1, None), (9, None, 1, None), (9, 1, None, None)],
)  # fmt: skip
def test_likely_between_ticks(
    top: int | None, before: int | None, after: int | None, likely: int | None
) -> None:
    assert certainty.likely_between_ticks(top, before, after) == likely


@pytest.mark.parametrize(("likely", "told"), [(70, 80), (90, 90), (300, 200), (None, None)])
def test_the_most_likely_is_within_the_bounds_of_a_group(likely: int | None, told: int | None) -> None:
    peak = certainty.tree_from_cgroup(80 * MIB, 200 * MIB, likely=likely and likely * MIB)
    assert peak.estimate == (told and told * MIB)


def test_lifetime_watermark() -> None:
    assert shape(certainty.lifetime_watermark(800, 900, ERROR)) == (EXACT, 898, 902)
    assert shape(certainty.lifetime_watermark(800, 800, ERROR)) == (CENSORED, None, 800)


def test_stopped_watermark() -> None:
    assert shape(certainty.stopped_watermark(800, 800, ERROR, own=True)) == (INTERVAL, 798, None)
    assert shape(certainty.stopped_watermark(800, 900, ERROR, own=False)) == (INTERVAL, 898, None)
    assert certainty.stopped_watermark(800, 800, ERROR, own=False) is None


@pytest.mark.parametrize(
    ("peak", "expected"),
    [
        (None, None),
        (Peak.exact(500, ERROR, at=0.5, pid=7), Peak.interval(498, None, at=0.5, pid=7)),
        (Peak.interval(80, 300), Peak.interval(80, None)),
        (Peak.interval(0, 300), None),
        (Peak.censored(10), None),
        (Peak.censored(10, 5), Peak.interval(5, None)),
        (Peak.sampled(80), Peak.sampled(80)),
    ],
)
def test_stopped(peak: Peak | None, expected: Peak | None) -> None:
    assert certainty.stopped(peak) == expected


@pytest.mark.parametrize(
    ("end", "last_tick", "anybody_alive", "over"),
    [(9.0, 9.0, False, True), (9.0, 9.5, False, True), (9.0, 8.9, False, False), (9.0, 9.5, True, False),
     (None, 9.5, False, False), (9.0, None, False, False)],
)  # fmt: skip
def test_is_over(end: float | None, last_tick: float | None, anybody_alive: bool, over: bool) -> None:
    assert certainty.is_over(end, last_tick, anybody_alive=anybody_alive) is over
    assert certainty.is_after(9.0, 9.0005) is False
    assert certainty.is_after(9.01, 9.0) is True


# -- one answer

SIZES = st.integers(1, 300).map(lambda mib: mib * MIB)
TICKS = 10


@st.composite
def processes(draw: st.DrawFn, pid: int) -> tuple[list[ProcessRecord], list[dict[str, Any]]]:
    """The records of one process in a run of a second, and the lines of its operations."""
    target = pid == PID
    begin = 0 if target else draw(st.integers(0, 9))
    end = draw(st.integers(begin, 9)) + 0.5
    start, size = STARTED + begin / TICKS, draw(SIZES)
    peak = size + draw(st.sampled_from([0, 20 * MIB]))
    notes = [ProcessNote.IGNORES_CHILDREN, ProcessNote.HIDDEN, ProcessNote.LEFT_CGROUP]
    note = draw(st.sampled_from([None] * 9 + notes))
    file = draw(st.sampled_from([None, MIB, 200 * MIB]))
    records = []
    if draw(st.integers(0, 9)):
        first = ProcessRecord(ProcessEvent.SEEN, start, pid, start, rss=size, peak=peak, note=note, file=file)
        records.append(first)
    last = ProcessRecord(ProcessEvent.EXIT, STARTED + end / TICKS, pid, start, rss=size, peak=peak)
    fate = draw(
        st.sampled_from(["ours", "ours", "ours", "ours" if target else "theirs", "nobody's", "daemon"])
    )
    marks = draw(st.booleans())
    if fate == "ours":
        most = max(peak, draw(SIZES))
        last = last._replace(exit_code=0, max_rss=most, peak_bound=None if marks else most)
    elif fate == "nobody's":
        last = last._replace(note=ProcessNote.UNREAPED)
    elif fate == "daemon":
        last = last._replace(event=ProcessEvent.FIGURES, time=STARTED + 1, note=ProcessNote.ALIVE_AT_END)
    lines: list[dict[str, Any]] = []
    if marks and draw(st.integers(0, 3)):
        at = start + draw(st.integers(0, 5)) / 100
        lines.append({"open": 1, "time": at, "name": "a", "rss": size, "segment": draw(SIZES)})
    return [*records, last], lines


@settings(deadline=None)
@given(
    st.data(),
    st.integers(1, 5),
    st.lists(st.integers(0, 1), min_size=TICKS, max_size=TICKS),
    st.none() | st.tuples(SIZES, st.sampled_from([None, 3 * MIB])),
)
def test_the_record_says_what_was_said_while_it_was_recorded(
    data: st.DataObject, count: int, missed: list[int], group: tuple[int, int | None] | None
) -> None:
    """Bounds of the tree, of unseen processes and of the target, by the two collectors of evidence.

    `group`: watermark of the run's own control group, and what it held beside the processes.
    """
    columns = [column("memwatch.tree.unobserved")]
    values: tuple[int | None, ...] = ()
    if group is not None:
        names = ("peak", "usage", "file", "shmem", "kernel")
        columns += [column(f"memwatch.cgroup.memory.{name}") for name in names]
        values = group[0], group[0], 0, group[1], group[1]
    with tempfile.TemporaryDirectory() as folder:
        built = RunDirectory(Path(folder), own_cgroup=None if group is None else "/own")
        built.columns(columns)
        aggregator, make = RunAggregator(columns, built.info), sample_maker(columns)
        reported, records = [], []
        for pid in range(PID, PID + count):
            of_process, lines = data.draw(processes(pid))
            records += of_process
            if lines:
                header = {"schema": 1, "pid": pid, "start": of_process[-1].start, "exact": True}
                reported.append(OperationLines(pid))
                for line in (header, *lines):
                    built.append(f"operations-{pid}.jsonl", line)
                    reported[-1].add(line)
        records.sort(key=lambda record: record.time)
        for record in records:
            built.process(record)
        for tick in range(1, TICKS + 1):
            time = STARTED + tick / TICKS
            while records and records[0].time <= time:
                aggregator.process(records.pop(0))
            row = sum(missed[:tick]), *values
            built.tick(tick / TICKS, *row)
            aggregator.add(make((time, *row)))
        aggregator.boundaries(reported)

        run = load(folder)
        conditions = RunConditions.of(run.info)
        recorded = RecordedProcesses(run.record, conditions, whole=True)
        spans = TreeTicks(run.samples(METRICS), conditions, all_ended=recorded.all_ended).unseen_spans()
        sums = recorded.sum_over_time(spans)
        assert (None if sums is None else sums.largest()) == tree_bound(aggregator._evidence)
        latest = max((span.end for span in spans), default=None)
        assert recorded.tree.unseen_max_bytes(latest) == aggregator.processes.unseen_max_bytes(latest)
        folded = {process.pid: process.bound for process in aggregator.processes.recent()}
        assert {process.bounds.pid: process.bounds.bound for process in recorded.all} == folded
        for watermark in (0, MIB, 300 * MIB):
            assert recorded.tree.have_left(watermark, 0, 0) == aggregator.processes.have_left(watermark, 0, 0)
        assert [shape(peak) for peak in run.peaks[:4]] == [shape(peak) for peak in aggregator.peaks()[:4]]


GROUP: dict[str, Any] = {
    "error": MIB,
    "shared": 0,
    "outside": 0,
    "swapped": 0,
    "joined": False,
}


@pytest.mark.parametrize(
    ("watermark", "limits", "changed", "bound"),
    [
        (180 * MIB, (200 * MIB, 200 * MIB), {}, 181 * MIB),
        (180 * MIB, None, {}, None),
        # a limit that was raised during the run: the watermark knows
        (300 * MIB, (200 * MIB, 400 * MIB), {}, 301 * MIB),
        # a kernel that keeps no watermark: the limit alone, if it never changed
        (None, (200 * MIB, 200 * MIB), {}, 201 * MIB),
        (None, (200 * MIB, 400 * MIB), {}, None),
        (None, None, {}, None),
        (180 * MIB, (200 * MIB, 200 * MIB), {"shared": 50 * MIB}, 231 * MIB),
        (180 * MIB, (200 * MIB, 200 * MIB), {"shared": None}, None),
        (180 * MIB, (200 * MIB, 200 * MIB), {"outside": 1}, None),
        (180 * MIB, (200 * MIB, 200 * MIB), {"outside": None}, None),
        (180 * MIB, (200 * MIB, 200 * MIB), {"swapped": 4096}, None),
        (180 * MIB, (200 * MIB, 200 * MIB), {"swapped": None}, None),
        (180 * MIB, (200 * MIB, 200 * MIB), {"joined": True}, None),
    ],
)
def test_what_the_group_bounds(
    watermark: int | None, limits: tuple[int, int] | None, changed: dict[str, Any], bound: int | None
) -> None:
    assert certainty.tree_bound_by_group(watermark, limits, **GROUP | changed) == bound


def test_the_fault_ledger_bounds_a_family_by_what_it_gained_or_by_what_it_holds() -> None:
    new = certainty.gained(2560, 2 << 20, page=4096)
    assert new == 12 * MIB
    # four workers hold 100 MiB each, which are one and the same but for what they gained
    assert certainty.family_kept(100 * MIB, new, 400 * MIB) == 112 * MIB
    # one process has given 60 MiB back
    assert certainty.family_kept(100 * MIB, new, 40 * MIB) == 40 * MIB
    # a child may have been born that nobody has read: it may have what was given back
    assert certainty.family_kept(100 * MIB, new, None) == 112 * MIB
    # what was given back may have been given back after the peak
    assert certainty.family_most(100 * MIB, new, None) == 112 * MIB
    assert certainty.family_most(100 * MIB, new, 105 * MIB) == 105 * MIB


def test_what_was_there_at_once_is_what_was_not_gained_meanwhile() -> None:
    assert certainty.certainly_there(300 * MIB, MIB) == 299 * MIB
    assert certainty.certainly_there(MIB, 2 * MIB) == 0
    assert certainty.certainly_there_of_shares(300 * MIB, 2 * MIB, MIB) == 297 * MIB


@pytest.mark.parametrize(
    ("held", "least", "own"),
    [
        # read first with what it had of its parent
        (84, 60, 24),
        # read first with all that it has: nobody knows whose that is
        (84, 84, 0),
        # it has given back since what an earlier look saw
        (40, 60, 0),
        # less than the counters may be off
        (61, 60, 0),
    ],
)
def test_what_a_forked_process_has_beyond_its_least_is_its_own(held: int, least: int, own: int) -> None:
    assert certainty.own_pages(held, least, 1) == max(0, own - 1)


def test_own_pages_of_forked_processes_were_there_beside_one_of_them() -> None:
    own = [certainty.own_pages(71 * MIB, 47 * MIB, 0) for _ in range(3)]
    assert certainty.family_there(71 * MIB, sum(own)) == 143 * MIB


def test_pages_that_no_fault_brought_are_noticed() -> None:
    assert certainty.is_outside_ledger(10 * MIB, 80 * MIB, MIB, MIB // 4)
    assert not certainty.is_outside_ledger(10 * MIB, 80 * MIB, 70 * MIB, MIB // 4)


@pytest.mark.parametrize(
    ("mapped", "machine", "rise", "had"), [(320, 88, 80, 88), (20, 500, 120, 120), (0, 500, 0, 0)]
)
def test_shared_memory_counts_once_and_unmapped_files_too(
    mapped: int, machine: int, rise: int, had: int
) -> None:
    assert certainty.shared_at_tick(mapped, machine, rise) == had


def test_shared_memory_that_faults_brought_is_not_added_twice() -> None:
    assert certainty.shared_most(20, 120, 30) == 90
    assert certainty.shared_most(20, 50, 30) == 20


@pytest.mark.parametrize("high", [100, 100 * MIB, 102 * MIB, 300 * MIB])
def test_nothing_is_exact_without_a_group(high: int) -> None:
    """Kernel memory, and files in memory between two ticks, are in no counter: near bounds are of what processes have."""
    peak = certainty.tree_of_processes(100 * MIB, high)
    assert peak is not None
    assert peak.certainty is Certainty.INTERVAL
    assert (peak.low, peak.high) == (100 * MIB, max(100 * MIB, high))
    assert certainty.tree_of_processes(0, None) is None


def test_bounds_are_no_nearer_than_the_counters_are_true() -> None:
    peak = certainty.tree_of_processes(240 * MIB, 240 * MIB, ERROR)
    assert peak is not None
    assert (peak.low, peak.high) == (240 * MIB, 240 * MIB + ERROR)


@pytest.mark.parametrize("processors", [1, 2, 3, 4, 16, 64, 256])
@pytest.mark.parametrize("size", [9 * MIB, 69 * MIB, 300 * MIB, 20_000 * MIB, 400_000 * MIB])
def test_exact_is_one_thing_on_every_machine(processors: int, size: int) -> None:
    """With 64 processors, 69 MiB are 0 to 164 MiB and not exact."""
    error = kernel.rss_error(1, processors, "6.12")
    charged = certainty.charge_error(processors)
    for off, peak in (
        (error, certainty.process_peak(size, size, error, 0)),
        (error, certainty.largest_process(size, size, size, error, 0, at=None, pid=None)),
        (error, certainty.largest_process(0, size, size, error, 0, at=None, pid=None)),
        (charged, certainty.lifetime_watermark(MIB, size, charged)),
        (charged, certainty.tree_from_cgroup(max(0, size - charged), size + charged)),
    ):
        assert peak is not None
        assert (peak.low, peak.high) == (max(0, size - off), size + off)
        exact = off <= max(MIB, size / 200)
        assert peak.certainty is (Certainty.EXACT if exact else Certainty.INTERVAL)
        assert exact or peak.estimate in (size, None)
        assert Peak.from_json(peak.to_json()) == peak


def test_an_exact_figure_of_an_older_version_is_a_range_if_its_error_is_large() -> None:
    old = Peak(69 * MIB, Certainty.EXACT, 0, 164 * MIB, how="VmHWM")
    new = Peak.from_json(old.to_json())
    assert new == Peak.interval(0, 164 * MIB, how="VmHWM", estimate=69 * MIB)


def test_an_error_of_many_processors_makes_no_tree_exact() -> None:
    """64 processors may hold back 95 MiB; what is called exact is 1 MiB or 0.5 % off at the most."""
    far = certainty.tree_from_bounds(100 * MIB, 110 * MIB, 95 * MIB)
    assert far is not None
    assert far.certainty is Certainty.INTERVAL


@pytest.mark.parametrize(
    ("part", "whole", "expected"),
    [
        (Peak.interval(5, 9), Peak.interval(4, 7), Peak.interval(5, 7)),
        (Peak.interval(5, None), Peak.interval(4, 7), Peak.interval(5, 7)),
        (Peak.interval(5, 6), Peak.interval(4, 7), Peak.interval(5, 6)),
        (Peak.interval(5, 9), Peak.interval(4, None), Peak.interval(5, 9)),
        (Peak.exact(10, 2), Peak.exact(9, 1), Peak(10, Certainty.EXACT, 8, 10)),
        (Peak.sampled(9), Peak.exact(7), Peak.sampled(9)),
        (None, Peak.exact(7), None),
        (Peak.exact(7), None, Peak.exact(7)),
    ],
)
def test_a_part_has_no_upper_bound_above_that_of_the_whole(
    part: Peak | None, whole: Peak | None, expected: Peak | None
) -> None:
    assert certainty.no_more_than(part, whole) == expected


@pytest.mark.parametrize(
    ("part", "whole", "expected"),
    [
        (Peak.exact(48, 2), Peak.exact(50, 1), Peak(50, Certainty.EXACT, 49, 50)),
        (Peak.interval(40, 60), Peak.exact(50, 1), Peak(50, Certainty.EXACT, 49, 51)),
        (Peak.exact(50, 1), Peak.interval(40, None), Peak(50, Certainty.EXACT, 49, 51)),
        (Peak.interval(40, None), Peak.interval(45, None), Peak.interval(45, None)),
        (Peak.interval(40, 60), Peak.interval(45, 70), Peak.interval(45, 60)),
        (Peak.exact(40, 1), Peak.exact(50, 1), Peak.exact(40, 1)),  # it was not in this part
        (Peak.sampled(9), Peak.exact(10), Peak.sampled(9)),
        (Peak.censored(9), Peak.exact(10), Peak.censored(9)),
        (None, Peak.exact(7), None),
        (Peak.exact(7), None, Peak.exact(7)),
    ],
)
def test_where_the_peak_was_both_figures_are_one(
    part: Peak | None, whole: Peak | None, expected: Peak | None
) -> None:
    assert certainty.of_one_moment(part, whole) == expected
