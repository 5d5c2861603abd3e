"""Statistics of this process's allocators."""

from __future__ import annotations

import json
from typing import Any

import pytest

from otel_memwatch.in_target.operations import heap
from otel_memwatch.in_target.operations.process_state import read_quietly

TEXT = b"""Small block threshold = 512, in 32 size classes.

# arenas allocated current         =                  143
143 arenas * 1048576 bytes/arena   =          149,946,368

# bytes in allocated blocks        =          146,330,592
# bytes in available blocks        =              279,632
45 unused pools * 16384 bytes      =              737,280
# bytes lost to pool headers       =              432,480
Total                              =          149,946,368
"""


def test_statistics_of_pymalloc() -> None:
    assert heap.of_pymalloc(TEXT) == (146330592, 279632 + 737280, 279632)


@pytest.mark.parametrize("text", [b"", b"# bytes in allocated blocks = 1", TEXT.replace(b"279,632", b"-1")])
def test_other_text_is_none(text: bytes) -> None:
    assert heap.of_pymalloc(text) is None


def _statistics(threads: int) -> Any:
    return "glibc", 10, 20 + threads, 5, TEXT


def test_a_reading_is_json() -> None:
    found = heap.HeapReader(_statistics, read_quietly).read()
    assert found is not None
    written = json.loads(found[0])
    threads = written["threads"]
    assert written["allocators"]["glibc"] == {"live": 10, "free": 20 + threads, "scattered": 5}
    assert written["allocators"]["pymalloc"]["live"] == 146330592
    assert 0 < written["anonymous"] <= written["private"]


def test_without_statistics_nothing_is_read_again() -> None:
    reader = heap.HeapReader(lambda _: (None, None, None, None, None), read_quietly)
    assert reader.read() is None
    assert not reader.may_read


def test_a_slow_reading_is_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.5])
    monkeypatch.setattr(heap, "perf_counter", lambda: next(clock))
    reader = heap.HeapReader(_statistics, read_quietly)
    assert reader.read() is not None
    assert not reader.may_read


def test_readings_take_a_thousandth_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.01])
    monkeypatch.setattr(heap, "monotonic", lambda: 100.0)
    monkeypatch.setattr(heap, "perf_counter", lambda: next(clock))
    reader = heap.HeapReader(_statistics, read_quietly)
    reader.read()
    assert reader.due() == pytest.approx(105)  # 10 ms, of which 5 in advance
