"""Which processes may be read with a walk of their page tables."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from otel_memwatch.runtime.kernel import CLOCK_TICKS
from otel_memwatch.runtime.procfs.walks import kept_until, outlives_walk, read_walking, walked

GIB = 1 << 30


@pytest.mark.parametrize(
    ("state", "age", "resident", "expected"),
    [
        ("S", 3600.0, 10 * GIB, True),
        ("S", 0.0, GIB, False),
        ("S", 5.0, 100 * GIB, False),
        ("S", 5.0, GIB, True),
        ("R", 5.0, GIB, False),
        ("R", 60.0, GIB, True),
        ("R", 0.0, 1 << 20, True),
    ],
)
def test_a_process_must_not_be_likely_to_end(
    tmp_path: Path, state: str, age: float, resident: int, *, expected: bool
) -> None:
    """If it ends during the walk, the kernel keeps its memory beside that of the next process."""
    started = int((time.clock_gettime(time.CLOCK_BOOTTIME) - age) * CLOCK_TICKS)
    (tmp_path / "7").mkdir()
    (tmp_path / "7/stat").write_bytes(b"7 (a ) b) %s" % state.encode() + b" 0" * 18 + b" %d 0 0" % started)
    assert outlives_walk(str(tmp_path), 7, resident) is expected


@pytest.mark.parametrize("statm", ["0 0 0 0 0 0 0\n", None])
def test_a_process_that_ends_during_a_walk_has_its_memory_until_the_walk_is_over(
    tmp_path: Path, statm: str | None
) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/statm").write_text("900 500 1 1 0 1 0\n")
    os.mkfifo(tmp_path / "7/smaps_rollup")
    reading = threading.Thread(target=read_walking, args=(str(tmp_path), 7, "smaps_rollup"))
    reading.start()
    found: list[float] = []
    waiting = threading.Thread(target=lambda: found.append(kept_until(7)))
    with (tmp_path / "7/smaps_rollup").open("wb"):
        if statm is None:
            (tmp_path / "7/statm").unlink()
        else:
            (tmp_path / "7/statm").write_text(statm)
        waiting.start()
        waiting.join(0.05)
        assert waiting.is_alive()
        before = time.monotonic()
    waiting.join()
    reading.join()
    assert before <= found[0] <= time.monotonic()
    assert kept_until(7) == 0.0
    assert walked() == frozenset()


def test_a_process_that_lives_on_after_a_walk_frees_its_memory_when_it_ends(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/statm").write_text("900 500 1 1 0 1 0\n")
    (tmp_path / "7/smaps_rollup").write_text("")
    read_walking(str(tmp_path), 7, "smaps_rollup")
    assert kept_until(7) == 0.0
