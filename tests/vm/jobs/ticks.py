"""CPU time of the monitor for a sample, in milliseconds: as root in a cgroup of the run's, and as a user without one.

The command sleeps, or its memory changes before each sample. An emulator that waits for a processor counts that time too, so
the least of several stretches of ten samples is nearest to the truth.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

STRETCHES, SAMPLES, HERTZ = 8, 10, 10
PATIENT = Path("/opt/jobs/patient.py")
HERE = PATIENT.exists()  # else on the machine of the tests, as their user
WRAP = [
    sys.executable,
    *([str(PATIENT)] if HERE else ["-m", "otel_memwatch"]),
    "wrap",
    "--quiet",
    "--no-report",
    f"--interval={1 / HERTZ}",
]
SCOPE = ["systemd-run", "--quiet", "--scope", "-p", "Delegate=yes"] if HERE else []
TESTER = ["setpriv", "--reuid", "tester", "--regid", "tester", "--init-groups"] if HERE else []
WAYS = {"root": [*SCOPE, *WRAP, "--cgroup=require"], "user": [*TESTER, *WRAP, "--cgroup=off"]}
CHANGES = f"""
import time
while True:
    bytearray(256 << 10)
    time.sleep({0.5 / HERTZ})
"""
PROGRAMS = {"sleeps": ["sleep", "1000"], "changes": [sys.executable, "-S", "-c", CHANGES]}


def used(pid: int) -> int:
    """Return the nanoseconds for which the threads of a process ran."""
    return sum(
        int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()
    )


def stretches(way: str, program: str) -> list[float]:
    """Return the milliseconds of a sample in each stretch of a run, after a first one that does not count."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        record = Path(folder, "run/samples.jsonl")
        monitor = subprocess.Popen([*WAYS[way], f"--out={folder}/run", "--", *PROGRAMS[program]])
        seen: list[tuple[int, int]] = []
        while len(seen) < STRETCHES + 2:
            samples = record.read_bytes().count(b"\n") if record.exists() else 0
            if samples >= SAMPLES * (len(seen) + 1):
                seen.append((samples, used(monitor.pid)))
            time.sleep(0.02)
        monitor.terminate()
        monitor.wait()
    return [(after[1] - before[1]) / (after[0] - before[0]) / 1e6 for before, after in pairwise(seen[1:])]


for name in WAYS:
    for program in PROGRAMS:
        times = " ".join(f"{one:.2f}" for one in sorted(stretches(name, program)))
        print(f"{name}, {program}, {os.cpu_count()} processors: {times} ms a sample", flush=True)
