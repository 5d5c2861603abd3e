"""How long a person waits: the whole time of commands of 0, 1, 5 and 60 s under us and under other tools, in one run.

    python tests/bench/bench_waiting.py [--seconds 0 1 5 60] [--rounds 3] [--operations 100000]

Every tool in its default manner; the tools take turns. What a tool adds to the command alone is what one waits for. Behind
it, for us: the time from the command's end until the shell is back, against the budget, also after many operations.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.compare import peers
from tests.support.wrapped import PROGRAM, environment

BUDGET_MS = 60.0
NAMES = ("psrecord", "mprof", "con-duct", "GNU time")
MARKING = """
import sys, time
from otel_memwatch import operation
for number in range(int(sys.argv[1]) // 10):
    with operation("step"):
        for _ in range(9):
            with operation("batch"):
                pass
print(time.time(), flush=True)
"""


def ours(command: Sequence[str], folder: Path) -> list[str]:
    return [*PROGRAM, "wrap", "--out", f"{folder}/run", "--", *command]


def timed(argv: Sequence[str]) -> tuple[float, str]:
    """Seconds that it took, and what it wrote to its standard output."""
    begun = time.perf_counter()
    done = subprocess.run(
        argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment()
    )
    return time.perf_counter() - begun, done.stdout


def whole_times(seconds: Sequence[float], rounds: int) -> None:
    tools = {"alone": lambda command, _: list(command), "otel-memwatch": ours}
    for peer in peers.PEERS:
        if peer.name in NAMES:
            failed = peers.install(peer)
            if failed:
                print(f"{peer.name}: left out, {failed}")
            else:
                tools[peer.name] = peer.start
    print(f"{'seconds in all':<16}" + "".join(f"{name:>16}" for name in tools))
    for length in seconds:
        found: dict[str, list[float]] = {name: [] for name in tools}
        for _ in range(rounds):
            for name, start in tools.items():
                with tempfile.TemporaryDirectory() as folder:
                    found[name].append(timed(start(["sleep", f"{length:g}"], Path(folder)))[0])
        medians = {name: statistics.median(times) for name, times in found.items()}
        print(f"sleep {length:<10g}" + "".join(f"{medians[name]:>16.2f}" for name in tools))
        print(
            f"{'  waited for':<16}" + "".join(f"{medians[name] - medians['alone']:>16.2f}" for name in tools)
        )


def until_the_shell_is_back(rounds: int, numbers: Sequence[int]) -> None:
    """From the command's last action to the end of `wrap`."""
    commands = {f"sleep {length}": ["sh", "-c", f"sleep {length}; date +%s.%N"] for length in (0, 1, 5)}
    for number in numbers:
        commands[f"{number} operations"] = [sys.executable, "-c", MARKING, str(number)]
    print(f"\n{'until the shell is back':<26}{'ms':>8}{'of the budget':>16}")
    for name, command in commands.items():
        waits = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as folder:
                _, written = timed(ours(command, Path(folder)))
                waits.append(1000 * (time.time() - float(written.split()[-1])))
        median = statistics.median(waits)
        print(f"{name:<26}{median:>8.0f}{median / BUDGET_MS:>16.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, nargs="*", default=[0, 1, 5, 60])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--operations", type=int, nargs="*", default=[1000, 100_000])
    parser.add_argument("--only-us", action="store_true", help="no other tools")
    arguments = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
    if not arguments.only_us:
        peers.ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
        whole_times(arguments.seconds, arguments.rounds)
    until_the_shell_is_back(arguments.rounds, arguments.operations)


if __name__ == "__main__":
    main()
