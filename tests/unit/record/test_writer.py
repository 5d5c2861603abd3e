"""The recorder: whole lines, safe modes, and a full disk."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from otel_memwatch.errors import UsageError
from otel_memwatch.model import Column, ProcessEvent, ProcessRecord, Snapshot
from otel_memwatch.monitor.run_directory import create_directory
from otel_memwatch.record.writer import RunWriter

COLUMNS = (
    Column("process.memory.usage"),
    Column("process.cpu.time", (("cpu.mode", "user"),)),
    Column("process.thread.count", (), 1.0),
)


def writer(path: Path) -> tuple[RunWriter, list[str]]:
    create_directory(path)
    told: list[str] = []
    return RunWriter(path, told.append), told


def test_a_tick_is_one_line_without_what_is_unknown_at_its_end(tmp_path: Path) -> None:
    w, told = writer(tmp_path / "run")
    w.columns(COLUMNS)
    w.tick(Snapshot(12.34567, 0.0, (100, None, None)))
    w.tick(Snapshot(12.5, 0.0, (None, 0.5, 3)))
    lines = (tmp_path / "run/samples.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["columns"][1] == {
        "metric": "process.cpu.time",
        "unit": "s",
        "attributes": {"cpu.mode": "user"},
        "period": 0.0,
    }
    assert lines[1:] == ["[12.3457,100]", "[12.5,null,0.5,3]"]
    assert told == []


def test_files_are_the_owners_only(tmp_path: Path) -> None:
    """0600 in a 0700 directory, whatever the umask."""
    old = os.umask(0)
    try:
        w, _ = writer(tmp_path / "run")
        w.update(state="running")
        w.columns(COLUMNS)
        w.process(ProcessRecord(ProcessEvent.SEEN, 1.0, 42, 0.5, argv=("a", "b\udcff")))
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700
    for name in ("run.json", "samples.jsonl", "processes.jsonl"):
        assert stat.S_IMODE((tmp_path / "run" / name).stat().st_mode) == 0o600


def test_argv_that_is_not_text_is_recorded_verbatim(tmp_path: Path) -> None:
    w, _ = writer(tmp_path / "run")
    w.update(command=["echo", os.fsdecode(b"\xff\xfe")])
    w.process(ProcessRecord(ProcessEvent.SEEN, 1.0, 42, 0.5, argv=("echo", os.fsdecode(b"\xff"))))
    assert b"\xff\xfe" in (tmp_path / "run/run.json").read_bytes()
    assert b"\xff" in (tmp_path / "run/processes.jsonl").read_bytes()


def test_nothing_is_ever_overwritten(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(UsageError, match="exists already"):
        create_directory(tmp_path / "run")


def test_a_directory_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be made"):
        create_directory(tmp_path / "file" / "run")


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
