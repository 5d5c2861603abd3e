"""Time and memory of reading a day at ten ticks a second: 864 000 ticks of 35 columns.

Run as a script. Prints what each step takes, and its ratio to merely reading the file's bytes and to the budget
(10 s and 500 MiB for a report or a plot).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.run_directory import STARTED, RunDirectory, column

BUDGET_SECONDS, BUDGET_MIB = 10.0, 500.0
PROCESS = [
    "process.memory.usage", "process.memory.virtual", "process.thread.count", "process.unix.file_descriptor.count",
    "memwatch.process.memory.peak", "memwatch.tree.memory.usage", "memwatch.tree.memory.virtual",
    "memwatch.tree.process.count", "memwatch.tree.thread.count", "memwatch.tree.unobserved",
    "memwatch.cgroup.memory.usage", "memwatch.cgroup.memory.working_set", "memwatch.cgroup.memory.anon",
    "memwatch.cgroup.memory.file", "memwatch.cgroup.memory.shmem", "memwatch.cgroup.memory.kernel",
    "memwatch.cgroup.memory.peak", "system.memory.linux.available", "memwatch.system.load",
]  # fmt: skip
SLOW = ["memwatch.tree.memory.pss", "memwatch.tree.memory.uss", "memwatch.tree.memory.swap"]
PLOTTED = [
    "process.memory.usage", "memwatch.tree.memory.usage", "memwatch.tree.memory.pss", "memwatch.cgroup.memory.usage",
    "memwatch.tree.cpu.time", "memwatch.tree.disk.io", "system.memory.linux.available",
]  # fmt: skip


def columns() -> list[object]:
    modes = [
        column(m, cpu__mode=mode)
        for m in ("process.cpu.time", "memwatch.tree.cpu.time")
        for mode in ("user", "system")
    ]
    io = [
        column(metric, disk__io__direction=direction)
        for metric in ("process.disk.io", "memwatch.tree.disk.io", "memwatch.tree.syscall.io")
        for direction in ("read", "write")
    ]
    faults = [
        column(metric, system__paging__fault__type=kind)
        for metric in ("process.paging.faults", "memwatch.tree.paging.faults")
        for kind in ("major", "minor")
    ][:3]
    return [*map(column, PROCESS), *modes, *io, *faults, *(column(metric, 5.0) for metric in SLOW)]


def build(path: Path, ticks: int) -> None:
    built = RunDirectory(path, state="finished")
    every = columns()
    built.columns(every)  # type: ignore[arg-type]
    fast = len(every) - len(SLOW)
    with (path / "samples.jsonl").open("a") as file:
        for place in range(ticks):
            row: list[float] = [round(STARTED + place / 10, 4)]
            row += [(300_000_000 + (place * 7919 + c * 104_729) % 500_000_000) for c in range(fast - 4)]
            row += [round(place * 0.01 + c, 2) for c in range(4)]
            if place % 50 == 0:
                row += [400_000_000 + place] * len(SLOW)
            file.write(json.dumps(row, separators=(",", ":")) + "\n")


def bytes_only(path: Path) -> None:
    with (path / "samples.jsonl").open("rb") as file:
        while file.read(1 << 20):
            pass


def plotted(path: Path) -> None:
    from otel_memwatch.run import load

    run = load(path)
    samples = run.samples(PLOTTED)
    for one in samples.columns:
        samples.reduced(one, 2000)


def every_column(path: Path) -> None:
    from otel_memwatch.run import load

    load(path).samples()


def folded(path: Path) -> None:
    """As for a run whose monitor died: peaks, totals and quality from the raw lines."""
    from otel_memwatch.run import load

    run = load(path)
    assert run.quality["ticks"]
    _ = run.peaks, run.totals, run.seconds


def measure(
    step: Callable[[Path], None], path: Path, answers: multiprocessing.SimpleQueue[tuple[float, float]]
) -> None:
    began = time.perf_counter()
    step(path)
    seconds = time.perf_counter() - began
    answers.put((seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ticks", type=int, default=864_000)
    ticks = parser.parse_args().ticks
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "run"
        build(path, ticks)
        size = (path / "samples.jsonl").stat().st_size
        print(
            f"{ticks} ticks, {len(columns())} columns, {size / 1024**2:.0f} MiB, {size / ticks:.0f} B a tick"
        )
        floor = 0.0
        for step in (bytes_only, plotted, every_column, folded):
            answers: multiprocessing.SimpleQueue[tuple[float, float]] = context.SimpleQueue()
            process = context.Process(target=measure, args=(step, path, answers))
            process.start()
            seconds, mebibytes = answers.get()
            process.join()
            floor = floor or seconds
            print(
                f"{step.__name__:14} {seconds:6.2f} s {mebibytes:6.0f} MiB  {seconds / floor:6.1f} x bytes only, "
                f"{seconds / BUDGET_SECONDS:5.0%} of the time and {mebibytes / BUDGET_MIB:4.0%} of the memory there is"
            )


if __name__ == "__main__":
    main()
