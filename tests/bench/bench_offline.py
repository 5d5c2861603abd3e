"""What it costs to report, plot and export a day at 10 Hz, against the budgets: 10 s and 500 MiB.

    python tests/bench/bench_offline.py [TICKS]

The run is synthetic, with as many columns as a real one on a machine without a GPU has.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from otel_memwatch.catalog import METRICS, Instrument
from tests.support import recorded

SECONDS, MEBIBYTES = 10.0, 500.0
DAY = 864_000


def widen(path: Path) -> None:
    """Gives each tick a value for every metric of the tree, the control group and the machine."""
    names = [
        metric.name for metric in METRICS.values()
        if metric.source in {"process_tree", "cgroup", "host"} and metric.instrument is not Instrument.HISTOGRAM
    ]  # fmt: skip
    names = [name for name in names if name not in {"memwatch.tree.memory.usage", "process.memory.usage"}]
    samples = path / "samples.jsonl"
    narrow = samples.with_name("narrow")
    samples.rename(narrow)
    with narrow.open() as lines, samples.open("w") as out:
        header = json.loads(next(lines))
        header["columns"] += [
            {"metric": name, "unit": METRICS[name].unit, "attributes": {}, "period": 0} for name in names
        ]
        out.write(json.dumps(header) + "\n")
        rest = "".join(f",{123_456 * place}" for place in range(len(names))) + "]\n"
        out.writelines(line.rstrip("]\n") + rest for line in lines)
    narrow.unlink()


def measure(words: list[str]) -> tuple[float, float]:
    """Wall seconds and peak MiB of one command."""
    program = [sys.executable, "-m", "otel_memwatch", *words]
    launcher = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", launcher, *program], capture_output=True, text=True, check=True
    )
    unit = 1 if sys.platform == "darwin" else 1024
    return time.perf_counter() - begun, int(done.stdout) * unit / 2**20


def main() -> None:
    """Prints one line for each command: figures and ratios to the budget."""
    ticks = int(sys.argv[1]) if len(sys.argv) > 1 else DAY
    with tempfile.TemporaryDirectory() as folder:
        path = recorded.day(Path(folder) / "day", ticks=ticks)
        widen(path)
        size = (path / "samples.jsonl").stat().st_size
        print(f"{ticks} ticks, {size / ticks:.0f} B each")
        for words in (["report", str(path)], ["report", "--json", str(path)], ["plot", str(path)],
                      ["export", str(path), "--to", "csv", "-o", f"{folder}/day.csv"]):  # fmt: skip
            seconds, peak = measure(words)
            share = ticks / DAY
            told = f"{seconds:6.2f} s {peak:6.0f} MiB, {seconds / SECONDS / share:5.2f} and {peak / MEBIBYTES:5.2f} of the budget"
            print(f"{words[0] if words[1] != '--json' else 'report --json':14s}{told}")


if __name__ == "__main__":
    main()
