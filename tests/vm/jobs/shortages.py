"""Verdicts on runs at memory limits, on version 2 of cgroups.

shortages.py TRUTH own|disk|shared: `own` limits each run by `--limit`, `disk` also its reads to 20 MB in a second, and `shared` by
the limit of a scope around the monitor, which the run has no separate cgroup in. The counters of such a cgroup are read once a second,
so the programs that read again do so ten times as often. TRUTH gets a row for each run: its program, share
of the memory for full speed (0: no limit), seconds, bytes read, and the verdict.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from otel_memwatch.wings.index.run_row import row_of

FILE = 32 << 20
HEAD = "import mmap, os, random; file = os.open('data', os.O_RDONLY); lots = random.Random(1);"
MAPPED = f"{HEAD} map = mmap.mmap(file, 0, prot=mmap.PROT_READ);"
PROGRAMS = {
    "map, random": f"{MAPPED} sum(map[int(lots.random() * len(map))] for _ in range(500 * TIMES))",
    "map, in order": f"{MAPPED} sum(map[at] for _ in range(TIMES) for at in range(0, len(map), 4096))",
    "calls, in order": f"{HEAD} sum(len(os.pread(file, 1 << 16, at)) for _ in range(TIMES) for at in range(0, {FILE}, 1 << 16))",
    "scan": f"{HEAD} sum(len(os.pread(file, 1 << 16, at)) for at in range(0, {FILE}, 1 << 16))",
    "copy": f"{HEAD} out = os.open('copied', os.O_RDWR | os.O_CREAT, 0o600); os.sendfile(out, file, 0, {FILE}); os.fsync(out)",
    "cold start": "import email, http.server, xml.dom.minidom, unittest.mock, asyncio, ssl",
}  # fmt: skip
TIMES = {"own": 4, "disk": 4, "shared": 40}
SHARES = (0.0, 0.0, 0.5, 0.8, 1.05)
OWN, MONITOR = 14 << 20, 12 << 20
"""Memory of such a program beside the file, and of the monitor."""
WRAP = [sys.executable, "/opt/jobs/patient.py", "wrap", "--quiet", "--no-report"]


def run(place: Path, text: str, limit: int, kind: str) -> dict[str, object]:
    """Run a program under a limit from a cold page cache; return its row."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("1")
    (place / "copied").unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        own, throttle = kind != "shared", ["-p", "IOReadBandwidthMax=/ 20M"] if kind == "disk" else []
        limits = "Delegate=yes" if own or not limit else f"MemoryMax={limit + MONITOR}"
        scope = ["systemd-run", "--quiet", "--scope", *throttle, "-p", limits]
        options = [
            "--cgroup=require" if own else "--cgroup=off",
            *([f"--limit={limit}"] if limit and own else []),
        ]
        argv = [
            *scope,
            *WRAP,
            *options,
            f"--out={folder}/run",
            "--",
            sys.executable,
            "-S",
            "-c",
            f"TIMES = {TIMES[kind]}; {text}",
        ]
        subprocess.run(argv, cwd=place, timeout=300, check=False)
        row = row_of(f"{folder}/run")
    return {
        "seconds": row.seconds, "read": row.read, "exit_code": row.exit_code, "killed": row.killed_for_memory,
        "starved": row.starved, "short": row.short_of_memory,
    }  # fmt: skip


def main() -> None:
    """Run all programs."""
    place = Path(tempfile.mkdtemp(dir=Path(sys.argv[1]).parent))
    (place / "data").write_bytes(os.urandom(FILE))
    found = []
    for name, text in PROGRAMS.items():
        for share in SHARES:
            limit = int(share * (OWN + (0 if name == "cold start" else FILE)))
            found.append({"program": name, "share": share, **run(place, text, limit, sys.argv[2])})
            Path(sys.argv[1]).write_text(json.dumps(found))


main()
