"""Cost of the monitor beside its budgets: start, samples, memory, disk, slowdown, an operation, a test of pytest.

    python tests/bench/bench_budgets.py [--seconds 20] [--rounds 9] [--command otel-memwatch]

Each figure is printed with its ratio to the budget; above 1 it is missed. Rounds with and without the monitor take turns.
The rows of samples come from bench_samples.py, those of operations from bench_operations.py, and those of tests from
bench_pytest.py. Reports of a day are in bench_offline.py and bench_read.py.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench import bench_pytest, bench_samples
from tests.bench.compare.own_cost import Watch
from tests.support.wrapped import PROGRAM, environment

MIB = 1 << 20
WORKLOADS = Path(__file__).parent / "compare/workloads"
START_MS = 25.0
SLOWDOWN_PERCENT = 0.5
MEMORY_MIB = {"recording": 16.0, "exporting": 50.0}
TICK_BYTES = 320.0


def tell(what: str, figure: float, budget: float, unit: str, figures: list[float] | None = None) -> None:
    """One line: a median with its spread and its ratio to the budget."""
    spread = f" ({min(figures):.2f} to {max(figures):.2f})" if figures and len(figures) > 1 else ""
    missed = "  MISSED" if figure > budget else ""
    print(
        f"{what:44} {figure:8.2f} {unit}{spread:22} budget {budget:6.1f}, ratio {figure / budget:.2f}{missed}"
    )


def run(argv: list[str], folder: str) -> float:
    """Wall seconds of a command."""
    began = time.perf_counter()
    subprocess.run(
        argv, cwd=folder, env=environment(), check=True, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    )
    return time.perf_counter() - began


def start(command: list[str], rounds: int) -> None:
    """Milliseconds from launching `wrap` until the command runs, and what a command that does nothing takes longer."""
    until, added = [], []
    with tempfile.TemporaryDirectory() as folder:
        moment = Path(folder, "moment")
        mark = ["bash", str(WORKLOADS / "moment.sh"), str(moment)]
        for number in range(rounds):
            began = time.time()
            run([*command, "wrap", "--quiet", "--out", f"{folder}/{number}", "--", *mark], folder)
            watched = float(moment.read_text()) - began
            began = time.time()
            run(mark, folder)
            until.append((watched - (float(moment.read_text()) - began)) * 1e3)
            bare = run(["true"], folder)
            added.append(
                (run([*command, "wrap", "--out", f"{folder}/true{number}", "--", "true"], folder) - bare)
                * 1e3
            )
    tell("command started after", statistics.median(until), START_MS, "ms", until)
    print(f"{'added to `true`, from start to end':44} {statistics.median(added):8.2f} ms")


def slowdown(command: list[str], rounds: int) -> None:
    """Percent by which a fixed amount of work takes longer, by the program's own CPU clock and wall clock."""
    cpu: dict[bool, list[float]] = {False: [], True: []}
    wall: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        note = Path(folder, "seconds")
        work = [sys.executable, str(WORKLOADS / "spin.py"), str(note)]
        for number in range(rounds):
            for watched in (True, False) if number % 2 else (False, True):
                run(
                    [*command, "wrap", "--quiet", "--out", f"{folder}/{number}", "--", *work]
                    if watched
                    else work,
                    folder,
                )
                seconds, used = map(float, note.read_text().split())
                wall[watched].append(seconds)
                cpu[watched].append(used)
    noise = (statistics.quantiles(cpu[False], n=4)[2] / statistics.quantiles(cpu[False], n=4)[0] - 1) * 100
    for name, figures in (("CPU", cpu), ("wall", wall)):
        percent = (statistics.median(figures[True]) / statistics.median(figures[False]) - 1) * 100
        tell(f"slowdown of the target, {name} time", percent, max(SLOWDOWN_PERCENT, noise), "%")
    print(f"{'':44} noise between equal runs without monitor: {noise:.2f} %")


def watch(command: list[str], size: int, seconds: float, *options: str) -> tuple[float, float, float]:
    """Percent of a core, MiB of the monitor, and bytes on disk for each tick, while so many processes idle."""
    with tempfile.TemporaryDirectory() as folder:
        note, out = Path(folder, "note"), Path(folder, "run")
        crowd = [sys.executable, str(WORKLOADS / "crowd.py"), str(note), str(size), str(seconds)]
        argv = [
            *command,
            "wrap",
            "--quiet",
            "--no-report",
            "--no-plot",
            "--out",
            str(out),
            *options,
            "--",
            *crowd,
        ]
        process = subprocess.Popen(
            argv, env=environment(), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        seen = Watch(process.pid, note)
        seen.until_the_end(seconds)
        process.wait()
        lines = (out / "samples.jsonl").read_bytes().splitlines(keepends=True)[1:]
        return seen.share * 100, seen.memory / MIB, sum(map(len, lines)) / len(lines)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=bench_samples.GOAL_SECONDS)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--command", nargs="+", default=PROGRAM)
    given = parser.parse_args()
    # Set where a container is built: every start would compile all modules anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    start(given.command, given.rounds)
    bench_samples.table(given.command, given.seconds, max(1, given.rounds // 3))
    for size in (1, 50):
        _, memory, disk = watch(given.command, size, min(given.seconds, 5.0))
        tell(f"memory of the monitor, tree of {size}", memory, MEMORY_MIB["recording"], "MiB")
        tell(f"disk for a tick, tree of {size}", disk, TICK_BYTES, "B")
    exporting = watch(given.command, 1, given.seconds, "--prometheus", "0")
    tell("memory of the monitor, exporting", exporting[1], MEMORY_MIB["exporting"], "MiB")
    slowdown(given.command, given.rounds)
    for plain in ("", "1"):
        subprocess.run(
            [sys.executable, str(Path(__file__).with_name("bench_operations.py")), "--quick"],
            env=environment(OTEL_MEMWATCH_PLAIN_OPERATIONS=plain),
            check=True,
        )
    bench_pytest.cost()


if __name__ == "__main__":
    main()
