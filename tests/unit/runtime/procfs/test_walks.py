"""Which processes may be read with a walk of their page tables."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from otel_memwatch.runtime.kernel import CLOCK_TICKS
from otel_memwatch.runtime.procfs.walks import outlives_walk

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
