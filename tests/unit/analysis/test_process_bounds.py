"""What is known of one process: here, what a control group was certainly charged for it."""

from __future__ import annotations

import pytest

from otel_memwatch.analysis.process_bounds import ProcessBounds
from otel_memwatch.analysis.run_conditions import RunConditions
from otel_memwatch.model import ProcessEvent, ProcessNote, ProcessRecord

MIB = 1024**2
BASH = {"rss": 3 * MIB, "peak": 3 * MIB, "file": 2 * MIB}
"""As its status was read."""
EXEC = {"rss": 9 * MIB, "peak": 3 * MIB, "file": 2 * MIB, "note": ProcessNote.EXEC}
"""Python in its place: its size is known, its status not yet."""
PYTHON = {"rss": 9 * MIB, "peak": 9 * MIB, "file": 6 * MIB}
ENDED = {"event": ProcessEvent.EXIT, "rss": 9 * MIB, "peak": 3 * MIB, "file": 2 * MIB, "childless": True}


@pytest.mark.parametrize(
    ("records", "charged"),
    [
        ([BASH], 1),
        ([BASH, EXEC], 1),
        ([BASH, EXEC, PYTHON], 3),
        ([BASH, EXEC, ENDED | {"max_rss": 10 * MIB}], 1),
        ([BASH, EXEC, ENDED | {"max_rss": 200 * MIB}], 136),
        ([{"rss": 300 * MIB}], 0),
        ([{"rss": 300 * MIB, "peak": 300 * MIB}], 0),
        ([{"rss": 300 * MIB, "peak": 300 * MIB, "file": 6 * MIB}], 294),
    ],
)
def test_file_pages_are_known_of_what_was_read_with_them(
    records: list[dict[str, object]], charged: int
) -> None:
    process = ProcessBounds(7, 0.0, RunConditions.of({}))
    for time, figures in enumerate(records):
        event = figures.get("event", ProcessEvent.FIGURES)
        rest = {name: value for name, value in figures.items() if name != "event"}
        process.add_record(ProcessRecord(event, float(time), 7, 0.0, **rest), 0)  # type: ignore[arg-type]
    assert process.charged(0) == charged * MIB
