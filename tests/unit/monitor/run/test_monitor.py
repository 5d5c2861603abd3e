"""Messages of the monitor of one run."""

from __future__ import annotations

import json
import os
from pathlib import Path

import psutil
import pytest

from otel_memwatch.config import settings
from otel_memwatch.errors import UsageError
from otel_memwatch.model import Ending
from otel_memwatch.monitor.messages import Messages
from otel_memwatch.monitor.recording.run_info import TargetInfo
from otel_memwatch.monitor.recording.trace_context import run_context
from otel_memwatch.monitor.run.attach import attach
from otel_memwatch.monitor.run.monitor import Monitor
from otel_memwatch.monitor.run.run_directory import create_directory

NO_PID = 2**22 + 5
"""Larger than every pid of Linux."""


@pytest.mark.parametrize("reason", [psutil.NoSuchProcess, psutil.ZombieProcess])
def test_a_program_that_ended_before_its_monitor_started(
    monkeypatch: pytest.MonkeyPatch, reason: type[psutil.Error]
) -> None:
    """A program that was killed is a zombie until its parent waits for it."""
    pid = os.getpid()

    def refuse(_process: psutil.Process) -> list[str]:
        raise reason(pid)

    monkeypatch.setattr(psutil.Process, "cmdline", refuse)
    attach(pid, settings("attach", {}, {}), pytest.fail, prepared=True)
    with pytest.raises(UsageError, match=f"There is no process {pid}"):
        attach(pid, settings("attach", {}, {}), pytest.fail)


@pytest.mark.parametrize(
    ("mode", "lines"),
    [
        # The program that started the monitor has ended. A plugin reports that, as the test that was running.
        ("watch", []),
        ("attach", [f"otel-memwatch: recording stopped: There is no process {NO_PID}."]),
    ],
)
def test_a_target_that_ended_before_the_first_sample(tmp_path: Path, mode: str, lines: list[str]) -> None:
    create_directory(tmp_path / "run")
    said: list[str] = []
    target = TargetInfo(mode, ("program",), NO_PID, 0.0)
    monitor = Monitor(
        tmp_path / "run", settings("attach", {}, {}), target, run_context({}), Messages(said.append)
    )
    monitor._record()
    assert said == lines
    marks = json.loads((tmp_path / "run/run.json").read_text())["marks"]
    assert [mark["text"] for mark in marks] == [f"recording stopped: There is no process {NO_PID}."]


def test_the_end_is_recorded_even_if_the_figures_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_directory(tmp_path / "run")
    said: list[str] = []
    target = TargetInfo("attach", ("program",), os.getpid(), 0.0)
    monitor = Monitor(
        tmp_path / "run", settings("attach", {}, {}), target, run_context({}), Messages(said.append)
    )
    monkeypatch.setattr("otel_memwatch.runtime.memory_headroom.be_spared", lambda: None)  # this is no monitor
    monitor._stop.set()
    monitor._drivers_asked.set()
    monitor._record()
    assert monitor._recording is not None

    def fail(_now: float) -> None:
        raise MemoryError

    monkeypatch.setattr(monitor._recording.tree, "finish", fail)
    monitor.finish(lambda: Ending(3, None, None, "exit code 3"), lambda: False, ended=1.0)
    recorded = json.loads((tmp_path / "run/run.json").read_text())
    assert recorded["exit"]["exit_code"] == 3
    assert "the record is incomplete" in said[-1]
