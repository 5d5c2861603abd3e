"""A run does not stay frozen if its monitor is killed. Version 2 alone can freeze: files stand for the control group."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_memwatch.monitor.guard.run_processes import RunProcesses

MONITOR = """
import os, pathlib, sys, time
from otel_memwatch.monitor.guard.thawer import Thawer
class Group:
    path = sys.argv[1]
    def freeze(self, *, frozen):
        pathlib.Path(self.path, "cgroup.freeze").write_text(str(int(frozen)))
thawer = Thawer()
while os.getsid(thawer.pid) != thawer.pid:
    time.sleep(0.01)
for frozen in map(int, sys.argv[2]):
    thawer.freeze(Group(), frozen=frozen)
print(thawer.pid, flush=True)
time.sleep(600)
"""


def killed(path: Path, orders: str, kill: Callable[[int, int], None], content: str) -> str:
    """Content of the file after a monitor with these orders was killed and its helper has ended. `content`: before."""
    monitor = subprocess.Popen(
        [sys.executable, "-c", MONITOR, path, orders], stdout=subprocess.PIPE, start_new_session=True
    )
    assert monitor.stdout is not None
    with monitor.stdout:
        helper = int(monitor.stdout.readline())
    file = path / "cgroup.freeze"
    file.write_text(content)
    kill(monitor.pid, signal.SIGKILL)
    monitor.wait()
    with contextlib.suppress(OSError):  # no process may reap it
        while ") Z " not in Path(f"/proc/{helper}/stat").read_text():
            time.sleep(0.01)
    return file.read_text()


@pytest.mark.parametrize("kill", [os.kill, os.killpg])
@pytest.mark.parametrize(("orders", "content"), [("1", "0"), ("101", "0"), ("", "1"), ("10", "1")])
def test_a_killed_monitor_leaves_nothing_frozen(
    tmp_path: Path, kill: Callable[[int, int], None], orders: str, content: str
) -> None:
    """What another program has frozen stays so."""
    assert killed(tmp_path, orders, kill, "1") == content


def test_nothing_is_frozen_without_the_helper() -> None:
    RunProcesses(object(), frozenset()).freeze()  # type: ignore[arg-type]
