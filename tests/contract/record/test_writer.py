"""A real disk that is full."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FULL_DISK = """
import sys
from pathlib import Path
from otel_memwatch.model import Column, Snapshot
from otel_memwatch.monitor.run_directory import create_directory
from otel_memwatch.record.writer import RunWriter
run = Path(sys.argv[1]) / "run"
create_directory(run)
w = RunWriter(run, lambda sentence: print("TOLD", sentence))
w.update(state="running")
w.columns([Column("process.memory.usage")])
tick = 0
while w.stopped is None:
    w.tick(Snapshot(float(tick), 0.0, (10**15 + tick,)))
    tick += 1
for late in range(1000):
    w.tick(Snapshot(float(tick + late), 0.0, (1,)))
written = w.update(state="finished")
print("MISSING", w.missing, w.last_tick, written, w.written)
w.close()
print("TICKS", tick)
"""


def test_a_full_disk_ends_the_recording_with_one_line_and_a_mark(tmp_path: Path) -> None:
    """On a real file system of 256 KiB."""
    if (
        os.geteuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", tmp_path]).returncode
    ):
        if os.environ.get("CI"):
            pytest.fail("a file system of a given size needs root and mount")
        pytest.skip("a file system of a given size needs root and mount")
    try:
        done = subprocess.run(
            [sys.executable, "-c", FULL_DISK, tmp_path], capture_output=True, text=True, check=True
        )
        info = json.loads((tmp_path / "run/run.json").read_text())
        lines = (tmp_path / "run/samples.jsonl").read_text().split("\n")
    finally:
        subprocess.run(["umount", tmp_path], check=True)
    told = [line for line in done.stdout.splitlines() if line.startswith("TOLD")]
    assert len(told) == 1
    assert "No space left" in told[0]
    assert info["state"] == "finished"
    assert "No space left" in info["marks"][0]["text"]
    ticks = int(done.stdout.split("TICKS")[1])
    # The tick at which the disk was full, and those after it.
    assert f"MISSING {1000 + ticks - len(lines[1:-1])} {float(len(lines[1:-1]) - 1)} True True" in done.stdout
    whole = [json.loads(line) for line in lines[1:-1]]
    assert [line[0] for line in whole] == list(range(len(whole)))
    assert len(whole) in (ticks - 1, ticks)
