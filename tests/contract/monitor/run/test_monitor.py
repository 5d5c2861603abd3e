"""Recording of a real child."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from otel_memwatch.config import settings
from otel_memwatch.model import Ending
from otel_memwatch.monitor.messages import Messages
from otel_memwatch.monitor.recording.run_info import TargetInfo
from otel_memwatch.monitor.recording.trace_context import run_context
from otel_memwatch.monitor.run.monitor import Monitor
from otel_memwatch.monitor.run.run_directory import create_directory
from otel_memwatch.monitor.run.supervise.target import reap

pytestmark = pytest.mark.skipif(
    not hasattr(os, "waitid"), reason="the end of a child is not known in advance"
)


def test_a_command_that_has_ended_needs_no_thread(tmp_path: Path) -> None:
    create_directory(tmp_path / "run")
    chosen = settings("wrap", {"quiet": True, "report": False}, {})
    started = time.monotonic()
    child = subprocess.Popen(["sh", "-c", "exit 3"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    target = TargetInfo("wrap", ("sh",), child.pid, started)
    monitor = Monitor(tmp_path / "run", chosen, target, run_context({}), Messages(pytest.fail))
    monitor.start()
    assert monitor._thread.ident is None
    dead = reap(child.pid)
    assert dead is not None
    child.returncode = dead.exit_code  # it is reaped
    monitor.note_exit(dead)
    monitor.finish(lambda: Ending(3, None, None, "exit code 3"), lambda: False, ended=dead.time)

    recorded = json.loads((tmp_path / "run/run.json").read_text())
    assert recorded["state"] == "finished"
    assert recorded["quality"]["ticks"] == 1
    assert recorded["totals"]["processes"] == 1
    assert recorded["exit"]["exit_code"] == 3
