"""Time for which the controller waits for the record of a dead worker, and the file that the report goes to."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from otel_memwatch.plugins.pytest import crash_report
from otel_memwatch.plugins.pytest.crash_report import wait_for_end

NO_PROCESS = 1 << 30
"""A PID above the kernel's maximum."""


def write(directory: Path, state: str, monitor: int) -> None:
    info = {"state": state, "host": {"name": os.uname().nodename}, "monitor": {"pid": monitor}}
    (directory / "run.json").write_text(json.dumps(info))


def no_sleep(_: float) -> None:
    raise AssertionError("it waits")


def test_no_wait_without_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", no_sleep)
    wait_for_end(tmp_path)
    wait_for_end(tmp_path / "gone")


def test_no_wait_for_a_killed_monitor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", no_sleep)
    write(tmp_path, "running", NO_PROCESS)
    wait_for_end(tmp_path)


def test_wait_for_the_end_of_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept = []

    def finish(seconds: float) -> None:
        slept.append(seconds)
        write(tmp_path, "finished", os.getpid())

    monkeypatch.setattr(time, "sleep", finish)
    write(tmp_path, "running", os.getpid())
    wait_for_end(tmp_path)
    assert len(slept) == 1


@pytest.mark.parametrize(
    ("then", "found"),
    [
        ("", b"pytest wrote this\nkilled\n"),
        (
            "another program wrote this after pytest had been killed\n",
            b"another program wrote this after pytest had been killed\nkilled\n",
        ),
        ("short", b"short"),
    ],
)
def test_the_report_leaves_the_output_of_the_next_program_whole(
    then: str, found: bytes, tmp_path: Path
) -> None:
    """A shell that opens the same file again for its next command truncates it."""
    log = tmp_path / "log"
    with open(log, "wb", buffering=0) as ours:
        ours.write(b"pytest wrote this\n")
        if then:
            log.write_text(then)
        crash_report.say("killed\n", ours.fileno())
    assert log.read_bytes() == found


def test_the_report_goes_to_a_pipe() -> None:
    reading, writing = os.pipe()
    crash_report.say("killed\n", writing)
    os.close(writing)
    with open(reading, "rb") as pipe:
        assert pipe.read() == b"killed\n"
