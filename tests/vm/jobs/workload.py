"""A parent with 200 MiB and three forked workers with 50 MiB of their own each, all there at once for a moment.

Writes what it found to the file named first: the sum of proportional sizes then (the truth, to a page), its control
group, and the signals that it got; beside it a file "ready" once nothing is missing. Further words: `hold SECONDS`, and `term`, which waits for one SIGTERM and exits with 3.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

MIB = 1 << 20
WORKERS = 3


def proportional(pid: int, kind: str) -> int:
    """Bytes of memory of a process, what it shares with others divided by their number: `Pss`, or `Pss_Anon`."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{kind}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(kind)


def main() -> int:
    """Allocates, measures, reports."""
    place, *words = sys.argv[1:]
    signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
    begun = time.monotonic()
    mine = bytearray(b"x") * (200 * MIB)
    ready, end = os.pipe(), os.pipe()
    workers = []
    for _ in range(WORKERS):
        pid = os.fork()
        if pid == 0:
            os.close(end[1])
            own = bytearray(b"y") * (50 * MIB)
            os.write(ready[1], b".")
            os.read(end[0], 1)
            os._exit(0 if len(own) == 50 * MIB else 1)
        workers.append(pid)
    arrived = b""
    while len(arrived) < WORKERS:
        arrived += os.read(ready[0], WORKERS)
    pids = [os.getpid(), *workers]
    truth, anonymous = (sum(proportional(pid, kind) for pid in pids) for kind in ("Pss", "Pss_Anon"))
    group = Path("/proc/self/cgroup").read_text().strip().rpartition(":")[2]
    Path(place).with_name("ready").touch()
    # A second, for the ticks of an emulated machine.
    time.sleep(float(words[words.index("hold") + 1]) if "hold" in words else 1.0)
    os.close(end[1])
    for pid in workers:
        os.waitpid(pid, 0)
    while "term" in words and not signals:
        time.sleep(0.1)
    if "term" in words:
        time.sleep(1.0)  # a second one would have come by now
    status = Path("/proc/self/status").read_text()
    Path(place).write_text(
        json.dumps(
            {
                "truth": truth,
                "anonymous": anonymous,
                "group": group,
                "pid": os.getpid(),
                "size": len(mine),
                "signals": signals,
                "seconds": time.monotonic() - begun,
                "surroundings": {
                    "environment": sorted(os.environ),
                    "files": sorted(os.listdir("/proc/self/fd")),
                    "score": Path("/proc/self/oom_score_adj").read_text(),
                    "signals": [
                        line for line in status.splitlines() if line.startswith(("SigBlk", "SigIgn"))
                    ],
                },
            }
        )
    )
    return 3 if "term" in words else 0


sys.exit(main())
