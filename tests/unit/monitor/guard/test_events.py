"""Writer of events: where they go, and every way in which that fails."""

from __future__ import annotations

import fcntl
import json
import os
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest

from otel_memwatch.monitor.guard.events import EventWriter

SCHEMA = json.loads((files("otel_memwatch.monitor.guard") / "events.schema.json").read_text())


def lines(text: str) -> list[dict[str, object]]:
    found = [json.loads(line) for line in text.splitlines()]
    for one in found:
        jsonschema.validate(one, SCHEMA)
    return found


def test_a_file_is_appended_to(tmp_path: Path) -> None:
    path, problems = tmp_path / "events", []
    for _ in range(2):
        writer = EventWriter(str(path), problems.append)
        writer.write("warning", "limit", 1.23456, bytes=5)
        writer.close()
    first, second = lines(path.read_text())
    assert (first["event"], first["kind"], first["at"], first["bytes"]) == ("warning", "limit", 1.235, 5)
    assert (second["kind"], problems) == ("limit", [])
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_descriptor_is_taken_over(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "events", os.O_WRONLY | os.O_CREAT)
    os.set_inheritable(descriptor, True)
    writer = EventWriter(str(descriptor), pytest.fail)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)  # the command does not inherit it
    writer.write("start", None, 0.0)
    writer.close()
    assert [one["event"] for one in lines((tmp_path / "events").read_text())] == ["start"]


def test_a_shared_pipe_stays_blocking_and_a_full_one_costs_only_the_line() -> None:
    reader, other = os.pipe()
    ours = os.dup(other)
    os.set_inheritable(ours, True)
    problems: list[str] = []
    writer = EventWriter(str(ours), problems.append)
    assert not fcntl.fcntl(other, fcntl.F_GETFL) & os.O_NONBLOCK
    for _ in range(2000):
        writer.write("warning", "limit", 0.0, bytes=1)
    assert problems == [f"events are not written to descriptor {ours}: its reader does not read"]
    os.close(reader)
    os.close(other)


def _fifo(tmp_path: Path) -> str:
    os.mkfifo(tmp_path / "fifo")
    return str(tmp_path / "fifo")


def _of_ours(tmp_path: Path) -> str:
    return str(os.open(tmp_path / "own", os.O_WRONLY | os.O_CREAT))  # not inheritable


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (lambda _: "987654", "bad file descriptor"),
        (lambda _: "-1", "bad file descriptor"),
        (lambda _: "99999999999999999999", "bad file descriptor"),
        (_of_ours, "bad file descriptor"),
        (_fifo, "no program reads this FIFO"),
        (lambda _: "/dev/full", "no space left on device"),
        (lambda path: f"{path}/none/events", "no such file or directory"),
        (str, "is a directory"),
    ],
)
def test_a_failure_is_one_sentence(target, why: str, tmp_path: Path) -> None:
    problems: list[str] = []
    writer = EventWriter(target(tmp_path), problems.append)
    writer.write("start", None, 0.0)
    writer.write("verdict", "finished", 1.0)
    writer.close()
    assert len(problems) == 1
    assert problems[0].endswith(f": {why}")


def test_a_reader_that_left_is_one_sentence() -> None:
    reader, ours = os.pipe()
    os.set_inheritable(ours, True)
    problems: list[str] = []
    writer = EventWriter(str(ours), problems.append)
    os.close(reader)
    writer.write("start", None, 0.0)
    writer.write("verdict", "finished", 1.0)
    assert len(problems) == 1
    assert problems[0].endswith(": broken pipe")
