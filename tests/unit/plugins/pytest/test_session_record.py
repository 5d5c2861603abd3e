"""Peaks of tests with children, from the record beside the session."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_memwatch.model import ProcessEvent, ProcessRecord
from otel_memwatch.plugins.pytest.session_record import trees
from otel_memwatch.run import load
from tests.support.run_directory import MIB, PID, STARTED, RunDirectory, column

CHILD = 5000
ERROR = 256 * 1024


def record(event: ProcessEvent, at: float, peak: int) -> ProcessRecord:
    """Return figures of a child that started 0.15 s after the run."""
    return ProcessRecord(event, STARTED + at, CHILD, STARTED + 0.15, rss=peak * MIB, peak=peak * MIB)


def low_of_test(path: Path, records: list[ProcessRecord], end: float, reading: float | None = None) -> int:
    """Return the lower bound of a test from 0.12 s to `end`; the sample at 0.3 s took `reading` seconds."""
    built = RunDirectory(path, reading_seconds=0.002)
    built.columns([column("process.memory.usage"), column("memwatch.sampler.reading.duration")])
    for place in range(1, 9):
        built.tick(place / 10, 20 * MIB, reading if place == 3 else None)
    for one in records:
        built.process(one)
    boundary = {"rss": 10 * MIB, "segment": 10 * MIB}
    opening = {
        "open": 1,
        "time": 0.12,
        "name": "test",
        "trace": "t",
        "span": "s1",
        "parent": None,
        **boundary,
    }
    peak = {"peak": 20 * MIB, "low": 20 * MIB, "high": 20 * MIB, "certainty": "exact"}
    built.operations([opening, {"close": 1, "time": end, "status": "ok", **boundary, **peak}])
    found = trees(load(path), [(PID, 1)])
    (peak_of_test,) = found.values()
    return peak_of_test.low or 0


@pytest.mark.parametrize(
    ("end", "reading", "counts"),
    [
        (0.34, None, True),
        (0.34, 0.03, True),  # read at 0.33 at the latest
        (0.34, 0.2, False),  # the child may have been read after the test
        (0.304, None, True),  # a sample that states nothing took at most 2 ms
        (0.301, None, False),
    ],
)
def test_a_child_counts_if_its_sample_was_read_within_the_test(
    tmp_path: Path, end: float, reading: float | None, counts: bool
) -> None:
    low = low_of_test(tmp_path, [record(ProcessEvent.SEEN, 0.3, 70)], end, reading)
    assert (low == 70 * MIB - ERROR) is counts


def test_growth_of_a_child_after_the_test_is_not_the_tests(tmp_path: Path) -> None:
    """A fixture's server starts in one test and grows in a later one."""
    records = [record(ProcessEvent.SEEN, 0.3, 40), record(ProcessEvent.FIGURES, 0.6, 90)]
    assert low_of_test(tmp_path, records, 0.34) == 40 * MIB - ERROR


def test_an_exit_has_figures_of_the_sample_before(tmp_path: Path) -> None:
    records = [record(ProcessEvent.SEEN, 0.2, 40), record(ProcessEvent.EXIT, 0.4, 90)]
    assert low_of_test(tmp_path, records, 0.34) == 90 * MIB - ERROR
