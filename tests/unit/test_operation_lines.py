from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from otel_memwatch.operations import lines
from otel_memwatch.operations.counters import Reading
from otel_memwatch.operations.opened import Opened

BYTES = st.integers(0, 1 << 50)
SECONDS = st.floats(0, 1e9)
USAGE = st.tuples(SECONDS, SECONDS, *[st.integers(0, 1 << 40)] * 14)


def usage_after(usage: tuple[float, ...], more: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(first + second for first, second in zip(usage, more, strict=True))


@given(BYTES, BYTES, BYTES, USAGE, USAGE, USAGE, st.booleans())
def test_the_quick_way_of_writing_a_closing_is_the_long_way(
    rss: int,
    segment: int,
    low: int,
    usage: tuple[float, ...],
    more: tuple[float, ...],
    children: tuple[float, ...],
    reaped: bool,
) -> None:
    opened = Opened(None, 7, None, "0" * 32, "1" * 16)  # type: ignore[arg-type]
    opened.time, opened.first = 1.5, (segment, rss, usage, 0)
    before = Reading(children, b"", 0, 0)
    after = Reading(usage_after(children, more), b"", 0, 0) if reaped else before
    closing = 2.25, (segment, low, segment + 1, "exact"), rss, rss, before, after, None
    last = segment, rss, usage_after(usage, more), 0
    quick = lines._good(opened, last, closing, b',"more":1')
    assert quick == lines._any(opened, last, closing, None) + b',"more":1}\n'


def test_what_is_unknown_is_null() -> None:
    opened = Opened(None, 7, None, "0" * 32, "1" * 16)  # type: ignore[arg-type]
    opened.time, opened.first = 1.5, (None, None, None, 0)
    opened.before = before = Reading(None, b"", 0, 0)
    after = Reading(None, b"", 0, 0)
    last = None, None, None, 0
    closing = 2.5, (None, None, None, "sampled"), None, None, before, after, {"peak": 3}
    line = json.loads(lines.closing_line(opened, last, closing, "ValueError", {"a": "ü"}))
    assert line == {
        "close": 7, "time": 2.5, "status": "error", "error": "ValueError", "rss": None, "segment": None, "peak": None,
        "low": None, "high": None, "certainty": "sampled", "cpu_user": None, "cpu_system": None, "minor_faults": None,
        "major_faults": None, "read_bytes": None, "write_bytes": None, "read_chars": None, "write_chars": None,
        "gpu": {"peak": 3}, "attributes": {"a": "ü"},
    }  # fmt: skip
