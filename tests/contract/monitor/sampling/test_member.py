"""A member of the tree between two readings."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from otel_memwatch.monitor.sampling.sources.process_tree.member import Member
from otel_memwatch.monitor.sampling.sources.process_tree.proc_files import Descriptors, are_same
from otel_memwatch.monitor.sampling.sources.process_tree.sleep import Sleep

GROWS = """
import sys
kept = []
print(0, flush=True)
for line in sys.stdin:
    kept.append(b"x" * (8 << 20))
    print(len(kept), flush=True)
"""


@pytest.fixture
def grown_on_demand() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", GROWS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def at_rest(member: Member) -> None:
    """Read the process until it waits for its input."""
    deadline = time.monotonic() + 30
    while not (member.is_unchanged() and member.is_unchanged() and member.stat.state == "S"):
        assert time.monotonic() < deadline
        member.refresh()
        time.sleep(0.01)


@pytest.mark.parametrize("descriptors", [64, 0])
def test_a_process_that_has_run_is_noticed(grown_on_demand: subprocess.Popen[str], descriptors: int) -> None:
    assert grown_on_demand.stdin is not None
    assert grown_on_demand.stdout is not None
    member = Member("/proc", grown_on_demand.pid, Descriptors(descriptors))
    for _ in range(3):
        at_rest(member)
        asleep = member.asleep()
        assert asleep is None or are_same([asleep])
        before = member.rss
        grown_on_demand.stdin.write("\n")
        grown_on_demand.stdin.flush()
        grown_on_demand.stdout.readline()
        assert asleep is None or not are_same([asleep])
        assert member.refresh(whole=False)
        assert member.rss > before + (7 << 20)
    at_rest(member)
    asleep = member.asleep()
    grown_on_demand.kill()
    os.waitid(os.P_PID, grown_on_demand.pid, os.WEXITED | os.WNOWAIT)
    assert asleep is None or not are_same([asleep])
    assert not member.is_unchanged()
    member.close()


def test_a_process_that_sleeps_is_not_read_again(
    grown_on_demand: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    member = Member("/proc", grown_on_demand.pid, Descriptors(64))
    at_rest(member)
    if member._schedule is None:
        pytest.skip("the kernel does not count how often a process runs")
    monkeypatch.setattr(type(member.stat_file), "last", b"never compared")
    assert member.is_unchanged()
    assert not member.refresh(whole=False)
    assert not member.has_waited()
    member.close()


def test_sleep_ends_when_a_process_runs(grown_on_demand: subprocess.Popen[str]) -> None:
    assert grown_on_demand.stdin is not None
    assert grown_on_demand.stdout is not None
    member, sleep = Member("/proc", grown_on_demand.pid, Descriptors(64)), Sleep()
    at_rest(member)
    if member.asleep() is None:
        pytest.skip("the kernel does not count how often a process runs")
    sleep.begin()
    assert not sleep.asleep
    sleep.end(changed=False, whole=True)
    sleep.note([member])
    for asleep in (False, True):  # one reading of all files has to follow
        runs = sleep.runs
        sleep.begin()
        assert sleep.asleep is asleep
        assert sleep.keeps_sizes([member])
        assert not member.refresh()
        sleep.end(changed=False, whole=True)
        assert sleep.runs == runs
    before = member.rss
    grown_on_demand.stdin.write("\n")
    grown_on_demand.stdin.flush()
    grown_on_demand.stdout.readline()
    sleep.begin()
    assert not sleep.asleep
    assert sleep.runs == runs + 1
    # If it runs after `begin`, its resident size shows it.
    assert not sleep.keeps_sizes([member])
    assert member.refresh()
    assert member.rss > before + (7 << 20)
    member.close()
