"""Repeated samples of a real program have the values that its sources would give, and end as soon as it runs."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from otel_memwatch import catalog
from otel_memwatch.model import Snapshot, Value
from otel_memwatch.monitor.sampling.sampler import Sampler
from otel_memwatch.monitor.sampling.sources import Context, open_sources
from otel_memwatch.runtime.threads import Flag

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

INTERVAL = 0.02
NAMES = ("process_tree", "host", "cgroup", "pressure", "run_queue", "memory_detail")


@pytest.fixture
def program() -> Iterator[subprocess.Popen[bytes]]:
    """A program that sleeps until it gets a line, and then computes for a moment."""
    code = "import sys\nfor _ in sys.stdin: x = bytearray(8 << 20)\n"
    process = subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.PIPE)
    time.sleep(0.3)
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def sampler(program: subprocess.Popen[bytes]) -> Sampler:
    context = Context(program.pid, INTERVAL, started=time.monotonic())
    sources, _ = open_sources(context, NAMES)
    return Sampler(sources, INTERVAL)


class Recorder:
    """Takes samples as the recording does."""

    def __init__(self, sampler: Sampler, path: Path) -> None:
        self.sampler = sampler
        self.output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.path = path
        self.sampler.tick()

    def line(self, values: Sequence[Value]) -> tuple[int, bytes]:
        return self.output, f",{len(values)}]\n".encode()

    def repeat(self, seconds: float) -> tuple[Snapshot, list[Snapshot]]:
        """Take samples until some are repeated; return the one before and those."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.sampler.wait(Flag())
            before = self.sampler.tick()
            taken, unwritten = self.sampler.repeat(math.inf, -1, self.line)
            assert not unwritten
            if taken:
                return before, taken
        pytest.fail("no sample was repeated")


def test_they_have_the_values_of_the_next_sample(sampler: Sampler, tmp_path: Path) -> None:
    recorder = Recorder(sampler, tmp_path / "samples")
    known = [place for place, column in enumerate(sampler.columns) if not column.period]
    ticks = alike = 0
    for _ in range(5):
        before, taken = recorder.repeat(20.0)
        after = sampler.tick()
        ticks += len(taken)
        for place in known:
            value = taken[-1].values[place]
            if value is not None:  # others are read once a second
                alike += value == before.values[place] == after.values[place]
                assert value == before.values[place]
        assert all(taken[-1].values[place] is None for place in range(len(known), len(sampler.columns)))
        assert taken[0].time > before.time
    assert alike > 0
    assert len(recorder.path.read_bytes().splitlines()) == ticks
    assert sampler.health()["process_tree"].failures == 0


def test_they_end_when_the_program_runs(
    sampler: Sampler, program: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    recorder = Recorder(sampler, tmp_path / "samples")
    place = [column.metric for column in sampler.columns].index(catalog.MEMWATCH_TREE_PAGING_FAULTS)
    recorder.repeat(20.0)
    woken: list[float] = []

    def wake() -> None:
        woken.append(time.monotonic())
        assert program.stdin is not None
        program.stdin.write(b"go\n")
        program.stdin.flush()

    faults = sampler.tick().values[place]
    assert faults is not None
    threading.Timer(5 * INTERVAL, wake).start()
    while not woken:
        sampler.wait(Flag())
        last = sampler.tick()
        taken, _ = sampler.repeat(math.inf, -1, recorder.line)
        last = taken[-1] if taken else last
        if not woken:
            assert last.values[place] == faults
    assert last.time < woken[0] + 5.0
    until = time.monotonic() + 20.0
    while last.values[place] == faults and time.monotonic() < until:
        sampler.wait(Flag())
        last = sampler.tick()
    after = last.values[place]
    assert after is not None
    assert after > faults


def test_they_end_after_another_program_changed_the_memory_of_one_that_sleeps(tmp_path: Path) -> None:
    """Here we write into its memory, as a debugger does. The process does not run meanwhile."""
    size = 4 << 20
    code = (
        f"import ctypes, mmap\nmemory = mmap.mmap(-1, {size})\n"
        "print(ctypes.addressof(ctypes.c_char.from_buffer(memory)), flush=True)\ninput()"
    )
    argv = [sys.executable, "-S", "-c", code]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        address = int(program.stdout.readline())
        sources, _ = open_sources(Context(program.pid, INTERVAL, started=time.monotonic()), NAMES)
        recorder = Recorder(Sampler(sources, INTERVAL), tmp_path / "samples")
        metrics = [column.metric for column in recorder.sampler.columns]
        place = metrics.index(catalog.MEMWATCH_TREE_MEMORY_USAGE)
        for _ in range(3):
            before, _ = recorder.repeat(20.0)
        with open(f"/proc/{program.pid}/mem", "r+b", buffering=0) as memory:
            memory.seek(address)
            memory.write(b"x" * size)
        written, most = time.monotonic(), (before.values[place] or 0) + size
        while (sample := recorder.sampler.tick()).time < written + 20.0 and sample.values[place] != most:
            recorder.sampler.repeat(math.inf, -1, recorder.line)
            recorder.sampler.wait(Flag())
        program.kill()
    assert sample.values[place] == most
