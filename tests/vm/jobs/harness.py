"""A harness in a delegated unit that starts commands under the guard: harness.py TRUTH.

The file gets an object of three runs, each with its exit code, stderr and events:
beside   a limit, while the harness is in the unit's cgroup
warned   a warning before the unit's limit, likewise
below    a limit, once the harness is in a child of the unit's cgroup
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

GROWS = "import time\nkept = []\nwhile True: kept.append(bytearray(b'x') * (4 << 20)); time.sleep(0.1)"
WRAP = [sys.executable, "/opt/jobs/patient.py", "wrap", "--quiet", "--no-report"]


def run(place: Path, *options: str) -> dict[str, object]:
    """Run a program that takes ever more memory."""
    place.mkdir()
    events = place / "events"
    argv = [
        *WRAP,
        f"--out={place}/run",
        f"--events={events}",
        *options,
        "--",
        sys.executable,
        "-S",
        "-c",
        GROWS,
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    lines = events.read_text().splitlines() if events.exists() else []
    return {"exit_code": done.returncode, "said": done.stderr, "events": [json.loads(line) for line in lines]}


def main() -> None:
    """Run all cases."""
    place = Path(tempfile.mkdtemp(dir=Path(sys.argv[1]).parent))
    limit = ("--limit=120MiB", "--warn=60%")
    found = {"beside": run(place / "beside", *limit), "warned": run(place / "warned", "--warn=60%")}
    group = Path("/sys/fs/cgroup" + Path("/proc/self/cgroup").read_text().strip().split(":", 2)[2])
    (group / "harness").mkdir()
    (group / "harness/cgroup.procs").write_text(str(os.getpid()))
    found["below"] = run(place / "below", *limit)
    Path(sys.argv[1]).write_text(json.dumps(found))


main()
