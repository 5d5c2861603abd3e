"""What reading a tree costs: ours, psutil doing the same reads, and a C program that only reads the files.

Usage: python tests/bench/bench_sources.py [SIZES] [SECONDS]

Prints CPU time for each tick and its share of one core at 10 Hz, for trees of 1, 10 and 100 processes, hot (ticks back to
back) and as in a run (10 Hz, caches cold), and the ratios to the floor. What waking up costs by itself is printed first.
psutil finds the tree's processes at each tick, as ours does; C gets them as arguments. It asserts nothing: machines differ.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from otel_memwatch.monitor.sampling.sources import Context, open_sources

FLOOR = r"""
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
int main(int n, char **a) {
    static int fd[4096][4]; static char b[8192]; const char *f[] = {"stat", "statm", "io", "status"};
    int rounds = atoi(a[1]), gap = atoi(a[2]), p = n - 3; volatile long sum = 0;
    for (int i = 0; i < p; i++) for (int j = 0; j < 4; j++) {
        snprintf(b, sizeof b, "/proc/%s/%s", a[i + 3], f[j]); fd[i][j] = open(b, O_RDONLY);
    }
    struct timespec t0, t1; clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t0);
    for (int r = 0; r < rounds; r++) {
        for (int i = 0; i < p; i++) for (int j = 0; j < 4; j++) sum += pread(fd[i][j], b, 4096, 0);
        if (gap) usleep(gap);
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t1);
    printf("%.9f\n", ((t1.tv_sec - t0.tv_sec) + (t1.tv_nsec - t0.tv_nsec) * 1e-9) / rounds);
    return 0;
}
"""
TREE = "import os,sys,time\nfor _ in range(int(sys.argv[1]) - 1):\n    if not os.fork(): time.sleep(600); os._exit(0)\nprint('x', flush=True)\ntime.sleep(600)"


def tree(size: int) -> subprocess.Popen[bytes]:
    """A tree of sleeping processes, in a separate group."""
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", TREE, str(size)], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def cost(tick: Callable[[], object], rounds: int, gap: float) -> float:
    """CPU seconds of one tick."""
    begun = time.process_time()
    for _ in range(rounds):
        tick()
        if gap:
            time.sleep(gap)
    return (time.process_time() - begun) / rounds


def ours(pid: int, names: tuple[str, ...]) -> Callable[[], object]:
    sources, _ = open_sources(Context(pid, 0.1), names)

    def tick() -> None:
        for source in sources:
            source.read(time.monotonic())

    tick()
    return tick


def by_psutil(pid: int) -> Callable[[], object]:
    known = {pid: psutil.Process(pid)}

    def tick() -> None:
        for child in known[pid].children(recursive=True):
            known.setdefault(child.pid, child)
        for process in known.values():
            with process.oneshot():
                process.memory_info(), process.cpu_times(), process.num_threads(), process.io_counters()
                process.num_ctx_switches()

    return tick


def floor(binary: str, pids: list[int], rounds: int, gap: float) -> float:
    command = [binary, str(rounds), str(int(gap * 1e6)), *map(str, pids)]
    return float(subprocess.run(command, capture_output=True, check=True).stdout)


def main() -> None:
    sizes = [int(size) for size in (sys.argv[1] if len(sys.argv) > 1 else "1,10,100").split(",")]
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 5.0
    everything = ("process_tree", "host", "cgroup", "pressure", "memory_detail")
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder, "floor.c"), str(Path(folder, "floor"))
        source.write_text(FLOOR)
        subprocess.run(["cc", "-O2", "-o", binary, str(source)], check=True)
        print(
            "us of CPU per tick          ours  all sources   psutil        C  ours/C  psutil/ours  all, % of a core"
        )
        print(f"waking up at 10 Hz: {cost(lambda: None, int(seconds * 10), 0.1) * 1e6:.0f}")
        for size in sizes:
            process = tree(size)
            try:
                pids = [
                    process.pid,
                    *(child.pid for child in psutil.Process(process.pid).children(recursive=True)),
                ]
                for label, rounds, gap in (
                    ("hot", max(20, 2000 // size), 0.0),
                    ("10 Hz", int(seconds * 10), 0.1),
                ):
                    tree_only = cost(ours(process.pid, ("process_tree",)), rounds, gap)
                    total = cost(ours(process.pid, everything), rounds, gap)
                    other = cost(by_psutil(process.pid), max(10, rounds // 4), gap)
                    least = floor(binary, pids, rounds, gap)
                    print(
                        f"{size:4} processes, {label:6} {tree_only * 1e6:12.0f} {total * 1e6:12.0f} {other * 1e6:8.0f} "
                        f"{least * 1e6:8.0f} {tree_only / least:7.1f} {other / tree_only:12.1f} {total * 1000:17.2f}",
                        flush=True,
                    )
            finally:
                os.killpg(process.pid, 9)
                process.wait()


if __name__ == "__main__":
    main()
