"""The recorder: whole lines, safe modes, and a full disk."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from otel_memwatch.errors import UsageError
from otel_memwatch.model import Column, ProcessEvent, ProcessRecord, Snapshot
from otel_memwatch.monitor.run.run_directory import create_directory
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


def test_repeated_samples_are_those_of_one_line(tmp_path: Path) -> None:
    w, told = writer(tmp_path / "run")
    w.columns(COLUMNS)
    w.tick(Snapshot(12.34567, 0.0, (100, 1, None)))
    descriptor, text = w.repeated_line([100, None, None])
    os.write(descriptor, b"[12.4" + text + b"[1")
    w.repeated([12.4, 12.50001], b"2.5" + text)
    assert (tmp_path / "run/samples.jsonl").read_text().splitlines()[1:] == [
        "[12.3457,100,1]",
        "[12.4,100]",
        "[12.5,100]",
    ]
    assert (w.last_tick, w.missing, told) == (12.50001, 0, [])
    assert w._open_bytes == sum(map(len, ("[12.3457,100,1]\n", "[12.4,100]\n", "[12.5,100]\n")))


def test_a_repeated_sample_for_which_the_disk_has_no_room_ends_the_recording(tmp_path: Path) -> None:
    w, told = writer(tmp_path / "run")
    w.columns(COLUMNS)
    os.dup2(os.open("/dev/full", os.O_WRONLY), w.repeated_line([1, 2, 3])[0])
    w.repeated([1.0, 2.0], b"[2.0,1,2,3]\n")
    assert (w.last_tick, w.missing, len(told)) == (1.0, 1, 1)


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
