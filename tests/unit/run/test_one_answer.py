"""A run has one answer, while it is recorded and from its record."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from otel_memwatch.model import ProcessEvent, ProcessNote, ProcessRecord
from otel_memwatch.record.operation_line import line_of
from otel_memwatch.record.operation_lines import OperationLines
from otel_memwatch.record.schema import sample_maker
from otel_memwatch.run import RunAggregator, load
from otel_memwatch.run.aggregate import METRICS
from otel_memwatch.run.conditions import RunConditions
from otel_memwatch.run.peaks import tree_bound
from otel_memwatch.run.processes import RecordedProcesses
from otel_memwatch.run.sample_series import TreeSeries
from otel_memwatch.truth.cgroup import UncountedFaults
from tests.support.recorded import shape
from tests.support.run_directory import MIB, PID, STARTED, RunDirectory, column

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
                    reported[-1].add([line_of(dict(line))])
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
        spans = TreeSeries(run.samples(METRICS), conditions, all_ended=recorded.all_ended).unseen_spans()
        sums = recorded.sum_over_time(spans)
        assert (None if sums is None else sums.largest()) == tree_bound(aggregator._evidence)
        latest = max((span.end for span in spans), default=None)
        assert recorded.tree.unseen_max_bytes(latest) == aggregator.processes.unseen_max_bytes(latest)
        folded = {process.pid: process.bound for process in aggregator.processes.recent()}
        assert {process.bounds.pid: process.bounds.bound for process in recorded.all} == folded
        for watermark in (0, MIB, 300 * MIB):
            assert recorded.tree.have_left(watermark, UncountedFaults(), 0) == aggregator.processes.have_left(
                watermark, UncountedFaults(), 0
            )
        assert [shape(peak) for peak in run.peaks[:4]] == [shape(peak) for peak in aggregator.peaks()[:4]]
