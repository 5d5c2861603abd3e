"""Hours of watching: is the monitor as small at the end as at the beginning?

    python tests/bench/soak.py --simulated 24        hours by a fast clock, through the real sources, sampler, recorder, aggregator
    python tests/bench/soak.py --real 3600           seconds of a real `wrap`, looked at from outside

Processes begin and end all the time, operations too. Printed at every tenth of the way: memory and descriptors of the
monitor, bytes on disk for each tick. The exit code is 1 when memory or descriptors grew.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

MIB = 1 << 20
PAGE = os.sysconf("SC_PAGE_SIZE")
GROWTH_MIB = 1.5
"""Growth from the third tenth to the last that passes as the allocator's own."""
FILES_OF_A_PROCESS = 5
"""Descriptors that are kept for a process."""


class Station(NamedTuple):
    """How the monitor stands at one moment."""

    hours: float
    memory: float
    """MiB of private memory."""
    descriptors: int
    tick_bytes: float
    """Bytes of samples.jsonl for each tick so far."""


def verdict(stations: list[Station]) -> list[str]:
    """What is not flat: memory between the third tenth of the way, when all caches are warm, and the end.

    Of descriptors, which come and go with the processes of the tree, the fewest of either half are compared: they may
    differ by those of two processes on a busy machine. A leak has one for each of a thousand processes.
    """
    early, late = stations[len(stations) // 3], stations[-1]
    problems = []
    if late.memory - early.memory > GROWTH_MIB:
        problems.append(f"memory grew from {early.memory:.1f} to {late.memory:.1f} MiB")
    half = len(stations) // 2
    first, second = (min(s.descriptors for s in part) for part in (stations[:half], stations[half:]))
    if second > first + 2 * FILES_OF_A_PROCESS:
        problems.append(f"descriptors grew from {first} to {second}")
    return problems


def target(pipe: int) -> None:
    """The watched process: for each byte that it reads, one operation and one new child, up to three of them."""
    from otel_memwatch import operation

    children: list[int] = []
    while byte := os.read(pipe, 1):
        with operation(f"step {byte[0] % 3}"):
            block = bytearray(1 << (18 + byte[0] % 3))
            del block
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if byte[0] % 4 == 0 and os.fork() == 0:
                time.sleep(0.002)  # outlives its parent: an orphan that the monitor adopts
                os._exit(0)
            if byte[0] % 2 == 0:
                os._exit(0)
            signal.pause()
            os._exit(0)
        if byte[0] % 2:
            children.append(child)
        else:
            os.waitpid(child, 0)
        if len(children) > 3:
            os.kill(children[0], signal.SIGKILL)
            os.waitpid(children.pop(0), 0)
    for child in children:
        os.kill(child, signal.SIGKILL)


def begin_target(folder: str) -> tuple[int, int]:
    """Pid of the watched process and the pipe that drives it."""
    reading, writing = os.pipe()
    os.environ["OTEL_MEMWATCH_RUN_DIR"] = folder
    pid = os.fork()
    if pid == 0:
        os.close(writing)
        with contextlib.suppress(BaseException):
            target(reading)
        os._exit(0)
    os.close(reading)
    return pid, writing


def memory(pid: int | str) -> float:
    """MiB of private memory."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Private_")) / 1024


def simulate(hours: float, every: int = 20, interval: float = 0.1) -> list[Station]:
    """Runs so many hours by a clock that does not wait; every so many ticks the target does something."""
    from otel_memwatch.runtime import system_calls

    folder = tempfile.mkdtemp(prefix="memwatch-soak-")
    run = f"{folder}/run"
    os.mkdir(run, 0o700)
    system_calls.prctl(system_calls.PR_SET_CHILD_SUBREAPER, 1)
    pid, pipe = begin_target(run)
    try:
        return _Simulated(pid, Path(run), interval).go(int(hours * 3600 / interval), every, pipe)
    finally:
        os.close(pipe)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
        subprocess.run(["rm", "-rf", folder], check=False)


class _Simulated:
    """What the monitor puts together, on a fast clock."""

    def __init__(self, pid: int, run: Path, interval: float) -> None:
        from otel_memwatch.model import ProcessRecord
        from otel_memwatch.monitor.sampling.sampler import Sampler
        from otel_memwatch.monitor.sampling.sources import Context, open_sources
        from otel_memwatch.record.follower import OperationFollower
        from otel_memwatch.record.schema import sample_maker
        from otel_memwatch.record.writer import RunWriter
        from otel_memwatch.run.aggregate import RunAggregator
        from tests.support.clock import FakeClock

        self.pid, self.run, self.interval = pid, run, interval
        self.clock = FakeClock(time.monotonic())
        self.follower = OperationFollower(run)

        def told(record: ProcessRecord) -> None:
            self.writer.process(record)
            self.aggregator.process(record)

        context = Context(
            pid, interval, adopt=True, on_process=told, marks_operations=self.follower.marks_operations
        )
        sources, _ = open_sources(context, ["process_tree", "host", "cgroup", "pressure", "memory_detail"])
        tree = context.knowing(sources).tree
        assert tree is not None
        self.tree = tree
        self.writer = RunWriter(run, sys.exit)
        self.sampler = Sampler(sources, interval, clock=self.clock)
        self.writer.update(
            state="running", target={"pid": pid}, started={"monotonic": self.clock.now}, interval=interval
        )
        self.aggregator = RunAggregator(self.sampler.columns, self.writer.info)
        make = sample_maker(self.sampler.columns)
        self.writer.columns(self.sampler.columns)
        self.sampler.subscribe(self.writer.tick)
        self.sampler.subscribe(
            lambda taken: self.aggregator.add(make((taken.time, *taken.values)), taken.missed)
        )

    def go(self, ticks: int, every: int, pipe: int) -> list[Station]:
        from otel_memwatch.monitor.run.supervise import target

        stations: list[Station] = []
        for tick in range(1, ticks + 1):
            if tick % every == 0:
                os.write(pipe, bytes([tick // every % 251]))
            while (end := target.reap(self.pid)) is not None:
                self.tree.note_exit(end._replace(time=self.clock.now))
            self.sampler.tick()
            if self.follower.poll().closed:
                self.aggregator.boundaries(self.follower.lines())
            self.clock.now += self.interval
            if tick % 600 == 0:
                self.aggregator.peaks()
            if tick % max(1, ticks // 10) == 0:
                size = (self.run / "samples.jsonl").stat().st_size
                open_files = len(os.listdir("/proc/self/fd"))
                stations.append(Station(tick * self.interval / 3600, memory("self"), open_files, size / tick))
        return stations


def real(seconds: float) -> list[Station]:
    """Runs `wrap` on a shell loop for so long, looked at from outside."""
    from tests.support.wrapped import PROGRAM, environment

    stations: list[Station] = []
    with tempfile.TemporaryDirectory(prefix="memwatch-soak-") as folder:
        loop = f"end=$(($(date +%s)+{int(seconds)})); while [ $(date +%s) -lt $end ]; do sleep 0.3; (sleep 0.5 &); done"
        argv = [*PROGRAM, "wrap", "--quiet", "--no-plot", "--out", f"{folder}/run", "--", "sh", "-c", loop]
        monitor = subprocess.Popen(argv, env=environment(PYTHONPATH=str(ROOT)), cwd=folder)
        began = time.monotonic()
        while len(stations) < 10 and monitor.poll() is None:
            time.sleep(max(0.0, began + seconds * 0.097 * (len(stations) + 1) - time.monotonic()))
            samples = Path(folder, "run/samples.jsonl").read_bytes()
            descriptors = len(os.listdir(f"/proc/{monitor.pid}/fd"))
            hours = (time.monotonic() - began) / 3600
            stations.append(
                Station(
                    hours, memory(monitor.pid), descriptors, len(samples) / max(1, samples.count(b"\n") - 1)
                )
            )
            print(stations[-1], flush=True)
        code = monitor.wait()
        report: dict[str, Any] = json.loads(
            subprocess.run(
                [*PROGRAM, "report", f"{folder}/run", "--json"], capture_output=True, check=True
            ).stdout
        )
        print(f"exit code {code}; {report['quality']}")
    return stations


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--simulated", type=float, metavar="HOURS")
    parser.add_argument("--real", type=float, metavar="SECONDS")
    given = parser.parse_args()
    began = time.monotonic()
    stations = real(given.real) if given.real else simulate(given.simulated or 24.0)
    for station in stations:
        print(
            f"{station.hours:6.2f} h  {station.memory:6.2f} MiB  {station.descriptors:3} files  {station.tick_bytes:6.1f} B a tick"
        )
    problems = verdict(stations)
    print("; ".join(problems) or "flat", f"({time.monotonic() - began:.0f} s)")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
