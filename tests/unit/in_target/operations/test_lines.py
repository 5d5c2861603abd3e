from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from otel_memwatch.in_target.operations import lines
from otel_memwatch.in_target.operations.counters import Reading
from otel_memwatch.in_target.operations.opened import Opened

Used = tuple[float, float, int, int]

SECONDS = st.floats(0, 1e9)
COUNTS = st.integers(0, 1 << 40)
USED = st.tuples(SECONDS, SECONDS, COUNTS, COUNTS)
BYTES = st.tuples(*[st.integers(0, 1 << 50)] * 4)


def added(used: Used, more: Used) -> Used:
    return used[0] + more[0], used[1] + more[1], used[2] + more[2], used[3] + more[3]


@given(USED, USED, USED, st.none() | USED, BYTES, BYTES)
def test_what_was_used_is_the_difference_and_that_of_reaped_children(
    first: Used, used: Used, old: Used, reaped: Used | None, before: tuple[int, ...], moved: tuple[int, ...]
) -> None:
    opened = Opened(None, None, "0" * 32, "1" * 16)  # type: ignore[arg-type]
    opened.id, opened.time, opened.first = 7, 1.5, (20, 10, first, 0)
    last = 30, 15, added(first, used), 0
    start = Reading(old, before)  # type: ignore[arg-type]
    end = Reading(
        old if reaped is None else added(old, reaped), tuple(map(sum, zip(before, moved, strict=True)))
    )
    opened.closing = 2.25, (30, 29, 31, "exact"), opened.first, last, start, end, None
    line = json.loads(lines.closing_line(opened, opened.closing, None, None))
    for index, name in enumerate(("cpu_user", "cpu_system", "minor_faults", "major_faults")):
        expected = used[index] + (reaped[index] if reaped else 0)
        assert abs(line[name] - expected) <= 1e-6 + 1e-9 * (first[index] + expected + old[index])
    assert [line[name] for name in ("read_bytes", "write_bytes", "read_chars", "write_chars")] == list(moved)
    assert (line["rss"], line["segment"], line["peak"], line["low"], line["high"]) == (15, 30, 30, 29, 31)
    assert lines.closing_line(opened, opened.closing, None, None).endswith(lines.closing_more(start, end))


def test_what_is_unknown_is_null() -> None:
    opened = Opened(None, None, "0" * 32, "1" * 16)  # type: ignore[arg-type]
    opened.id, opened.time, opened.first = 7, 1.5, (None, None, None, 0)
    unknown = None, None, None, 0
    nothing = Reading(None, None)
    closing = 2.5, (None, None, None, "sampled"), unknown, unknown, nothing, Reading(None, None), {"peak": 3}
    line = json.loads(lines.closing_line(opened, closing, "ValueError", {"a": "ü"}))
    assert line == {
        "close": 7, "time": 2.5, "status": "error", "error": "ValueError", "rss": None, "segment": None, "peak": None,
        "low": None, "high": None, "certainty": "sampled", "cpu_user": None, "cpu_system": None, "minor_faults": None,
        "major_faults": None, "read_bytes": None, "write_bytes": None, "read_chars": None, "write_chars": None,
        "gpu": {"peak": 3}, "attributes": {"a": "ü"},
    }  # fmt: skip
    opening = json.loads(
        lines.opening_line(opened, "näme", None, 5, lines.opening_more({"b": 1}, exported=True))
    )
    assert opening == {
        "open": 7, "time": 1.5, "name": "näme", "trace": "0" * 32, "span": "1" * 16, "parent": None, "thread": 5,
        "rss": None, "segment": None, "attributes": {"b": 1}, "exported": True,
    }  # fmt: skip
