"""A week of watching at the default interval, by a fast clock: bytes on disk a day, and cost of reading the record.

    python -m tests.bench.week --days 7 --processes 20 [--keep DIRECTORY]

Real sources, sampler, writer and aggregator watch real processes. Only the clock does not wait, so counters of the kernel
grow as in minutes, not as in days. The processes work, allocate and free at random moments, twenty times an hour. A
worker is replaced every 15 minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

from tests.support.clock import FakeClock
from tests.support.wrapped import PROGRAM, environment

ACTS, REPLACED = 180.0, 900.0
"""Mean seconds between two acts of the service, and seconds between two replacements of a worker."""


def worker(pipe: int, seed: int) -> None:
    """Allocate, free, compute and write for each byte read."""
    rng, blocks = Random(seed), [bytearray(8 << 20)]
    while os.read(pipe, 1):
        if rng.random() < 0.5 and len(blocks) > 1:
            blocks.pop(rng.randrange(len(blocks)))
        elif len(blocks) < 6:
            blocks.append(bytearray(rng.randrange(1 << 16, 4 << 20)))
        sum(range(rng.randrange(20_000)))
        with open(os.devnull, "wb") as file:
            file.write(b"x" * rng.randrange(100_000))


class Service:
    """A process with workers, driven through pipes."""

    def __init__(self, number: int) -> None:
        self.rng = Random(34)
        self.workers: list[tuple[int, int]] = []
        for seed in range(number):
            self.workers.append(self._start(seed))

    def _start(self, seed: int) -> tuple[int, int]:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            for other in (writing, *(kept for _, kept in self.workers)):
                os.close(other)
            with contextlib.suppress(BaseException):
                worker(reading, seed)
            os._exit(0)
        os.close(reading)
        return pid, writing

    def act(self) -> None:
        """Let one worker do something."""
        os.write(self.rng.choice(self.workers)[1], b"x")

    def replace(self) -> None:
        """End the last worker but one and start another."""
        if len(self.workers) > 1:
            pid, pipe = self.workers.pop(1)
            os.close(pipe)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            self.workers.append(self._start(self.rng.randrange(1 << 30)))

    def follow(self, pipe: int) -> None:
        """Obey the bytes of a pipe."""
        while order := os.read(pipe, 1):
            self.replace() if order == b"r" else self.act()
        for pid, _ in self.workers:
            os.kill(pid, signal.SIGKILL)
        os._exit(0)


class Week:
    """The parts of the monitor that grow, on a fast clock."""

    def __init__(self, pid: int, run: Path) -> None:
        from otel_memwatch.config import SHORTEST_AUTO
        from otel_memwatch.monitor.sampling.auto_interval import AutoInterval
        from otel_memwatch.monitor.sampling.sampler import Sampler
        from otel_memwatch.monitor.sampling.sources import Context, open_sources
        from otel_memwatch.record.schema import sample_maker
        from otel_memwatch.record.writer import RunWriter
        from otel_memwatch.run.aggregate import RunAggregator

        self.run, self.clock = run, FakeClock(time.monotonic())
        self.started = self.clock.now
        self.auto = AutoInterval(self.started)

        def note(record: Any) -> None:
            self.writer.process(record)
            self.aggregator.process(record)

        context = Context(pid, SHORTEST_AUTO, auto=self.auto, started=self.started, on_process=note)
        sources, _ = open_sources(context, ["process_tree", "host", "cgroup", "pressure", "memory_detail"])
        self.tree = context.knowing(sources).tree
        self.writer = RunWriter(run, sys.exit, segmented=True)
        self.sampler = Sampler(sources, SHORTEST_AUTO, clock=self.clock, auto=self.auto)
        self.writer.update(
            state="running", target={"pid": pid}, started={"monotonic": self.started, "wall": time.time()},
            interval=SHORTEST_AUTO, settings={"interval": "auto"},
        )  # fmt: skip
        self.aggregator = RunAggregator(self.sampler.columns, self.writer.info)
        make = sample_maker(self.sampler.columns)
        self.writer.columns(self.sampler.columns)
        self.sampler.subscribe(self.writer.tick)
        self.sampler.subscribe(
            lambda taken: self.aggregator.add(make((taken.time, *taken.values)), taken.missed)
        )

    def bytes(self) -> dict[str, int]:
        """Return the size of each kind of file."""
        sizes: dict[str, int] = {}
        for path in self.run.iterdir():
            kind = path.name.split(".")[0].split("-")[0]
            sizes[kind] = sizes.get(kind, 0) + path.stat().st_size
        return sizes

    def go(self, days: float, pipe: int) -> None:
        """Print the size of the record at the end of each day."""
        from otel_memwatch.runtime.threads import Flag

        never, rng = Flag(), Random(7)
        act = replace = self.started
        for day in range(1, int(days) + 1):
            end = self.started + day * 86400.0
            while self.clock.now < end:
                while act <= self.clock.now:
                    os.write(pipe, b"a")
                    act += rng.expovariate(1 / ACTS)
                while replace <= self.clock.now:
                    os.write(pipe, b"r")
                    replace += REPLACED
                self.sampler.tick()
                self.sampler.wait(never)
            sizes = self.bytes()
            parts = ", ".join(
                f"{name} {size / 1e6:.2f}" for name, size in sorted(sizes.items()) if size > 99_999
            )
            print(
                f"day {day}: {sum(sizes.values()) / 1e6:.2f} MB ({parts}), {self.sampler.ticks} samples",
                flush=True,
            )
        self.finish()

    def finish(self) -> None:
        """Write the figures that the monitor writes at the end."""
        from otel_memwatch.record.format import FINISHED

        aggregator = self.aggregator
        self.writer.update(
            state=FINISHED, ended={"monotonic": self.clock.now, "wall": time.time()}, exit={"exit_code": 0},
            peaks=aggregator.peaks().to_json(), totals=aggregator.totals(), quality=aggregator.quality(),
            stalls=aggregator.stalls().to_json(),
            findings=[one._asdict() for one in aggregator.findings(None, job=False)],
        )  # fmt: skip
        self.writer.close()


def record(days: float, processes: int, run: Path) -> None:
    """Record a week."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writing)
        Service(processes).follow(reading)
    os.close(reading)
    try:
        Week(pid, run).go(days, writing)
    finally:
        os.close(writing)
        os.waitpid(pid, 0)


