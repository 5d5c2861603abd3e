"""perf stat itself: what it counts, and what it leaves behind."""

from __future__ import annotations

import mmap
import os
import shutil
import threading
from pathlib import Path

import pytest

from otel_memwatch.compat.ipython import perf
from otel_memwatch.compat.ipython.perf import (
    PerfCounter,
)
from otel_memwatch.errors import Unavailable, UsageError
from tests.support.programs import PROGRAMS, run_file

needs_perf = pytest.mark.skipif(
    shutil.which("perf") is None and "CI" not in os.environ,
    reason="perf is not installed (apt install linux-perf)",
)


@needs_perf
def test_faults_of_all_threads_are_counted_from_start_to_stop() -> None:
    perf.check("page-faults")
    before = mmap.mmap(-1, 64 << 20)
    inside = mmap.mmap(-1, 2000 * mmap.PAGESIZE)
    before.write(b"x" * (8 << 20))
    counter = PerfCounter("page-faults")
    counter.start()
    thread = threading.Thread(target=lambda: [inside.__setitem__(i * mmap.PAGESIZE, 1) for i in range(2000)])
    thread.start()
    thread.join()
    (count,) = counter.stop()
    for i in range(5000):
        before[(8 << 20) + i * mmap.PAGESIZE] = 1
    assert count.event == "page-faults"
    assert count.value is not None
    assert 2000 <= count.value < 4000


@needs_perf
def test_an_unknown_event_is_reported_in_one_sentence() -> None:
    with pytest.raises(UsageError, match="perf has no event 'no-such-thing'"):
        perf.check("no-such-thing")


def test_perf_that_is_absent_is_reported_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(Unavailable, match="perf is not installed"):
        perf.check("cache-misses")
    counter = PerfCounter("cache-misses")
    counter.start()
    assert counter.stop() == []


@needs_perf
def test_a_counter_leaves_no_process_and_no_descriptor(tmp_path: Path) -> None:
    run_file(PROGRAMS / "compat" / "perf_counters.py", tmp_path)


@needs_perf
def test_files_that_take_our_numbers_stay_untouched(tmp_path: Path) -> None:
    run_file(PROGRAMS / "compat" / "perf_descriptors_taken.py", tmp_path)
