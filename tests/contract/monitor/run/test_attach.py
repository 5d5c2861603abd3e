"""The end of a recording of a cgroup."""

from __future__ import annotations

import os
import platform
import re
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from otel_memwatch.monitor.run_cgroup import last_reading
from otel_memwatch.monitor.run_cgroup.last_reading import LastReading
from otel_memwatch.runtime.system_calls import call

HIERARCHIES = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")
FILES = ("cgroup.procs", "cgroup.stat", "cgroup.events")
"""Files that each cgroup of version 2 has, with or without the memory controller."""


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cgroup of version 2."""
    root = next((path for path in HIERARCHIES if os.access(path / "cgroup.controllers", os.R_OK)), None)
    if root is None or not os.access(root, os.W_OK):
        pytest.skip("no cgroup of version 2 can be made here")
    made = root / f"memwatch-test-{os.getpid()}"
    made.mkdir()
    monkeypatch.setattr(last_reading, "FILES", FILES)
    yield made
    if made.exists():
        made.rmdir()


def until(condition: Callable[[], bool]) -> None:
    """Wait until a process has done what it begins with; pytest ends the wait."""
    while not condition():
        time.sleep(0.01)


class Member:
    """A process of a cgroup."""

    def __init__(self, group: Path) -> None:
        enter = f"echo 0 >{group}/cgroup.procs; echo; read end"
        self.process = subprocess.Popen(["sh", "-c", enter], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def end(self) -> None:
        self.process.communicate()


def test_the_files_of_a_group_are_read_each_time_when_its_last_process_has_ended(group: Path) -> None:
    last = LastReading(str(group))
    for _ in range(2):
        member = Member(group)
        while last.contents:
            last.take(0.0)
        member.end()
        while not last.contents:
            last.take(60.0)
        assert last.contents["cgroup.procs"] == b""
        assert b"populated 0" in last.contents["cgroup.events"]
    last.discard()
    last.take(0.0)
    assert last.contents == {}
    last.close()


def test_the_reading_does_not_wait_for_other_processes(group: Path) -> None:
    """A service manager may run before any process of ordinary priority that shares its cgroup with busy ones."""
    may = "import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))"
    if subprocess.run([sys.executable, "-S", "-c", may], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("needs the right to set a real-time priority")
    last = LastReading(str(group))
    for pid in last.pids:
        until(lambda: os.sched_getscheduler(pid) & ~os.SCHED_RESET_ON_FORK == os.SCHED_FIFO)  # noqa: B023
    last.close()


def test_a_user_who_may_set_no_priority_has_the_shortest_time_slice(
    group: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Since Linux 6.12, a process that wakes up may preempt one with a longer slice."""
    version = tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])
    if version < (6, 12) or platform.machine() != "x86_64":
        pytest.skip("needs Linux 6.12 and knows one number of sched_getattr")

    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refused)
    last = LastReading(str(group))

    def attributes(pid: int) -> tuple[int, ...]:
        found = bytes(bytearray(56))
        assert call("syscall", 315, pid, found, len(found), 0) == 0
        return struct.unpack_from("=4xIQiIQ", found)

    usual = os.getpriority(os.PRIO_PROCESS, 0)
    for pid in last.pids:
        until(lambda: attributes(pid) == (os.SCHED_OTHER, 0, usual, 0, 100_000))  # noqa: B023
    last.close()


def test_another_group_at_its_path_does_not_count(group: Path) -> None:
    last = LastReading(str(group))
    assert last.is_there()
    group.rmdir()
    assert not last.is_there()
    group.mkdir()
    assert not last.is_there()
    last.close()


def test_the_process_ends_with_the_recording_even_if_it_is_stopped(group: Path) -> None:
    last = LastReading(str(group))
    assert last.pids
    for pid in last.pids:
        os.kill(pid, signal.SIGSTOP)
    last.close()
    for pid in last.pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_one_process_that_waits_for_its_processor_delays_no_reading(group: Path) -> None:
    last = LastReading(str(group))
    if len(last.pids) == 1:
        last.close()
        pytest.skip("needs two processors")
    until(lambda: {len(os.sched_getaffinity(pid)) for pid in last.pids} == {1})
    assert not set.intersection(*map(os.sched_getaffinity, last.pids))
    member = Member(group)
    while last.contents:
        last.take(0.0)
    os.kill(last.pids[0], signal.SIGSTOP)
    member.end()
    while len(last.contents) < len(FILES):
        last.take(60.0)
    last.close()


def test_readings_are_used_in_the_order_of_their_times(group: Path) -> None:
    """Messages of two processes may arrive in another order. Of one end, the reading with more files counts."""
    last = LastReading(str(group))
    last.close()
    mark, other, _ = FILES
    whole, part, later = {mark: b"7", other: b"x"}, {mark: b"7"}, {mark: b"8"}
    start = time.monotonic()
    for read, found, used in (
        (1, whole, whole),
        (2, part, whole),  # the cgroup was removed meanwhile
        (4, later, later),
        (3, whole, later),
        (3, {}, later),
        (5, {}, {}),
        (4, later, {}),
        (7, part, part),
        (6, whole, whole),
    ):
        last._use(start + read, found)
        assert last.contents == used, read
    last.discard()
    last._use(start - 1, whole)
    assert last.contents == {}


def test_the_process_ends_with_a_killed_monitor(group: Path) -> None:
    """It has the standard output of the monitor, which is read to its end here."""
    program = (
        "import os; from otel_memwatch.monitor.run_cgroup import last_reading; "
        f"last_reading.FILES = {FILES}; last_reading.LastReading({str(group)!r}); os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, timeout=60)
    assert killed.returncode == -signal.SIGKILL


def test_a_group_that_is_gone_cannot_be_read(group: Path) -> None:
    group.rmdir()
    with pytest.raises(OSError, match="No such file"):
        LastReading(str(group))
