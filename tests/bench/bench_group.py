"""A group of many ranks as one: a thousand runs of an hour at 1 Hz, merged and reported.

    python -m tests.bench.bench_group [RANKS] [SECONDS]

Prints the seconds that `report GROUP` takes and the most memory that its processes have. Budget: 10 s and 500 MiB for 1000 ranks.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support.rank_runs import Clock, Course, rank_run
from tests.support.run_directory import MIB


def make(home: Path, ranks: int, seconds: int) -> None:
    """The records: eight ranks to a host, each with separate moments of large memory."""
    lot = random.Random(1)
    filler = [None] * 14 + [123456.0] * 36  # the columns that a monitor has beside those that are looked at
    for rank in range(ranks):
        moments, sizes = [rank * 0.01], [50 * MIB]
        while moments[-1] < seconds - 120:
            moments.append(moments[-1] + lot.uniform(20, 100))
            sizes.append(lot.randint(100, 900) * MIB)
        moments.append(float(seconds))
        host = rank % max(1, ranks // 8)
        clock = Clock(f"boot-{host}", lot.uniform(-0.02, 0.02), monotonic=5000.0 + host)
        made = rank_run(
            home / f"r{rank:05d}",
            Course(moments, [*sizes, 0]),
            rank=rank,
            size=ranks,
            clock=clock,
            interval=1.0,
            lot=lot,
        )
        path = made.path / "samples.jsonl"
        first, *lines = path.read_text().splitlines()
        declared = json.loads(first)
        declared["columns"] += [
            {"metric": f"other.{n}", "unit": "1", "attributes": {}, "period": 1.0} for n in range(len(filler))
        ]
        more = "," + json.dumps(filler)[1:]
        path.write_text("\n".join([json.dumps(declared), *(line[:-1] + more for line in lines)]) + "\n")


def measure(home: Path) -> tuple[float, float]:
    """Seconds and MiB of `report`, its helpers among them (the most at one time)."""
    code = (
        "import resource, sys; from otel_memwatch.cli.command_group import run; sys.argv[1:] = ['report', sys.argv[1], '--json']; run();"
        "sys.stderr.write(f'{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss} {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss}')"
    )
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code, str(home)], capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - began
    own, child = map(int, done.stderr.split()[-2:])
    together = json.loads(done.stdout)["memory"]["together"]
    assert together["low"] > 0
    # Every helper could have had as much as the largest.
    return seconds, (own + 2 * child) / 1024


def main() -> None:
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    seconds = int(sys.argv[2]) if len(sys.argv) > 2 else 3600
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        make(home, ranks, seconds)
        size = sum(path.stat().st_size for path in home.rglob("samples.jsonl")) / MIB
        for _ in range(2):
            took, memory = measure(home)
            print(
                f"{ranks} ranks of {seconds} s, {size:.0f} MiB of ticks: {took:.1f} s, {memory:.0f} MiB at most"
            )


if __name__ == "__main__":
    main()
