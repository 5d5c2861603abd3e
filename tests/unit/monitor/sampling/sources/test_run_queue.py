"""Waiting for processors, from a made-up /proc."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from otel_memwatch.errors import Unavailable
from otel_memwatch.monitor.sampling.sources import Context
from otel_memwatch.monitor.sampling.sources.run_queue import RunQueue


def write(proc: Path, delays: dict[int, int], busy: int = 300) -> None:
    """Seconds of delay by thread of this process, and ticks of the machine in user mode."""
    (proc / "stat").write_text(f"cpu  {busy} 10 20 9000 800 1 2 7 5 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
    (proc / "self").mkdir(exist_ok=True)
    (proc / "self/schedstat").touch()
    for tid, seconds in delays.items():
        folder = proc / f"{os.getpid()}/task/{tid}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "schedstat").write_text(f"1000 {seconds * 10**9} 3\n")


def test_only_growth_between_readings_counts(tmp_path: Path) -> None:
    pid, late = os.getpid(), os.getppid()
    write(tmp_path, {pid: 40})
    source = RunQueue(Context(pid, 0.1, proc=tmp_path))
    ticks = os.sysconf("SC_CLK_TCK")
    assert source.read(10.0) == (0.0, 340 / ticks)
    assert source.read(10.5) == (0.0, None)
    write(tmp_path, {pid: 42, late: 7}, busy=500)
    assert source.read(11.0) == (2.0, 540 / ticks)
    write(tmp_path, {pid: 43, late: 9})
    assert source.read(12.0)[0] == 5.0
    source.close()


def test_the_first_seconds_are_read_with_every_sample_and_new_threads_in_full(tmp_path: Path) -> None:
    """A copy of 0.6 s had one reading at its start and one after its end: its waiting was unknown."""
    pid, new = os.getpid(), os.getppid()
    write(tmp_path, {pid: 40})
    source = RunQueue(Context(pid, 0.1, proc=tmp_path))
    assert source.read(10.0)[0] == 0.0
    write(tmp_path, {pid: 41, new: 1})
    assert source.read(10.9) == (1.0, None)  # the new one has waited for longer than it can exist
    write(tmp_path, {pid: 42, new: 1})
    assert source.read(11.0)[0] == 2.0
    write(tmp_path, {pid: 42, new: 1, 1: 1})
    assert source.read(12.5)[0] == 3.0
    assert source.read(13.2) == (None, None)
    source.close()


def test_many_threads_are_read_once_a_second(tmp_path: Path) -> None:
    write(tmp_path, dict.fromkeys(range(1, 6), 4))
    source = RunQueue(Context(os.getpid(), 0.1, proc=tmp_path))
    assert source.read(10.0)[0] == 0.0
    assert source.read(10.5) == (None, None)
    source.close()


def test_threads_bound_to_some_processors_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = os.getpid()
    monkeypatch.setattr(os, "sched_getaffinity", lambda tid: {0} if tid else {0, 1})
    for seconds in (1, 3):
        write(tmp_path, {pid: seconds})
        if seconds == 1:
            source = RunQueue(Context(pid, 0.1, proc=tmp_path))
        assert source.read(10.0 * seconds)[0] == 0.0
    source.close()


def test_a_kernel_without_this_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu  1 1 1 1 1 1 1 1 1 1\n")
    with pytest.raises(Unavailable, match="waiting for processors"):
        RunQueue(Context(os.getpid(), 0.1, proc=tmp_path))
