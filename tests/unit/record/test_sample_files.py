"""Segments of samples: closed, compressed and read back without a difference, whenever the writer was killed."""

from __future__ import annotations

import math
import os
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from otel_memwatch.model import Column, Snapshot
from otel_memwatch.record import sample_files
from otel_memwatch.record.format import RUN_FILE, SAMPLES_FILE, is_run_file
from otel_memwatch.record.open import read_info, read_run
from otel_memwatch.record.redaction import Redactor, redacted_copy
from otel_memwatch.record.writer import RunWriter
from otel_memwatch.wings.live.growing_record import GrowingFile

COLUMNS = (Column("memwatch.tree.memory.usage"), Column("memwatch.tree.cpu.time", (("cpu.mode", "user"),)))
LATE = (*COLUMNS, Column("hw.gpu.memory.usage"))
_CALLS_BEFORE = 10
"""System calls before the first samples."""


class Killed(BaseException):
    """The writer was killed."""


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_files, "_PIECE", 300)
    monkeypatch.setattr("otel_memwatch.record.writer.SEGMENT_BYTES", 1000)


def write(
    path: Path, samples: int, *, segmented: bool = True, after: Callable[[RunWriter], None] | None = None
) -> RunWriter:
    """Record samples, with a late driver half way; `after` is called after each."""
    path.mkdir()
    rng = Random(1)
    writer = RunWriter(path, pytest.fail, segmented=segmented)
    writer.update(state="running", started={"monotonic": 0.0})
    writer.columns(COLUMNS)
    for number in range(samples):
        if number == samples // 2:
            writer.columns(LATE)
        values: tuple[Any, ...] = (rng.randrange(1 << 30), round(number / 7, 2), rng.choice((None, number)))
        writer.tick(Snapshot(float(number), 0.0, values[: 2 if number < samples // 2 else 3]))
        if after is not None:
            after(writer)
    return writer


def rows(path: Path) -> list[tuple[Any, ...]]:
    """Every value of a record, read in both ways."""
    record = read_run(path)
    listed = [(time, *values) for time, values in record.sample_values()]
    samples = record.samples()
    arrays = [samples.time, *(samples.values(column) for column in samples.columns)]
    read = [tuple(None if math.isnan(value) else value for value in row) for row in zip(*arrays, strict=True)]
    assert read == [(time, *values) for time, *values in listed]
    assert record.damage == []
    return listed


def live(path: Path) -> list[Any]:
    return [
        line
        for line in GrowingFile(path / SAMPLES_FILE, segmented=True).values(math.inf)
        if isinstance(line, list)
    ]


def test_a_record_in_segments_reads_like_one_file(tmp_path: Path) -> None:
    write(tmp_path / "one", 300, segmented=False).close()
    write(tmp_path / "many", 300).close()
    assert rows(tmp_path / "many") == rows(tmp_path / "one")
    assert live(tmp_path / "many") == live(tmp_path / "one")
    names = {path.name for path in (tmp_path / "many").iterdir()}
    assert len([name for name in names if name.endswith(".gz")]) > 5
    assert len([name for name in names if name.startswith("samples-") and name.endswith(".jsonl")]) <= 2
    assert all(map(is_run_file, names))
    assert read_info(tmp_path / "one" / RUN_FILE)["schema"] == 1
    assert read_info(tmp_path / "many" / RUN_FILE)["schema"] == 2


def test_killed_at_any_step_the_record_has_every_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer is killed before each of its system calls in turn, and after it by the next turn."""
    write(tmp_path / "one", 60, segmented=False).close()
    expected = rows(tmp_path / "one")
    left, writer = [0], threading.get_ident()

    def killing(real: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **options: Any) -> Any:
            if threading.get_ident() != writer:  # a thread that another test left
                return real(*args, **options)
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return real(*args, **options)

        return called

    calls = 0
    while True:
        run, done = tmp_path / f"run{calls}", [0]
        with pytest.MonkeyPatch.context() as patch:
            left[0] = calls + _CALLS_BEFORE
            for name in ("rename", "replace", "open", "write", "unlink", "stat"):
                patch.setattr(os, name, killing(getattr(os, name)))
            try:
                write(run, 60, after=lambda _, done=done: done.__setitem__(0, done[0] + 1))
                break
            except Killed:
                pass
        found = rows(run)
        assert done[0] <= len(found) <= done[0] + 1
        assert found == [row[: len(found[0])] for row in expected[: len(found)]]
        assert [line[0] for line in live(run)] == [row[0] for row in found]
        calls += 1
    assert calls > 60


def test_a_reader_sees_each_sample_while_the_writer_closes_segments(tmp_path: Path) -> None:
    """One that follows, and ones that begin at any moment."""
    run = tmp_path / "run"
    follower = GrowingFile(run / SAMPLES_FILE, segmented=True)
    followed: list[Any] = []

    def look(_: RunWriter) -> None:
        if len(seen) % 7 == 0:
            followed.extend(line for line in follower.values(math.inf) if isinstance(line, list))
            assert len(rows(run)) == len(seen) + 1
        seen.append(0)

    seen: list[int] = []
    write(run, 300, after=look)
    followed.extend(line for line in follower.values(math.inf) if isinstance(line, list))
    assert [line[0] for line in followed] == [float(number) for number in range(300)]


def test_a_segment_that_closes_while_the_open_file_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "run", 10, segmented=False).close()
    samples, real = tmp_path / "run" / SAMPLES_FILE, sample_files.open_regular

    def closed_first(path: Path) -> int:
        if path == samples and path.exists():
            path.rename(samples.with_name("samples-1.jsonl"))
            samples.write_bytes(
                samples.with_name("samples-1.jsonl").read_bytes().partition(b"\n")[0] + b"\n[99]\n"
            )
        return real(path)

    monkeypatch.setattr(sample_files, "open_regular", closed_first)
    assert [line[0] for line in live(tmp_path / "run")] == [*map(float, range(10)), 99]


@pytest.mark.parametrize("damage", ["missing", "cut", "garbage", "bomb"])
def test_a_damaged_segment_is_named_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setattr(sample_files, "_LARGEST", 100_000)
    write(tmp_path / "run", 300).close()
    second = tmp_path / "run" / "samples-2.jsonl.gz"
    content = second.read_bytes()
    if damage == "missing":
        second.unlink()
    else:
        bomb = zlib.compress(b"[1,2]\n" * 40_000, wbits=31) if damage == "bomb" else b""
        second.write_bytes({"cut": content[:-30], "garbage": b"x" * 100, "bomb": bomb}[damage])
    record = read_run(tmp_path / "run")
    read = record.samples()
    assert read.time[0] == 0
    assert read.time[-1] == 299
    assert any("cannot be read" in sentence for sentence in record.damage)


def test_a_redacted_copy_has_all_samples(tmp_path: Path) -> None:
    write(tmp_path / "run", 300).close()
    (tmp_path / "copy").mkdir()
    redacted_copy(tmp_path / "run", tmp_path / "copy", Redactor())
    assert rows(tmp_path / "copy") == rows(tmp_path / "run")


def test_a_full_disk_leaves_the_segment_uncompressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sample_files, "_write_all", full)
    write(tmp_path / "run", 300).close()
    assert not list((tmp_path / "run").glob("*gz*"))
    assert len(rows(tmp_path / "run")) == 300
