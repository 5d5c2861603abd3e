"""Exports of long runs need no memory in proportion."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

from tests.support import recorded

if TYPE_CHECKING:
    from pathlib import Path


def test_csv_of_a_long_run_is_written_as_it_is_read(tmp_path: Path) -> None:
    """Its peak memory does not grow with the number of ticks."""
    recorded.day(tmp_path / "few", ticks=5_000)
    recorded.day(tmp_path / "many", ticks=60_000)
    program = textwrap.dedent("""
        import resource, sys
        from otel_memwatch.analysis import load
        from otel_memwatch.reports import write
        write("csv", load(sys.argv[1]), "/dev/null")
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    """)
    peaks = [
        int(subprocess.run([sys.executable, "-c", program, str(tmp_path / name)], capture_output=True, check=True, timeout=120).stdout)
        for name in ("few", "many")
    ]  # fmt: skip
    assert peaks[1] - peaks[0] < 4096, "KiB; 60 000 rows of 7 numbers held at once take 20 MiB"
