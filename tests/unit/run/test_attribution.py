"""Which operation a peak belongs to: the operations' own watermarks decide, not the tick at which it was seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_memwatch.model import Certainty, Peak, RecordedOperation
from otel_memwatch.record.operation_index import ListedOperations
from otel_memwatch.reports import phrases
from otel_memwatch.run import load
from otel_memwatch.run.attribution import Candidates, attribute_peaks
from otel_memwatch.run.results import Peaks
from tests.support import recorded

MIB = 1 << 20
ERROR = 250 << 10
STARTED = 100.0


def operation(name: str, start: float, end: float | None, mib: float, pid: int = 7) -> RecordedOperation:
    peak = Peak.exact(round(mib * MIB), ERROR) if end is not None else Peak.interval(round(mib * MIB), None)
    return RecordedOperation(
        name=name,
        pid=pid,
        id=1,
        start=STARTED + start,
        end=None if end is None else STARTED + end,
        status="open" if end is None else "ok",
        trace_id="",
        span_id="",
        parent_span_id=None,
        peak=peak._replace(pid=pid),
    )


def single(begin: float, end: float) -> bool:
    """The run was one process."""
    return True


def several(begin: float, end: float) -> bool:
    """The tree was more than one process all the time."""
    return False


def tree(peak: Peak, *operations: RecordedOperation) -> Peak:
    found = attribute_peaks(
        Peaks(tree=peak), Candidates(ListedOperations(operations)), STARTED, 0.1, alone=single
    ).tree
    assert found is not None
    return found


def test_a_near_equal_window_before_does_not_take_the_peak_from_the_highest_watermark() -> None:
    """With libraries' pages each has more than the group was charged for; the tick at 7.14 s lies in epoch 57."""
    epochs = [operation(f"epoch {n}", 7.0 + (n - 57) * 0.13, 7.12 + (n - 57) * 0.13, 163.0 + 1.5 * (n - 57))
              for n in (57, 58, 59)]  # fmt: skip
    found = tree(Peak.interval(160 * MIB, 162 * MIB, at=7.14), *epochs)
    assert (found.operation, found.operations) == ("epoch 59", ())
    assert found.at == 7.26


def test_operations_of_one_process_that_shared_the_peak_are_named_together() -> None:
    """Two threads at once have one high-water mark. The memory stays: a later operation has the mark too."""
    threads = [
        operation(name, start, start + 2, 80) for name, start in (("left", 1), ("right", 2), ("later", 4))
    ]
    found = tree(Peak.exact(80 * MIB, ERROR, at=2.5), *threads)
    assert (found.operation, found.operations) == ("left", ("left", "right"))
    found = tree(Peak.exact(80 * MIB, ERROR, at=2.5), *threads[1:])
    assert (found.operation, found.operations) == ("right", ())


def test_the_sample_of_the_lower_bound_counts_beside_that_of_the_best_estimate() -> None:
    """14.4 MiB were certain in the first operation, and 14.5 are likely in the second."""
    peak = Peak.interval(15 * MIB, 22 * MIB, at=2.5, low_at=1.5, estimate=15 * MIB + 1)
    operations = operation("write", 1.0, 2.0, 9), operation("read", 2.1, 3.0, 9)
    found = tree(peak, *operations)
    assert (found.operation, found.operations, found.at) == ("read", ("read", "write"), 2.5)
    found = tree(peak._replace(low_at=2.2), *operations)
    assert (found.operation, found.operations) == ("read", ())


def test_a_mark_with_files_decides_only_if_its_operation_lasted_throughout_the_window() -> None:
    """A process of 16.2 MiB has 7 MiB of libraries; after it, a child and its parent needed 15.9 together."""
    operations = (
        operation("all", 0.0, 3.0, 16.2),
        operation("load", 1.0, 2.0, 16.2),
        operation("work", 2.02, 2.5, 13),
    )
    peak = Peak.interval(round(15.8 * MIB), 16 * MIB, at=2.05)
    peaks = Peaks(tree=peak)
    found = attribute_peaks(peaks, Candidates(ListedOperations(operations)), STARTED, 0.1, alone=several).tree
    assert found is not None
    assert (found.operation, found.operations) == ("all", ())
    inside = Peaks(tree=peak._replace(at=1.5))
    found = attribute_peaks(
        inside, Candidates(ListedOperations(operations)), STARTED, 0.1, alone=several
    ).tree
    assert found is not None
    assert (found.operation, found.operations) == ("load", ())


@pytest.mark.parametrize("lone", [False, True])
def test_the_marks_of_the_only_process_in_the_window_decide(lone: bool) -> None:
    """Workers ended before the window: only the spike, or the rest of its operation, had the peak."""
    marked = (
        operation("train", 0.0, 1.0, 500),
        operation("all", 1.0, 3.0, 478),
        operation("spike", 2.02, 2.06, 478),
        operation("after", 2.07, 2.5, 240),
    )

    def alone(begin: float, end: float) -> bool:
        return lone and begin >= STARTED + 1 and end <= STARTED + 3

    listed = Candidates(ListedOperations(marked))
    peak = Peak.exact(round(469.5 * MIB), MIB, at=2.1)
    found = attribute_peaks(Peaks(tree=peak), listed, STARTED, 0.1, alone=alone).tree
    assert found is not None
    assert (found.operation, found.operation_likely) == ("spike" if lone else "all", False)
    wide = Peaks(tree=peak._replace(certainty=Certainty.INTERVAL, low=400 * MIB, high=490 * MIB))
    found = attribute_peaks(wide, listed, STARTED, 0.1, alone=alone).tree
    assert found is not None
    assert found.operation_likely


