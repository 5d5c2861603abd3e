from __future__ import annotations

import json
from pathlib import Path

from otel_memwatch.record.follower import OperationFollower


def header(pid: int, exact: bool = True) -> str:
    return (
        json.dumps({"schema": 1, "pid": pid, "start": 1.0, "program": "p", "exact": exact, "floor": None})
        + "\n"
    )


def opening(number: int, name: str = "work", segment: int = 1000, time: float = 2.0) -> str:
    line = {
        "open": number,
        "time": time,
        "name": name,
        "trace": "a",
        "span": "b",
        "rss": 1000,
        "segment": segment,
    }
    return json.dumps(line) + "\n"


def closing(number: int, peak: int = 5000) -> str:
    line = {"close": number, "time": 3.0, "status": "ok", "rss": 1000, "segment": peak, "peak": peak}
    return json.dumps(line | {"certainty": "exact"}) + "\n"


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_it_follows_a_growing_file(tmp_path: Path) -> None:
    follower = OperationFollower(tmp_path)
    assert follower.poll() == ([], 0, False)
    path = tmp_path / "operations-7.jsonl"
    append(path, header(7) + opening(1, "outer") + opening(2, "inner"))
    assert follower.poll() == ([], 2, False)
    assert [operation.name for operation in follower.open_operations()] == ["outer", "inner"]
    append(path, closing(2))
    (closed,), opened, _ = follower.poll()
    assert (closed.name, closed.peak and closed.peak.bytes, opened) == ("inner", 5000, 0)
    (outer,) = follower.open_operations()
    assert outer.status == "open"
    assert outer.peak is not None
    assert outer.peak.low == 5000
    assert follower.poll() == ([], 0, False)
    follower.close()


def test_a_line_that_is_being_written_waits_for_its_rest(tmp_path: Path) -> None:
    path = tmp_path / "operations-7.jsonl"
    follower = OperationFollower(tmp_path)
    text = header(7) + opening(1) + closing(1)
    found = []
    for character in text:
        append(path, character)
        found += follower.poll().closed
    assert [operation.name for operation in found] == ["work"]
    assert follower.damage() == []
    follower.close()


def test_files_of_later_processes_are_found(tmp_path: Path) -> None:
    follower = OperationFollower(tmp_path)
    for pid in range(1, 30):
        append(tmp_path / f"operations-{pid}.jsonl", header(pid) + opening(1, f"of {pid}"))
        follower.poll()
        follower.poll()
    assert {operation.pid for operation in follower.open_operations()} == set(range(1, 30))
    follower.close()


def test_foreign_and_broken_lines_are_counted_and_left_out(tmp_path: Path) -> None:
    append(tmp_path / "operations-7.jsonl", header(7) + 'nonsense\n[1]\n{"close":9,"time":1}\n' + opening(1))
    append(tmp_path / "operations-notes.txt", "not ours\n")
    follower = OperationFollower(tmp_path)
    follower.poll()
    assert follower.damage() == [("operations-7.jsonl", 3)]
    assert len(follower.open_operations()) == 1
    follower.close()


def test_who_resets_the_watermark(tmp_path: Path) -> None:
    follower = OperationFollower(tmp_path)
    append(tmp_path / "operations-7.jsonl", header(7))
    append(tmp_path / "operations-8.jsonl", header(8, exact=False))
    append(tmp_path / "operations-mark-9.jsonl", header(9, exact=False))
    assert follower.marks_operations(7), "before the first poll"
    assert not follower.resets_itself(7), "its header has not been read"
    follower.poll()
    assert follower.marks_operations(7)
    assert [pid for pid in (7, 8, 9, 10) if follower.resets_itself(pid)] == [7]
    assert not follower.marks_operations(8)
    assert not follower.marks_operations(9)
    assert not follower.marks_operations(10)
    follower.close()


def test_a_directory_that_is_gone(tmp_path: Path) -> None:
    follower = OperationFollower(tmp_path / "gone")
    assert follower.poll() == ([], 0, False)
    assert not follower.marks_operations(1)
