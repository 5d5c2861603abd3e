"""Time for which the controller waits for the record of a dead worker."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from otel_memwatch.plugins.pytest.crash_report import wait_for_end

if TYPE_CHECKING:
    import pytest

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
