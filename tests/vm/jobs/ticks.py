"""CPU time of the monitor for a sample, in milliseconds: as root in a cgroup of the run's, and as a user without one.

The command sleeps, or its memory changes before each sample. The least of several differences between a run of 80 samples more
and one of 20. An emulator that waits for a processor counts that time too, so the least is nearest to the truth.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile

ROUNDS, FEW, MORE, HERTZ = 3, 2, 10, 10
WRAP = [sys.executable, "/opt/jobs/patient.py", "wrap", "--quiet", "--no-report", f"--interval={1 / HERTZ}"]
SCOPE = ["systemd-run", "--quiet", "--scope", "-p", "Delegate=yes"]
TESTER = ["setpriv", "--reuid", "tester", "--regid", "tester", "--init-groups"]
WAYS = {"root": [*SCOPE, *WRAP, "--cgroup=require"], "user": [*TESTER, *WRAP, "--cgroup=off"]}
CHANGES = f"""
import sys, time
until = time.monotonic() + float(sys.argv[1])
while time.monotonic() < until:
    bytearray(256 << 10)
    time.sleep({0.5 / HERTZ})
"""
PROGRAMS = {"sleeps": ["sleep"], "changes": [sys.executable, "-S", "-c", CHANGES]}


def cost(way: str, program: str, seconds: int) -> tuple[float, int]:
    """Return the CPU seconds of the monitor over a run, and the number of its samples."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [*WAYS[way], f"--out={folder}/run", "--", *PROGRAMS[program], str(seconds)]
        subprocess.run(command, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        with open(f"{folder}/run/run.json") as file:
            run = json.load(file)
    both = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return both - run["totals"]["cpu_seconds"], run["quality"]["ticks"]


for name in WAYS:
    for program in PROGRAMS:
        found = []
        for _ in range(ROUNDS):
            (few, samples), (more, more_samples) = cost(name, program, FEW), cost(name, program, MORE)
            found.append(1e3 * (more - few) / (more_samples - samples))
        times = " ".join(f"{one:.2f}" for one in sorted(found))
        print(f"{name}, {program}, {os.cpu_count()} processors: {times} ms a sample", flush=True)
