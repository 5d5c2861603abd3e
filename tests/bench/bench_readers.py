"""All costs of reading records beside their budgets: a day at 10 Hz, many runs, many operations.

    python tests/bench/bench_readers.py

Budgets: 10 s of CPU and 500 MiB for each output of a day; 3 s cold, 0.2 s warm and 100 MiB for 10 000 runs; see the scripts
that this one runs.
"""

from __future__ import annotations

import subprocess
import sys

STEPS = (
    ("tests.bench.bench_offline",),
    ("tests.bench.bench_index", "--runs", "10000", "--jobs", "0"),
    ("tests.bench.bench_many_operations", "--operations", "100000"),
)


def main() -> None:
    for step in STEPS:
        print(f"== {' '.join(step)}", flush=True)
        subprocess.run([sys.executable, "-m", *step], check=True)


if __name__ == "__main__":
    main()
