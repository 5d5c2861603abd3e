"""Hours of watching, by a fast clock: the monitor stays as it is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.bench.soak import Station, verdict

ROOT = Path(__file__).resolve().parents[3]

SOAK = """
import json, sys
from tests.bench.soak import simulate
print(json.dumps(simulate(float(sys.argv[1]))))
"""


def test_a_quarter_of_an_hour_leaves_no_trace_in_the_monitor() -> None:
    """9 000 ticks over a tree whose processes and operations come and go, in a separate process."""
    done = subprocess.run(
        [sys.executable, "-c", SOAK, "0.25"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    stations = [Station(*station) for station in json.loads(done.stdout)]
    assert len(stations) == 10
    assert verdict(stations) == []
    assert stations[-1].tick_bytes <= 320


def test_what_grows_is_noticed() -> None:
    flat = [Station(hour, 8.0, 50, 160.0) for hour in range(10)]
    assert verdict(flat) == []
    assert "memory" in verdict([station._replace(memory=8 + station.hours) for station in flat])[0]
    assert (
        "descriptors"
        in verdict([station._replace(descriptors=50 + 4 * int(station.hours)) for station in flat])[0]
    )
