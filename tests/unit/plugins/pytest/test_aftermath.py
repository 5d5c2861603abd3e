"""How long the controller waits for the record of a worker that has died."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from otel_memwatch.plugins.pytest.aftermath import wait_for_end

if TYPE_CHECKING:
    import pytest

NOBODY = 1 << 30
"""A pid beyond the largest that the kernel hands out."""


def write(directory: Path, state: str, monitor: int) -> None:
    info = {"state": state, "host": {"name": os.uname().nodename}, "monitor": {"pid": monitor}}
    (directory / "run.json").write_text(json.dumps(info))


def no_sleep(_: float) -> None:
    raise AssertionError("it waits")


def test_nobody_waits_where_there_is_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", no_sleep)
    wait_for_end(tmp_path)
    wait_for_end(tmp_path / "gone")


def test_nobody_waits_for_a_monitor_that_was_killed_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", no_sleep)
    write(tmp_path, "running", NOBODY)
    wait_for_end(tmp_path)


def test_the_end_of_a_record_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept = []

    def finish(seconds: float) -> None:
        slept.append(seconds)
        write(tmp_path, "finished", os.getpid())

    monkeypatch.setattr(time, "sleep", finish)
    write(tmp_path, "running", os.getpid())
    wait_for_end(tmp_path)
    assert len(slept) == 1
