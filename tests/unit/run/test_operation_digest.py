"""Operations in little memory, however many: totals, those that needed most, and those that may hold the peak."""

from __future__ import annotations

import gc
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from otel_memwatch.model import Peak, RecordedOperation
from otel_memwatch.record.follower import OperationFollower
from otel_memwatch.record.operation_index import ListedOperations
from otel_memwatch.record.operation_line import line_of
from otel_memwatch.record.operation_lines import OperationLines, row_of
from otel_memwatch.record.operation_writer import closing_line, opening_line
from otel_memwatch.reports.markdown_summary import markdown
from otel_memwatch.reports.summary import summary
from otel_memwatch.reports.text_report import text
from otel_memwatch.run import load, operation_aggregator, peak_holders
from otel_memwatch.run.attribution import Candidates, attribute_peaks
from otel_memwatch.run.operation_aggregator import OperationAggregator
from otel_memwatch.run.operation_digest import moments_of
from otel_memwatch.run.operation_names import series_name
from otel_memwatch.run.results import Peaks
from tests.support import recorded

MIB = 1 << 20


def single(_begin: float, _end: float) -> bool:
    """The run was one process."""
    return True


def operation(name: str, start: float, end: float | None, mib: float, identity: int) -> RecordedOperation:
    peak = (
        Peak.exact(round(mib * MIB), 250 << 10) if end is not None else Peak.interval(round(mib * MIB), None)
    )
    status = "ok" if end is not None else "open"
    return RecordedOperation(
        name, 7, identity, start, end, status, "t", f"{identity}", None, peak._replace(pid=7),
        totals={"cpu_seconds": 0.5},
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(30))
def test_of_more_than_are_kept_the_peak_belongs_to_the_same(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their peaks so far are looked at as the monitor does, whatever the final one is."""
    monkeypatch.setattr(operation_aggregator, "LIMIT", 5)
    monkeypatch.setattr(peak_holders, "RECENT", 8)
    choose = random.Random(seed)
    operations = [
        operation(f"step {n % 5}", n * 0.1, n * 0.1 + choose.choice([0.05, 0.09]), choose.choice([100, 150, 160, 160.1]), n)
        for n in range(200)
    ]  # fmt: skip
    job = operation("job", 0, None, 50, 1000)
    so_far = OperationAggregator()
    for number, one in enumerate(operations):
        so_far.close(row_of(one))
        if number == 100:
            so_far.look_at([10.05], 0.1, [job])
    above = choose.random() < 0.5
    peak = Peak.interval((500 if above else 160) * MIB, None, at=10.05, pid=7)
    peaks = Peaks(main=peak, tree=peak._replace(pid=None))
    assert moments_of(peaks, 0.0) == [10.05, 10.05]
    found = attribute_peaks(peaks, so_far.candidates([job]), 0.0, 0.1, alone=single)
    every = attribute_peaks(peaks, Candidates(ListedOperations([*operations, job])), 0.0, 0.1, alone=single)
    assert found.main is not None
    assert every.main is not None
    assert (found.main.operation, found.tree and found.tree.operation) == (
        every.main.operation,
        every.tree and every.tree.operation,
    )
    assert set(found.main.operations) == set(every.main.operations)


def test_memory_does_not_grow_with_their_number() -> None:
    so_far = OperationAggregator()
    sizes = []
    tracemalloc.start()
    for n in range(6_000):
        so_far.close(row_of(operation(f"name {n % 3} {n}", n, n + 0.5, 100 + n / 1000, n)))
        if n in (1_999, 5_999):
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert sizes[1] < sizes[0] + 256 * 1024
    assert so_far.table([]) is None
    assert so_far.closed == 6_000


@pytest.mark.parametrize("seed", range(10))
def test_two_lines_count_as_the_operation_that_they_make(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation_aggregator, "LIMIT", 5)
    choose = random.Random(seed)
    lines, light, whole = OperationLines(7), OperationAggregator(), OperationAggregator()
    time, open_now, made = 0.0, [], 0
    for identity in range(1, 600):
        time += choose.random() / 100
        opening = {
            "open": identity,
            "time": time,
            "name": f"step {choose.randrange(3)}",
            "span": f"{identity}",
        }
        lines.add([line_of(opening)])
        open_now.append(identity)
        while open_now and choose.random() < 0.6:
            time += choose.random() / 100
            low = choose.choice([100, 100, 101, 103]) * MIB
            closing: dict[str, Any] = {
                "close": open_now.pop(choose.randrange(len(open_now))), "time": time, "peak": low + 1000, "low": low,
                "high": low + 2 * MIB, "certainty": "exact", "cpu_user": choose.choice([0, 0.001]), "cpu_system": 0.002,
                "status": choose.choice(["ok", "error"]),
            }  # fmt: skip
            (row,) = lines.add([line_of(closing)])
            light.close(row)
            whole.close(row_of(row.operation()))
            made += 1
        if identity % 100 == 0:
            for one in (light, whole):
                one.look_at([time, time / 2], 0.1, lines.still_open())
    assert made > 300
    found = [
        attribute_peaks(
            Peaks(main=Peak.interval(low * MIB, None, at=round(time, 4), pid=7)),
            one.candidates([]),
            0.0,
            0.1,
            alone=single,
        )
        for one in (light, whole)
        for low in (100, 500)
    ]
    assert found[:2] == found[2:]
    assert light.totals() == whole.totals()
    assert [row.operation() for row in light.largest_of_names()] == [
        row.operation() for row in whole.largest_of_names()
    ]


def pair(number: int, start: float) -> bytes:
    """The two lines of a short operation in a process whose size does not change."""
    opening = opening_line(
        number=number, time=start, name=f"step {number % 3}", trace="1" * 32, span=f"{number:016x}",
        parent=None, thread=7, rss=MIB, segment=MIB,
    )  # fmt: skip
    closing = closing_line(
        number=number, time=start + 1e-5, error=None, rss=MIB, segment=MIB, peak=(MIB, MIB // 2, 2 * MIB, "exact"),
        used=(0.0, 0.0, 0, 0), moved=(0, 0, 0, 0),
    )  # fmt: skip
    return opening + closing


def test_that_a_peak_is_seen_anew_at_each_tick_makes_no_operations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A control group is charged for the pages of the record itself: its peak grows with what is marked."""
    made = []
    make = OperationLines.operation
    monkeypatch.setattr(OperationLines, "operation", lambda *lines: made.append(1) or make(*lines))
    follower, so_far = OperationFollower(tmp_path), OperationAggregator()
    for tick in range(100):
        begin = 10 + tick * 0.1
        with (tmp_path / "operations-7.jsonl").open("ab") as file:
            file.writelines(pair(tick * 100 + n + 1, begin + n * 1e-3) for n in range(100))
        # The tick is taken before all that stands in the file is read.
        so_far.look_at([10.0, begin + 0.1], 0.1, [])
        while follower.poll(on_close=so_far.close).behind:
            pass
    follower.close()
    assert so_far.closed == 10_000
    assert len(made) < 2_000, "the first thousand, and now and then one of the longest"
    last, longest = (row for row in so_far._moments if row.start > 11)
    assert last.start == pytest.approx(begin + 99e-3)
    assert longest.start >= begin


def test_few_are_all_kept() -> None:
    so_far = OperationAggregator()
    closed = [operation("a", n, n + 1, 5, n) for n in range(3)]
    for one in closed:
        so_far.close(row_of(one))
    still_open = operation("b", 9, None, 5, 9)
    table = so_far.table([still_open])
    assert table is not None
    assert list(table) == [*closed, still_open]


@pytest.mark.parametrize(
    ("name", "series"), [("epoch 12", "epoch"), ("epoch_12", "epoch"), ("12", "12"), ("a", "a")]
)
def test_a_number_at_the_end_is_no_name(name: str, series: str) -> None:
    assert series_name(name) == series


def test_reports_of_more_than_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = recorded.nested(tmp_path / "run")
    every = load(path).operations
    monkeypatch.setattr(operation_aggregator, "LIMIT", 3)
    run = load(path)
    digest = run.operation_digest
    assert (digest.number, digest.processes, digest.unnamed) == (len(every), 1, 0)
    totals = {one.name: one for one in digest.names}
    assert {name: one.number for name, one in totals.items()} == {
        "Load": 1, "Read weights": 1, "Check": 1, "step": 5, "forward": 5, "backward": 5,
    }  # fmt: skip
    step = [figures for figures in every if figures.operation.name == "step"]
    assert totals["step"].seconds == pytest.approx(sum(one.seconds for one in step))
    assert totals["step"].largest_peak == max(one.operation.peak.bytes for one in step if one.operation.peak)
    assert totals["Check"].failed == 1
    largest = digest.largest[0]
    (holder,) = (figures for figures in every if figures.sets_run_peak)
    assert (largest.operation.name, largest.tree_peak) == (holder.operation.name, holder.tree_peak)
    assert [one.operation.name for one in digest.open] == ["Train", holder.operation.name]
    written = text(run)
    assert f"Operations ({len(every)})" in written
    assert "All operations: --json" in written
    assert "Open when the run was killed" in written
    assert "step" in markdown(run)
    assert "Export" in summary(run)
    assert len(run.operations) == len(every)
