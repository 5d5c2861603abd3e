"""A real disk that is full."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs import PROGRAMS


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
            [sys.executable, PROGRAMS / "full_disk.py", tmp_path], capture_output=True, text=True, check=True
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
