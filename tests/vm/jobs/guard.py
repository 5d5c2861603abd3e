"""Runs under the guard on version 2 of cgroups: their events, and the seconds from a breach or a starvation to the verdict.

The file named first gets an object: each case by its name.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GROWS = """
import sys, time
kept = []
while True:
    with open(sys.argv[1], "w") as notes:
        print(time.time(), file=notes)
    kept.append(bytearray(b"x") * (4 << 20))
    time.sleep(0.1)
"""
HIDES = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sleeps = [sys.executable, "-S", "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"]
pids = [subprocess.Popen(sleeps, start_new_session=session).pid for session in (False, True)]
if os.fork() == 0:
    os.setsid()
    pids.append(subprocess.Popen(sleeps).pid)
    with open(sys.argv[1], "w") as notes:
        print(*pids, file=notes)
    os._exit(0)
time.sleep(600)
"""
STARVES = """
import mmap, random, sys, time
with open("data", "rb") as file:
    pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    pages.madvise(mmap.MADV_RANDOM)
    for place in range(0, len(pages), 4096):
        pages[place]
    time.sleep(1)
    taken = bytearray(b"x") * (70 << 20)
    with open(sys.argv[1], "w") as notes:
        print(time.time(), file=notes)
    while True:
        pages[random.randrange(len(pages))]
"""
CASES = {
    "limit": (GROWS, "--limit=120MiB", "--warn=60%"),
    "timeout": (HIDES, "--timeout=15s", "--kill-after=1s"),
    "stalled": (STARVES, "--limit=100MiB", "--stalled=10s", "--timeout=120s"),
    "finished": ("", "--limit=120MiB", "--warn=85%", "--stalled=10s", "--leave=1MiB", "--timeout=60s"),
}


def main() -> None:
    """Run all cases."""
    os.chdir(tempfile.mkdtemp(dir=Path(sys.argv[1]).parent))
    Path("data").write_bytes(os.urandom(60 << 20))
    os.sync()
    fd = os.open("data", os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    found = {}
    for name, (program, *words) in CASES.items():
        done = subprocess.run(
            [sys.executable, "/opt/jobs/patient.py", "wrap", "--quiet", "--no-report", f"--out=run-{name}", f"--events=events-{name}",
             *words, "--", sys.executable, "-S", "-c", program, f"notes-{name}"],
            check=False,
        )  # fmt: skip
        notes = Path(f"notes-{name}").read_text().split() if program else []
        found[name] = {
            "exit_code": done.returncode,
            "events": [json.loads(line) for line in Path(f"events-{name}").read_text().splitlines()],
            "notes": notes,
            "left": [pid for pid in notes if name == "timeout" and Path(f"/proc/{pid}").exists()],
            "ended": time.time(),
        }
    Path(sys.argv[1]).write_text(json.dumps(found))


main()
