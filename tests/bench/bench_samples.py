"""CPU of the monitor over a run, and of one sample, for 1 and 50 processes at 10 and 100 Hz.

    python tests/bench/bench_samples.py [--seconds 20] [--rounds 3] [--command otel-memwatch]

A run of a second is subtracted from a longer one to separate a sample from start and end. Each figure is the least of
all rounds, with its ratio to the goal: other programs only add to it. Processes are idle.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.wrapped import PROGRAM, environment

GOALS = {(1, 10): 0.10, (1, 100): 0.40, (50, 10): 0.25, (50, 100): 1.0}
"""Seconds of CPU over `GOAL_SECONDS`, by processes and samples per second."""
GOAL_SECONDS = 20.0
ENDS_GOAL = 0.05
"""Seconds of CPU of start and end together."""
SAMPLE_GOALS = {10: 250e-6, 100: 150e-6}
"""Seconds of CPU of a sample of one process, by samples per second."""
SHORT = 1.0
CROWD = Path(__file__).parent / "compare/workloads/crowd.py"


class Cost(NamedTuple):
    """Cost of one run."""

    seconds: float
    """CPU seconds of the monitor and its helpers, without those of the command."""
    samples: int


def record(command: list[str], size: int, hertz: int, seconds: float, cgroup: str) -> Cost:
    """Record a crowd, and return what that cost."""
    bare = _cpu(crowd(size, seconds))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "run")
        options = ["--quiet", "--interval", f"{1000 // hertz}ms", "--cgroup", cgroup, "--out", str(out)]
        used = _cpu([*command, "wrap", *options, "--", *crowd(size, seconds)])
        with (out / "samples.jsonl").open("rb") as lines:
            return Cost(used - bare, sum(1 for _ in lines) - 1)


def crowd(size: int, seconds: float) -> list[str]:
    """Return a command of that many idle processes."""
    return [sys.executable, "-S", str(CROWD), os.devnull, str(size), str(seconds)]


def _cpu(argv: list[str]) -> float:
    """Return the CPU seconds of a command and of the children that it waited for."""
    process = subprocess.Popen(argv, env=environment(), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    return usage.ru_utime + usage.ru_stime


def table(command: list[str], seconds: float, rounds: int) -> None:
    """Print the rows: CPU of the run, of start and end together, and of one sample, each with its ratio to the goal."""
    print(f"{'':32} {'CPU':>8} {'ratio':>6} {'start, end':>11} {'ratio':>6} {'a sample':>10} {'ratio':>6}")
    for cgroup in ("auto", "off"):
        for (size, hertz), goal in GOALS.items():
            short, long = (
                min(record(command, size, hertz, duration, cgroup) for _ in range(rounds))
                for duration in (SHORT, seconds)
            )
            sample = (long.seconds - short.seconds) / max(1, long.samples - short.samples)
            ends = short.seconds - short.samples * sample
            of_sample = f"{sample / SAMPLE_GOALS[hertz]:6.1f}" if size == 1 else ""
            print(
                f"{size:3} processes, {hertz:3} Hz, cgroup {cgroup:4} {long.seconds:7.2f} s "
                f"{long.seconds / (goal * seconds / GOAL_SECONDS):6.1f} {ends:9.2f} s {ends / ENDS_GOAL:6.1f} "
                f"{sample * 1e6:7.0f} us {of_sample}",
                flush=True,
            )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=GOAL_SECONDS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--command", nargs="+", default=PROGRAM)
    given = parser.parse_args()
    # Set where a container is built: every start would compile all modules anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, {given.seconds:g} s each")
    table(given.command, given.seconds, given.rounds)


if __name__ == "__main__":
    main()
