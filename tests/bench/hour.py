"""An hour of a real service at the accelerated schedule of `--interval auto`: do CPU, memory and disk stay flat?

    python -m tests.bench.hour [--seconds 3600] [--factor 24] [--only SERVICE] [--rate 2]

`attach` records a service of `tests.bench.services` that gets `--rate` requests a second. The schedule takes the run for `--factor` times
as old as it is, so an hour passes through the intervals of a day and reaches the longest one after seven minutes. Budgets that depend on the age are
those of a run so old, and a busy run has used up its short intervals. Samples, files and time are real. Printed for each tenth of the time: CPU time
of the monitor as a share of a processor, its memory, its descriptors, bytes on disk; at the end, the share without the first tenth.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

from tests.bench.services import SERVICES, end, free_port, wait_for
from tests.bench.soak import memory

ACCELERATED = """
import sys
from otel_memwatch.monitor.sampling import auto_interval as schedule, file_use
from otel_memwatch.monitor.sampling.sources import memory_detail
longest, factor = schedule.auto_interval, float(sys.argv.pop(1))
schedule.auto_interval = lambda age: longest(factor * age)
memory_detail.OLD /= factor
file_use.PERIOD = min(file_use.LONGEST, factor * file_use.PERIOD)
made = schedule.AutoInterval.__init__
def aged(self, *parts):
    made(self, *parts)
    self._spare = 0.0
schedule.AutoInterval.__init__ = aged
from otel_memwatch.cli import main
main()
"""
TENTHS = 10


class Tenth(NamedTuple):
    """The monitor in a tenth of the time."""

    cpu: float
    """Share of a processor."""
    mib: float
    descriptors: int
    disk: int
    """Bytes written in it."""


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process so far."""
    return time.clock_gettime(~pid << 3 | 2)  # its CPU clock, as clock_getcpuclockid(3) composes it


def requests(port: int, only: str, rate: float, stop: threading.Event) -> None:
    """Send requests at a steady rate."""
    client = SERVICES[only].client(port)
    number = 0
    while not stop.wait(1 / rate):
        number += 1
        with contextlib.suppress(OSError):
            client(number * 7919)


def watch(pid: int, run: Path, seconds: float, factor: float) -> list[Tenth]:
    """Attach to a process; return the tenths of the time."""
    words = [sys.executable, "-c", ACCELERATED, str(factor), "attach", str(pid), "--out", str(run), "--quiet"]
    found: list[Tenth] = []
    with subprocess.Popen(words) as monitor:
        began, cpu, disk = time.monotonic(), 0.0, 0
        for number in range(1, TENTHS + 1):
            time.sleep(max(0.0, began + seconds * number / TENTHS - time.monotonic()))
            used, size = cpu_seconds(monitor.pid), sum(path.stat().st_size for path in run.iterdir())
            share = TENTHS * (used - cpu) / seconds
            descriptors = len(os.listdir(f"/proc/{monitor.pid}/fd"))
            found.append(Tenth(share, memory(monitor.pid), descriptors, size - disk))
            cpu, disk = used, size
            print(
                f"{number * seconds / TENTHS:5.0f} s: {100 * share:.3f} % of a processor, {found[-1].mib:.2f} MiB,"
                f" {descriptors} descriptors, {found[-1].disk / 1000:.1f} kB written",
                flush=True,
            )
        monitor.terminate()
    print(f"without the first: {100 * sum(one.cpu for one in found[1:]) / (TENTHS - 1):.3f} % of a processor")
    return found


def main(chosen: argparse.Namespace) -> None:
    """Command line."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        folder, port = Path(home), free_port()
        command = SERVICES[chosen.only].start(folder, port)
        output = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(command, cwd=folder, start_new_session=True, **output) as process:
            stop = threading.Event()
            try:
                wait_for(port, process)
                load = (port, chosen.only, chosen.rate, stop)
                threading.Thread(target=requests, args=load, daemon=True).start()
                watch(process.pid, folder / "run", chosen.seconds, chosen.factor)
            finally:
                stop.set()
                end(process)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--factor", type=float, default=24.0, help="of the schedule's age")
    parser.add_argument("--only", choices=SERVICES, default="node")
    parser.add_argument("--rate", type=float, default=2.0, help="requests a second")
    main(parser.parse_args())
