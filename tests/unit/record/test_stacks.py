"""The file of captured stacks: written whole, read with bounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from otel_memwatch.record.format import STACKS_FILE, is_run_file
from otel_memwatch.record.stacks import (
    MOST_CAPTURES,
    MOST_FRAMES,
    NO_STACKS,
    Capture,
    CapturedThread,
    StackFrame,
    Stacks,
    bounded,
    read_stacks,
    write_stacks,
)

THREAD = CapturedThread(
    7,
    "MainThread",
    True,
    12,
    (StackFrame("load", "/app/train.py", 3), StackFrame("main", "/app/train.py", 9)),
)
CAPTURE = Capture(5001.5, 300, 7, "python train.py", 100, 200, 90, 0.02, "py-spy", (THREAD,))


def test_captures_are_read_as_they_were_written(tmp_path: Path) -> None:
    written = Stacks((CAPTURE, CAPTURE._replace(time=5002.0, level=400)), 450, True, ("a sentence",))
    write_stacks(tmp_path, written)
    assert read_stacks(tmp_path) == written
    assert (tmp_path / STACKS_FILE).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [STACKS_FILE]


def test_prune_knows_the_file_and_its_temporary_one() -> None:
    assert is_run_file(STACKS_FILE)
    assert is_run_file(f".{STACKS_FILE}.4711")
    assert not is_run_file(f".{STACKS_FILE}.x")


def test_a_run_without_the_file_has_no_stacks(tmp_path: Path) -> None:
    assert read_stacks(tmp_path) == NO_STACKS


def _document(**changes: Any) -> dict[str, Any]:
    thread = {"id": 7, "name": "", "active": True, "faults": 1, "frames": [["f", "a.py", 1]]}
    capture = {
        "time": 1.0,
        "level": 1,
        "pid": 7,
        "command": "c",
        "before": 1,
        "after": 1,
        "grown": 1,
        "seconds": 0.1,
    }
    return {"captures": [{**capture, "means": "m", "threads": [thread], **changes}]}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0",
        b"[1]",
        b'{"captures": 5}',
        b'{"captures": [null, 7, [], {}]}',
        json.dumps(_document(time="x")).encode(),
        json.dumps(_document(pid=None)).encode(),
        json.dumps(_document(threads=[])).encode(),
        json.dumps(_document(threads=[{"frames": [[1], "x", ["f", "g"]]}])).encode(),
        b'{"captures": [' + b"[" * 100_000,
    ],
)
def test_damage_is_no_capture(tmp_path: Path, content: bytes) -> None:
    (tmp_path / STACKS_FILE).write_bytes(content)
    assert read_stacks(tmp_path).captures == ()


def test_fields_of_a_wrong_type_are_unknown(tmp_path: Path) -> None:
    content = _document(level="much", before=-5, means=7, command=["x"], seconds=1e999)
    (tmp_path / STACKS_FILE).write_text(json.dumps(content))
    (capture,) = read_stacks(tmp_path).captures
    assert (capture.level, capture.before, capture.means, capture.command, capture.seconds) == (
        0,
        0,
        "",
        "",
        0.0,
    )


def test_a_large_file_is_bounded(tmp_path: Path) -> None:
    one = _document(threads=[{"frames": [["f" * 10_000, "a.py", 1]] * 1000}] * 3)["captures"][0]
    (tmp_path / STACKS_FILE).write_text(json.dumps({"captures": [one] * 40}))
    assert read_stacks(tmp_path) == NO_STACKS  # larger than the limit of the file
    small = _document(threads=[{"frames": [["f" * 900, "a.py", 1]] * 300}])["captures"][0]
    (tmp_path / STACKS_FILE).write_text(json.dumps({"captures": [small] * 40}))
    found = read_stacks(tmp_path).captures
    assert len(found) == MOST_CAPTURES
    assert len(found[0].threads[0].frames) == MOST_FRAMES
    assert len(found[0].threads[0].frames[0].function) == 500


def test_a_deep_recursion_keeps_both_ends() -> None:
    frames = [StackFrame(str(number), "", 0) for number in range(1000)]
    kept = bounded(frames)
    assert len(kept) == MOST_FRAMES
    assert (kept[0].function, kept[-1].function) == ("0", "999")


def test_a_link_or_a_pipe_in_its_place_is_no_file(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / STACKS_FILE)
    assert read_stacks(tmp_path) == NO_STACKS
