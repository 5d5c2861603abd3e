"""The end of a recording of a cgroup."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from otel_memwatch.monitor.run.attach import _ENDED, _wait_for_end

HIERARCHIES = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")


def test_the_last_process_of_a_group_ends_the_recording_although_its_main_process_is_elsewhere() -> None:
    """The kernel reports that a group of version 2 is empty earlier than that a process has ended."""
    root = next((path for path in HIERARCHIES if os.access(path / "cgroup.controllers", os.R_OK)), None)
    if root is None or not os.access(root, os.W_OK):
        pytest.skip("no cgroup of version 2 can be made here")
    group = root / f"memwatch-test-{os.getpid()}"
    group.mkdir()
    wake, waker = os.pipe()
    try:
        enter = f"echo 0 >{group}/cgroup.procs; echo; read end"
        with subprocess.Popen(["sh", "-c", enter], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as member:
            assert member.stdin is not None
            assert member.stdout is not None
            member.stdout.readline()
            events = os.open(group / "cgroup.events", os.O_RDONLY)
            member.stdin.close()
            assert _wait_for_end(os.getpid(), None, None, wake, events) == _ENDED
            os.close(events)
    finally:
        group.rmdir()
        os.close(wake)
        os.close(waker)
