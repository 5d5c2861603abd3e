"""CPU time of the monitor for a sample, in milliseconds: as root in a cgroup of the run's, and as a user without one.

The least of several differences between a run of 100 samples more and one of 20. An emulator that waits for a processor counts that
time too, so the least is nearest to the truth.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile

ROUNDS, FEW, MORE, HERTZ = 4, 2, 12, 10
WRAP = [sys.executable, "/opt/jobs/patient.py", "wrap", "--quiet", "--no-report", f"--interval={1 / HERTZ}"]
SCOPE = ["systemd-run", "--quiet", "--scope", "-p", "Delegate=yes"]
TESTER = ["setpriv", "--reuid", "tester", "--regid", "tester", "--init-groups"]
WAYS = {"root": [*SCOPE, *WRAP, "--cgroup=require"], "user": [*TESTER, *WRAP, "--cgroup=off"]}


def cpu_seconds(way: str, seconds: int) -> float:
    """Run `sleep` under the monitor; return the CPU time of both."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*WAYS[way], f"--out={folder}/run", "--", "sleep", str(seconds)], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


for name in WAYS:
    found = [cpu_seconds(name, MORE) - cpu_seconds(name, FEW) for _ in range(ROUNDS)]
    per_sample = sorted(1e3 * one / (HERTZ * (MORE - FEW)) for one in found)
    print(f"{name}, {os.cpu_count()} processors: {' '.join(f'{one:.2f}' for one in per_sample)} ms a sample")