def read(run: Path) -> None:
    """Print seconds and resident memory of the commands that read the record."""
    outputs = {
        "report": (),
        "report --json": ("--json",),
        "report --html": ("--html", str(run.parent / "week.html")),
    }
    compiled = environment()  # as an installed package is
    compiled.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run(
        [*PROGRAM, "report", run, "--html", run.parent / "first.html"],
        stdout=subprocess.DEVNULL,
        check=True,
        env=compiled,
    )
    for name, options in outputs.items():
        before = time.monotonic()
        done = subprocess.Popen([*PROGRAM, "report", run, *options], stdout=subprocess.DEVNULL, env=compiled)
        _, status, used = os.wait4(done.pid, 0)
        print(
            f"{name}: {time.monotonic() - before:.2f} s, CPU {used.ru_utime + used.ru_stime:.2f} s, "
            f"{used.ru_maxrss / 1024:.0f} MiB, exit code {os.waitstatus_to_exitcode(status)}"
        )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=float, default=7)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="new directory for the record")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="memwatch-week-") as folder:
        run: Path = given.keep or Path(folder, "week")
        run.mkdir(mode=0o700)
        began = time.monotonic()
        record(given.days, given.processes, run)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"recorded in {time.monotonic() - began:.0f} s, {peak / 1024:.0f} MiB at most")
        read(run)


if __name__ == "__main__":
    main()
