"""CPU of the stall ledger for each sample: its arithmetic, and the readings that only it uses.

    python -m tests.bench.bench_ledger [--threads 1 16 128]

Samples follow each other without a pause, at times 0.1 s apart: slow readings are due at each tenth. Each figure is the least of
20 rounds of 200 samples, as other programs only add to it. Goal: 20 us. It asserts nothing: machines differ.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from otel_memwatch.monitor.sampling.sources import Context, open_sources
from otel_memwatch.record.schema import sample_maker
from otel_memwatch.run.conditions import RunConditions
from otel_memwatch.run.stall_ledger import StallLedger
from otel_memwatch.runtime.procfs.control_group import parse_key

GOAL = 20.0
ROUNDS, SAMPLES = 20, 200
KEYS = {
    "memory.stat": (b"total_workingset_refault_file", b"total_dirty", b"total_writeback"),
    "cgroup v2": (b"workingset_refault_file", b"file_dirty", b"file_writeback"),
}


def least(sample: Callable[[float], object]) -> float:
    """Return the CPU time of a sample in microseconds."""
    found, now = [], 0.0
    for _ in range(ROUNDS):
        begun = time.thread_time()
        for _ in range(SAMPLES):
            now += 0.1
            sample(now)
        found.append((time.thread_time() - begun) / SAMPLES)
    return 1e6 * min(found)


def measure() -> dict[str, float]:
    """Return the costs by part, for the threads of this process."""
    sources, _ = open_sources(Context(os.getpid(), 0.1), ("process_tree", "cgroup", "pressure", "run_queue"))
    by_name = {source.name: source for source in sources}
    columns = [column for source in sources for column in source.columns]
    rows = [[value for source in sources for value in source.read(at / 10)] for at in range(SAMPLES)]
    make = sample_maker(columns)
    conditions = RunConditions.of({"started": {"monotonic": 0.0}, "own_cgroup": "/x", "page_bytes": 4096})
    ledger = StallLedger(columns, conditions)
    stat = next(Path("/sys/fs/cgroup").glob("**/memory.stat")).read_bytes()
    keys = KEYS["memory.stat" if b"\ntotal_dirty " in stat else "cgroup v2"]
    found = {
        "ledger": least(lambda now: ledger.add(make((now, *rows[round(now * 10) % SAMPLES]))))
        - least(lambda now: make((now, *rows[round(now * 10) % SAMPLES]))),
        "keys of memory.stat": least(lambda _: [parse_key(stat, key) for key in keys]),
    }
    for name in ("pressure", "run_queue"):
        if name in by_name:
            found[name] = least(by_name[name].read)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 16, 128])
    stop = threading.Event()
    for threads in parser.parse_args().threads:
        while threading.active_count() < threads:
            threading.Thread(target=stop.wait, daemon=True).start()
        found = measure()
        parts = ", ".join(f"{name} {cost:.1f}" for name, cost in found.items())
        print(f"{threads} threads: {sum(found.values()):.1f} us for each sample, goal {GOAL:.0f} ({parts})")
    stop.set()


if __name__ == "__main__":
    main()
