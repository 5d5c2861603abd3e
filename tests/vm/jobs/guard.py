"""Runs under the guard on version 2 of cgroups: their events, and the seconds from a breach or a starvation to the verdict.

The file named first gets an object: each case by its name.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from tests.bench.guard import STARVES, Trial

GROWS = """
import sys, time
kept = []
while True:
    with open(sys.argv[2], "w") as notes:
        print(time.time(), file=notes)
    kept.append(bytearray(b"x") * (4 << 20))
    time.sleep(0.1)
"""
HIDES = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for session in (False, True):
    if os.fork() == 0:
        if session:
            os.setsid()
        if os.fork():
            os._exit(0)
        break
time.sleep(600)
"""
CASES = {
    "limit": (GROWS, "--limit=120MiB", "--warn=60%"),
    "timeout": (HIDES, "--timeout=15s", "--kill-after=1s"),
    "stalled": (STARVES, "--limit=100MiB", "--stalled=10s", "--timeout=120s"),
    "finished": ("", "--limit=120MiB", "--warn=85%", "--stalled=10s", "--leave=1MiB", "--timeout=60s"),
}


def main() -> None:
    """Run all cases."""
    place = Path(tempfile.mkdtemp(dir=Path(sys.argv[1]).parent))
    data, notes = place / "data", place / "notes"
    data.write_bytes(os.urandom(60 << 20))
    os.sync()
    fd = os.open(data, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    found = {}
    for name, (program, *words) in CASES.items():
        notes.write_text("0")
        trial = Trial(place, words, [sys.executable, "-S", "-c", program, str(data), str(notes)])
        found[name] = {
            "exit_code": trial.code,
            "events": trial.events,
            "noted": float(notes.read_text()),
            "left": trial.left(),
        }
    Path(sys.argv[1]).write_text(json.dumps(found))


main()
