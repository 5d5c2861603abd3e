"""What is known of the processes of a run: here, what a control group was certainly charged for one of them."""

from __future__ import annotations

import pytest

from otel_memwatch.model import ProcessEvent, ProcessRecord
from otel_memwatch.run.conditions import RunConditions
from otel_memwatch.run.process_bounds import ProcessCollection
from otel_memwatch.truth.cgroup import UncountedFaults

MIB = 1024**2
READ = {"rss": 9 * MIB, "peak": 9 * MIB, "file": 6 * MIB, "needed": 3 * MIB}
ENDED = {"event": ProcessEvent.EXIT, "exit_code": 0, "childless": True}


def tree_of(*records: dict[str, object]) -> ProcessCollection:
    tree = ProcessCollection(RunConditions.of({}))
    for time, figures in enumerate(records):
        event = figures.get("event", ProcessEvent.FIGURES)
        rest = {name: value for name, value in figures.items() if name != "event"}
        tree.add_record(ProcessRecord(event, float(time), 7, 0.0, **rest))  # type: ignore[arg-type]
    return tree


@pytest.mark.parametrize(
    ("records", "charged"),
    [
        ([READ], 3),
        # what was between samples had file pages that nothing read
        ([READ, READ | {"peak": 200 * MIB}], 3),
        ([READ, READ | ENDED | {"max_rss": 200 * MIB}], 3),
        ([READ, READ | {"needed": 300 * MIB}, READ | {"needed": 300 * MIB} | ENDED], 300),
        # an old record
        ([{"rss": 300 * MIB, "peak": 300 * MIB, "file": 6 * MIB}], 0),
    ],
)
def test_only_what_a_sample_read_as_memory_was_charged(
    records: list[dict[str, object]], charged: int
) -> None:
    tree = tree_of(*records)
    assert tree.charged_bytes == charged * MIB
    assert tree.knows_needed is bool(charged)


@pytest.mark.parametrize(("faults", "left"), [(500, True), (5000, False)])
def test_a_mapped_file_does_not_leave_the_group(faults: int, left: bool) -> None:
    """Its pages are charged to its first reader: a size above the group's watermark proves nothing."""
    tree = tree_of(READ, READ | ENDED | {"max_rss": 250 * MIB})
    assert tree.have_left(4 * MIB, UncountedFaults(), faults) is left


def test_what_a_sample_read_beyond_the_group_was_elsewhere() -> None:
    tree = tree_of(READ | {"needed": 300 * MIB})
    assert tree.have_left(2 * MIB, UncountedFaults(), 1 << 20)