def test_the_operation_of_a_wide_range_is_likely(tmp_path: Path) -> None:
    """A copy of 40 MiB lived between two samples of the first operation; a sample saw 50 in the second."""
    operations = operation("fork", 1.0, 2.0, 9), operation("read", 2.1, 3.0, 9)
    wide = tree(Peak.interval(40 * MIB, 78 * MIB, at=2.5, estimate=50 * MIB), *operations)
    assert (wide.operation, wide.operation_likely) == ("read", True)
    assert Peak.from_json(wide.to_json()) == wide
    run = load(recorded.short(tmp_path / "run"))
    assert phrases.peak_at(run, wide).endswith("likely during read")
    for certain in (Peak.exact(50 * MIB, at=2.5), Peak.interval(40 * MIB, None, at=2.5)):
        assert tree(certain, *operations).operation_likely is False
    by_its_own_mark = tree(Peak.interval(8 * MIB, 78 * MIB, at=2.5, pid=7), *operations)
    assert by_its_own_mark.operation_likely is False


def test_where_it_is_unknown_both_are_named(tmp_path: Path) -> None:
    found = tree(
        Peak.exact(160 * MIB, ERROR, at=7.14),
        operation("epoch 57", 6.9, 7.0, 150),
        operation("epoch 58", 7.0, 7.1, 163.0),
        operation("epoch 59", 7.1, 7.2, 163.2),
    )
    assert (found.operation, found.operations) == ("epoch 58", ("epoch 58", "epoch 59"))
    assert found.at == 7.14
    assert Peak.from_json(found.to_json()) == found
    run = load(recorded.short(tmp_path / "run"))
    assert phrases.when_and_where(run, found._replace(at=None)) == "during epoch 58 or 59"
    others = found._replace(at=None, operations=("load", "train", "save"))
    assert phrases.when_and_where(run, others) == "during load, train or save"
    others = found._replace(at=None, operations=("a", "b", "c", "d"))
    assert phrases.when_and_where(run, others) == "during a or another one"


def test_of_many_that_cannot_be_distinguished_the_one_around_them_is_named() -> None:
    batches = [operation(f"batch {n}", n, n + 0.9, 100 + n / 100) for n in range(9)]
    around = operation("epoch", -1, 20, 100.08)
    found = tree(Peak.exact(100 * MIB, ERROR, at=3.0), around, *batches)
    assert (found.operation, found.operations) == ("epoch", ())
    alone = tree(Peak.exact(100 * MIB, ERROR, at=3.0), *batches)
    assert alone.operation == "batch 8"
    assert len(alone.operations) == 4


def test_one_that_keeps_its_level_was_reached_in_the_first() -> None:
    found = tree(
        Peak.exact(100 * MIB, ERROR, at=1.0),
        operation("load", 0, 1, 100),
        operation("train", 1, 2, 100),
        operation("save", 2, 3, 99.9),
    )
    assert (found.operation, found.operations) == ("load", ())


def test_the_innermost_unless_more_was_needed_outside_it() -> None:
    inner, outer = operation("inner", 1, 2, 100), operation("outer", 0, 3, 100)
    assert tree(Peak.exact(100 * MIB, ERROR, at=1.5), outer, inner).operation == "inner"
    outer = operation("outer", 0, 3, 100.3)
    assert tree(Peak.exact(100 * MIB, ERROR, at=1.5), outer, inner).operation == "inner", "within the error"
    outer = operation("outer", 0, 3, 101)
    assert tree(Peak.exact(100 * MIB, ERROR, at=1.5), outer, inner).operation == "outer"


def test_what_several_processes_needed_together_belongs_to_the_tick() -> None:
    found = tree(
        Peak.exact(300 * MIB, ERROR, at=2.5),
        operation("a", 0, 2, 200),
        operation("b", 2.2, 4, 150),
        operation("c", 2.2, 4, 50, 8),
    )
    assert found.operation == "b"


def test_one_that_is_open_holds_what_it_certainly_had() -> None:
    peak = Peak.interval(100 * MIB, None, at=2.0)
    assert tree(peak, operation("done", 0, 1, 90), operation("open", 1, None, 100)).operation == "open"
    assert tree(peak, operation("done", 0, 2.1, 90), operation("open", 1, None, 20)).operation == "done"


def of_several_processes(peak: Peak, *operations: RecordedOperation) -> tuple[str | None, tuple[str, ...]]:
    listed = Candidates(ListedOperations(operations))
    found = attribute_peaks(Peaks(tree=peak), listed, STARTED, 0.1, alone=several).tree
    assert found is not None
    return found.operation, found.operations


def test_an_operation_that_only_touches_the_window_is_one_of_two() -> None:
    """The samples are at 1.4 and 1.5 s; a child could have had the peak after `short` had ended."""
    job, step, short = (
        operation("job", 0, 3, 20),
        operation("step", 1, 2, 20),
        operation("short", 1.41, 1.47, 20),
    )
    at = Peak.exact(70 * MIB, ERROR, at=1.5)
    assert of_several_processes(at, job, step, short) == ("short", ("short", "step"))
    assert of_several_processes(at, job, step) == ("step", ())
    assert of_several_processes(at, job, operation("all of it", 1.3, 1.6, 20)) == ("all of it", ())


def test_of_several_processes_a_resident_size_above_the_lower_bound_decides_nothing() -> None:
    """`large` has 25 MiB with libraries; 36 MiB were needed in `other`, by a child."""
    large, other = operation("large", 1, 1.5, 25), operation("other", 2, 2.5, 16)
    between = Peak.interval(13 * MIB, 36 * MIB, at=2.3)
    assert of_several_processes(between, large, other) == ("other", ())
    assert of_several_processes(between._replace(at=None), large, other) == (None, ())
    assert of_several_processes(Peak.exact(24 * MIB, ERROR, at=1.45), large, other) == ("large", ())
