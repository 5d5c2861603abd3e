"""Costs of many operations for those that wait for the end: the shell, the monitor's memory, and the readers of the record.

    python tests/bench/bench_many_operations.py [--operations 0 37500 100000 400000] [--pause 0] [--command otel-memwatch]

Budgets: the shell is back 60 ms after the command's end with 100 000 operations; the monitor takes 25 MiB while it records;
`report --json` of any number of operations takes 64 MiB. `--pause` is the time of work (seconds) within each operation: without
it the program marks as quickly as it can, which is the worst that a monitor can meet.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from otel_memwatch.record import operation_line
from otel_memwatch.record.follower import OperationFollower
from otel_memwatch.run.operation_aggregator import OperationAggregator
from tests.support.wrapped import PROGRAM, environment

MIB = 1 << 20
MARKS = """
import sys, time
from otel_memwatch import operation
number, pause = int(sys.argv[2]), float(sys.argv[3])
with operation("Job"):
    for index in range(number):
        with operation(f"Step {index % 7}"):
            if pause:
                until = time.perf_counter() + pause
                while time.perf_counter() < until:
                    pass
with open(sys.argv[1], "w") as note:
    note.write(repr(time.time()))
"""


def memory_of(pid: int) -> tuple[int, int]:
    """Watermark and size of a process, in bytes."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0, 0
    found = {line.split(":")[0]: line.split()[1] for line in status.splitlines() if line.startswith("Vm")}
    return int(found.get("VmHWM", 0)) << 10, int(found.get("VmRSS", 0)) << 10


def record(command: list[str], number: int, pause: float, folder: str) -> None:
    """Prints how long the shell waits after the command's end, and the monitor's memory."""
    note = Path(folder, "note")
    run = [
        *command,
        "wrap",
        "--quiet",
        "--no-plot",
        "--out",
        f"{folder}/run",
        "--",
        sys.executable,
        "-c",
        MARKS,
    ]
    process = subprocess.Popen(
        [*run, str(note), str(number), str(pause)], env=environment(), stderr=subprocess.DEVNULL
    )
    before_end = most = 0
    while process.poll() is None:
        peak, now = memory_of(process.pid)
        most = max(most, peak)
        if not note.exists():
            before_end = max(before_end, now)
        time.sleep(0.002)
    waited = (time.time() - float(note.read_text())) * 1e3
    size = sum(file.stat().st_size for file in Path(folder, "run").glob("operations-*")) / MIB
    print(
        f"{number:8} operations ({size:5.1f} MiB): shell back after {waited:7.0f} ms,"
        f" monitor {before_end / MIB:6.1f} MiB while recording, {most / MIB:6.1f} MiB in all"
    )


def follow(folder: str) -> None:
    """Prints what the monitor's reading takes with both decoders: CPU time, without the program beside it."""
    for name, typed in (("json", None), ("msgspec", operation_line._typed_decoder())):
        operation_line._typed, operation_line._imported = typed, True
        least = float("inf")
        for _ in range(5):
            follower, so_far = OperationFollower(f"{folder}/run"), OperationAggregator()
            began = time.process_time()
            while follower.poll(on_close=so_far.close).behind:
                pass
            least = min(least, time.process_time() - began)
            follower.close()
        each = 1e6 * least / max(1, so_far.closed)
        print(f"{'':10} read with {name}: {each:.1f} us an operation")


def read(command: list[str], folder: str, *options: str) -> None:
    """Prints what a reader takes."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [*command, "report", f"{folder}/run", *options], env=environment(), stdout=subprocess.DEVNULL
    )
    _, _, used = os.wait4(process.pid, 0)
    seconds, most = time.perf_counter() - began, used.ru_maxrss / 1024
    print(f"{'':10} report {' '.join(options):8} {seconds:6.1f} s, {most:7.1f} MiB")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--operations", type=int, nargs="+", default=[0, 37_500, 100_000, 400_000])
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--command", nargs="+", default=PROGRAM)
    given = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # wait4 of a child reports at least what it had before its exec: ours.
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}; figures of readers are at least {own:.0f} MiB"
    )
    for number in given.operations:
        with tempfile.TemporaryDirectory() as folder:
            record(given.command, number, given.pause, folder)
            if number:
                follow(folder)
            read(given.command, folder)
            read(given.command, folder, "--json")


if __name__ == "__main__":
    main()
