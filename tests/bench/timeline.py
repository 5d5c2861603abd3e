"""Where the time of a short command under `wrap` goes: CPU and wall milliseconds of each step.

    python -m tests.bench.timeline [--runs 40] [--command true]

Each run has clocks between the steps, which cost some microseconds. Printed are medians, and the minimum, which other work on the
machine disturbs least. CPU is that of all threads of the monitor's process, without the command's. A step that begins while
another thread still imports modules includes their time.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CLOCKED = Path(__file__).with_name("clocked.py")
Moments = list[tuple[str, float, float]]
"""Name of the step that ended, with seconds of CPU and of wall time."""


def measure(command: list[str], runs: int) -> list[Moments]:
    """Return the moments of so many runs."""
    found = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            begun = time.monotonic()
            argv = [sys.executable, str(CLOCKED), folder, *command]
            subprocess.run(argv, stderr=subprocess.DEVNULL, check=True)
            ended = time.monotonic()
            moments = json.loads(Path(folder, "moments").read_text(encoding="utf-8"))
            moments.append(("exit", moments[-1][1], ended))
            found.append([(name, cpu, wall - begun) for name, cpu, wall in moments])
            time.sleep(0.1)  # the detached process makes report and page
    return found


def table(found: list[Moments]) -> None:
    """Print the steps of all runs as a table in Markdown."""
    print("| step | CPU, ms | least | wall, ms | least |\n| --- | ---: | ---: | ---: | ---: |")
    steps: dict[str, list[tuple[float, float]]] = {}
    for moments in found:
        before = 0.0, 0.0
        for name, cpu, wall in moments:
            steps.setdefault(name, []).append((1e3 * (cpu - before[0]), 1e3 * (wall - before[1])))
            before = cpu, wall
    steps["**all**"] = [(1e3 * moments[-1][1], 1e3 * moments[-1][2]) for moments in found]
    for name, taken in steps.items():
        figures = (f"{choose(one)} " for one in zip(*taken, strict=True) for choose in (_median, _least))
        print(f"| {name} | {'| '.join(figures)}|")


def _median(figures: tuple[float, ...]) -> str:
    return f"{statistics.median(figures):.1f}"


def _least(figures: tuple[float, ...]) -> str:
    return f"{min(figures):.1f}"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--command", type=shlex.split, default=["true"])
    options = parser.parse_args()
    table(measure(options.command, options.runs))


if __name__ == "__main__":
    main()
